#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "net/sockets.h"

namespace billow::net::sockets {

Fd make(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}
Fd accept_one(int listening) {
  return Fd(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::optional<unsigned> peer_uid(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return std::nullopt;
  return credentials.uid;
}

void set_patience(int fd, int idle_s, int interval_s, int count, int unanswered_ms) {
  const auto set = [fd](int option, int value) {
    ::setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, idle_s);
  set(TCP_KEEPINTVL, interval_s);
  set(TCP_KEEPCNT, count);
  set(TCP_USER_TIMEOUT, unanswered_ms);
}

short peer_ended_event() {
  return POLLRDHUP;
}

}  // namespace billow::net::sockets
