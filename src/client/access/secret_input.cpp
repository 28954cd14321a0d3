#include "client/access/secret_input.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"
#include "client/frame/console.h"
#include "client/frame/terminal.h"

namespace billow::client {
namespace {

constexpr std::size_t value_bytes_max = 64 << 10;

// Reads a value without echo. Keys that would be signals are read as keys, so that the terminal is
// always restored.
Result<std::string> typed_secret(const std::string& what) {
  termios before{};
  if (::tcgetattr(STDIN_FILENO, &before) != 0)
    return fail_errno("the terminal", errno);
  termios silent = before;
  silent.c_lflag &= ~static_cast<tcflag_t>(ECHO | ISIG | ICANON);
  if (::tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) != 0)
    return fail_errno("the terminal", errno);
  (void)write_all(STDERR_FILENO, fmt::format("{} (not shown): ", what));
  std::string line;
  char c = 0;
  bool ended = false, interrupted = false;
  while (!ended && line.size() <= value_bytes_max) {
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR)
      continue;
    interrupted = n > 0 && c == 3;
    ended = n <= 0 || c == '\n' || c == '\r' || c == 4 || interrupted;
    if (ended)
      break;
    if (c == 127 || c == '\b')
      line.resize(line.size() - std::min<std::size_t>(1, line.size()));
    else if (c == 21)
      line.clear();
    else
      line += c;
  }
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
  (void)write_all(STDERR_FILENO, "\n");
  if (interrupted) {
    say("nothing was changed");
    end_by_interrupt();
  }
  return line;
}

Result<std::string> piped() {
  std::string all;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fail_errno("standard input", errno);
    if (n == 0)
      break;
    all.append(buffer, static_cast<std::size_t>(n));
    if (all.size() > value_bytes_max + 2)
      return fail(Code::too_large,
                  fmt::format("a secret can have at most {} bytes", value_bytes_max));
  }
  // `echo token | billow secret set` means the token; a file is taken as it is.
  if (all.ends_with('\n'))
    all.pop_back();
  if (all.ends_with('\r'))
    all.pop_back();
  return all;
}

}  // namespace

Result<std::string> secret_input(const std::string& file, const std::string& what) {
  if (!file.empty())
    return read_file(file, value_bytes_max);
  return ::isatty(STDIN_FILENO) == 1 ? typed_secret(what) : piped();
}

}  // namespace billow::client
