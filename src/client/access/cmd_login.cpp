// Working with a head on another machine: login, logout, context, dashboard; and node rm.
#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "client/access/sign_in.h"
#include "client/access/sign_in_commands.h"
#include "client/frame/client.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/shown_token.h"
#include "client/frame/table.h"
#include "net/address.h"

namespace billow::client {
namespace {

constexpr OptionSpec login_options[] = {
    {"token", 0, "TOKEN", "your token (default: BILLOW_TOKEN, else a prompt or stdin)"},
    {"fingerprint", 0, "HEX",
     "fingerprint of the head's certificate authority, if the token does not carry it"},
    {"ca", 0, "FILE", "certificate authority to trust instead (PEM file)", false, Completes::file},
    {"provider", 0, "NAME", "identity provider to sign in at, if the head has several"},
    {"device", 0, nullptr, "sign in with a code on another device instead of a browser here"},
    {"no-browser", 0, nullptr, "print the address to sign in at and open no browser"},
    {"workload", 0, nullptr, "exchange the ID token of this CI job for a token"},
    {"id-token-file", 0, "FILE", "file with the ID token of this CI job (with --workload)", false,
     Completes::file},
    {"insecure", 0, nullptr, insecure_help},
};

int cmd_node_rm(const Parsed& parsed) {
  const auto name = one_operand(parsed, "node rm", "node");
  if (!name)
    return report_usage(name.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto answer = client->del("/v1/nodes/" + net::percent_encode(*name));
  if (!answer)
    return report(answer.error());
  if (parsed.has("json"))
    print_json(*answer);
  else
    print(fmt::format("removed node {} and revoked its credential\n", *name));
  return 0;
}

// A token that was given, or one for signing in at the head's identity provider.
Result<std::string> token_for_login(const Parsed& parsed, const net::Endpoint& endpoint) {
  const bool asks_provider = parsed.has("device") || parsed.has("workload") ||
                             parsed.has("provider") || parsed.has("no-browser");
  if (asks_provider && parsed.has("token"))
    return fail(Code::invalid, "use either --token or an identity provider");
  const std::string text = asks_provider ? "" : parsed.get("token", variable("BILLOW_TOKEN"));
  if (!text.empty() && text != "-")
    return text;
  net::BlockingClient head(
      {.endpoint = endpoint,
       .tls = {.ca_path = parsed.get("ca"), .pinned_fingerprint = parsed.get("fingerprint")}});
  if (!asks_provider && (text == "-" || ::isatty(STDIN_FILENO) != 1 || !offers_sign_in(head)))
    return secret_from_stdin("token");
  const Json answer = BILLOW_TRY(sign_in(head, {.provider = parsed.get("provider"),
                                                .device = parsed.has("device"),
                                                .workload = parsed.has("workload"),
                                                .id_token_file = parsed.get("id-token-file"),
                                                .no_browser = parsed.has("no-browser")}));
  return std::string(answer["token"].str_or(""));
}

int cmd_login(const Parsed& parsed) {
  const auto url = one_operand(parsed, "login", "head (https://HEAD:7070)");
  if (!url)
    return report_usage(url.error());
  std::vector<net::Endpoint> endpoints;
  for (const std::string& one : split(*url, ',')) {
    auto endpoint = net::parse_endpoint(trim(one));
    if (!endpoint)
      return report_usage(endpoint.error());
    endpoints.push_back(std::move(*endpoint));
  }
  if (const Status encrypted = check_encrypted(endpoints, parsed.has("insecure")); !encrypted)
    return report(encrypted.error());
  const auto given = token_for_login(parsed, endpoints.front());
  if (!given)
    return report(given.error());
  PinnedToken token = split_pin(*given);
  if (parsed.has("fingerprint"))
    token.fingerprint = parsed.get("fingerprint");
  const std::string ca = parsed.get("ca");
  Result<net::Response> response = fail(Code::invalid, "no head given");
  for (const net::Endpoint& endpoint : endpoints) {  // of several heads the one that leads answers
    net::BlockingClient http(
        {.endpoint = endpoint, .tls = {.ca_path = ca, .pinned_fingerprint = token.fingerprint}});
    response = http.request(
        {.target = "/v1/status", .headers = {{"Authorization", "Bearer " + token.token}}});
    if (response)
      break;
  }
  if (!response)
    return report(
        explain_connection(std::move(response.error()), *url, !token.fingerprint.empty()));
  if (response->status >= 300)
    return report(error_of(*response));
  const auto status = parse_json(response->body);
  if (!status)
    return report({Code::unavailable, fmt::format("{} is not a Billow head", *url), ""});
  auto contexts = read_contexts();
  if (!contexts)
    return report(contexts.error());
  contexts->set(
      *url, Json::object({{"token", token.token}, {"fingerprint", token.fingerprint}, {"ca", ca}}));
  contexts->set("current", *url);
  if (const Status written = write_contexts(*contexts); !written)
    return report(written.error());
  if (parsed.has("json"))
    print_json(Json::object({{"head", *url}, {"user", (*status)["you"]["user"]}}));
  else
    print(
        fmt::format("logged in to {} as {}; commands now use this head (`billow logout` to undo)\n",
                    *url, (*status)["you"]["user"].str_or("?")));
  return 0;
}

Json without(const Json& object, std::string_view name) {
  Json out = Json::object();
  for (const auto& [key, value] : object.members())
    if (key != name)
      out.set(key, value);
  return out;
}

int cmd_logout(const Parsed& parsed) {
  auto contexts = read_contexts();
  if (!contexts)
    return report(contexts.error());
  const std::string url =
      parsed.operands.empty() ? std::string((*contexts)["current"].str_or("")) : parsed.operands[0];
  if (url.empty() || !(*contexts)[url].is_object())
    return report({Code::not_found,
                   url.empty() ? "no head to log out of: commands use this machine's head"
                               : fmt::format("you are not logged in to {}", url),
                   "see `billow context list`"});
  Json left = without(*contexts, url);
  if (left["current"].str_or("") == url)
    left = without(left, "current");
  if (const Status written = write_contexts(left); !written)
    return report(written.error());
  print(fmt::format("logged out of {}\n", url));
  return 0;
}

int cmd_context_list(const Parsed& parsed) {
  auto contexts = read_contexts();
  if (!contexts)
    return report(contexts.error());
  const auto current = (*contexts)["current"].str_or("");
  Json list = Json::array();
  Table table({{"HEAD"}, {"CURRENT"}, {"TRUSTED BY"}});
  for (const auto& [url, context] : contexts->members()) {
    if (!context.is_object())
      continue;
    const bool pinned = !context["fingerprint"].str_or("").empty();
    list.push(Json::object({{"head", url}, {"current", url == current}}));
    table.row({url, url == current ? "yes" : "",
               pinned                             ? "fingerprint"
               : context["ca"].str_or("").empty() ? "system authorities"
                                                  : std::string(context["ca"].str_or(""))});
  }
  if (parsed.has("json"))
    print_json(Json::object({{"contexts", std::move(list)}}));
  else if (table.empty())
    say("you are not logged in to any head; commands use the head of this machine");
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

int cmd_context_use(const Parsed& parsed) {
  const auto url = one_operand(parsed, "context use", "head, or local");
  if (!url)
    return report_usage(url.error());
  auto contexts = read_contexts();
  if (!contexts)
    return report(contexts.error());
  if (*url == "local")
    *contexts = without(*contexts, "current");
  else if (!(*contexts)[*url].is_object())
    return report({Code::not_found, fmt::format("you are not logged in to {}", *url),
                   fmt::format("run `billow login {}`", *url)});
  else
    contexts->set("current", *url);
  if (const Status written = write_contexts(*contexts); !written)
    return report(written.error());
  print(*url == "local" ? "commands now use the head of this machine\n"
                        : fmt::format("commands now use {}\n", *url));
  return 0;
}

int cmd_dashboard(const Parsed& parsed) {
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  const auto status = client->get("/v1/status");
  if (!status)
    return report(status.error());
  const auto code = client->post("/v1/session/codes");
  if (!code)
    return report(code.error());
  std::string base = client->address().configured ? client->where() : std::string();
  if (const auto& addresses = (*status)["addresses"].items();
      base.empty() || base.starts_with("unix:")) {
    if (addresses.empty())
      return report({Code::unavailable,
                     "this head does not listen on a port that a browser can reach",
                     "start it with --listen 127.0.0.1:7070"});
    base = std::string(addresses.front().str_or(""));
  }
  const std::string url = fmt::format("{}/#code={}", base, (*code)["code"].str_or(""));
  if (parsed.has("json"))
    print_json(Json::object({{"url", url}}));
  else
    print(fmt::format("{}\n(valid once, for two minutes)\n", url));
  return 0;
}

}  // namespace

void add_login_commands(CommandTable& table) {
  add_auth_commands(table);
  add_user_sync_command(table);
  table.push_back({.name = "node rm",
                   .summary = "remove a node that no longer exists and revoke its credential",
                   .example = "billow node rm box1",
                   .run = cmd_node_rm,
                   .usage = "NODE",
                   .operands = Operands::some,
                   .completes = Completes::node,
                   .group = "machines"});
  table.push_back(
      {.name = "login",
       .summary = "log in to a head on another machine",
       .example =
           "billow login https://head:7070\nbillow login https://head-a:7070,https://head-b:7070",
       .run = cmd_login,
       .usage = "URL[,URL…]",
       .details = "Without a token you sign in at the head's identity provider, if it has one.\n"
                  "The token is stored in a file that only you can read. It carries the "
                  "fingerprint of a self-signed head.\nGive several heads of one store separated "
                  "by commas; commands use the one that leads.",
       .options = {login_options},
       .operands = Operands::some,
       .group = "people and access",
       .talks_to_head = false});
  table.push_back({.name = "logout",
                   .summary = "log out of a head and delete your token for it",
                   .example = "billow logout",
                   .run = cmd_logout,
                   .usage = "[URL]",
                   .operands = Operands::some,
                   .group = "people and access",
                   .talks_to_head = false,
                   .prints_json = false});
  table.push_back({.name = "context list",
                   .summary = "list the heads you are logged in to",
                   .example = "billow context list",
                   .run = cmd_context_list,
                   .group = "people and access",
                   .talks_to_head = false});
  table.push_back({.name = "context use",
                   .summary = "choose the head that commands use",
                   .example = "billow context use https://head:7070\nbillow context use local",
                   .run = cmd_context_use,
                   .usage = "URL|local",
                   .operands = Operands::some,
                   .group = "people and access",
                   .talks_to_head = false,
                   .prints_json = false});
  table.push_back({.name = "dashboard",
                   .summary = "print an address that opens the dashboard signed in",
                   .example = "billow dashboard",
                   .run = cmd_dashboard,
                   .group = "people and access"});
}

}  // namespace billow::client
