// A machine that becomes a node of a head elsewhere, and serves it.
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "agent/node/earlier_head.h"
#include "agent/node/node.h"
#include "agent/node/reclaim_watch.h"
#include "base/backoff.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "client/frame/client.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "client/frame/shown_token.h"
#include "core/wire/agent_v1.h"
#include "net/address.h"
#include "net/http/node_credential.h"
#include "server/joined.h"
#include "server/kept_on_node.h"

namespace billow::client {
namespace {

constexpr int exit_removed =
    78;  // EX_CONFIG: starting it again is of no use before it has joined again; its unit knows

constexpr Duration head_patience = hours(1);
constexpr std::size_t used_tokens_max = 20;

constexpr OptionSpec join_options[] = {
    {"token", 0, "TOKEN",
     "join token from `billow token create --node` (BILLOW_JOIN_TOKEN; \"-\" reads stdin)"},
    {"token-file", 0, "FILE",
     "file that contains the token; the machine then waits up to an hour for the head to answer",
     false, Completes::file},
    {"insecure", 0, nullptr, insecure_help},
    {"node-name", 0, "NAME", "name of this machine as a node (default: its host name)"},
    {"label", 0, "KEY=VALUE",
     "label of this node: zone=a, rack=7, switch=s3, or any other that jobs may ask for", true},
    {"data", 0, "DIR",
     "directory for credential and tasks (default: BILLOW_DATA, or the user's data directory)",
     false, Completes::directory},
    {"sim", 0, "SPEC", "simulate GPUs, e.g. 8xH100"},
    {"only-gpus", 0, "LIST",
     "offer only these GPUs: numbers or UUIDs separated by commas, or none"},
    {"metrics", 0, "ADDR",
     "serve this node's /metrics for Prometheus at this address, e.g. 127.0.0.1:9400"},
    {"allow-mig-changes", 0, nullptr,
     "create and remove MIG instances as jobs need them (on GPUs whose MIG mode is on)"},
    {"in-allocation", 0, nullptr,
     "this node belongs to an allocation (Slurm): its tasks end with the allocation; on SIGTERM "
     "they return to the queue"},
    {"jobs-as-agent", 0, nullptr,
     "run every job as this agent's user instead of its owner's account, for containers without "
     "accounts; not for root"},
    {"root-helper", 0, "PATH",
     "socket of this machine's root helper (`billow privileged`), for an agent that is not root"},
    {"work-dir", 0, "DIR", "directory for the working directories of jobs (default /var/tmp)",
     false, Completes::directory},
    {"cache-dir", 0, "DIR",
     "directory for images, models and job files, kept for the next node that uses it", false,
     Completes::directory},
    {"cache-max", 0, "SIZE", "size limit of the cache of models and data (default 100G)"},
    {"reclaim-notices", 0, "CLOUD",
     "the provider may reclaim this machine: watch the notices of aws, gcp or azure (auto: "
     "detect), and move its jobs in time"},
    {"metadata-url", 0, "URL", "address of the notices (default http://169.254.169.254)"},
    {"files-max", 0, "SIZE",
     "size limit of the cache of uploaded working directories (default 20G)"},
    {"images-max", 0, "SIZE", images_max_help},
    {"pull-patience", 0, "T", pull_patience_help},
    {"allow-metadata", 0, nullptr, allow_metadata_help},
    {"allow-namespaces", 0, nullptr, allow_namespaces_help},
    {"client-cert", 0, "FILE", client_cert_help, false, Completes::file},
    {"client-key", 0, "FILE", client_key_help, false, Completes::file},
    {"rotate-key", 0, nullptr,
     "give this machine a new key instead of the one that it joined with, and exit; a running "
     "agent "
     "continues with it"},
    {"check", 0, nullptr,
     "ask the head whether it knows this machine, and exit: 0 if it does, else 1"},
    {"register-only", 0, nullptr,
     "get the credential and exit; then run `billow join` without a token, or the systemd unit"},
    {"log-json", 0, nullptr, "log as JSON lines"},
};

Status take_certificate(const Parsed& parsed, Joined& joined) {
  if (parsed.has("client-cert") != parsed.has("client-key"))
    return fail(Code::invalid, "--client-cert and --client-key must be given together",
                "add the missing one: --client-cert FILE --client-key FILE");
  if (!parsed.has("client-cert"))
    return {};
  joined.client_cert = parsed.get("client-cert");
  joined.client_key = parsed.get("client-key");
  return {};
}

Result<std::map<std::string, std::string>> labels_of(const Parsed& parsed) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : parsed.all("label")) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size())
      return fail(Code::invalid, fmt::format("--label {} is not KEY=VALUE", text),
                  "use a form like --label zone=a");
    BILLOW_TRY_VOID(check_name("label", text.substr(0, equals)));
    labels[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return labels;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string out(name);
  return out.substr(0, out.find('.'));
}

// The key that this machine joins with. It is on the disk before the head hears of it, so that a
// machine that did not get the answer joins again with the same one; and beside the credential of
// an earlier join, which stays until the new one is accepted.
std::string pending_key(const std::string& dir) {
  return dir + "/credential.new";
}

Result<std::string> own_key(const std::string& dir) {
  BILLOW_TRY_VOID(make_directories(dir, 0700));
  if (const auto text = read_file(pending_key(dir), 4096))
    if (auto key = public_key_of(*text))
      return key;
  const std::string key = make_signing_key();
  BILLOW_TRY_VOID(write_file_atomic(pending_key(dir), key, 0600, true));
  return public_key_of(key);
}

Result<net::Response> ask_to_join(const std::vector<net::Endpoint>& endpoints,
                                  const PinnedToken& token,
                                  const std::string& body) {
  Result<net::Response> response = fail(Code::invalid, "no head given");
  for (const net::Endpoint& endpoint : endpoints) {  // of several heads the one that leads answers
    net::BlockingClient http(
        {.endpoint = endpoint, .tls = {.ca_path = "", .pinned_fingerprint = token.fingerprint}});
    response = http.request({.method = net::Method::post,
                             .target = "/v1/join",
                             .headers = {{"Authorization", "Bearer " + token.token},
                                         {"Content-Type", "application/json"}},
                             .body = body});
    if (response)
      break;
  }
  return response;
}

// A machine that a pool ordered has its token in a file, and nobody watches it start: it waits for
// a head that is just restarting.
Result<net::Response> ask_patiently(const std::vector<net::Endpoint>& endpoints,
                                    const PinnedToken& token,
                                    const std::string& body) {
  Backoff backoff(seconds(1), seconds(15));
  Rng rng(random_u64());
  const SteadyTime began = system_clock().steady();
  for (bool first = true;; first = false) {
    auto response = ask_to_join(endpoints, token, body);
    const bool later =
        response ? response->status == 503 : response.error().code == Code::unavailable;
    if (!later || system_clock().steady() - began > head_patience)
      return response;
    if (first)
      say(fmt::format("{}; trying again for {}",
                      response ? error_of(*response).message : response.error().message,
                      format_duration(head_patience)));
    std::this_thread::sleep_for(std::chrono::nanoseconds(backoff.next(rng).ns));
  }
}

// What a machine joins with.
struct Asked {
  std::string url, token, name;
  const Joined* before = nullptr;  // the head that it has joined earlier
  bool patient = false;            // with a head that does not answer
};

// Each head has an authority of its own, which its tokens name.
bool is_elsewhere(const Joined& joined, const PinnedToken& token) {
  return !token.fingerprint.empty() && token.fingerprint != joined.fingerprint;
}

// Shows the token and makes this machine's key its credential.
Result<Joined> join_head(const Parsed& parsed, const std::string& dir, const Asked& asked) {
  const std::string& url = asked.url;
  std::vector<net::Endpoint> endpoints;
  for (const std::string& one : split(url, ','))
    endpoints.push_back(BILLOW_TRY(net::parse_endpoint(trim(one))));
  BILLOW_TRY_VOID(check_encrypted(endpoints, parsed.has("insecure")));
  const PinnedToken token = split_pin(asked.token);
  Joined joined{url,
                parsed.get("node-name", asked.name),
                token.fingerprint,
                BILLOW_TRY(labels_of(parsed)),
                "",
                "",
                {}};
  BILLOW_TRY_VOID(take_certificate(parsed, joined));
  BILLOW_TRY_VOID(check_name("node", joined.node));
  if (!token.token.starts_with("bwj_"))
    return fail(Code::invalid, "this is not a join token: those begin with bwj_",
                "create one on the head: billow token create --node");
  const bool moves = asked.before && is_elsewhere(*asked.before, token);
  if (moves)
    BILLOW_TRY_VOID(agent::check_tasks_ended(dir));
  const std::string key = BILLOW_TRY(own_key(dir));
  const std::string body =
      Json::object({{"name", joined.node}, {"version", version()}, {"key", key}}).dump();
  const auto response =
      asked.patient ? ask_patiently(endpoints, token, body) : ask_to_join(endpoints, token, body);
  if (!response)
    return pass(explain_connection(response.error(), url, !token.fingerprint.empty()));
  if (response->status == 404)
    return fail(Code::unsupported, fmt::format("the head at {} does not let machines join", url),
                "the head is older than this program: upgrade it");
  if (response->status >= 300) {
    Error error = error_of(*response);
    if (error.code == Code::unauthorized && error.hint.find("--node") == std::string::npos)
      error.hint = "create a new token on the head: billow token create --node";
    return pass(std::move(error));
  }
  const Json answer = BILLOW_TRY(parse_json(response->body));
  if (answer["protocol"].int_or(0) < wire::agent_v1::protocol_version_min)
    return fail(Code::unsupported,
                fmt::format("the head at {} uses protocol {}, this program needs {} or newer", url,
                            answer["protocol"].int_or(0), wire::agent_v1::protocol_version_min),
                "upgrade the head, or install its version of billow here");
  if (::rename(pending_key(dir).c_str(), (dir + "/credential").c_str()) != 0)
    return fail_errno(dir + "/credential", errno);
  (void)::unlink((dir + "/certificate.pem").c_str());  // of the credential before
  if (moves)
    BILLOW_TRY_VOID(agent::forget_earlier_head(dir));
  if (asked.before)
    joined.used = asked.before->used;
  if (joined.used.size() >= used_tokens_max)
    joined.used.erase(joined.used.begin());
  joined.used.push_back(sha256_hex(asked.token));
  BILLOW_TRY_VOID(write_joined(dir, joined, std::string(answer["authority"].str_or(""))));
  return joined;
}

int check_known(const std::string& dir) {
  const auto joined = read_joined(dir);
  if (!joined)
    return report(joined.error());
  switch (ask_head(*joined, dir)) {
    case Known::yes:
      print(fmt::format("{} knows {}\n", joined->head, joined->node));
      return 0;
    case Known::no:
      return report({Code::unauthorized,
                     fmt::format("{} no longer knows {}", joined->head, joined->node), ""});
    case Known::given_back:
      return report(
          {Code::unauthorized, fmt::format("{} has released {}", joined->head, joined->node), ""});
    case Known::unanswered:
      return report({Code::unavailable, fmt::format("{} does not answer", joined->head), ""});
  }
  return 1;
}

// The key that is to replace the credential. Until the head has taken it, the credential stays; if
// the answer got lost, the same key is sent again.
std::string next_key(const std::string& dir) {
  return dir + "/credential.next";
}

Status rotate_key(const Joined& joined, const std::string& dir) {
  if (!file_exists(next_key(dir)))
    BILLOW_TRY_VOID(write_file_atomic(next_key(dir), make_signing_key(), 0600, true));
  const std::string key = BILLOW_TRY(public_key_of(BILLOW_TRY(read_file(next_key(dir), 4096))));
  const net::ClientRequest request{.method = net::Method::post,
                                   .target = "/v1/agent/key",
                                   .body = Json::object({{"key", key}}).dump()};
  auto answer = BILLOW_TRY(ask_signed(joined, dir, dir + "/credential", request));
  // The head has taken it long ago and has forgotten the one before.
  if (answer.status == 401)
    answer = BILLOW_TRY(ask_signed(joined, dir, next_key(dir), request));
  if (answer.status != 200)
    return pass(error_of(answer));
  if (::rename(next_key(dir).c_str(), (dir + "/credential").c_str()) != 0)
    return fail_errno(dir + "/credential", errno);
  return {};
}

int rotate_key_command(const std::string& dir) {
  const auto joined = read_joined(dir);
  if (!joined)
    return report(joined.error());
  if (const Status rotated = rotate_key(*joined, dir); !rotated)
    return report(rotated.error());
  print(fmt::format("{} has a new key\n", joined->node));
  return 0;
}

Result<std::string> join_token(const Parsed& parsed) {
  if (parsed.has("token") && parsed.has("token-file"))
    return fail(Code::invalid, "--token and --token-file exclude each other");
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

// A head that was installed anew has another authority than the one that this machine joined: the
// old credential cannot even be shown to it. The machine joins it if its own configuration has
// changed to a token that names that authority and was never used here, and its old head does not
// answer. Without such a token nothing that happens on the network makes it leave its head.
// None: it stays with its head.
Result<std::optional<Joined>> join_anew(const Parsed& parsed,
                                        const std::string& dir,
                                        const Asked& asked) {
  const Joined& joined = *asked.before;
  const bool fresh = is_elsewhere(joined, split_pin(asked.token)) &&
                     std::ranges::find(joined.used, sha256_hex(asked.token)) == joined.used.end();
  Backoff backoff(seconds(1), seconds(15));
  Rng rng(random_u64());
  const SteadyTime began = system_clock().steady();
  for (bool first = true;; first = false) {
    const Known known = ask_head(joined, dir);
    if (known == Known::no) {
      say(
          fmt::format("the credential in {} is no longer valid because {} was removed; joining "
                      "again with the token",
                      dir, joined.node));
      return BILLOW_TRY(join_head(parsed, dir, asked));
    }
    if (known != Known::unanswered || !fresh)
      return std::nullopt;
    Asked once = asked;
    once.patient = false;
    auto moved = join_head(parsed, dir, once);
    if (moved)
      return std::move(*moved);
    if (first)
      say(
          fmt::format("the head that {} has joined does not answer, and the new token cannot be "
                      "used: {}",
                      joined.node, moved.error().message));
    if (!asked.patient || moved.error().code != Code::unavailable ||
        system_clock().steady() - began > head_patience)
      return std::nullopt;
    std::this_thread::sleep_for(std::chrono::nanoseconds(backoff.next(rng).ns));
  }
}

// The installation this machine serves: the one it has joined before, or the one it joins now with
// a token. A machine that is started again (by its unit, with the same words) uses its credential.
Result<Joined> joined_head(const Parsed& parsed, const std::string& dir) {
  const std::string url = parsed.operands.empty() ? "" : parsed.operands[0];
  const std::string token = BILLOW_TRY(join_token(parsed));
  Result<Joined> joined = read_joined(dir);
  // A head's standby added to its address (or no longer in it) is the same installation.
  const bool same = joined && (url.empty() || shares_a_head(joined->head, url));
  const Asked asked{.url = url.empty() && joined ? joined->head : url,
                    .token = token,
                    .name = joined ? joined->node : host_name(),
                    .before = joined ? &*joined : nullptr,
                    .patient = parsed.has("token-file")};
  if (joined && !same && token.empty())
    return fail(Code::conflict, fmt::format("this machine has already joined {}", joined->head),
                "to move it to another head, give a token of that head");
  std::optional<Joined> anew;
  if (same && file_exists(dir + "/credential")) {
    if (!token.empty())
      anew = BILLOW_TRY(join_anew(parsed, dir, asked));
  } else if (asked.url.empty() || token.empty()) {
    return fail(Code::invalid, "a head and a join token are required",
                "run `billow join https://HEAD:7070 --token TOKEN`; create the token there with "
                "`billow token create --node`");
  } else {
    anew = BILLOW_TRY(join_head(parsed, dir, asked));
  }
  if (anew) {
    say(fmt::format("{} has joined {}", anew->node, anew->head));
    return std::move(*anew);
  }
  if (!url.empty())
    joined->head = url;
  if (parsed.has("label"))
    joined->labels = BILLOW_TRY(labels_of(parsed));
  BILLOW_TRY_VOID(take_certificate(parsed, *joined));
  // A new key that an earlier command could not finish.
  if (file_exists(next_key(dir)))
    if (const Status rotated = rotate_key(*joined, dir); !rotated)
      say(fmt::format("the new key of this machine is not used yet: {}", rotated.error().message));
  return joined;
}

Result<std::optional<agent::UserRecord>> without_account() {
  const std::string text = variable("BILLOW_WITHOUT_ACCOUNT");
  if (text.empty())
    return std::nullopt;
  auto user = agent::user_by_numbers(text);
  if (!user)
    return pass(Error(user.error()).in("BILLOW_WITHOUT_ACCOUNT"));
  return std::move(*user);
}

Result<agent::NodeOptions> node_options(const Parsed& parsed,
                                        const Joined& joined,
                                        const std::string& dir) {
  agent::NodeOptions options;
  options.head = joined.head;
  options.token_file = dir + "/credential";
  options.data_dir = dir;
  options.sim = parsed.get("sim", variable("BILLOW_SIM"));
  options.node_name = joined.node;
  options.version = version();
  options.certificate = certificate_of(joined, dir);
  options.labels = joined.labels;
  options.only_gpus = parsed.get("only-gpus");
  options.metrics = parsed.get("metrics");
  options.allow_mig_changes = parsed.has("allow-mig-changes");
  options.in_allocation = parsed.has("in-allocation");
  // A variable and no option, so that an older program in an image of the user's starts as well.
  if (const std::string text = variable("BILLOW_LEAVE_WITHIN"); !text.empty())
    options.leave_within = BILLOW_TRY(parse_duration(text));
  options.jobs_as_agent = parsed.has("jobs-as-agent");
  options.root_helper = parsed.get("root-helper");
  options.without_account = BILLOW_TRY(without_account());
  BILLOW_TRY_VOID(read_kept_on_node(parsed, options));
  options.reclaim_notices = parsed.get("reclaim-notices");
  options.metadata_url = parsed.get("metadata-url");
  return options;
}

// Before the token is used: it works only once.
Status check_options(const Parsed& parsed) {
  BILLOW_TRY(without_account());
  if (parsed.has("jobs-as-agent") && ::geteuid() == 0)
    return fail(Code::invalid, "--jobs-as-agent would run the jobs of all users as root",
                "start the agent as an ordinary user");
  if (parsed.has("root-helper") && (::geteuid() == 0 || parsed.has("jobs-as-agent")))
    return fail(Code::invalid,
                "--root-helper is for an agent that is not root and runs jobs as their users",
                "leave it out, or start the agent as an account of its own");
  if (parsed.operands.size() > 1)
    return fail(Code::invalid, "join needs one head",
                "for example: billow join https://head:7070 --token TOKEN");
  if (const std::string cloud = parsed.get("reclaim-notices");
      !cloud.empty() && cloud != "auto" && !enum_value<agent::Cloud>(cloud))
    return fail(Code::invalid, fmt::format("--reclaim-notices: unknown cloud \"{}\"", cloud),
                "choose one of auto, aws, gcp, azure");
  return {};
}

int cmd_join(const Parsed& parsed) {
  if (const Status ok = check_options(parsed); !ok)
    return report_usage(ok.error());
  configure_log({.level = LogLevel::info, .json = parsed.has("log-json"), .component = "agent"});
  const std::string dir = data_directory(parsed.get("data")) + "/node";
  if (parsed.has("check"))
    return check_known(dir);
  if (parsed.has("rotate-key"))
    return rotate_key_command(dir);
  const auto joined = joined_head(parsed, dir);
  if (!joined)
    return joined.error().code == Code::invalid ? report_usage(joined.error())
                                                : report(joined.error());
  if (parsed.has("register-only")) {
    print(
        fmt::format("{} is ready to serve: run `billow join --data {}` or `systemctl enable --now "
                    "billow-node`\n",
                    joined->node, shell_quote(data_directory(parsed.get("data")))));
    return 0;
  }
  auto options = node_options(parsed, *joined, dir);
  if (!options)
    return report_usage(options.error());
  const Status ended = agent::run_node(std::move(*options));
  if (ended)
    return 0;
  const int code = report(ended.error());
  return ended.error().code == Code::unauthorized ? exit_removed : code;
}

}  // namespace

void add_join_commands(CommandTable& table) {
  table.push_back(
      {.name = "join",
       .summary = "make this machine a node of a head on another machine",
       .example = "billow join https://head:7070 --token bwj_… --label zone=a --label rack=7",
       .run = cmd_join,
       .usage = "[URL[,URL…]]",
       .details =
           "The machine connects to the head, so it needs no open port. It creates a key that "
           "becomes its credential (`billow node rm` revokes it),\nso it needs no token when it is "
           "started again. packaging/systemd/billow-node.service keeps it running.",
       .options = {join_options},
       .operands = Operands::some,
       .group = "machines",
       .talks_to_head = false,
       .prints_json = false});
}

}  // namespace billow::client
