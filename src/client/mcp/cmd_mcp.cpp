// mcp: the command, and its HTTP transport.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/mcp/session.h"
#include "client/mcp/stdio.h"
#include "client/mcp/tools.h"
#include "net/address.h"
#include "net/http/http_server.h"
#include "net/workers.h"

namespace billow::client {
namespace mcp {
namespace {

constexpr OptionSpec mcp_options[] = {
    {"http", 0, "ADDRESS:PORT",
     "serve streamable HTTP at /mcp here (loopback only) instead of stdin and stdout; clients send "
     "the same token as bearer"},
    {"any-token", 0, nullptr,
     "also start with a token that is not an agent token and has no limits"},
};

// "http://localhost:3000" → "localhost"
std::string host_of(std::string_view text) {
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos)
    text.remove_prefix(scheme + 3);
  text = text.substr(0, text.find('/'));
  if (text.starts_with('['))
    return std::string(text.substr(0, text.find(']') + 1));
  return std::string(text.substr(0, text.find(':')));
}

bool names_loopback(std::string_view text) {
  const std::string host = host_of(text);
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

// Pages of other sites, and names that were bound to this machine's address, are refused.
Status check_caller(const net::Request& request, const std::string& token) {
  if (const auto origin = request.headers.get("Origin"); !origin.empty() && !names_loopback(origin))
    return fail(Code::forbidden, fmt::format("the origin {} may not use this server", origin));
  if (!names_loopback(request.headers.get("Host")))
    return fail(Code::forbidden, "the Host header does not name this machine");
  if (!equal_constant_time(request.headers.get("Authorization"), "Bearer " + token))
    return fail(Code::unauthorized, "the bearer token is missing or wrong",
                "send the token that billow mcp was started with");
  if (const auto version = request.headers.get("MCP-Protocol-Version");
      !version.empty() &&
      std::ranges::find(protocol_versions, version) == std::end(protocol_versions))
    return fail(Code::invalid, fmt::format("the protocol version {} is not supported", version));
  return {};
}

void serve_message(const Connect& connect,
                   net::Workers& workers,
                   const std::shared_ptr<net::Exchange>& exchange) {
  Session session{version(), tool_list()};
  Step step = session.take(read_message(exchange->request().body));
  if (!step.answers.empty())
    return exchange->respond(net::Response::json(200, step.answers.front()));
  if (!step.call)
    return exchange->respond(net::Response::json(202, ""));
  const Json id = step.call->id;
  const Status queued = workers.submit(
      [connect, call = std::move(*step.call)]() -> Json {
        auto client = connect();
        if (!client)
          return tool_failure(client.error(), {});
        const std::atomic<bool> cancelled = false;
        ToolRun run{*client, cancelled};
        const auto answer = run_tool(run, call.name, call.arguments);
        return answer ? tool_result(*answer)
                      : tool_failure(answer.error(), approval_of(*client, answer.error()));
      },
      [exchange, id](Json result) {
        exchange->respond(net::Response::json(200, reply_line(id, std::move(result))));
      });
  if (!queued)
    exchange->respond(net::Response::json(200, reply_line(id, tool_failure(queued.error(), {}))));
}

Status serve_http(const Connect& connect, const std::string& address, const std::string& token) {
  const net::Address at = BILLOW_TRY(net::parse_address(address));
  if (!at.is_loopback())
    return fail(Code::invalid, fmt::format("{} is not a loopback address", address),
                "use 127.0.0.1:PORT");
  net::Loop loop;
  net::Workers workers(loop, {.threads = calls_max, .queue_max = calls_max * 4});
  net::HttpServer::Options options;
  options.listen = {address};
  auto server = BILLOW_TRY(net::HttpServer::create(
      loop, std::move(options), [&](std::shared_ptr<net::Exchange> exchange) {
        const net::Request& request = exchange->request();
        if (const Status ok = check_caller(request, token); !ok)
          return exchange->respond(net::problem(ok.error(), request.request_id));
        if (request.path != "/mcp")
          return exchange->respond(net::problem(404, "there is only /mcp", "", request.request_id));
        if (request.method != net::Method::post)
          return exchange->respond(net::problem(
              405, "send messages by POST; this server opens no streams", "", request.request_id));
        serve_message(connect, workers, exchange);
      }));
  for (const std::string& bound : server->bound_addresses())
    say(fmt::format("serving MCP at http://{}/mcp", bound));
  loop.run();
  return {};
}

// Without limits an agent could spend everything its user may.
Status check_token(Client& client) {
  const Json answer = BILLOW_TRY(client.get("/v1/tokens"));
  const auto& tokens = answer["tokens"].items();
  if (tokens.size() == 1 && tokens.front()["scope"].str_or("") == "agent")
    return {};
  return fail(Code::forbidden, "this token has no limits for agents",
              "create one and set it as BILLOW_TOKEN: billow token create --agent NAME --budget "
              "20; or accept the risk with --any-token");
}

int cmd_mcp(const Parsed& parsed) {
  const Connect connect = [options = connect_options(parsed)] {
    return Client::create(options);
  };
  auto client = connect();
  if (!client)
    return report(client.error());
  if (!parsed.has("any-token"))
    if (const Status ok = check_token(*client); !ok)
      return report(ok.error());
  if (parsed.has("http")) {
    const Status served = serve_http(connect, parsed.get("http"), client->address().token);
    return served ? 0 : report(served.error());
  }
  serve_stdio(connect, STDIN_FILENO, STDOUT_FILENO);
  return 0;
}

}  // namespace
}  // namespace mcp

void add_mcp_commands(CommandTable& table) {
  table.push_back(
      {.name = "mcp",
       .summary = "let a coding agent use Billow through the Model Context Protocol",
       .example = "billow mcp\nbillow mcp --http 127.0.0.1:8080",
       .run = mcp::cmd_mcp,
       .details =
           "Speaks on stdin and stdout (default) or over HTTP. The agent can do what its token "
           "allows: see `billow token create --agent`. What needs a person is listed by `billow "
           "approvals list`.",
       .options = {mcp::mcp_options},
       .group = "people and access",
       .prints_json = false});
}

}  // namespace billow::client
