#include "client/mcp/rpc.h"

#include "base/text.h"

namespace billow::client::mcp {
namespace {

bool is_id(const Json& id) {
  return id.is_string() || id.is_integer();
}

Message invalid(const Json& id, RpcError code, std::string_view why) {
  Message out;
  out.answer = error_line(is_id(id) ? id : Json(), code, why);
  return out;
}

}  // namespace

Message read_message(std::string_view line) {
  auto json = parse_json(line);
  if (!json)
    return invalid({}, RpcError::parse, "not JSON: " + json.error().message);
  if (!json->is_object())
    return invalid({}, RpcError::invalid_request, "a message must be one JSON object");
  const Json& id = (*json)["id"];
  if ((*json)["jsonrpc"].str_or("") != "2.0")
    return invalid(id, RpcError::invalid_request, "jsonrpc must be \"2.0\"");
  Message out;
  out.id = id;
  if (const Json* method = json->find("method")) {
    if (!method->is_string())
      return invalid(id, RpcError::invalid_request, "method must be a string");
    if (json->find("id") && !is_id(id))
      return invalid({}, RpcError::invalid_request, "id must be a string or an integer");
    out.kind = json->find("id") ? Message::Kind::request : Message::Kind::notification;
    out.method = method->as_string();
    out.params = (*json)["params"];
    if (!out.params.is_null() && !out.params.is_object())
      return invalid(id, RpcError::invalid_params, "params must be an object");
    return out;
  }
  if (!is_id(id) || (!json->find("result") && !json->find("error")))
    return invalid(id, RpcError::invalid_request, "neither a request nor a response");
  out.kind = Message::Kind::response;
  out.params = (*json)["result"];
  return out;
}

std::string reply_line(const Json& id, Json result) {
  return Json::object({{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}}).dump();
}

std::string error_line(const Json& id, RpcError code, std::string_view message) {
  return Json::object({{"jsonrpc", "2.0"},
                       {"id", id},
                       {"error", Json::object({{"code", static_cast<std::int64_t>(code)},
                                               {"message", message}})}})
      .dump();
}

std::string request_line(const Json& id, std::string_view method, Json params) {
  return Json::object(
             {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}})
      .dump();
}

std::optional<LineReader::Line> LineReader::next() {
  for (;;) {
    const auto end = buffer_.find('\n');
    if (end == std::string::npos) {
      if (buffer_.size() <= line_bytes_max)
        return std::nullopt;
      buffer_.clear();
      if (std::exchange(skipping_, true))
        return std::nullopt;
      return Line{"", true};
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    if (std::exchange(skipping_, false))
      continue;  // the rest of the long line
    if (line.size() > line_bytes_max)
      return Line{"", true};
    if (!trim(line).empty())
      return Line{std::move(line)};
  }
}

}  // namespace billow::client::mcp
