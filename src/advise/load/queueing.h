// The tail of a served load: percentiles of the time to first token and of the time per token, from
// the distribution of lengths and from queueing.
//
// The calibration predicts means. This replays arrivals on an engine with continuous batching,
// whose step and prefill times are given: a prompt waits for a free place and for the prompts ahead
// of it, and a sequence waits in every step that also carries others' prompts.
//
// Invariants: the same question gives the same answer (fixed seed); more load never shortens the
// wait; no clock, no thread.
#pragma once

#include <cstdint>
#include <vector>

#include "advise/calibration.h"
#include "advise/load/loadtest.h"

namespace billow::advise {

// How long one replica's work takes, and in which order it does it.
struct EngineTimes {
  std::vector<double> decode_ms;  // [b - 1]: one step of b sequences; the last holds for more
  double prefill_ms = 0;          // of prompts computed together, whatever their length
  double prefill_token_ms = 0;
  // Prompts are computed before the next step (SGLang); otherwise a step carries up to
  // `chunk_tokens` of them (vLLM, TensorRT-LLM).
  bool prefill_first = false;
  double chunk_tokens = 8192;
  int sequences_max = 1024;

  double step_ms(std::size_t sequences) const;
};
// From the calibration, for the configuration of `row`; its load is ignored.
EngineTimes engine_times(const Calibration& calibration, ServingRow row, double sequences_max);

// Lengths are log-normal around their mean: `variation` is the standard deviation over the mean.
// The defaults are those of a public trace of conversations (Azure, 2023).
struct LengthSpread {
  double input = 0.96, output = 0.77;
};

struct QueueLoad {
  double rps = 0;    // open loop: requests come at random, however slow the answers are
  double users = 0;  // closed loop, if rps is 0: each user asks again when answered
  double input = 1024, output = 256;
  LengthSpread variation;
  std::vector<Arrival> lengths;  // not empty: drawn from these instead
  int requests = 1500;
  std::uint64_t seed = 1;
};

struct Tails {
  Percentiles ttft_ms, tpot_ms;
  double concurrency = 0;  // mean sequences in flight, waiting ones included
  bool keeps_up = true;    // false: the queue grows, so the percentiles only grow with time
};
Tails simulate_queue(const EngineTimes& engine, const QueueLoad& load);

}  // namespace billow::advise
