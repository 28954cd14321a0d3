#include <ctype.h>
#include <fcntl.h>
#include <mach-o/dyld.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <xlocale.h>

#include "base/platform.h"

namespace billow::platform {

// CLOCK_MONOTONIC continues while a Mac sleeps; CLOCK_UPTIME_RAW stops.
std::int64_t boot_clock_ns() {
  return static_cast<std::int64_t>(::clock_gettime_nsec_np(CLOCK_MONOTONIC));
}

std::int64_t random_bytes(char* out, std::size_t size) {
  ::arc4random_buf(out, size);
  return static_cast<std::int64_t>(size);
}

// macOS has no pipe2: a program started by another thread between the two calls would inherit the
// pipe. The client starts programs from one thread only.
int make_pipe(int ends[2]) {
  if (::pipe(ends) != 0)
    return -1;
  for (int i = 0; i < 2; ++i)
    ::fcntl(ends[i], F_SETFD, FD_CLOEXEC);
  return 0;
}

std::string this_program() {
  char buffer[4096];
  std::uint32_t size = sizeof buffer;
  if (::_NSGetExecutablePath(buffer, &size) != 0)
    return {};
  char resolved[PATH_MAX];
  return ::realpath(buffer, resolved) ? resolved : buffer;
}

// libc++ has no std::from_chars for floating point before LLVM 20.
bool read_double(const std::string& text, double& out) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  char* end = nullptr;
  const double number = ::strtod_l(text.c_str(), &end, plain);
  if (text.empty() || end != text.c_str() + text.size())
    return false;
  out = number;
  return true;
}

std::string signal_name(int number) {
  if (number <= 0 || number >= NSIG)
    return {};
  std::string name = ::sys_signame[number];
  for (char& c : name)
    c = static_cast<char>(::toupper(c));
  return name;
}

std::int64_t modified_ns(const struct ::stat& info) {
  return info.st_mtimespec.tv_sec * 1'000'000'000ll + info.st_mtimespec.tv_nsec;
}
std::int64_t changed_ns(const struct ::stat& info) {
  return info.st_ctimespec.tv_sec * 1'000'000'000ll + info.st_ctimespec.tv_nsec;
}

void reuse_large_buffers() {}  // its allocator does that by itself

}  // namespace billow::platform
