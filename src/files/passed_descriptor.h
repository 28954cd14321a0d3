// A descriptor that came with a message over a Unix socket.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "base/file.h"

namespace billow {

// The first one. A sender may attach more than the receiver expects: the others are closed.
inline Fd passed_descriptor(msghdr& message) {
  Fd first;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
      continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
      int one = -1;
      std::memcpy(&one, CMSG_DATA(c) + at, sizeof one);
      Fd taken(one);
      if (!first)
        first = std::move(taken);
    }
  }
  return first;
}

}  // namespace billow
