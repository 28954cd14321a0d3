// A machine that becomes a node of a head elsewhere, and a person who works with one: join, node rm, login, logout, context.
#include <fmt/format.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "agent/node.h"
#include "agent/reclaim_watch.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/table.h"
#include "net/address.h"
#include "wire/agent_v1.h"

namespace billow::cli {
namespace {

constexpr OptionSpec join_options[] = {
    {"token", 0, "TOKEN", "a join token, from `billow token create --node` (BILLOW_JOIN_TOKEN; \"-\" reads it from stdin)"},
    {"token-file", 0, "FILE", "a file that holds it", false, Completes::file},
    {"node-name", 0, "NAME", "name of this machine as a node (default: its host name)"},
    {"label", 0, "KEY=VALUE", "where it stands: zone=a, rack=7, switch=s3, or anything jobs may ask for", true},
    {"data", 0, "DIR", "where credential and tasks are kept (default: BILLOW_DATA, or the user's data directory)", false, Completes::directory},
    {"sim", 0, "SPEC", "simulate GPUs: 8xH100"},
    {"only-gpus", 0, "LIST", "offer only these: numbers or UUIDs with commas, or none"},
    {"allow-mig-changes", 0, nullptr, "make MIG instances as jobs ask for them, and take them down again (cards whose MIG mode is on)"},
    {"in-allocation", 0, nullptr, "an engine (Slurm) ends this machine's turn: tasks end with it, and a signal sends them elsewhere"},
    {"cache-max", 0, "SIZE", "keep at most this much of models and data from elsewhere (100G)"},
    {"reclaim-notices", 0, "CLOUD", "this machine may be taken away: read the notices of aws, gcp or azure (auto: whichever answers), and send its work elsewhere in time"},
    {"metadata-url", 0, "URL", "where the notices are read, if not at http://169.254.169.254"},
    {"files-max", 0, "SIZE", "keep at most this much of what followed jobs here (20G)"},
    {"images-max", 0, "SIZE", "keep at most this much of container images for each user (100G); the longest unused go first"},
    {"register-only", 0, nullptr, "get the credential and end; `billow join` without a token, or the systemd unit, serves then"},
    {"log-json", 0, nullptr, "log as JSON lines"},
};
constexpr OptionSpec login_options[] = {
    {"token", 0, "TOKEN", "your token (BILLOW_TOKEN; without either it is asked for, or read from stdin)"},
    {"fingerprint", 0, "HEX", "of the head's authority, where the token does not carry it"},
    {"ca", 0, "FILE", "an authority to trust instead (PEM)", false, Completes::file},
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// From a terminal without showing it, else the first line.
Result<std::string> secret_from_stdin(const char* what) {
  termios before {};
  const bool terminal = ::tcgetattr(STDIN_FILENO, &before) == 0;
  if (terminal) {
    ::dprintf(STDERR_FILENO, "%s: ", what);
    termios quiet = before;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  }
  std::string text;
  for (char c; text.size() < 4096 && ::read(STDIN_FILENO, &c, 1) == 1 && c != '\n';) text += c;
  if (terminal) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
    ::dprintf(STDERR_FILENO, "\n");
  }
  const std::string token(trim(text));
  if (token.empty()) return fail(Code::invalid, fmt::format("no {} was given", what));
  return token;
}

struct PinnedToken {
  std::string token, fingerprint;
};
PinnedToken split_pin(const std::string& text) {
  const auto dot = text.find('.');
  return dot == std::string::npos ? PinnedToken{text, ""} : PinnedToken{text.substr(0, dot), text.substr(dot + 1)};
}

// What went wrong on the way to a head, said so that it can be put right.
Error explain_connection(Error error, const std::string& url, bool pinned) {
  const bool certificate = error.message.find("certificate") != std::string::npos || error.message.find("verify") != std::string::npos;
  if (certificate)
    error.hint = pinned ? "the head at this address is not the one the token was made by: check the address, or make a new token there"
                        : "the head is its own authority: use a token made by it, which carries its fingerprint, or --fingerprint";
  else if (url.starts_with("http://") && error.code == Code::unavailable) error.hint = "a head that others can reach speaks https: try https://…";
  return error;
}

// ---- join

struct Joined {
  std::string head, node, fingerprint;
  std::map<std::string, std::string> labels;
};

Result<std::map<std::string, std::string>> labels_of(const Parsed& parsed) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : parsed.all("label")) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size()) return fail(Code::invalid, fmt::format("--label {}: not KEY=VALUE", text), "write it like --label zone=a");
    BILLOW_TRY_VOID(check_name("label", text.substr(0, equals)));
    labels[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return labels;
}

Result<Joined> read_joined(const std::string& dir) {
  auto text = read_file(dir + "/join.json", 1 << 20);
  if (!text) return fail(Code::not_found, "this machine has joined no head", "billow join https://HEAD:7070 --token TOKEN");
  const Json json = BILLOW_TRY(parse_json(*text));
  Joined joined{std::string(json["head"].str_or("")), std::string(json["node"].str_or("")), std::string(json["fingerprint"].str_or("")), {}};
  for (const auto& [key, value] : json["labels"].members()) joined.labels[key] = std::string(value.str_or(""));
  return joined;
}

Status write_joined(const std::string& dir, const Joined& joined, const std::string& credential, const std::string& authority) {
  Json labels = Json::object();
  for (const auto& [key, value] : joined.labels) labels.set(key, value);
  BILLOW_TRY_VOID(make_directories(dir, 0700));
  BILLOW_TRY_VOID(write_file_atomic(dir + "/credential", credential + "\n", 0600, true));
  if (!authority.empty()) BILLOW_TRY_VOID(write_file_atomic(dir + "/authority.pem", authority, 0644, true));
  return write_file_atomic(dir + "/join.json", Json::object({{"head", joined.head}, {"node", joined.node}, {"fingerprint", joined.fingerprint}, {"labels", std::move(labels)}}).dump() + "\n", 0600, true);
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string out(name);
  return out.substr(0, out.find('.'));
}

// Shows the token, gets a credential for this machine alone. A credential made beforehand (a pool's machine has one) is taken as it is.
Result<Joined> join_head(const Parsed& parsed, const std::string& dir, const std::string& url, const std::string& text) {
  std::vector<net::Endpoint> endpoints;
  for (const std::string& one : split(url, ',')) endpoints.push_back(BILLOW_TRY(net::parse_endpoint(trim(one))));
  const PinnedToken token = split_pin(text);
  Joined joined{url, parsed.get("node-name", host_name()), token.fingerprint, BILLOW_TRY(labels_of(parsed))};
  BILLOW_TRY_VOID(check_name("node", joined.node));
  if (!token.token.starts_with("bwj_")) {
    BILLOW_TRY_VOID(write_joined(dir, joined, token.token, ""));
    return joined;
  }
  Result<net::Response> response = fail(Code::invalid, "no head was named");
  for (const net::Endpoint& endpoint : endpoints) {  // of several heads the one that leads answers
    net::BlockingClient http({.endpoint = endpoint, .tls = {.ca_path = "", .pinned_fingerprint = token.fingerprint}});
    response = http.request({.method = net::Method::post, .target = "/v1/join",
                             .headers = {{"Authorization", "Bearer " + token.token}, {"Content-Type", "application/json"}},
                             .body = Json::object({{"name", joined.node}, {"version", version()}}).dump()});
    if (response) break;
  }
  if (!response) return pass(explain_connection(std::move(response.error()), url, !token.fingerprint.empty()));
  if (response->status == 404) return fail(Code::unsupported, fmt::format("the head at {} does not let machines join", url), "it is older than this program: upgrade it");
  if (response->status >= 300) {
    Error error = error_of(*response);
    if (error.code == Code::unauthorized) error.hint = "make a new token on the head: billow token create --node";
    return pass(std::move(error));
  }
  const Json answer = BILLOW_TRY(parse_json(response->body));
  if (answer["protocol"].int_or(0) < wire::agent_v1::protocol_version_min)
    return fail(Code::unsupported, fmt::format("the head at {} speaks protocol {}, this program {} and newer", url, answer["protocol"].int_or(0), wire::agent_v1::protocol_version_min),
                "upgrade the head, or install its version of billow here");
  BILLOW_TRY_VOID(write_joined(dir, joined, std::string(answer["credential"].str_or("")), std::string(answer["authority"].str_or(""))));
  return joined;
}

Result<std::string> join_token(const Parsed& parsed) {
  if (parsed.has("token") && parsed.has("token-file")) return fail(Code::invalid, "--token and --token-file are two ways to say the same");
  if (parsed.get("token") == "-") return secret_from_stdin("join token");
  if (parsed.has("token-file")) {
    auto text = BILLOW_TRY(read_file(parsed.get("token-file"), 4096));
    return std::string(trim(text));
  }
  return parsed.get("token", variable("BILLOW_JOIN_TOKEN"));
}

bool shares_a_head(std::string_view a, std::string_view b) {
  const auto ours = split(a, ',');
  for (const std::string& one : split(b, ','))
    if (std::find(ours.begin(), ours.end(), one) != ours.end()) return true;
  return false;
}

int cmd_join(const Parsed& parsed) {
  if (parsed.operands.size() > 1) return report_usage({Code::invalid, "join takes one head", "billow join https://head:7070 --token TOKEN"});
  configure_log({.level = LogLevel::info, .json = parsed.has("log-json"), .component = "agent"});
  const std::string url = parsed.operands.empty() ? "" : parsed.operands[0], dir = data_directory(parsed.get("data")) + "/node";
  const auto token = join_token(parsed);
  if (!token) return report(token.error());
  Result<Joined> joined = read_joined(dir);
  // A head's standby named beside it (or no longer) is the same installation.
  const bool same = joined && (url.empty() || shares_a_head(joined->head, url));
  const bool known = same && file_exists(dir + "/credential");
  if (joined && !same && token->empty())
    return report({Code::conflict, fmt::format("this machine has joined {} already", joined->head), "to move it, give a token of the new head"});
  // A machine that joined before and is started again (by its unit, with the same words) serves; its credential is its own by now.
  if (!known) {
    if (url.empty() || token->empty()) return report_usage({Code::invalid, "name the head and show a join token", "billow join https://HEAD:7070 --token TOKEN; make one there with `billow token create --node`"});
    joined = join_head(parsed, dir, url, *token);
    if (!joined) return report(joined.error());
    say(fmt::format("{} has joined {}", joined->node, joined->head));
  } else {
    if (!url.empty()) joined->head = url;
  }
  if (known && parsed.has("label")) {
    auto labels = labels_of(parsed);
    if (!labels) return report_usage(labels.error());
    joined->labels = std::move(*labels);
  }
  if (parsed.has("register-only")) {
    print(fmt::format("{} may serve now: billow join --data {}, or systemctl enable --now billow-node\n", joined->node, shell_quote(data_directory(parsed.get("data")))));
    return 0;
  }
  agent::NodeOptions options;
  options.head = joined->head;
  options.token_file = dir + "/credential";
  options.data_dir = dir;
  options.sim = parsed.get("sim", variable("BILLOW_SIM"));
  options.node_name = joined->node;
  options.version = version();
  options.tls.pinned_fingerprint = joined->fingerprint;
  options.labels = joined->labels;
  options.only_gpus = parsed.get("only-gpus");
  options.allow_mig_changes = parsed.has("allow-mig-changes");
  options.in_allocation = parsed.has("in-allocation");
  if (parsed.has("cache-max")) {
    const auto bytes = parse_bytes(parsed.get("cache-max"));
    if (!bytes) return report_usage(Error(bytes.error()).in("--cache-max"));
    options.cache_bytes_max = *bytes;
  }
  options.reclaim_notices = parsed.get("reclaim-notices");
  if (const std::string& cloud = options.reclaim_notices; !cloud.empty() && cloud != "auto" && !enum_value<agent::Cloud>(cloud))
    return report_usage({Code::invalid, fmt::format("--reclaim-notices: there is no cloud \"{}\" whose notices Billow reads", cloud), "one of auto, aws, gcp, azure"});
  options.metadata_url = parsed.get("metadata-url");
  if (parsed.has("images-max")) {
    const auto bytes = parse_bytes(parsed.get("images-max"));
    if (!bytes) return report_usage(Error(bytes.error()).in("--images-max"));
    options.images_bytes_max = *bytes;
  }
  if (parsed.has("files-max")) {
    const auto bytes = parse_bytes(parsed.get("files-max"));
    if (!bytes) return report_usage(Error(bytes.error()).in("--files-max"));
    options.files_bytes_max = *bytes;
  }
  const Status ended = agent::run_node(std::move(options));
  return ended ? 0 : report(ended.error());
}

int cmd_node_rm(const Parsed& parsed) {
  const auto name = one_operand(parsed, "node rm", "node");
  if (!name) return report_usage(name.error());
  auto client = connect(parsed);
  if (!client) return report(client.error());
  auto answer = client->del("/v1/nodes/" + net::percent_encode(*name));
  if (!answer) return report(answer.error());
  if (parsed.has("json")) print_json(*answer);
  else print(fmt::format("{} is forgotten, and its credential is worthless\n", *name));
  return 0;
}

// ---- login and contexts

int cmd_login(const Parsed& parsed) {
  const auto url = one_operand(parsed, "login", "head (https://HEAD:7070)");
  if (!url) return report_usage(url.error());
  std::vector<net::Endpoint> endpoints;
  for (const std::string& one : split(*url, ',')) {
    auto endpoint = net::parse_endpoint(trim(one));
    if (!endpoint) return report_usage(endpoint.error());
    endpoints.push_back(std::move(*endpoint));
  }
  std::string text = parsed.get("token", variable("BILLOW_TOKEN"));
  if (text.empty() || text == "-") {
    auto typed = secret_from_stdin("token");
    if (!typed) return report(typed.error());
    text = *typed;
  }
  PinnedToken token = split_pin(text);
  if (parsed.has("fingerprint")) token.fingerprint = parsed.get("fingerprint");
  const std::string ca = parsed.get("ca");
  Result<net::Response> response = fail(Code::invalid, "no head was named");
  for (const net::Endpoint& endpoint : endpoints) {  // of several heads the one that leads answers
    net::BlockingClient http({.endpoint = endpoint, .tls = {.ca_path = ca, .pinned_fingerprint = token.fingerprint}});
    response = http.request({.target = "/v1/status", .headers = {{"Authorization", "Bearer " + token.token}}});
    if (response) break;
  }
  if (!response) return report(explain_connection(std::move(response.error()), *url, !token.fingerprint.empty()));
  if (response->status >= 300) return report(error_of(*response));
  const auto status = parse_json(response->body);
  if (!status) return report({Code::unavailable, fmt::format("{} does not answer like a Billow head", *url), ""});
  auto contexts = read_contexts();
  if (!contexts) return report(contexts.error());
  contexts->set(*url, Json::object({{"token", token.token}, {"fingerprint", token.fingerprint}, {"ca", ca}}));
  contexts->set("current", *url);
  if (const Status written = write_contexts(*contexts); !written) return report(written.error());
  if (parsed.has("json")) print_json(Json::object({{"head", *url}, {"user", (*status)["you"]["user"]}}));
  else print(fmt::format("logged in to {} as {}; `billow run` and the others go there from now on (`billow logout` ends that)\n", *url, (*status)["you"]["user"].str_or("?")));
  return 0;
}

Json without(const Json& object, std::string_view name) {
  Json out = Json::object();
  for (const auto& [key, value] : object.members()) if (key != name) out.set(key, value);
  return out;
}

int cmd_logout(const Parsed& parsed) {
  auto contexts = read_contexts();
  if (!contexts) return report(contexts.error());
  const std::string url = parsed.operands.empty() ? std::string((*contexts)["current"].str_or("")) : parsed.operands[0];
  if (url.empty() || !(*contexts)[url].is_object()) return report({Code::not_found, url.empty() ? "you are logged in nowhere" : fmt::format("you are not logged in to {}", url), "see `billow context list`"});
  Json left = without(*contexts, url);
  if (left["current"].str_or("") == url) left = without(left, "current");
  if (const Status written = write_contexts(left); !written) return report(written.error());
  print(fmt::format("logged out of {}\n", url));
  return 0;
}

int cmd_context_list(const Parsed& parsed) {
  auto contexts = read_contexts();
  if (!contexts) return report(contexts.error());
  const auto current = (*contexts)["current"].str_or("");
  Json list = Json::array();
  Table table({{"HEAD"}, {"CURRENT"}, {"KNOWN BY"}});
  for (const auto& [url, context] : contexts->members()) {
    if (!context.is_object()) continue;
    const bool pinned = !context["fingerprint"].str_or("").empty();
    list.push(Json::object({{"head", url}, {"current", url == current}}));
    table.row({url, url == current ? "yes" : "", pinned ? "its fingerprint" : context["ca"].str_or("").empty() ? "the system's authorities" : std::string(context["ca"].str_or(""))});
  }
  if (parsed.has("json")) print_json(Json::object({{"contexts", std::move(list)}}));
  else if (table.empty()) say("you are logged in nowhere; commands go to the head of this machine");
  else print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

int cmd_context_use(const Parsed& parsed) {
  const auto url = one_operand(parsed, "context use", "head, or local");
  if (!url) return report_usage(url.error());
  auto contexts = read_contexts();
  if (!contexts) return report(contexts.error());
  if (*url == "local") *contexts = without(*contexts, "current");
  else if (!(*contexts)[*url].is_object()) return report({Code::not_found, fmt::format("you are not logged in to {}", *url), fmt::format("billow login {}", *url)});
  else contexts->set("current", *url);
  if (const Status written = write_contexts(*contexts); !written) return report(written.error());
  print(*url == "local" ? "commands go to the head of this machine\n" : fmt::format("commands go to {}\n", *url));
  return 0;
}

}  // namespace

void add_join_commands(CommandTable& table) {
  table.push_back({.name = "join",
                   .summary = "make this machine a node of a head elsewhere, and serve it",
                   .example = "billow join https://head:7070 --token bwj_… --label zone=a --label rack=7",
                   .run = cmd_join,
                   .usage = "[URL[,URL…]]",
                   .details = "The machine dials the head, so it needs no open port. It gets a credential of its own, which `billow node rm` revokes; started\n"
                              "again it needs no token. packaging/systemd/billow-node.service keeps it running.",
                   .options = {join_options},
                   .operands = Operands::some,
                   .group = "machines",
                   .talks_to_head = false,
                   .prints_json = false});
  table.push_back({.name = "node rm", .summary = "forget a node that is gone, and revoke its credential", .example = "billow node rm box1", .run = cmd_node_rm, .usage = "NODE", .operands = Operands::some, .completes = Completes::node, .group = "machines"});
  table.push_back({.name = "login",
                   .summary = "work with a head on another machine",
                   .example = "billow login https://head:7070\nbillow login https://head-a:7070,https://head-b:7070",
                   .run = cmd_login,
                   .usage = "URL[,URL…]",
                   .details = "The token is asked for, and kept in a file only you can read. It carries the fingerprint of a head that is its own authority.\n"
                              "Of several heads of one store, with commas, the one that leads is asked.",
                   .options = {login_options},
                   .operands = Operands::some,
                   .group = "people and access",
                   .talks_to_head = false});
  table.push_back({.name = "logout", .summary = "forget a head and your token for it", .example = "billow logout", .run = cmd_logout, .usage = "[URL]", .operands = Operands::some, .group = "people and access", .talks_to_head = false, .prints_json = false});
  table.push_back({.name = "context list", .summary = "heads you are logged in to", .example = "billow context list", .run = cmd_context_list, .group = "people and access", .talks_to_head = false});
  table.push_back({.name = "context use", .summary = "choose the head that commands go to", .example = "billow context use https://head:7070\nbillow context use local", .run = cmd_context_use, .usage = "URL|local", .operands = Operands::some, .group = "people and access", .talks_to_head = false, .prints_json = false});
}

}  // namespace billow::cli
