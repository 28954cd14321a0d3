// The socket calls that differ between Linux and macOS: creation without inheritance, the peer's
// user, and the detection of vanished peers. See sockets_linux.cpp and sockets_darwin.cpp.
#pragma once

#include <optional>

#include "base/file.h"

namespace billow::net::sockets {

// A non-blocking stream socket that child programs do not inherit; invalid with errno.
Fd make(int family);
// The next connection of a listening socket, with the same properties.
Fd accept_one(int listening);
// The user id of the process at the other end of a Unix socket.
std::optional<unsigned> peer_uid(int fd);
// The user id of the process at the other end of a TCP connection within this machine. None: the
// other end is elsewhere, or the system does not tell.
std::optional<unsigned> loopback_peer_uid(int fd);
// How long a connection without an answer lives. Keep-alive itself is already enabled.
void set_patience(int fd, int idle_s, int interval_s, int count, int unanswered_ms);
// The poll() event that reports the end of the peer's data without reading it. 0: not available.
short peer_ended_event();

}  // namespace billow::net::sockets
