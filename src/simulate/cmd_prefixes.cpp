// `billow simulate prefixes`: requests to replicas at random, to the least loaded one, and by the
// prefixes of their prompts, on one trace, as a table or as JSON.
#include <fmt/format.h>

#include "base/json.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "simulate/prefix_replay.h"
#include "simulate/simulate_commands.h"

namespace billow::client {
namespace {

using gateway::PrefixOptions;
using gateway::PrefixPolicy;
using gateway::PrefixResult;

constexpr OptionSpec options[] = {
    {"trace", 0, "FILE",
     "requests: TIMESTAMP,ContextTokens,GeneratedTokens, or JSON lines with timestamp (ms), "
     "input_length, output_length and hash_ids",
     false, Completes::file},
    {"replicas", 0, "N", "engines (default 4)"},
    {"cache-tokens", 0, "N", "tokens that the KV cache of an engine holds (default 200000)"},
    {"prefill-tokens-s", 0, "N", "prompt tokens read per second (default 8000)"},
    {"step-ms", 0, "N", "milliseconds per generated token (default 30)"},
    {"message-tokens", 0, "N",
     "new tokens of a prompt up to which it can continue a conversation (default 512)"},
    {"speed", 0, "N", "replay the requests N times as fast (default 1)"},
    {"no-cached-tokens", 0, nullptr,
     "engines do not report how many tokens of a prompt were cached"},
    {"seed", 0, "N", "seed of the random policy (default 1)"},
};

Result<PrefixOptions> read_options(const Parsed& parsed) {
  PrefixOptions o;
  o.replicas = static_cast<std::uint32_t>(
      BILLOW_TRY(number_option(parsed, "replicas", o.replicas, 1, 10'000)));
  o.cache_tokens = static_cast<std::uint64_t>(BILLOW_TRY(
      number_option(parsed, "cache-tokens", static_cast<double>(o.cache_tokens), 0, 1e9)));
  o.prefill_tokens_s =
      BILLOW_TRY(number_option(parsed, "prefill-tokens-s", o.prefill_tokens_s, 1, 1e9));
  o.step_ms = BILLOW_TRY(number_option(parsed, "step-ms", o.step_ms, 0, 1e9));
  o.message_tokens_max = static_cast<std::uint32_t>(
      BILLOW_TRY(number_option(parsed, "message-tokens", o.message_tokens_max, 0, 1e6)));
  o.speed = BILLOW_TRY(number_option(parsed, "speed", o.speed, 0.001, 1000));
  o.cached_reported = !parsed.has("no-cached-tokens");
  o.seed = static_cast<std::uint64_t>(BILLOW_TRY(number_option(parsed, "seed", 1, 0, 1e9)));
  return o;
}

Status simulate_prefixes(const Parsed& parsed) {
  const std::string path = BILLOW_TRY(
      required_option(parsed, "trace", "give a CSV with TIMESTAMP,ContextTokens,GeneratedTokens"));
  const PrefixOptions o = BILLOW_TRY(read_options(parsed));
  const auto trace = gateway::read_llm_trace(path);
  if (!trace)
    return fail(Code::invalid, trace.error().message, trace.error().hint);
  const auto calls = gateway::infer_conversations(*trace, o);
  const std::pair<const char*, PrefixPolicy> policies[] = {
      {"random", PrefixPolicy::random},
      {"least-loaded", PrefixPolicy::least_loaded},
      {"prefix", PrefixPolicy::prefix}};
  Json list = Json::array();
  std::string text = fmt::format("{:<14} {:>9} {:>11} {:>9} {:>9} {:>9} {:>16}\n", "", "hit rate",
                                 "TTFT mean", "p50", "p95", "p99", "busiest / mean");
  std::uint64_t continued = 0;
  for (const auto& [name, policy] : policies) {
    const PrefixResult r = replay_prefixes(calls, policy, o);
    continued = r.continued;
    list.push(Json::object({{"name", name},
                            {"hit_pct", r.hit_pct},
                            {"first_token_mean_s", r.first_token_mean_s},
                            {"first_token_p50_s", r.first_token_p50_s},
                            {"first_token_p95_s", r.first_token_p95_s},
                            {"first_token_p99_s", r.first_token_p99_s},
                            {"load_max_over_mean", r.load_max_over_mean}}));
    text += fmt::format("{:<14} {:>7.1f} % {:>9.3f} s {:>7.3f} s {:>7.3f} s {:>7.3f} s {:>16.2f}\n",
                        name, r.hit_pct, r.first_token_mean_s, r.first_token_p50_s,
                        r.first_token_p95_s, r.first_token_p99_s, r.load_max_over_mean);
  }
  if (parsed.has("json")) {
    print(Json::object({{"trace", path},
                        {"requests", calls.size()},
                        {"continued", continued},
                        {"replicas", o.replicas},
                        {"results", std::move(list)}})
              .dump() +
          "\n");
    return {};
  }
  const bool told = calls.front().conversation == 0;
  print(fmt::format("{} requests, {} replicas; {} requests {}\n", calls.size(), o.replicas,
                    continued,
                    told ? "begin like an earlier one, as the trace says"
                         : "continue a conversation (inferred from their sizes: the trace has no "
                           "texts)"));
  print(text);
  return {};
}

}  // namespace

void add_simulate_prefixes(CommandTable& table) {
  table.push_back(
      {.name = "simulate prefixes",
       .summary =
           "compare the balancing of requests by prompt prefixes with random and least-loaded",
       .example = "billow simulate prefixes --trace requests.csv --replicas 8",
       .run = [](const Parsed& parsed) { return simulate_exit(simulate_prefixes(parsed)); },
       .options = {options},
       .group = simulate_group,
       .talks_to_head = false});
}

}  // namespace billow::client
