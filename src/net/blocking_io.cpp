#include "net/blocking_io.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

namespace billow::net {

void set_timeouts(int fd, int seconds) {
  const timeval patience{seconds, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

bool send_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent == 0)
      errno = EPIPE;
    if (sent <= 0)
      return false;
    data.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(int fd, void* into, std::size_t size) {
  for (char* at = static_cast<char*>(into); size > 0;) {
    const ssize_t got = ::recv(fd, at, size, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got == 0)
      errno = ECONNRESET;
    if (got <= 0)
      return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace billow::net
