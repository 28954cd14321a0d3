#include "agent/content/file_socket.h"

#include <sys/time.h>

#include <cerrno>

namespace billow::agent::file_socket {

Status send_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail_errno("files", n == 0 ? EPIPE : errno);
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Status receive(int fd, char* into, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, into, size, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail(Code::unavailable, "the file transfer was interrupted");
    into += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> receive_line(int fd) {
  std::string line;
  for (char c = 0; line.size() < line_bytes_max;) {
    BILLOW_TRY_VOID(receive(fd, &c, 1));
    if (c == '\n')
      return line;
    line += c;
  }
  return fail(Code::invalid, "a line of the file protocol is too long");
}

void be_patient(int fd, int seconds) {
  const timeval patience{seconds, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

}  // namespace billow::agent::file_socket
