#include <fcntl.h>
#include <sys/event.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>

#include "net/readiness.h"

namespace billow::net {

int Readiness::create() {
  const int set = ::kqueue();
  if (set >= 0)
    ::fcntl(set, F_SETFD, FD_CLOEXEC);
  return set;
}

// Reading and writing are two filters, each with the mark; a filter stays in the set until it is
// removed.
bool Readiness::set(int set, int fd, Wish before, Wish wanted, std::uint64_t mark) {
  struct kevent changes[2];
  int count = 0;
  const auto change = [&](bool had, bool want, std::int16_t filter) {
    if (had && !want)
      EV_SET(&changes[count++], static_cast<uintptr_t>(fd), filter, EV_DELETE, 0, 0, nullptr);
    if (want)
      EV_SET(&changes[count++], static_cast<uintptr_t>(fd), filter, EV_ADD, 0, 0,
             reinterpret_cast<void*>(mark));
  };
  change(before.read, wanted.read, EVFILT_READ);
  change(before.write, wanted.write, EVFILT_WRITE);
  return count == 0 || ::kevent(set, changes, count, nullptr, 0, nullptr) == 0 || !wanted.any();
}

int Readiness::take(int set, std::span<News> out, int wait_ms) {
  constexpr std::size_t batch_max = 256;
  struct kevent events[batch_max];
  const timespec wait{.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1'000'000L};
  const int count =
      ::kevent(set, nullptr, 0, events, static_cast<int>(std::min(batch_max, out.size())), &wait);
  // EV_EOF on a readable descriptor is an end that the next read reports; only an error is `over`.
  for (int i = 0; i < count; ++i)
    out[static_cast<std::size_t>(i)] = {
        reinterpret_cast<std::uint64_t>(events[i].udata), events[i].filter == EVFILT_READ,
        events[i].filter == EVFILT_WRITE, (events[i].flags & EV_ERROR) != 0};
  return count;
}

}  // namespace billow::net
