// Request traces of language models replayed in virtual time: the autoscaler of the gateway, a
// fixed fleet, and Knative's default algorithm, on one model of a serving replica. The comparison
// counts requests that got their first token in time, and the GPU-seconds held for that.
//
// The replica handles up to `concurrency` requests at once; a request first reads its prompt
// (`prefill_tokens_s`) and then generates a token every `step_ms`, a little slower the more
// requests share the replica when it begins. A replica holds its GPU from the beginning of its
// start or wake-up until the end of its stop or sleep.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "gateway/pure/autoscaler.h"

namespace billow::gateway {

struct TraceCall {
  double at_s = 0;
  std::uint32_t context_tokens = 0;
  std::uint32_t generated_tokens = 0;
  // The blocks of the prompt, one for each `trace_block_tokens`: equal numbers of two requests mean
  // that their prompts are equal up to there. Empty: the trace does not say.
  std::vector<std::uint64_t> blocks = {};
};
inline constexpr std::uint32_t trace_block_tokens = 512;
// In order of time: TIMESTAMP,ContextTokens,GeneratedTokens, or one JSON object for each line with
// timestamp (in milliseconds), input_length, output_length and hash_ids, as Mooncake's traces have.
Result<std::vector<TraceCall>> read_llm_trace(const std::string& path);

struct ServiceModel {
  std::uint32_t concurrency = 8;
  double prefill_tokens_s = 8000;
  double step_ms = 30;
  double step_ms_per_neighbour = 0.5;
  double start_s = 40;   // a cold start: process, weights, warm-up
  double wake_s = 0.7;   // restores the GPU memory of a sleeping replica
  double sleep_s = 0.5;  // saves it
  double slo_first_token_s = 2;
};

enum class Scaling { billow, knative, fixed };
struct ReplayOptions {
  Scaling scaling = Scaling::billow;
  ServiceModel model;
  std::uint32_t replicas_max = 64;
  std::uint32_t fixed_replicas = 4;
  double knative_utilization = 0.7;  // its target, as a part of the concurrency
  double knative_start_s = 40;       // its time to start a replica; it has no sleeping ones
  Duration keep_suspended = hours(1);
  // How many replicas exist when the trace begins, as after an earlier day. Billow's, and all but
  // one of a fixed fleet's, are started with the first request; Billow's sleep except one,
  // Knative's are up. The time to start them is counted.
  std::uint32_t existing = 1;
  bool predict = false;     // Billow wakes replicas for the load of earlier days
  double count_from_s = 0;  // requests and GPU-seconds before this do not count
};

struct ReplayResult {
  std::uint64_t requests = 0, in_time = 0, dropped = 0;
  double gpu_s = 0;
  double first_token_p50_s = 0, first_token_p99_s = 0;
  std::uint32_t replicas_peak = 0;  // that held a GPU at once
  std::uint64_t cold_starts = 0, wakes = 0;
  double slo_pct() const {
    return requests == 0 ? 100
                         : 100.0 * static_cast<double>(in_time) / static_cast<double>(requests);
  }
};
// The same requests on each of so many days.
std::vector<TraceCall> repeated(const std::vector<TraceCall>& trace, std::uint32_t days);
ReplayResult replay(const std::vector<TraceCall>& trace, const ReplayOptions& options);

}  // namespace billow::gateway
