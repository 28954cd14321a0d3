#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <charconv>

#include "base/platform.h"

namespace billow::platform {

std::int64_t boot_clock_ns() {
  timespec ts{};
  ::clock_gettime(CLOCK_BOOTTIME, &ts);
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

std::int64_t random_bytes(char* out, std::size_t size) {
  return ::getrandom(out, size, 0);
}

int make_pipe(int ends[2]) {
  return ::pipe2(ends, O_CLOEXEC);
}

std::string this_program() {
  char buffer[4096];
  const ssize_t n = ::readlink("/proc/self/exe", buffer, sizeof buffer - 1);
  return n <= 0 ? std::string() : std::string(buffer, static_cast<std::size_t>(n));
}

bool read_double(const std::string& text, double& out) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? name : "";
}

std::int64_t modified_ns(const struct ::stat& info) {
  return info.st_mtim.tv_sec * 1'000'000'000ll + info.st_mtim.tv_nsec;
}
std::int64_t changed_ns(const struct ::stat& info) {
  return info.st_ctim.tv_sec * 1'000'000'000ll + info.st_ctim.tv_nsec;
}

void reuse_large_buffers() {
  ::mallopt(M_MMAP_THRESHOLD, 16 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 32 << 20);
}

}  // namespace billow::platform
