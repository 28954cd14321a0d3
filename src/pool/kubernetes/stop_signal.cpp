#include "pool/kubernetes/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace billow::pool {

StopSignal::StopSignal() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void StopSignal::raise() {
  const std::uint64_t one = 1;
  (void)!::write(fd_.get(), &one, sizeof one);
}

bool StopSignal::pause(Duration time) const {
  // Rounded up, so that a limit of requests is kept.
  const SteadyTime end = system_clock().steady() + time;
  for (Duration left = time;; left = end - system_clock().steady()) {
    pollfd fd{fd_.get(), POLLIN, 0};
    const auto ms = left.ns <= 0 ? 0 : (left.ns + 999'999) / 1'000'000;
    const int ready = ::poll(&fd, 1, static_cast<int>(ms));
    if (ready >= 0 || errno != EINTR)
      return ready <= 0;
  }
}

}  // namespace billow::pool
