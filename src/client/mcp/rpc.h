// JSON-RPC 2.0, one message per line: from bytes to messages and back. Nothing here fails in a way
// that ends a session: what cannot be read becomes the error answer it deserves.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace billow::client::mcp {

inline constexpr std::size_t line_bytes_max = 4 << 20;

enum class RpcError {
  parse = -32700,
  invalid_request = -32600,
  method_not_found = -32601,
  invalid_params = -32602,
  internal = -32603,
};

struct Message {
  enum class Kind { request, notification, response, invalid };
  Kind kind = Kind::invalid;
  Json id;             // a string or an integer; null of notifications
  std::string method;  // of requests and notifications
  Json params;         // an object; of a response its result, or null where it failed
  std::string answer;  // invalid: the line to send back
};
Message read_message(std::string_view line);

std::string reply_line(const Json& id, Json result);
std::string error_line(const Json& id, RpcError code, std::string_view message);
std::string request_line(const Json& id, std::string_view method, Json params);

// Lines out of a stream of bytes. A line over the limit is dropped to its end, and reported once.
class LineReader {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }
  struct Line {
    std::string text;
    bool too_long = false;
  };
  std::optional<Line> next();

 private:
  std::string buffer_;
  bool skipping_ = false;
};

}  // namespace billow::client::mcp
