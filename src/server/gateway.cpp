// gateway: the process that serves endpoints; simulate endpoints: how its autoscaler would have
// done on a trace.
#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "gateway/gateway.h"
#include "net/address.h"
#include "simulate/endpoint_replay.h"

namespace billow::client {
namespace {

constexpr OptionSpec simulate_endpoints_options[] = {
    {"trace", 0, "CSV", "requests: TIMESTAMP,ContextTokens,GeneratedTokens", false,
     Completes::file},
    {"concurrency", 0, "N", "requests at once for one replica (8)"},
    {"prefill-tokens-s", 0, "N", "tokens of a prompt read in a second (8000)"},
    {"step-ms", 0, "N", "milliseconds for a token of an answer (30)"},
    {"start-s", 0, "N", "seconds a cold start takes (40)"},
    {"wake-s", 0, "N", "seconds to wake a suspended replica (0.7)"},
    {"existing", 0, "N",
     "replicas that exist already in the second comparison (as many as a fixed fleet needs for "
     "99.9 %)"},
    {"slo-s", 0, "N", "seconds within which the first token should come (2)"},
};

constexpr OptionSpec gateway_options[] = {
    {"listen", 0, "ADDR", "where endpoints are served (127.0.0.1:7071); may be given several times",
     true},
    {"head", 0, "URL", "the head whose endpoints are served: unix:PATH, http://…, https://…"},
    {"token-file", 0, "FILE", "a file with the gateway's credential", false, Completes::file},
    {"fingerprint", 0, "SHA256",
     "the head's certificate, or that of its authority, as `billow join` takes it"},
    {"ca", 0, "FILE", "the authority of the head's certificate (PEM), instead of the system's",
     false, Completes::file},
    {"region", 0, "NAME",
     "the region it serves: it steers the replicas there, and passes on to the nearest other what "
     "they cannot serve"},
    {"advertise", 0, "ADDR",
     "where gateways of other regions reach it, HOST:PORT (default: where it listens)"},
    {"webhook-host", 0, "HOST",
     "let webhooks of endpoints go to this host although it is of this machine or its networks; "
     "may be given several times",
     true},
    {"data", 0, "DIR", "where its table and access log are kept", false, Completes::directory},
    {"serve", 0, "NAME=ADDR",
     "without a head: a fixed endpoint at HOST:PORT[,HOST:PORT…]; may be given several times",
     true},
    {"cert", 0, "FILE", "serve HTTPS with this certificate", false, Completes::file},
    {"key", 0, "FILE", "and this key", false, Completes::file},
    {"any-port", 0, nullptr, "another port when the address is taken"},
    {"log-json", 0, nullptr, "log as JSON lines"},
    {"verbose", 'v', nullptr, "log more"},
};

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
  options.serve = parsed.all("serve");
  options.region = parsed.get("region");
  options.advertise = parsed.get("advertise");
  options.webhook_hosts = parsed.all("webhook-host");
  if (!options.region.empty())
    if (const Status named = check_name("region", options.region); !named)
      return report_usage(named.error());
  if (!options.advertise.empty())
    if (const auto address = net::parse_address(options.advertise); !address)
      return report_usage(Error(address.error()).in("--advertise"));
  options.listen_any_port_if_taken = parsed.has("any-port");
  if (options.head.empty() == options.serve.empty())
    return report_usage({Code::invalid,
                         "a gateway serves a head's endpoints (--head) or fixed ones (--serve)",
                         "billow gateway --serve hello=127.0.0.1:8000"});
  const Status ran = gateway::run_gateway(std::move(options));
  return ran ? 0 : report(ran.error());
}

int simulate_endpoints(const Parsed& parsed) {
  std::vector<std::string> words;
  for (const OptionSpec& o : simulate_endpoints_options)
    for (const std::string& value : parsed.all(o.name))
      words.insert(words.end(), {std::string("--") + o.name, value});
  if (parsed.has("json"))
    words.emplace_back("--json");
  return gateway::simulate_endpoints_main(words);
}

}  // namespace

void add_gateway_commands(CommandTable& table) {
  table.push_back({.name = "gateway",
                   .summary = "serve endpoints (`billow up` starts one by itself)",
                   .example = "billow gateway --serve hello=127.0.0.1:8000 --listen 127.0.0.1:7071",
                   .run = cmd_gateway,
                   .options = {gateway_options},
                   .group = "endpoints",
                   .talks_to_head = false,
                   .prints_json = false});
  table.push_back(
      {.name = "simulate endpoints",
       .summary = "how an endpoint would scale on a trace of requests, against a fixed fleet and "
                  "Knative's algorithm",
       .example = "billow simulate endpoints --trace requests.csv --concurrency 8 --slo-s 2",
       .run = simulate_endpoints,
       .options = {simulate_endpoints_options},
       .group = "money and advice",
       .talks_to_head = false});
}

}  // namespace billow::client
