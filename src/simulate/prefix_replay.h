// Requests of language models replayed over a fixed fleet of engines with KV caches: random
// replicas, the least loaded one, and the gateway's own router by prefixes. Compared are the part
// of the prompt tokens that a cache held, and the time to the first token.
//
// Public traces have no texts. Some say which blocks of two prompts are equal (TraceCall::blocks).
// For others, conversations are inferred: a request continues the earlier one
// whose prompt and answer together are the longest that its prompt can contain, if at most
// `message_tokens_max` tokens are new and it came within `pause_s`. Other requests begin a
// conversation, and share nothing with others.
//
// An engine reads prompts one after the other (`prefill_tokens_s`, without the tokens at the
// beginning that its cache holds) and generates for all its requests at once (`step_ms` for each
// token). Its cache keeps blocks of tokens, the least recently used go first. The router learns
// what a gateway learns: when answers begin and end, and, if engines report it, how many tokens of
// a prompt were cached.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/endpoint_replay.h"

namespace billow::gateway {

enum class PrefixPolicy { random, least_loaded, prefix };

struct PrefixOptions {
  std::uint32_t replicas = 4;
  double prefill_tokens_s = 8000;
  double step_ms = 30;
  std::uint64_t cache_tokens = 200'000;  // of one engine
  std::uint32_t message_tokens_max = 512;
  double pause_s = 600;
  double speed = 1;             // the trace's requests come so many times as fast
  bool cached_reported = true;  // answers report cached tokens when they end
  std::uint64_t seed = 1;       // of the random policy
};

struct ConversationCall {
  TraceCall call;
  std::uint64_t conversation = 0;  // 0: `call.blocks` tell what its prompt shares with others
  bool continues = false;          // or its first block has been seen
};
std::vector<ConversationCall> infer_conversations(const std::vector<TraceCall>& trace,
                                                  const PrefixOptions& options);

struct PrefixResult {
  std::uint64_t requests = 0, continued = 0;
  double hit_pct = 0;  // of the prompt tokens
  double first_token_mean_s = 0;
  double first_token_p50_s = 0, first_token_p95_s = 0, first_token_p99_s = 0;
  double load_max_over_mean = 0;  // requests of the busiest engine by those of the mean one
};
PrefixResult replay_prefixes(const std::vector<ConversationCall>& calls,
                             PrefixPolicy policy,
                             const PrefixOptions& options);

}  // namespace billow::gateway
