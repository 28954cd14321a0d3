// Small helpers of the supervisor: no allocation, no stdio, no exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace billow::supervise {

std::int64_t wall_ns();
std::int64_t boot_ns();  // CLOCK_BOOTTIME

// Text in a fixed buffer; what does not fit is cut off.
template <std::size_t N>
struct Text {
  char data[N];
  std::size_t size = 0;

  Text() { data[0] = 0; }
  Text& operator<<(const char* s) {
    while (*s != 0 && size + 1 < N)
      data[size++] = *s++;
    data[size] = 0;
    return *this;
  }
  Text& operator<<(std::uint64_t n) {
    char digits[20];
    int count = 0;
    do
      digits[count++] = static_cast<char>('0' + n % 10);
    while ((n /= 10) != 0);
    while (count > 0 && size + 1 < N)
      data[size++] = digits[--count];
    data[size] = 0;
    return *this;
  }
};

const char* errno_text(int error_number);

// Writes a small file of the kernel in one write; 0 or an errno.
int write_small(const char* path, const char* content);
// Reads a small file whole; its length, or -1 with errno. The buffer is always NUL-terminated.
long read_small(const char* path, char* buffer, std::size_t capacity);

}  // namespace billow::supervise
