#include "agent/content/file_socket.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

#include "files/passed_descriptor.h"

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

Status send_descriptor(int fd, int sent) {
  char octet = 'f';
  iovec part{&octet, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &sent, sizeof sent);
  ssize_t n = 0;
  do
    n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return n == 1 ? Status{} : fail_errno("files", errno);
}

Result<Fd> receive_descriptor(int fd) {
  char octet = 0;
  iovec part{&octet, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do
    n = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  Fd out = n == 1 ? passed_descriptor(message) : Fd();
  struct stat info {};
  const int flags = out ? ::fcntl(out.get(), F_GETFL) : -1;
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & (O_PATH | O_APPEND)) != 0 ||
      ::fstat(out.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return fail(Code::invalid, "the file transfer was interrupted");
  return out;
}

bool may_fill(int descriptor, const FillTerms& terms) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_dev == terms.device &&
         info.st_uid == terms.user && info.st_nlink <= 1 &&
         (info.st_mode & (S_ISUID | S_ISGID)) == 0;
}

void be_patient(int fd, int seconds) {
  const timeval patience{seconds, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

}  // namespace billow::agent::file_socket
