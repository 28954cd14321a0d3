// The head's own commands: up and agent.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/node/node.h"
#include "base/file.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/text.h"
#include "client/frame/client.h"
#include "client/frame/connect.h"
#include "client/frame/console.h"
#include "client/frame/local_heads.h"
#include "client/frame/server_commands.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "gpu/sim/spec.h"
#include "head/local_agent.h"
#include "head/options.h"
#include "net/address.h"
#include "net/smtp.h"
#include "process/spawn.h"
#include "s3/objects.h"
#include "server/down_command.h"
#include "server/front_door_options.h"
#include "server/kept_on_node.h"
#include "server/retention_options.h"
#include "server/run_head.h"
#include "server/up_checks.h"
#include "store/store_copy.h"

namespace billow::client {
namespace {

constexpr const char* sleep_memory_help =
    "total memory for suspended jobs, including --vault-arena (default: the arena plus an eighth "
    "of the machine's memory)";
constexpr const char* sleep_disk_help =
    "disk space in the data directory for suspended jobs that do not fit in memory (default: half "
    "of the free space; 0: none)";
constexpr OptionSpec up_options[] = {
    {"listen", 0, "ADDR", "address of the API (default 127.0.0.1:7070; repeatable)", true},
    {"data", 0, "DIR", "data directory (default: BILLOW_DATA, or the user's data directory)", false,
     Completes::directory},
    {"sim", 0, "SPEC", "simulate this machine's GPUs: 8xH100, 2xA100-40,4xL4, or a JSON file"},
    {"node-name", 0, "NAME", "name of this machine as a node (default: its host name)"},
    {"metrics", 0, "ADDR",
     "serve this node's /metrics for Prometheus at this address, e.g. 127.0.0.1:9400"},
    {"vault-arena", 0, "SIZE",
     "host memory for suspended jobs' GPU memory, e.g. 64G (default: half of the memory, at most "
     "that of the GPUs; 0: none)"},
    {"sleep-memory", 0, "SIZE", sleep_memory_help},
    {"sleep-disk", 0, "SIZE", sleep_disk_help},
    {"allow-mig-changes", 0, nullptr,
     "create and remove MIG instances as jobs need them (on GPUs whose MIG mode is on)"},
    {"images-max", 0, "SIZE", images_max_help},
    {"pull-patience", 0, "T", pull_patience_help},
    {"allow-metadata", 0, nullptr, allow_metadata_help},
    {"allow-namespaces", 0, nullptr, allow_namespaces_help},
    {"secrets-key", 0, "FILE",
     "key that encrypts secrets (default: DATA/secrets.key); heads of one store share it", false,
     Completes::file},
    {"notify-command", 0, "CMD",
     "command to run for each notice (budgets, idle jobs, failures, health); it gets the notice as "
     "JSON on stdin"},
    {"smtp", 0, "URL",
     "mail server for the notices that users choose: smtp://USER@HOST:587 or "
     "smtps://USER@HOST:465"},
    {"smtp-password-file", 0, "FILE", "file with the password of the mail server", false,
     Completes::file},
    {"smtp-from", 0, "ADDRESS", "sender of the mails (default: the USER of --smtp)"},
    {"smtp-ca", 0, "FILE", "certificate authority of the mail server (PEM; default: the system's)",
     false, Completes::file},
    {"label", 'l', "K=V",
     "label of this node: region, zone, rack, switch, fabric, placement-group, pool, or any other",
     true},
    {"gateway", 0, "ADDR", "address to serve endpoints at (default 127.0.0.1:7071; repeatable)",
     true},
    {"gateway-cert", 0, "FILE",
     "certificate that endpoints are served with (PEM; default: self-signed)", false,
     Completes::file},
    {"gateway-key", 0, "FILE", "key of that certificate (PEM)", false, Completes::file},
    {"gateway-threads", 0, "N", "threads of the gateway, 1 to 16 (default 1)"},
    {"gateway-user", 0, "NAME",
     "account of the gateway if the head runs as root (default: billow-gateway, else nobody)"},
    {"webhook-host", 0, "HOST",
     "allow webhooks to this host although it is on this machine or a private network (repeatable)",
     true},
    {"otlp", 0, "URL", "export traces of endpoints to this collector; see `billow gateway`"},
    {"otlp-metrics", 0, "URL",
     "push the metrics of /metrics to this collector (OTLP/HTTP), for example "
     "http://127.0.0.1:4318/v1/metrics"},
    {"otlp-every", 0, "T", "time between two pushes of metrics (default 30s)"},
    {"trace-sample", 0, "PART", "fraction of requests to trace, 0 to 1 (default 1)"},
    {"sample-to", 0, "s3://BUCKET/PREFIX",
     "bucket for samples of requests to endpoints (`billow deploy --sample`); credentials as for "
     "--logs"},
    {"system", 0, nullptr,
     "serve all users of this machine: their Unix account signs them in at /run/billow/head.sock "
     "(needs root)"},
    {"no-agent", 0, nullptr, "run no jobs on this machine"},
    {"tls", 0, nullptr, "use https also on loopback addresses (other addresses always use it)"},
    {"tls-cert", 0, "FILE", "your own certificate with its chain (PEM; default: self-signed)",
     false, Completes::file},
    {"tls-key", 0, "FILE", "key of the certificate (PEM)", false, Completes::file},
    {"tls-name", 0, "NAME", "additional name or address of this head for its certificate", true},
    {"public-url", 0, "URL",
     "address at which rented machines reach this head (default: its first --listen address); its "
     "host becomes part of the certificate"},
    {"client-ca", 0, "FILE",
     "accept nodes and gateways with certificates of this authority (PEM; default: the head issues "
     "them itself)",
     false, Completes::file},
    {"require-client-certificates", 0, nullptr,
     "refuse nodes and gateways that connect without a certificate (nodes of version 0.1 have "
     "none)"},
    {"certificate-life", 0, "T",
     "how long a certificate of a node or gateway is valid (default 24h); it is renewed after two "
     "thirds of that"},
    {"store", 0, "URL",
     "keep the state in PostgreSQL, postgres://user@host/database, instead of the data directory "
     "(BILLOW_STORE)"},
    {"store-file", 0, "FILE",
     "read the --store URL from a file that only you can read; for URLs with a password, which "
     "other users can see in the arguments",
     false, Completes::file},
    {"standby", 0, nullptr,
     "run as a standby: take over when the leading head of that store fails"},
    {"files-dir", 0, "DIR",
     "directory for uploaded files (default: files/ in the data directory); a standby head needs "
     "the same one",
     false, Completes::directory},
    {"logs", 0, "s3://BUCKET/PREFIX",
     "also keep the logs of ended jobs in this bucket, with the credentials that AWS tools find"},
    {"backup-dir", 0, "DIR",
     "back up the store into this directory regularly; see `billow store restore`", false,
     Completes::directory},
    {"backup-every", 0, "T", "time between backups (default 24h)"},
    {"backup-keep", 0, "N", "number of backups to keep (default 7)"},
    {"keep-events", 0, "T",
     "how long the journal keeps events of jobs and machines (default: the last 5000000), or "
     "forever"},
    {"keep-events-max", 0, "N",
     "how many events of jobs and machines the journal keeps (default 5000000, with --keep-events "
     "unlimited)"},
    {"keep-audit", 0, "T",
     "how long the journal keeps all other events, such as changes by users and refused calls "
     "(default forever)"},
    {"plain-http", 0, nullptr, "use no TLS: a proxy in front of this head provides it"},
    {"background", 0, nullptr,
     "run in the background: return when the head is ready; it logs to head.log in the data "
     "directory"},
    {"log-json", 0, nullptr, "log as JSON lines"},
    {"verbose", 'v', nullptr, "log debug messages"},
};
constexpr OptionSpec down_options[] = {
    {"stop-jobs", 0, nullptr,
     "stop all jobs first (default: running jobs continue, and the next head adopts them)"},
};
constexpr OptionSpec agent_options[] = {
    {"head", 0, "URL", "head to serve: unix:PATH, http://…, https://…"},
    {"token-file", 0, "FILE", "file with this node's credential", false, Completes::file},
    {"data", 0, "DIR", "directory for its tasks", false, Completes::directory},
    {"sim", 0, "SPEC", "simulate GPUs"},
    {"vault-arena", 0, "SIZE", "host memory for suspended jobs' GPU memory; 0: none"},
    {"sleep-memory", 0, "SIZE", sleep_memory_help},
    {"sleep-disk", 0, "SIZE", sleep_disk_help},
    {"allow-mig-changes", 0, nullptr, "create and remove MIG instances as jobs need them"},
    {"images-max", 0, "SIZE", images_max_help},
    {"pull-patience", 0, "T", pull_patience_help},
    {"allow-metadata", 0, nullptr, allow_metadata_help},
    {"allow-namespaces", 0, nullptr, allow_namespaces_help},
    {"node-name", 0, "NAME", "name of the node"},
    {"label", 'l', "K=V",
     "label of the node: region, zone, rack, switch, fabric, placement-group, pool, or any other",
     true},
    {"metrics", 0, "ADDR",
     "serve this node's /metrics for Prometheus at this address, e.g. 127.0.0.1:9400"},
    {"pool", 0, "NAME", "pool the node belongs to, for prices"},
    {"bills", 0, nullptr,
     "this node is billed by the hour: release it when it is idle or its head is gone"},
    {"end-command", 0, "CMD", "command that releases the node, e.g. systemctl poweroff"},
    {"log-json", 0, nullptr, "log as JSON lines"},
};
Status check_labels(const std::vector<std::string>& labels) {
  for (const std::string& label : labels) {
    const auto equals = label.find('=');
    if (equals == std::string::npos)
      return fail(Code::invalid, fmt::format("--label {} is not KEY=VALUE", label),
                  "use a form like --label zone=a");
    BILLOW_TRY_VOID(check_name("label", label.substr(0, equals)));
    if (label.size() > 256 || !valid_utf8(label))
      return fail(Code::invalid,
                  fmt::format("--label {}: longer than 256 bytes, or not valid text", label));
  }
  return {};
}

// `up` passes its options to the agent it starts as variables.
Status read_sleep_space(const Parsed& parsed, agent::NodeOptions& options) {
  const struct {
    const char *option, *variable;
    std::int64_t& bytes;
  } sizes[] = {{"vault-arena", "BILLOW_VAULT_ARENA", options.arena_bytes},
               {"sleep-memory", "BILLOW_SLEEP_MEMORY", options.sleep_memory_bytes},
               {"sleep-disk", "BILLOW_SLEEP_DISK", options.sleep_disk_bytes}};
  for (const auto& size : sizes) {
    const char* set = std::getenv(size.variable);
    const std::string text = parsed.get(size.option, set ? set : "");
    if (text.empty())
      continue;
    const auto bytes = bytes_with_unit(text);
    if (!bytes)
      return pass(bytes.error(), std::string("--") + size.option);
    size.bytes = static_cast<std::int64_t>(*bytes);
  }
  return {};
}

// A head in the background has another working directory.
std::string absolute(std::string path) {
  char here[4096];
  if (path.empty() || path.front() == '/' || !::getcwd(here, sizeof here))
    return path;
  return std::string(here) + "/" + path;
}

head::HeadOptions head_options_of(const Parsed& parsed) {
  head::HeadOptions options;
  if (parsed.has("vault-arena"))
    ::setenv("BILLOW_VAULT_ARENA", parsed.get("vault-arena").c_str(), 1);
  // The agent that this head starts takes them from its environment.
  if (const std::string metrics = parsed.get("metrics"); !metrics.empty())
    ::setenv("BILLOW_AGENT_METRICS", metrics.c_str(), 1);
  if (parsed.has("sleep-memory"))
    ::setenv("BILLOW_SLEEP_MEMORY", parsed.get("sleep-memory").c_str(), 1);
  if (parsed.has("sleep-disk"))
    ::setenv("BILLOW_SLEEP_DISK", parsed.get("sleep-disk").c_str(), 1);
  if (parsed.has("allow-mig-changes"))
    ::setenv("BILLOW_ALLOW_MIG_CHANGES", "1", 1);
  options.data_dir = absolute(data_directory(parsed.get("data")));
  options.pointer = pointer_path(options.data_dir);
  remember_data_directory(options.data_dir);
  options.listen = parsed.all("listen");
  options.listen_any_port_if_taken = options.listen.empty() && parsed.has("background");
  if (options.listen.empty())
    options.listen = {"127.0.0.1:7070"};
  const char* sim = ::getenv("BILLOW_SIM");
  options.sim = parsed.get("sim", sim ? sim : "");
  options.node_name = parsed.get("node-name");
  options.labels = parsed.all("label");
  options.local_agent = !parsed.has("no-agent");
  options.gateway_listen = parsed.all("gateway");
  options.gateway_user = parsed.get("gateway-user");
  options.webhook_hosts = parsed.all("webhook-host");
  options.otlp = parsed.get("otlp");
  options.trace_sample = parsed.get("trace-sample");
  options.tls = parsed.has("tls");
  options.plain_http = parsed.has("plain-http");
  options.tls_cert = parsed.get("tls-cert");
  options.tls_key = parsed.get("tls-key");
  options.tls_names = parsed.all("tls-name");
  options.client_ca = parsed.get("client-ca");
  options.require_client_certificates = parsed.has("require-client-certificates");
  options.notify_command = parsed.get("notify-command");
  options.secrets_key = absolute(parsed.get("secrets-key"));
  options.standby = parsed.has("standby");
  return options;
}

// Long enough for a renewal after two thirds of it, short enough to be of use.
Status set_certificate_life(const Parsed& parsed, head::HeadOptions& options) {
  if (!parsed.has("certificate-life"))
    return {};
  const auto life = duration_with_unit(parsed.get("certificate-life"));
  if (!life || *life < seconds(5) || *life > hours(24 * 90))
    return fail(Code::invalid,
                fmt::format("--certificate-life {} is not a time from 5 seconds to 90 days",
                            parsed.get("certificate-life")),
                "use a form like 24h");
  options.certificate_life = *life;
  return {};
}

// Where metrics and mails go. A wrong address is an error before anything is started.
Status set_collectors(const Parsed& parsed, head::HeadOptions& options) {
  options.gateway_arguments = BILLOW_TRY(front_door_arguments(parsed));
  options.sample_to = parsed.get("sample-to");
  if (!options.sample_to.empty())
    if (const auto place = s3::parse_place(options.sample_to); !place || !place->s3)
      return fail(Code::invalid, fmt::format("--sample-to {} is not a bucket", options.sample_to),
                  "use s3://bucket/prefix");
  options.otlp_metrics = parsed.get("otlp-metrics");
  if (!options.otlp_metrics.empty())
    if (const auto url = net::parse_url(options.otlp_metrics); !url)
      return pass(Error(url.error()).in("--otlp-metrics"));
  if (parsed.has("otlp-every")) {
    const auto every = duration_with_unit(parsed.get("otlp-every"));
    if (!every || *every < seconds(1))
      return fail(Code::invalid,
                  fmt::format("--otlp-every {} is not a time of at least one second",
                              parsed.get("otlp-every")),
                  "use a form like 30s");
    options.otlp_every = *every;
  }
  options.smtp = parsed.get("smtp");
  if (!options.smtp.empty())
    if (const auto server = net::parse_smtp(options.smtp); !server)
      return pass(Error(server.error()).in("--smtp"));
  options.smtp_password_file = absolute(parsed.get("smtp-password-file"));
  options.smtp_from = parsed.get("smtp-from");
  options.smtp_ca = absolute(parsed.get("smtp-ca"));
  return {};
}

Status set_public_url(const Parsed& parsed, head::HeadOptions& options) {
  options.public_url = parsed.get("public-url");
  if (options.public_url.empty())
    return {};
  const auto url = net::parse_endpoint(options.public_url);
  if (!url || url->address.is_unix())
    return fail(Code::invalid, fmt::format("--public-url {} is not a URL", options.public_url),
                "use a form like https://203.0.113.7:7070");
  options.tls_names.push_back(url->address.host);
  return {};
}

Status set_directories(const Parsed& parsed, head::HeadOptions& options) {
  for (const char* name : {"files-dir", "backup-dir"})
    if (const std::string path = parsed.get(name); !path.empty() && path.front() != '/')
      return fail(Code::invalid, fmt::format("--{} {} is not an absolute path", name, path),
                  "start it with /");
  options.files_dir = parsed.get("files-dir");
  options.backup_dir = parsed.get("backup-dir");
  options.logs_bucket = parsed.get("logs");
  BILLOW_TRY_VOID(set_collectors(parsed, options));
  if (options.backup_dir.empty() && (parsed.has("backup-every") || parsed.has("backup-keep")))
    return fail(Code::invalid, "--backup-dir is missing", "add --backup-dir DIR");
  if (parsed.has("backup-every")) {
    const auto every = duration_with_unit(parsed.get("backup-every"));
    if (!every || *every < seconds(1))
      return fail(Code::invalid,
                  fmt::format("--backup-every {} is not a time of at least one second",
                              parsed.get("backup-every")),
                  "use a form like 24h");
    options.backup_every = *every;
  }
  if (parsed.has("backup-keep")) {
    const auto kept = parse_int(parsed.get("backup-keep"), 1, 10'000);
    if (!kept)
      return fail(Code::invalid, fmt::format("--backup-keep {} is not a number from 1 to 10000",
                                             parsed.get("backup-keep")));
    options.backups_kept = static_cast<std::uint32_t>(*kept);
  }
  return set_retention(parsed, options.retention);
}

std::string agent_log_of(const std::string& data_dir) {
  return read_file(data_dir + "/agent.log").value_or("");
}

// The head is up without this machine's agent: jobs would wait forever, so the agent's own
// words are shown. What was in its log `before` has nothing to do with it.
void warn_without_agent(const std::string& data_dir, std::size_t before) {
  auto client = Client::create({.head = "", .data = data_dir, .may_start = false});
  if (!client)
    return;
  const auto status = client->get("/v1/status");
  if (!status || (*status)["nodes"]["ready"].uint_or(0) > 0)
    return;
  const std::string log = agent_log_of(data_dir);
  const std::string written(trim(log.substr(before <= log.size() ? before : 0)));
  // An agent that ends says why, and what to do, in its last lines.
  const std::size_t error = written.rfind("billow: ");
  const std::size_t last = error != std::string::npos ? error : written.rfind('\n') + 1;
  say(fmt::format(
      "the agent of this machine has not answered yet, so no job can run here{}",
      written.empty() ? "; see " + data_dir + "/agent.log" : ":\n" + written.substr(last)));
}

// The head as a process that is nobody's child. Returns what it says when it is ready, or why it
// ended.
Result<std::string> start_head_apart(head::HeadOptions options, const Parsed& parsed) {
  process::Pipe ready = BILLOW_TRY(process::Pipe::create());
  const std::string stop = down_command(options.data_dir);
  const Fd log(::open((options.data_dir + "/head.log").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  process::Spawn request;
  request.out = request.err = log ? log.get() : process::inherited;
  request.cwd = "/";
  request.group = process::Group::session;
  request.detached = true;
  request.body = [&] {
    ready.read.reset();
    configure_log({.level = parsed.has("verbose") ? LogLevel::debug : LogLevel::info,
                   .json = parsed.has("log-json"),
                   .component = "head"});
    const int fd = ready.write.get();
    options.ready_fd = fd;
    const Status ended = server::run_head(std::move(options));
    if (ended)
      return 0;
    log_error("{}", ended.error().message);
    (void)write_all(fd, ended.error().message + "\n" + ended.error().hint);
    return 1;
  };
  BILLOW_TRY(process::spawn(request));
  ready.write.reset();
  const OnInterrupt left(
      fmt::format("Billow is still starting in the background; stop it with `{}`", stop));
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ready.read.get(), buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(n));
  return said;
}

int up_in_background(const head::HeadOptions& options, const Parsed& parsed) {
  std::string where;
  if (answers(options.data_dir, where)) {
    tell_it_runs(parsed, where, options.data_dir);
    return 0;
  }
  if (const Status made = make_directories(options.data_dir, 0700); !made)
    return report({made.error().code, made.error().message,
                   "choose a directory that you can write: --data DIR, or BILLOW_DATA"});
  const std::size_t logged = agent_log_of(options.data_dir).size();
  const auto said = start_head_apart(options, parsed);
  if (!said)
    return report(said.error());
  if (said->starts_with("standby: ")) {
    const auto lines = split(trim(said->substr(9)), '\n');
    print(fmt::format("billow is standing by: {} leads; this head takes over if it fails\n",
                      lines.front()));
    for (std::size_t i = 1; i < lines.size(); ++i)
      say(lines[i]);
    return 0;
  }
  if (*said != "ok\n") {
    const auto line = said->find('\n');
    Error error{Code::unavailable, said->substr(0, line),
                line == std::string::npos ? "" : said->substr(line + 1)};
    if (error.message.empty())
      error = {Code::unavailable, "the head exited before it was ready",
               "see " + options.data_dir + "/head.log"};
    // Somebody else started one in the same moment: theirs is as good as ours once it answers.
    if (error.message.find("in use by another head") == std::string::npos ||
        !within([&] { return answers(options.data_dir, where); }, seconds(10)))
      return report(error);
    tell_it_runs(parsed, where, options.data_dir);
    return 0;
  }
  if (!answers(options.data_dir, where))
    return report(
        {Code::unavailable, "the head does not answer", "see " + options.data_dir + "/head.log"});
  print(fmt::format("billow is running: {} (data in {}; stop it with `{}`)\n", where,
                    options.data_dir, down_command(options.data_dir)));
  if (options.local_agent)
    warn_without_agent(options.data_dir, logged);
  if (options.local_agent && options.sim.empty() && options.listen_any_port_if_taken)
    tell_of_head_on_usual_port(where);
  return 0;
}

int cmd_up(const Parsed& parsed) {
  if (const Status ok = check_labels(parsed.all("label")); !ok)
    return report_usage(ok.error());
  if (const Status ok = pass_kept_on_node(parsed); !ok)
    return report_usage(ok.error());
  head::HeadOptions options = head_options_of(parsed);
  if (const Status ok = set_directories(parsed, options); !ok)
    return report_usage(ok.error());
  if (const Status ok = set_public_url(parsed, options); !ok)
    return report_usage(ok.error());
  if (const Status ok = set_certificate_life(parsed, options); !ok)
    return report_usage(ok.error());
  auto store = store_of(parsed);
  if (!store)
    return report_usage(store.error());
  options.store = std::move(*store);
  if (options.standby && options.store.empty())
    return report_usage({Code::invalid, "a standby needs a store that both heads can reach",
                         "add --store postgres://user@host/billow, or --store-file FILE"});
  if (!options.sim.empty()) {
    const auto spec = parse_sim_spec(options.sim);
    if (!spec)
      return report_usage(Error(spec.error()).in("--sim " + options.sim));
    options.sim =
        sim_spec_text(*spec);  // a file's name would mean another file in another directory
  }
  if (const Status ok = set_system(parsed, options); !ok)
    return report_usage(ok.error());
  if (const auto ended = beside_another_head(parsed, options))
    return *ended;
  if (const Status free = check_gpus_are_free(options); !free)
    return report(free.error());
  if (parsed.has("background"))
    return up_in_background(std::move(options), parsed);
  configure_log({.level = parsed.has("verbose") ? LogLevel::debug : LogLevel::info,
                 .json = parsed.has("log-json"),
                 .component = "head"});
  const Status ended = server::run_head(std::move(options));
  return ended ? 0 : report(ended.error());
}

int cmd_agent(const Parsed& parsed) {
  if (const Status ok = check_labels(parsed.all("label")); !ok)
    return report_usage(ok.error());
  configure_log({.level = LogLevel::info, .json = parsed.has("log-json"), .component = "agent"});
  agent::NodeOptions options;
  options.head = parsed.get("head");
  options.token_file = parsed.get("token-file");
  options.data_dir = parsed.get("data");
  options.sim = parsed.get("sim");
  options.node_name = parsed.get("node-name");
  for (const std::string& label : parsed.all("label"))
    options.labels[label.substr(0, label.find('='))] = label.substr(label.find('=') + 1);
  options.version = version();
  if (const Status read = read_sleep_space(parsed, options); !read)
    return report_usage(read.error());
  if (const Status kept = read_kept_on_node(parsed, options); !kept)
    return report_usage(kept.error());
  options.allow_mig_changes =
      parsed.has("allow-mig-changes") || std::getenv("BILLOW_ALLOW_MIG_CHANGES");
  const char* metrics_set = std::getenv("BILLOW_AGENT_METRICS");
  options.metrics = parsed.get("metrics", metrics_set ? metrics_set : "");
  options.pool = parsed.get("pool");
  options.bills = parsed.has("bills");
  options.end_command = parsed.get("end-command");
  if (options.head.empty() || options.token_file.empty() || options.data_dir.empty())
    return report_usage({Code::invalid, "--head, --token-file and --data are required",
                         "`billow up` starts the agent of this machine itself"});
  const Status ended = agent::run_node(std::move(options));
  return ended ? 0 : report(ended.error());
}

}  // namespace

void add_head_commands(CommandTable& table) {
  table.push_back(
      {.name = "up",
       .summary = "start a head on this machine, with an agent for its GPUs",
       .example = "billow up\nbillow up --background --sim 8xH100\nbillow up --listen 0.0.0.0:7070",
       .run = cmd_up,
       .details = "By default the head listens on loopback only; on other addresses it always uses "
                  "TLS. On first start it creates a token (mode 0600) in the\ndata directory. "
                  "Commands on this machine find it there; a small file in ~/.local/state/billow "
                  "records where the directory is. If several\nof your heads run on one machine, "
                  "choose one with --data or BILLOW_DATA.",
       .options = {up_options, front_door_options},
       .group = "head",
       .talks_to_head = false,
       .prints_json = false});
  table.push_back({.name = "down",
                   .summary = "stop the head and the agent of this machine; running jobs continue",
                   .example = "billow down\nbillow down --stop-jobs",
                   .run = cmd_down,
                   .options = {down_options},
                   .group = "head",
                   .prints_json = false});
  table.push_back({.name = "agent",
                   .summary = "serve the GPUs of this machine to a head (started by `up`)",
                   .example = "billow agent --head unix:/var/lib/billow/head.sock --token-file "
                              "/var/lib/billow/node-token --data /var/lib/billow/agent",
                   .run = cmd_agent,
                   .options = {agent_options},
                   .group = internal_group,
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
