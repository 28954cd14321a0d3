// Signals through a pipe of our own, as there is no descriptor for them: a handler writes the
// number, which next() reads.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>

#include "base/platform.h"
#include "client/frame/terminal.h"

namespace billow::client {
namespace {

constexpr std::array heard = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
volatile int pipe_end = -1;  // all that a handler may look at

void hear(int number) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!::write(pipe_end, &byte, 1);
  errno = error;
}

}  // namespace

struct SignalQueue::Mask {
  std::array<struct sigaction, heard.size()> actions;
  Fd end;
};
SignalQueue::SignalQueue(Fd fd, std::unique_ptr<Mask> before)
    : fd_(std::move(fd)), before_(std::move(before)) {}
SignalQueue::SignalQueue(SignalQueue&&) noexcept = default;
SignalQueue::~SignalQueue() {
  if (!before_)
    return;
  for (std::size_t i = 0; i < heard.size(); ++i)
    ::sigaction(heard[i], &before_->actions[i], nullptr);
  pipe_end = -1;
}

Result<SignalQueue> SignalQueue::create() {
  int ends[2];
  if (platform::make_pipe(ends) != 0)
    return fail_errno("pipe", errno);
  for (const int end : ends)
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  Fd out(ends[0]);
  auto before = std::make_unique<Mask>();
  before->end = Fd(ends[1]);
  pipe_end = ends[1];
  for (std::size_t i = 0; i < heard.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = hear;
    action.sa_flags = SA_RESTART;
    ::sigaction(heard[i], &action, &before->actions[i]);
  }
  ::signal(SIGPIPE, SIG_IGN);
  return SignalQueue(std::move(out), std::move(before));
}

int SignalQueue::next() {
  unsigned char number = 0;
  return ::read(fd_.get(), &number, 1) == 1 ? number : 0;
}

}  // namespace billow::client
