// Sockets where Linux and macOS differ: how one is made so that programs we start do not inherit
// it, who is at the other end, and how a peer that has gone is noticed. sockets_linux.cpp and
// sockets_darwin.cpp say how.
#pragma once

#include <optional>

#include "base/file.h"

namespace billow::net::sockets {

// A stream socket that does not block and is not inherited; invalid with errno.
Fd make(int family);
// The next connection of a listening socket, likewise.
Fd accept_one(int listening);
// Whose process is at the other end of a unix socket.
std::optional<unsigned> peer_uid(int fd);
// After how long without an answer a connection counts as dead. Keep-alive itself is on already.
void set_patience(int fd, int idle_s, int interval_s, int count, int unanswered_ms);
// What poll() is asked for to hear that a peer has said its last word, while nothing of it is read.
// 0: it cannot be heard.
short peer_ended_event();

}  // namespace billow::net::sockets
