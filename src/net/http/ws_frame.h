// WebSocket frames and the opening handshake as pure functions over bytes, shared by the server and
// both clients.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http/http.h"

namespace billow::net {

enum class WsOp : std::uint8_t {
  continuation = 0,
  text = 1,
  binary = 2,
  close = 8,
  ping = 9,
  pong = 10
};

// A whole frame. Clients must mask (with fresh random bytes), servers must not.
std::string ws_frame(WsOp op, std::string_view payload, bool mask);
std::string ws_close_frame(int code, std::string_view reason, bool mask);

// Reads frames from a byte stream and assembles fragmented messages.
class WsReader {
 public:
  struct Message {
    WsOp op;  // text, binary, ping, pong or close
    std::string payload;
  };
  enum class Role {
    server,
    client
  };  // a server insists on masked frames, a client on unmasked ones
  WsReader(Role role, std::size_t message_bytes_max) : role_(role), bytes_max_(message_bytes_max) {}

  void feed(std::string_view data);
  // The next whole message; nullopt when more bytes are needed. An error's code: too_large → 1009,
  // invalid → 1002 or 1007.
  Result<std::optional<Message>> next();
  int close_code() const { return close_code_; }  // to close with after an error

 private:
  std::unexpected<Error> refuse(int close_code, Code code, std::string message);
  Result<std::optional<Message>> take_frame(bool fin, WsOp op, std::string payload);

  Role role_;
  std::size_t bytes_max_;
  std::string buffer_;
  std::size_t offset_ = 0;
  std::string message_;
  std::optional<WsOp> message_op_;
  int close_code_ = 1002;
};

// The code and reason inside a close frame; fails when it is malformed.
struct WsClose {
  int code = 1005;
  std::string reason;
};
Result<WsClose> parse_ws_close(std::string_view payload);

std::string ws_accept_key(std::string_view key);
bool is_ws_upgrade(Method method, const Headers& headers);
// Checks an upgrade request and returns the headers of the 101 answer.
Result<Headers> ws_accept(Method method, const Headers& request, std::string_view subprotocol);
// The client's side.
struct WsHello {
  std::string key;
  Headers headers;
};
WsHello ws_hello(std::string_view subprotocol);
Status check_ws_answer(int status, const Headers& headers, std::string_view key);

}  // namespace billow::net
