#include "process/passed_descriptors.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace billow {

ssize_t send_with_descriptors(int socket,
                              std::span<const iovec> parts,
                              std::span<const int> descriptors,
                              int flags) {
  constexpr std::size_t descriptors_max = 253;  // as many as Linux takes in one message
  if (descriptors.size() > descriptors_max) {
    errno = EINVAL;
    return -1;
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * descriptors_max)] = {};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(parts.size());
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | flags);
  while (sent < 0 && errno == EINTR);
  return sent;
}

std::vector<Fd> passed_descriptors(msghdr& message) {
  std::vector<Fd> out;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
      continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
      int one = -1;
      std::memcpy(&one, CMSG_DATA(c) + at, sizeof one);
      out.emplace_back(one);
    }
  }
  return out;
}

Fd passed_descriptor(msghdr& message) {
  std::vector<Fd> all = passed_descriptors(message);
  return all.empty() ? Fd() : std::move(all.front());
}

}  // namespace billow
