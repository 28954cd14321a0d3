#include "agent/content/file_socket.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "net/blocking_io.h"
#include "process/passed_descriptors.h"

namespace billow::agent::file_socket {

Status send_all(int fd, std::string_view data) {
  return net::send_all(fd, data) ? Status{} : fail_errno("files", errno);
}

Status receive(int fd, char* into, std::size_t size) {
  return net::receive_all(fd, into, size)
             ? Status{}
             : fail(Code::unavailable, "the file transfer was interrupted");
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
  const iovec part{&octet, 1};
  return send_with_descriptors(fd, {&part, 1}, {&sent, 1}) == 1 ? Status{}
                                                                : fail_errno("files", errno);
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

}  // namespace billow::agent::file_socket
