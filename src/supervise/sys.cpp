#include "supervise/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace billow::supervise {
namespace {
std::int64_t now_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}
}  // namespace

std::int64_t wall_ns() {
  return now_ns(CLOCK_REALTIME);
}
std::int64_t boot_ns() {
  return now_ns(CLOCK_BOOTTIME);
}

// strerrordesc_np needs no locale, which keeps the static program small.
const char* errno_text(int error_number) {
  const char* text = strerrordesc_np(error_number);
  return text != nullptr ? text : "unknown error";
}

int write_small(const char* path, const char* content) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return errno;
  const ssize_t n = write(fd, content, strlen(content));
  const int error = n < 0 ? errno : 0;
  close(fd);
  return error;
}

long read_small(const char* path, char* buffer, std::size_t capacity) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  std::size_t size = 0;
  while (size + 1 < capacity) {
    const ssize_t n = read(fd, buffer + size, capacity - 1 - size);
    if (n <= 0)
      break;
    size += static_cast<std::size_t>(n);
  }
  buffer[size] = 0;
  close(fd);
  return static_cast<long>(size);
}

}  // namespace billow::supervise
