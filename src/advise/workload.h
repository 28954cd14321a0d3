// The work of each GPU when serving: bytes and operations of one decode step and of one request's
// prefill. These counts follow from the model and the parallelism alone; the calibration turns them
// into time (calibration.h).
#pragma once

#include "advise/memory.h"

namespace billow::advise {

// What an engine may do beyond plain decoding.
struct ServingExtras {
  double cached_share = 0;  // of the input, found in the prefix cache: not prefilled again
  int draft_tokens = 0;     // proposed for each sequence and step; 0: no speculative decoding
  double accepted = 0.7;    // chance that a proposed token is accepted
  int adapters = 0;         // LoRA adapters kept beside the model
  int adapter_rank = 16;
  bool eager = false;  // without CUDA graphs: the host launches every kernel of every step
  // Tokens that a sequence gains in one step: one, and the proposals up to the first refusal.
  double tokens_per_step() const;
  bool operator==(const ServingExtras&) const = default;
};
// The weights of one adapter on all linear layers, in BF16.
double adapter_bytes(const ModelShape& shape, int rank);
// Adapters stay in memory beside the model.
MemoryOptions memory_options(const ModelShape& shape, const ServingExtras& extras);

struct Traffic {
  double concurrency = 1;  // sequences in flight on the whole replica
  double input = 1024, output = 1024;
  ServingExtras extras{};
};

struct Work {  // per GPU unless said
  // One decode step.
  double weight_bytes =
      0;  // read once a step, whatever the batch: attention, dense MLPs, shared experts, the head
  double draft_bytes = 0;           // of the draft head, for all tokens that it proposes
  double expert_bytes = 0;          // of the distinct experts that the batch activates
  double kv_bytes = 0;              // cache read for all sequences of this rank
  double step_flops = 0;            // two per active parameter and token
  double step_attention_flops = 0;  // over the cache
  double exchange_bytes = 0;        // activations exchanged between ranks in a step
  double exchanges = 0;             // how many such exchanges
  double tokens_rank = 0;           // sequences per attention rank
  // The prefill of one request.
  double prefill_flops = 0;  // of one request over all ranks, divided by the ranks
  double prefill_attention_flops = 0;
  double prefill_bytes = 0;  // weights read by it
  double layers = 0;
  int gpus = 1;
};

Work work_of(const ModelShape& shape, Precision kv, const Parallelism& p, const Traffic& traffic);

}  // namespace billow::advise
