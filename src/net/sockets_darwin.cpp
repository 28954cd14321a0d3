#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/sockets.h"

namespace billow::net::sockets {
namespace {

Fd prepared(Fd fd) {
  if (!fd)
    return fd;
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL, 0) | O_NONBLOCK);
  // Older kernels do not know MSG_NOSIGNAL.
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
  return fd;
}

}  // namespace

Fd make(int family) {
  return prepared(Fd(::socket(family, SOCK_STREAM, 0)));
}
Fd accept_one(int listening) {
  return prepared(Fd(::accept(listening, nullptr, nullptr)));
}

std::optional<unsigned> peer_uid(int fd) {
  uid_t user = 0;
  gid_t group = 0;
  if (::getpeereid(fd, &user, &group) != 0)
    return std::nullopt;
  return user;
}

std::optional<unsigned> loopback_peer_uid(int) {
  return std::nullopt;
}

void set_patience(int fd, int idle_s, int interval_s, int count, int unanswered_ms) {
  const auto set = [fd](int option, int value) {
    ::setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPALIVE, idle_s);
  set(TCP_KEEPINTVL, interval_s);
  set(TCP_KEEPCNT, count);
  set(TCP_RXT_CONNDROPTIME, unanswered_ms / 1000);
}

// poll() reports POLLHUP even if no event is requested.
short peer_ended_event() {
  return 0;
}

}  // namespace billow::net::sockets
