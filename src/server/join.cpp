// A machine that becomes a node of a head elsewhere, and serves it.
#include <fmt/format.h>
#include <unistd.h>

#include "agent/node/node.h"
#include "agent/node/reclaim_watch.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "client/frame/client.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "client/frame/shown_token.h"
#include "core/wire/agent_v1.h"
#include "net/address.h"
#include "server/kept_on_node.h"

namespace billow::client {
namespace {

constexpr int exit_removed =
    78;  // EX_CONFIG: starting it again is of no use before it has joined again; its unit knows

constexpr OptionSpec join_options[] = {
    {"token", 0, "TOKEN",
     "a join token, from `billow token create --node` (BILLOW_JOIN_TOKEN; \"-\" reads it from "
     "stdin)"},
    {"token-file", 0, "FILE", "a file that holds it", false, Completes::file},
    {"node-name", 0, "NAME", "name of this machine as a node (default: its host name)"},
    {"label", 0, "KEY=VALUE",
     "where it stands: zone=a, rack=7, switch=s3, or anything jobs may ask for", true},
    {"data", 0, "DIR",
     "where credential and tasks are kept (default: BILLOW_DATA, or the user's data directory)",
     false, Completes::directory},
    {"sim", 0, "SPEC", "simulate GPUs: 8xH100"},
    {"only-gpus", 0, "LIST", "offer only these: numbers or UUIDs with commas, or none"},
    {"allow-mig-changes", 0, nullptr,
     "make MIG instances as jobs ask for them, and take them down again (cards whose MIG mode is "
     "on)"},
    {"in-allocation", 0, nullptr,
     "an engine (Slurm) ends this machine's turn: tasks end with it, and a signal sends them "
     "elsewhere"},
    {"cache-max", 0, "SIZE", "keep at most this much of models and data from elsewhere (100G)"},
    {"reclaim-notices", 0, "CLOUD",
     "this machine may be taken away: read the notices of aws, gcp or azure (auto: whichever "
     "answers), and send its work elsewhere in time"},
    {"metadata-url", 0, "URL", "where the notices are read, if not at http://169.254.169.254"},
    {"files-max", 0, "SIZE", "keep at most this much of what followed jobs here (20G)"},
    {"images-max", 0, "SIZE", images_max_help},
    {"pull-patience", 0, "T", pull_patience_help},
    {"register-only", 0, nullptr,
     "get the credential and end; `billow join` without a token, or the systemd unit, serves then"},
    {"log-json", 0, nullptr, "log as JSON lines"},
};

struct Joined {
  std::string head, node, fingerprint;
  std::map<std::string, std::string> labels;
};

Result<std::map<std::string, std::string>> labels_of(const Parsed& parsed) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : parsed.all("label")) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size())
      return fail(Code::invalid, fmt::format("--label {}: not KEY=VALUE", text),
                  "write it like --label zone=a");
    BILLOW_TRY_VOID(check_name("label", text.substr(0, equals)));
    labels[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return labels;
}

Result<Joined> read_joined(const std::string& dir) {
  auto text = read_file(dir + "/join.json", 1 << 20);
  if (!text)
    return fail(Code::not_found, "this machine has joined no head",
                "billow join https://HEAD:7070 --token TOKEN");
  const Json json = BILLOW_TRY(parse_json(*text));
  Joined joined{std::string(json["head"].str_or("")),
                std::string(json["node"].str_or("")),
                std::string(json["fingerprint"].str_or("")),
                {}};
  for (const auto& [key, value] : json["labels"].members())
    joined.labels[key] = std::string(value.str_or(""));
  return joined;
}

Status write_joined(const std::string& dir,
                    const Joined& joined,
                    const std::string& credential,
                    const std::string& authority) {
  Json labels = Json::object();
  for (const auto& [key, value] : joined.labels)
    labels.set(key, value);
  BILLOW_TRY_VOID(make_directories(dir, 0700));
  BILLOW_TRY_VOID(write_file_atomic(dir + "/credential", credential + "\n", 0600, true));
  if (!authority.empty())
    BILLOW_TRY_VOID(write_file_atomic(dir + "/authority.pem", authority, 0644, true));
  return write_file_atomic(dir + "/join.json",
                           Json::object({{"head", joined.head},
                                         {"node", joined.node},
                                         {"fingerprint", joined.fingerprint},
                                         {"labels", std::move(labels)}})
                                   .dump() +
                               "\n",
                           0600, true);
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string out(name);
  return out.substr(0, out.find('.'));
}

// Shows the token, gets a credential for this machine alone. A credential made beforehand (a pool's
// machine has one) is taken as it is.
Result<Joined> join_head(const Parsed& parsed,
                         const std::string& dir,
                         const std::string& url,
                         const std::string& text,
                         const std::string& name) {
  std::vector<net::Endpoint> endpoints;
  for (const std::string& one : split(url, ','))
    endpoints.push_back(BILLOW_TRY(net::parse_endpoint(trim(one))));
  const PinnedToken token = split_pin(text);
  Joined joined{url, parsed.get("node-name", name), token.fingerprint,
                BILLOW_TRY(labels_of(parsed))};
  BILLOW_TRY_VOID(check_name("node", joined.node));
  if (!token.token.starts_with("bwj_") && !token.token.starts_with("bw_"))
    return fail(Code::invalid, "that is no join token: they begin with bwj_",
                "make one on the head: billow token create --node");
  if (!token.token.starts_with("bwj_")) {
    BILLOW_TRY_VOID(write_joined(dir, joined, token.token, ""));
    return joined;
  }
  Result<net::Response> response = fail(Code::invalid, "no head was named");
  for (const net::Endpoint& endpoint : endpoints) {  // of several heads the one that leads answers
    net::BlockingClient http(
        {.endpoint = endpoint, .tls = {.ca_path = "", .pinned_fingerprint = token.fingerprint}});
    response = http.request(
        {.method = net::Method::post,
         .target = "/v1/join",
         .headers = {{"Authorization", "Bearer " + token.token},
                     {"Content-Type", "application/json"}},
         .body = Json::object({{"name", joined.node}, {"version", version()}}).dump()});
    if (response)
      break;
  }
  if (!response)
    return pass(explain_connection(std::move(response.error()), url, !token.fingerprint.empty()));
  if (response->status == 404)
    return fail(Code::unsupported, fmt::format("the head at {} does not let machines join", url),
                "it is older than this program: upgrade it");
  if (response->status >= 300) {
    Error error = error_of(*response);
    if (error.code == Code::unauthorized)
      error.hint = "make a new token on the head: billow token create --node";
    return pass(std::move(error));
  }
  const Json answer = BILLOW_TRY(parse_json(response->body));
  if (answer["protocol"].int_or(0) < wire::agent_v1::protocol_version_min)
    return fail(Code::unsupported,
                fmt::format("the head at {} speaks protocol {}, this program {} and newer", url,
                            answer["protocol"].int_or(0), wire::agent_v1::protocol_version_min),
                "upgrade the head, or install its version of billow here");
  BILLOW_TRY_VOID(write_joined(dir, joined, std::string(answer["credential"].str_or("")),
                               std::string(answer["authority"].str_or(""))));
  return joined;
}

// Whether the head answers and does not know the credential that is kept here: the node was
// removed, or its credential revoked.
bool is_forgotten(const Joined& joined, const std::string& dir) {
  const auto credential = read_file(dir + "/credential", 4096);
  if (!credential)
    return false;
  for (const std::string& one : split(joined.head, ',')) {
    const auto endpoint = net::parse_endpoint(trim(one));
    if (!endpoint)
      continue;
    net::BlockingClient http(
        {.endpoint = *endpoint, .tls = {.ca_path = "", .pinned_fingerprint = joined.fingerprint}});
    const auto answer =
        http.request({.method = net::Method::get,
                      .target = "/v1/agent",
                      .headers = {{"Authorization", "Bearer " + std::string(trim(*credential))}},
                      .body = "",
                      .timeout = seconds(10)});
    if (answer)
      return answer->status == 401;
  }
  return false;
}

Result<std::string> join_token(const Parsed& parsed) {
  if (parsed.has("token") && parsed.has("token-file"))
    return fail(Code::invalid, "--token and --token-file are two ways to say the same");
  if (parsed.get("token") == "-")
    return secret_from_stdin("join token");
  if (parsed.has("token-file")) {
    auto text = BILLOW_TRY(read_file(parsed.get("token-file"), 4096));
    return std::string(trim(text));
  }
  return parsed.get("token", variable("BILLOW_JOIN_TOKEN"));
}

bool shares_a_head(std::string_view a, std::string_view b) {
  const auto ours = split(a, ',');
  for (const std::string& one : split(b, ','))
    if (std::find(ours.begin(), ours.end(), one) != ours.end())
      return true;
  return false;
}

int cmd_join(const Parsed& parsed) {
  if (parsed.operands.size() > 1)
    return report_usage(
        {Code::invalid, "join takes one head", "billow join https://head:7070 --token TOKEN"});
  configure_log({.level = LogLevel::info, .json = parsed.has("log-json"), .component = "agent"});
  const std::string url = parsed.operands.empty() ? "" : parsed.operands[0],
                    dir = data_directory(parsed.get("data")) + "/node";
  const auto token = join_token(parsed);
  if (!token)
    return report(token.error());
  Result<Joined> joined = read_joined(dir);
  // A head's standby named beside it (or no longer) is the same installation.
  const bool same = joined && (url.empty() || shares_a_head(joined->head, url));
  bool known = same && file_exists(dir + "/credential");
  if (known && !token->empty() && is_forgotten(*joined, dir)) {
    say(
        fmt::format("the credential in {} is not valid any more: {} was removed, and joins again "
                    "with the token",
                    dir, joined->node));
    known = false;
  }
  if (joined && !same && token->empty())
    return report({Code::conflict, fmt::format("this machine has joined {} already", joined->head),
                   "to move it, give a token of the new head"});
  // A machine that joined before and is started again (by its unit, with the same words) serves;
  // its credential is its own by now.
  if (!known) {
    if ((url.empty() && !same) || token->empty())
      return report_usage({Code::invalid, "name the head and show a join token",
                           "billow join https://HEAD:7070 --token TOKEN; make one there with "
                           "`billow token create --node`"});
    joined = join_head(parsed, dir, url.empty() ? joined->head : url, *token,
                       joined ? joined->node : host_name());
    if (!joined)
      return report(joined.error());
    say(fmt::format("{} has joined {}", joined->node, joined->head));
  } else {
    if (!url.empty())
      joined->head = url;
  }
  if (known && parsed.has("label")) {
    auto labels = labels_of(parsed);
    if (!labels)
      return report_usage(labels.error());
    joined->labels = std::move(*labels);
  }
  if (parsed.has("register-only")) {
    print(fmt::format(
        "{} may serve now: billow join --data {}, or systemctl enable --now billow-node\n",
        joined->node, shell_quote(data_directory(parsed.get("data")))));
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
  if (const Status kept = read_kept_on_node(parsed, options); !kept)
    return report_usage(kept.error());
  options.reclaim_notices = parsed.get("reclaim-notices");
  if (const std::string& cloud = options.reclaim_notices;
      !cloud.empty() && cloud != "auto" && !enum_value<agent::Cloud>(cloud))
    return report_usage(
        {Code::invalid,
         fmt::format("--reclaim-notices: there is no cloud \"{}\" whose notices Billow reads",
                     cloud),
         "one of auto, aws, gcp, azure"});
  options.metadata_url = parsed.get("metadata-url");
  const Status ended = agent::run_node(std::move(options));
  if (ended)
    return 0;
  const int code = report(ended.error());
  return ended.error().code == Code::unauthorized ? exit_removed : code;
}

}  // namespace

void add_join_commands(CommandTable& table) {
  table.push_back(
      {.name = "join",
       .summary = "make this machine a node of a head elsewhere, and serve it",
       .example = "billow join https://head:7070 --token bwj_… --label zone=a --label rack=7",
       .run = cmd_join,
       .usage = "[URL[,URL…]]",
       .details =
           "The machine dials the head, so it needs no open port. It gets a credential of its own, "
           "which `billow node rm` revokes; started\n"
           "again it needs no token. packaging/systemd/billow-node.service keeps it running.",
       .options = {join_options},
       .operands = Operands::some,
       .group = "machines",
       .talks_to_head = false,
       .prints_json = false});
}

}  // namespace billow::client
