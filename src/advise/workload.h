// The work of each GPU when serving: bytes and operations of one decode step and of one request's
// prefill. These counts follow from the model and the parallelism alone; the calibration turns them
// into time (calibration.h).
#pragma once

#include "advise/memory.h"

namespace billow::advise {

struct Traffic {
  double concurrency = 1;  // sequences in flight on the whole replica
  double input = 1024, output = 1024;
};

struct Work {  // per GPU unless said
  // One decode step.
  double weight_bytes =
      0;  // read once a step, whatever the batch: attention, dense MLPs, shared experts, the head
  double expert_bytes = 0;    // of the distinct experts that the batch activates
  double kv_bytes = 0;        // cache read for all sequences of this rank
  double step_flops = 0;      // two per active parameter and token, and attention over the cache
  double exchange_bytes = 0;  // activations exchanged between ranks in a step
  double exchanges = 0;       // how many such exchanges
  double tokens_rank = 0;     // sequences per attention rank
  // The prefill of one request.
  double prefill_flops = 0;  // of one request over all ranks, divided by the ranks
  double prefill_attention_flops = 0;
  double prefill_bytes = 0;  // weights read by it
  double layers = 0;
  int gpus = 1;
};

Work work_of(const ModelShape& shape, Precision kv, const Parallelism& p, const Traffic& traffic);

}  // namespace billow::advise
