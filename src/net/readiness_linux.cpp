#include <sys/epoll.h>

#include <algorithm>

#include "net/readiness.h"

namespace billow::net {

int Readiness::create() {
  return ::epoll_create1(EPOLL_CLOEXEC);
}

bool Readiness::set(int set, int fd, Wish before, Wish wanted, std::uint64_t mark) {
  epoll_event event{};
  event.events =
      (wanted.read ? std::uint32_t{EPOLLIN} : 0u) | (wanted.write ? std::uint32_t{EPOLLOUT} : 0u);
  event.data.u64 = mark;
  // A descriptor without watched events leaves the set: epoll would keep reporting a hang-up.
  const int what = !wanted.any() ? EPOLL_CTL_DEL : before.any() ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  return ::epoll_ctl(set, what, fd, &event) == 0 || what == EPOLL_CTL_DEL;
}

int Readiness::take(int set, std::span<News> out, int wait_ms) {
  constexpr std::size_t batch_max = 256;
  epoll_event events[batch_max];
  const int count =
      ::epoll_wait(set, events, static_cast<int>(std::min(batch_max, out.size())), wait_ms);
  for (int i = 0; i < count; ++i)
    out[static_cast<std::size_t>(i)] = {events[i].data.u64, (events[i].events & EPOLLIN) != 0,
                                        (events[i].events & EPOLLOUT) != 0,
                                        (events[i].events & (EPOLLERR | EPOLLHUP)) != 0};
  return count;
}

}  // namespace billow::net
