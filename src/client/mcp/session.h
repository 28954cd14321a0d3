// The protocol of one MCP client: which version is spoken, what the client can do, and what each
// message asks for. It reads no input and writes no output; a tool call is handed to the transport,
// which may run it elsewhere.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "client/mcp/rpc.h"

namespace billow::client::mcp {

// The newest first: offered to clients that speak none of them.
inline constexpr const char* protocol_versions[] = {"2025-06-18", "2025-03-26", "2024-11-05"};

struct ToolCall {
  Json id;
  std::string name;
  Json arguments;
};

// What one message leads to.
struct Step {
  std::vector<std::string> answers;  // lines to send
  std::optional<ToolCall> call;
  std::optional<Json> cancelled;    // the id of a request that the client gave up
  std::optional<Message> response;  // to a request of ours
};

class Session {
 public:
  // `tools` as they are listed: names, descriptions, schemas.
  Session(std::string version, Json tools)
      : version_(std::move(version)), tools_(std::move(tools)) {}
  Step take(const Message& message);
  bool can_elicit() const { return can_elicit_; }
  const std::string& protocol() const { return protocol_; }

 private:
  Json initialize(const Json& params);

  bool has_tool(std::string_view name) const;

  std::string version_;  // of Billow
  Json tools_;
  std::string protocol_ = protocol_versions[0];
  bool can_elicit_ = false;
};

}  // namespace billow::client::mcp
