// Turns a Stream into a WebSocket after the opening handshake. Internal to net.
#pragma once

#include "net/http/websocket.h"
#include "net/http/ws_frame.h"
#include "net/stream.h"

namespace billow::net {

// `already_read`: bytes that followed the handshake.
std::shared_ptr<WebSocket> make_websocket(std::shared_ptr<Stream> stream,
                                          WsReader::Role role,
                                          WebSocket::Options options,
                                          std::string already_read);

}  // namespace billow::net
