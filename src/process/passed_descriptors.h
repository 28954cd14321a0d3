// Descriptors that travel with a message over a Unix socket.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <span>
#include <vector>

#include "base/file.h"

namespace billow {

// As sendmsg() with these flags, with the descriptors attached to the first octet. Repeats an
// interrupted call.
ssize_t send_with_descriptors(int socket,
                              std::span<const iovec> parts,
                              std::span<const int> descriptors,
                              int flags = 0);

// Those that came with a received message.
std::vector<Fd> passed_descriptors(msghdr& message);
// The first one. A sender may attach more than the receiver expects: the others are closed.
Fd passed_descriptor(msghdr& message);

}  // namespace billow
