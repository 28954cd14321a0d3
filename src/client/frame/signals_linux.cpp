// Signals as a descriptor of the kernel (signalfd).
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/frame/terminal.h"

namespace billow::client {

struct SignalQueue::Mask {
  sigset_t set;
};
SignalQueue::SignalQueue(Fd fd, std::unique_ptr<Mask> before)
    : fd_(std::move(fd)), before_(std::move(before)) {}
SignalQueue::SignalQueue(SignalQueue&&) noexcept = default;
SignalQueue::~SignalQueue() {
  if (before_)
    ::sigprocmask(SIG_SETMASK, &before_->set, nullptr);
}

Result<SignalQueue> SignalQueue::create() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH})
    ::sigaddset(&set, number);
  auto before = std::make_unique<Mask>();
  if (::sigprocmask(SIG_BLOCK, &set, &before->set) != 0)
    return fail_errno("signals", errno);
  Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd)
    return fail_errno("signalfd", errno);
  ::signal(SIGPIPE, SIG_IGN);
  return SignalQueue(std::move(fd), std::move(before));
}

int SignalQueue::next() {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                              : 0;
}

}  // namespace billow::client
