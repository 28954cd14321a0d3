#include "client/frame/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "client/frame/console.h"

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

namespace {

Status change_terminal(int fd, void (*change)(termios&)) {
  if (::tcgetattr(fd, &terminal_before) != 0)
    return fail_errno("the terminal", errno);
  termios changed = terminal_before;
  change(changed);
  static const bool registered = [] {
    std::atexit(restore_terminal);
    ::signal(SIGABRT, [](int) { restore_terminal(); });
    return true;
  }();
  (void)registered;
  raw_fd = fd;
  if (::tcsetattr(fd, TCSADRAIN, &changed) != 0)
    return fail_errno("the terminal", errno);
  return {};
}

}  // namespace

Result<RawMode> RawMode::enter(int fd) {
  BILLOW_TRY_VOID(change_terminal(fd, [](termios& t) { ::cfmakeraw(&t); }));
  return RawMode(std::make_unique<Saved>());
}
Result<RawMode> RawMode::hide(int fd) {
  BILLOW_TRY_VOID(
      change_terminal(fd, [](termios& t) { t.c_lflag &= ~static_cast<tcflag_t>(ECHO); }));
  return RawMode(std::make_unique<Saved>());
}

// ---- Ctrl-C

struct OnInterrupt::Entry {
  std::string sentence;
  std::function<void()> clean_up;
};

namespace {

// Never destroyed: its thread may outlive main().
struct Interrupts {
  std::mutex mutex;
  std::vector<OnInterrupt::Entry*> entries;  // the newest last
  std::thread watcher;
  std::shared_ptr<bool> over;  // of this watcher: nobody waits any more
  sigset_t before{};
};
Interrupts& interrupts() {
  static auto* const one = new Interrupts;
  return *one;
}

sigset_t only_interrupt() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  return set;
}

// A program whose Ctrl-C is ignored (nohup, a background job of a script) stays so.
bool interrupt_is_ignored() {
  struct sigaction now {};
  return ::sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void await_interrupt(Interrupts& all, const std::shared_ptr<bool>& over) {
  const sigset_t set = only_interrupt();
  int number = 0;
  (void)::sigwait(&set, &number);
  const std::lock_guard lock(all.mutex);
  if (*over)
    return;
  if (::isatty(STDERR_FILENO) == 1)
    (void)write_all(STDERR_FILENO, "\r\x1b[K");  // a progress line, and the terminal's own "^C"
  if (const std::string& sentence = all.entries.back()->sentence; !sentence.empty())
    say(sentence);
  for (auto entry = all.entries.rbegin(); entry != all.entries.rend(); ++entry)
    if ((*entry)->clean_up)
      (*entry)->clean_up();
  end_by_interrupt();
}

}  // namespace

void end_by_interrupt() {
  restore_terminal();
  ::signal(SIGINT, SIG_DFL);
  const sigset_t set = only_interrupt();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::kill(::getpid(), SIGINT);
  std::_Exit(128 + SIGINT);  // a debugger may have taken the signal
}

OnInterrupt::OnInterrupt(std::string sentence, std::function<void()> clean_up)
    : entry_(new Entry{std::move(sentence), std::move(clean_up)}) {
  if (interrupt_is_ignored())
    return;
  Interrupts& all = interrupts();
  const std::lock_guard lock(all.mutex);
  all.entries.push_back(entry_.get());
  if (all.entries.size() > 1)
    return;
  const sigset_t set = only_interrupt();
  ::pthread_sigmask(SIG_BLOCK, &set, &all.before);
  all.over = std::make_shared<bool>(false);
  all.watcher = std::thread([&all, over = all.over] { await_interrupt(all, over); });
}

OnInterrupt::~OnInterrupt() {
  Interrupts& all = interrupts();
  {
    const std::lock_guard lock(all.mutex);
    if (std::erase(all.entries, entry_.get()) == 0 || !all.entries.empty())
      return;
    *all.over = true;
  }
  // Its end is not waited for: the command goes on to hear signals itself.
  ::pthread_kill(all.watcher.native_handle(), SIGINT);
  all.watcher.detach();
  ::pthread_sigmask(SIG_SETMASK, &all.before, nullptr);
}

void OnInterrupt::say(std::string sentence) {
  const std::lock_guard lock(interrupts().mutex);
  entry_->sentence = std::move(sentence);
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
