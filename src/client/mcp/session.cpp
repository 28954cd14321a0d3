#include "client/mcp/session.h"

#include <algorithm>

#include <fmt/format.h>

namespace billow::client::mcp {
namespace {

constexpr const char* instructions =
    "Billow runs jobs on GPUs. Ask `price` or `advise` before a large job, `submit` it with a time "
    "limit, follow it with `status` and `logs`, and read `costs` for what your token has left. A "
    "job may cost at most what the token allows; an answer with `approval` means that a person was "
    "asked: tell the user, and repeat the same call once it is approved.";

}  // namespace

Json Session::initialize(const Json& params) {
  const auto wanted = params["protocolVersion"].str_or("");
  const auto known = std::ranges::find(protocol_versions, wanted);
  protocol_ = known == std::end(protocol_versions) ? protocol_versions[0] : *known;
  can_elicit_ = params["capabilities"]["elicitation"].is_object();
  return Json::object(
      {{"protocolVersion", protocol_},
       {"capabilities", Json::object({{"tools", Json::object({{"listChanged", false}})}})},
       {"serverInfo",
        Json::object({{"name", "billow"}, {"title", "Billow"}, {"version", version_}})},
       {"instructions", instructions}});
}

bool Session::has_tool(std::string_view name) const {
  return std::ranges::any_of(tools_.items(),
                             [&](const Json& tool) { return tool["name"].str_or("") == name; });
}

Step Session::take(const Message& m) {
  Step out;
  switch (m.kind) {
    case Message::Kind::invalid:
      out.answers.push_back(m.answer);
      return out;
    case Message::Kind::response:
      out.response = m;
      return out;
    case Message::Kind::notification:
      if (m.method == "notifications/cancelled")
        out.cancelled = m.params["requestId"];
      return out;
    case Message::Kind::request:
      break;
  }
  if (m.method == "initialize") {
    out.answers.push_back(reply_line(m.id, initialize(m.params)));
  } else if (m.method == "ping") {
    out.answers.push_back(reply_line(m.id, Json::object()));
  } else if (m.method == "tools/list") {
    out.answers.push_back(reply_line(m.id, Json::object({{"tools", tools_}})));
  } else if (m.method == "tools/call") {
    const auto name = m.params["name"].str_or("");
    const Json& arguments = m.params["arguments"];
    if (!has_tool(name))
      out.answers.push_back(
          error_line(m.id, RpcError::invalid_params, fmt::format("there is no tool \"{}\"", name)));
    else if (!arguments.is_null() && !arguments.is_object())
      out.answers.push_back(
          error_line(m.id, RpcError::invalid_params, "arguments must be an object"));
    else
      out.call =
          ToolCall{m.id, std::string(name), arguments.is_null() ? Json::object() : arguments};
  } else {
    out.answers.push_back(error_line(m.id, RpcError::method_not_found,
                                     fmt::format("the method \"{}\" is not supported", m.method)));
  }
  return out;
}

}  // namespace billow::client::mcp
