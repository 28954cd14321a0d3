// gateway: the process that serves endpoints.
#include <unistd.h>

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "gateway/gateway.h"
#include "net/address.h"
#include "pool/ec2/bucket_access.h"
#include "process/gateway_group.h"
#include "server/front_door_options.h"
#include "server/kept_on_node.h"

namespace billow::client {
namespace {

constexpr OptionSpec gateway_options[] = {
    {"listen", 0, "ADDR", "address to serve endpoints at (default 127.0.0.1:7071; repeatable)",
     true},
    {"head", 0, "URL", "head whose endpoints are served: unix:PATH, http://…, https://…"},
    {"token-file", 0, "FILE", "file with the gateway's credential", false, Completes::file},
    {"fingerprint", 0, "SHA256",
     "fingerprint of the head's certificate or of its authority, as in `billow join`"},
    {"ca", 0, "FILE", "certificate authority of the head (PEM), instead of the system's", false,
     Completes::file},
    {"client-cert", 0, "FILE", client_cert_help, false, Completes::file},
    {"client-key", 0, "FILE", client_key_help, false, Completes::file},
    {"region", 0, "NAME",
     "region to serve: this gateway scales the replicas there and forwards what they cannot serve "
     "to the nearest other region"},
    {"advertise", 0, "ADDR",
     "HOST:PORT at which gateways of other regions reach this one (default: its listen address)"},
    {"webhook-host", 0, "HOST",
     "allow webhooks of endpoints to this host although it is on this machine or a private network "
     "(repeatable)",
     true},
    {"otlp", 0, "URL",
     "export traces to this collector (OTLP/HTTP), for example http://127.0.0.1:4318/v1/traces"},
    {"trace-sample", 0, "PART",
     "fraction of requests to trace if the caller sent no trace, 0 to 1 (default 1)"},
    {"sample-to", 0, "s3://BUCKET/PREFIX",
     "bucket that gets samples of the requests to endpoints deployed with --sample; credentials as "
     "in Amazon's tools"},
    {"sample", 0, "PERCENT", "with --serve: share of the requests to sample (default 0%)"},
    {"data", 0, "DIR", "directory for the endpoint table and the access log", false,
     Completes::directory},
    {"serve", 0, "NAME=ADDR",
     "without a head: a fixed endpoint at [h2://|grpc://]HOST:PORT[,HOST:PORT…] (repeatable)",
     true},
    {"cert", 0, "FILE", "serve HTTPS with this certificate", false, Completes::file},
    {"key", 0, "FILE", "key of the certificate", false, Completes::file},
    {"take-over", 0, nullptr,
     "replace the gateway that runs on this data directory without refusing a connection"},
    {"any-port", 0, nullptr, "use another port if the address is taken"},
    {"threads", 0, "N", "threads that serve connections, 1 to 16 (default 1)"},
    {"log-json", 0, nullptr, "log as JSON lines"},
    {"verbose", 'v', nullptr, "log debug messages"},
};

// One for all calls: it keeps credentials until they expire.
Result<s3::Access> bucket_access() {
  const auto variable = [](const char* name) {
    const char* value = ::getenv(name);
    return std::string(value ? value : "");
  };
  static pool::ec2::Wire wire({.endpoint = {}, .profile = {}, .variable = variable});
  return pool::ec2::bucket_access(wire, variable);
}

int cmd_gateway(const Parsed& parsed) {
  configure_log({.level = parsed.has("verbose") ? LogLevel::debug : LogLevel::info,
                 .json = parsed.has("log-json"),
                 .component = "gateway"});
  gateway::GatewayOptions options;
  if (parsed.has("listen"))
    options.listen = parsed.all("listen");
  options.tls = {parsed.get("cert"), parsed.get("key")};
  options.data_dir = parsed.get("data");
  options.head = parsed.get("head");
  options.token_path = parsed.get("token-file");
  options.head_tls = {.ca_path = parsed.get("ca"), .pinned_fingerprint = parsed.get("fingerprint")};
  options.client_cert = parsed.get("client-cert");
  options.client_key = parsed.get("client-key");
  options.serve = parsed.all("serve");
  options.region = parsed.get("region");
  options.advertise = parsed.get("advertise");
  options.webhook_hosts = parsed.all("webhook-host");
  options.otlp = parsed.get("otlp");
  if (!options.otlp.empty())
    if (const auto url = net::parse_url(options.otlp); !url)
      return report_usage(Error(url.error()).in("--otlp"));
  if (parsed.has("trace-sample")) {
    const auto part = parse_double(parsed.get("trace-sample"), 0, 1);
    if (!part)
      return report_usage(Error(part.error()).in("--trace-sample"));
    options.trace_sample = *part;
  }
  if (const Status door = read_front_door(parsed, options); !door)
    return report_usage(door.error());
  options.sample_to = parsed.get("sample-to");
  options.bucket_access = bucket_access;
  if (parsed.has("sample")) {
    const auto part = read_part("--sample", parsed.get("sample"));
    if (!part)
      return report_usage(part.error());
    options.sample = *part;
  }
  if (!options.region.empty())
    if (const Status named = check_name("region", options.region); !named)
      return report_usage(named.error());
  if (!options.advertise.empty())
    if (const auto address = net::parse_address(options.advertise); !address)
      return report_usage(Error(address.error()).in("--advertise"));
  options.listen_any_port_if_taken = parsed.has("any-port");
  options.take_over = parsed.has("take-over");
  options.version = version();
  if (const auto threads = read_threads(parsed, "threads"); !threads)
    return report_usage(threads.error());
  else
    options.threads = *threads;
  if (options.head.empty() == options.serve.empty())
    return report_usage(
        {Code::invalid,
         "a gateway needs either --head (a head's endpoints) or --serve (fixed endpoints)",
         "for example: billow gateway --serve hello=127.0.0.1:8000"});
  // The head does this for its own gateway, which is not root any more when it begins.
  if (::geteuid() == 0)
    if (const Status entered = process::enter_gateway_group(); !entered)
      log_debug("replicas on this machine may be closed to this gateway: {}",
                entered.error().message);
  const Status ran = gateway::run_gateway(std::move(options));
  return ran ? 0 : report(ran.error());
}

}  // namespace

void add_gateway_commands(CommandTable& table) {
  table.push_back({.name = "gateway",
                   .summary = "serve endpoints (`billow up` starts a gateway itself)",
                   .example = "billow gateway --serve hello=127.0.0.1:8000 --listen 127.0.0.1:7071",
                   .run = cmd_gateway,
                   .options = {gateway_options, front_door_options},
                   .group = "endpoints",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
