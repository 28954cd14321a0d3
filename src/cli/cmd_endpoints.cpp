// Serverless endpoints on the command line.
#include "cli/commands.h"
#include "cli/console.h"
#include "gateway/replay.h"

namespace billow::cli {
namespace {

constexpr OptionSpec simulate_endpoints_options[] = {
    {"trace", 0, "CSV", "requests: TIMESTAMP,ContextTokens,GeneratedTokens", false, Completes::file},
    {"concurrency", 0, "N", "requests at once for one replica (8)"},
    {"prefill-tokens-s", 0, "N", "tokens of a prompt read in a second (8000)"},
    {"step-ms", 0, "N", "milliseconds for a token of an answer (30)"},
    {"start-s", 0, "N", "seconds a cold start takes (40)"},
    {"wake-s", 0, "N", "seconds to wake a suspended replica (0.7)"},
    {"slo-s", 0, "N", "seconds within which the first token should come (2)"},
};

int simulate_endpoints(const Parsed& parsed) {
  std::vector<std::string> words;
  for (const OptionSpec& o : simulate_endpoints_options)
    for (const std::string& value : parsed.all(o.name)) words.insert(words.end(), {std::string("--") + o.name, value});
  if (parsed.has("json")) words.emplace_back("--json");
  return gateway::simulate_endpoints_main(words);
}

}  // namespace

void add_endpoint_commands(CommandTable& table) {
  table.push_back({.name = "simulate endpoints",
                   .summary = "how an endpoint would scale on a trace of requests, against a fixed fleet and Knative's algorithm",
                   .example = "billow simulate endpoints --trace requests.csv --concurrency 8 --slo-s 2",
                   .run = simulate_endpoints,
                   .options = {simulate_endpoints_options},
                   .group = "money and advice",
                   .talks_to_head = false});
}

}  // namespace billow::cli
