// The tools of `billow mcp`. Each is one or a few calls of the head's API; its answer holds what an
// agent needs to go on, and an error says what to do.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/client.h"

namespace billow::client::mcp {

inline constexpr std::size_t log_bytes_default = 8 << 10;
inline constexpr std::size_t log_bytes_max = 64 << 10;
inline constexpr std::int64_t wait_s_max = 55;  // clients give a call up after a minute

Json tool_list();  // for tools/list: names, descriptions, input schemas

struct ToolRun {
  Client& client;
  const std::atomic<bool>& cancelled;
};
Result<Json> run_tool(ToolRun& run, std::string_view name, const Json& arguments);

// The result of tools/call: structured, and as text for clients that know only text.
Json tool_result(const Json& document);
Json tool_failure(const Error& error, const Json& approval);

// The request of this token that the error says a person was asked about; null: it says none.
Json approval_of(Client& client, const Error& error);

}  // namespace billow::client::mcp
