// Whole messages over a blocking socket, for threads that serve or use one peer: interrupted calls
// continue, a peer that closed is an error, and a vanished peer raises no signal. How long a call
// may wait is the socket's own timeout.
#pragma once

#include <cstddef>
#include <string_view>

namespace billow::net {

// The timeout of every later read and write.
void set_timeouts(int fd, int seconds);
// False: the connection is broken or timed out; errno says why.
bool send_all(int fd, std::string_view data);
bool receive_all(int fd, void* into, std::size_t size);

}  // namespace billow::net
