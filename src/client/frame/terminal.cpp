#include "client/frame/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace billow::client {
namespace {

constexpr char ctrl_p = 0x10, ctrl_q = 0x11;

// State that an abnormal exit must still restore: plain data that a signal handler may use.
termios terminal_before;
std::atomic<int> raw_fd{-1};

void restore_terminal() {
  if (const int fd = raw_fd.exchange(-1); fd >= 0)
    ::tcsetattr(fd, TCSADRAIN, &terminal_before);
}

}  // namespace

bool has_input() {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0)
    return false;
  struct stat nothing {};
  return !(S_ISCHR(info.st_mode) && ::stat("/dev/null", &nothing) == 0 &&
           info.st_rdev == nothing.st_rdev);
}

std::optional<TerminalSize> terminal_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return std::nullopt;
  return TerminalSize{size.ws_row, size.ws_col};
}

struct RawMode::Saved {
  ~Saved() { restore_terminal(); }
};
RawMode::RawMode(std::unique_ptr<Saved> saved) : saved_(std::move(saved)) {}
RawMode::RawMode(RawMode&&) noexcept = default;
RawMode& RawMode::operator=(RawMode&&) noexcept = default;
RawMode::~RawMode() = default;

Result<RawMode> RawMode::enter(int fd) {
  if (::tcgetattr(fd, &terminal_before) != 0)
    return fail_errno("the terminal", errno);
  termios raw = terminal_before;
  ::cfmakeraw(&raw);
  static const bool registered = [] {
    std::atexit(restore_terminal);
    ::signal(SIGABRT, [](int) { restore_terminal(); });
    return true;
  }();
  (void)registered;
  raw_fd = fd;
  if (::tcsetattr(fd, TCSADRAIN, &raw) != 0)
    return fail_errno("the terminal", errno);
  return RawMode(std::make_unique<Saved>());
}

DetachKeys::Taken DetachKeys::take(std::string_view typed) {
  Taken taken;
  for (const char c : typed) {
    if (held_ && c == ctrl_q) {
      taken.detach = true;
      held_ = false;
      return taken;
    }
    if (held_)
      taken.input += ctrl_p;
    held_ = c == ctrl_p;
    if (!held_)
      taken.input += c;
  }
  return taken;
}

}  // namespace billow::client
