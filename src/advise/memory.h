// How much GPU memory a model needs, part by part. Every number is rounded up: "fits" must never be
// wrong.
#pragma once

#include "advise/shape/model_shape.h"

namespace billow::advise {

struct Parallelism {
  int tensor = 1;
  int pipeline = 1;
  int attention_data =
      1;           // ranks with their own attention and their own sequences, sharing the experts
  int expert = 1;  // ranks the experts are spread over
  int expert_tensor = 0;  // ranks that one expert is split over; 0: the remaining tensor ranks
  int gpus() const { return tensor * pipeline; }
  bool operator==(const Parallelism&) const = default;
};
std::string parallelism_name(const Parallelism& p);

// The cache of one token over all layers while it is inside every window, and the part that remains
// once it has left the windows.
struct KvPerToken {
  double bytes = 0;        // keys and values (or latents) of all attention layers
  double bytes_far = 0;    // of layers without a window
  double index_bytes = 0;  // the sparse indexer's own keys, beside them
  double state_bytes = 0;  // per sequence, not per token: recurrent and convolution states
};
KvPerToken kv_per_token(const ModelShape& shape, Precision kv);
// The cache of one whole sequence of `tokens`, with windows capped and states and index included,
// on one of `tensor` ranks: heads are distributed, latents are not.
double kv_bytes(const ModelShape& shape, Precision kv, double tokens, int tensor = 1);
// Bytes of cache that one decode step reads for one sequence of `tokens`: sparse attention reads
// what its indexer selected.
double kv_read_bytes(const ModelShape& shape, Precision kv, double tokens, int tensor = 1);

struct WeightParts {
  double attention = 0, dense = 0, experts = 0, shared = 0, router = 0, embedding = 0, head = 0,
         vision = 0;  // bytes
  double total() const {
    return attention + dense + experts + shared + router + embedding + head + vision;
  }
};
WeightParts weight_parts(const ModelShape& shape);
// On the fullest GPU: tensor and expert ranks share, embeddings sit on one pipeline stage, vision
// on every rank.
double weight_bytes_per_gpu(const ModelShape& shape, const Parallelism& p);

struct ServingLoad {
  double context = 4096;             // tokens of a sequence at its longest
  double sequences = 1;              // at once, on this replica
  double batched_tokens_max = 8192;  // of one prefill step
};

struct Memory {  // bytes, per GPU
  double weights = 0, kv = 0, activations = 0, communication = 0, overhead = 0;
  double capacity = 0, usable = 0;  // usable: capacity × utilisation
  double total() const { return weights + kv + activations + communication + overhead; }
  bool fits() const { return total() <= usable; }
  double sequences_max = 0;  // that would still fit at this context
};

struct MemoryOptions {
  double utilisation = 0.9;  // the fraction of GPU memory that an engine takes
  double overhead_bytes =
      2.5e9;  // CUDA context, graphs, allocator slack; engines reserve 1.5 to 3.5 GB
  double communication_bytes = 0.35e9;
};
Memory serving_memory(const ModelShape& shape,
                      Precision kv,
                      const Parallelism& p,
                      const ServingLoad& load,
                      double capacity_bytes,
                      const MemoryOptions& options = {});

}  // namespace billow::advise
