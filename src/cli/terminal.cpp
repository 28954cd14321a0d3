#include "cli/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace billow::cli {
namespace {

constexpr char ctrl_p = 0x10, ctrl_q = 0x11;

// What an abnormal end must still restore: plain data that a signal handler may use.
termios terminal_before;
std::atomic<int> raw_fd{-1};

void restore_terminal() {
  if (const int fd = raw_fd.exchange(-1); fd >= 0) ::tcsetattr(fd, TCSADRAIN, &terminal_before);
}

}  // namespace

std::optional<TerminalSize> terminal_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return std::nullopt;
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
  if (::tcgetattr(fd, &terminal_before) != 0) return fail_errno("the terminal", errno);
  termios raw = terminal_before;
  ::cfmakeraw(&raw);
  static const bool registered = [] {
    std::atexit(restore_terminal);
    ::signal(SIGABRT, [](int) { restore_terminal(); });
    return true;
  }();
  (void)registered;
  raw_fd = fd;
  if (::tcsetattr(fd, TCSADRAIN, &raw) != 0) return fail_errno("the terminal", errno);
  return RawMode(std::make_unique<Saved>());
}

struct SignalQueue::Mask {
  sigset_t set;
};
SignalQueue::SignalQueue(Fd fd, std::unique_ptr<Mask> before) : fd_(std::move(fd)), before_(std::move(before)) {}
SignalQueue::SignalQueue(SignalQueue&&) noexcept = default;
SignalQueue::~SignalQueue() {
  if (before_) ::sigprocmask(SIG_SETMASK, &before_->set, nullptr);
}

Result<SignalQueue> SignalQueue::create() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) ::sigaddset(&set, number);
  auto before = std::make_unique<Mask>();
  if (::sigprocmask(SIG_BLOCK, &set, &before->set) != 0) return fail_errno("signals", errno);
  Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("signalfd", errno);
  ::signal(SIGPIPE, SIG_IGN);
  return SignalQueue(std::move(fd), std::move(before));
}

int SignalQueue::next() {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

DetachKeys::Taken DetachKeys::take(std::string_view typed) {
  Taken taken;
  for (const char c : typed) {
    if (held_ && c == ctrl_q) {
      taken.detach = true;
      held_ = false;
      return taken;
    }
    if (held_) taken.input += ctrl_p;
    held_ = c == ctrl_p;
    if (!held_) taken.input += c;
  }
  return taken;
}

}  // namespace billow::cli
