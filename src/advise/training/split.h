// How a training is split over GPUs, what each GPU then holds, and what they exchange. Ranks
// multiply: tensor × pipeline × context × data; experts are spread over data and context ranks.
//
// Invariants: memory is never too low (the fullest stage counts); a split into one of each is plain
// data parallelism.
#pragma once

#include <algorithm>

#include "advise/shape/model_shape.h"

namespace billow::advise {

enum class Zero { none, optimizer, gradients, parameters };
const char* zero_name(Zero zero);
enum class Checkpointing { none, selective, full };
enum class Tuning { full, lora, qlora };

// What the arithmetic needs of a model, counted once for the many splits that are tried.
struct TrainingShape {
  double dense = 0, experts = 0;  // parameters; vision counts as dense
  double ends = 0;                // of `dense`: the larger of embeddings and head
  double layers = 0, moe_layers = 0, experts_all = 0, experts_per_token = 0;
  double hidden = 0, widest = 0, vocabulary = 0;
  double kv_width = 0;  // of all layers together
  explicit TrainingShape(const ModelShape& shape);
};

struct TrainingPlan {
  Zero zero = Zero::none;
  Checkpointing checkpointing = Checkpointing::full;
  Tuning tuning = Tuning::full;
  int gpus = 1;           // all ranks
  int tensor = 1;         // every matrix is split, within a node
  int pipeline = 1;       // stages of consecutive layers
  int context = 1;        // parts of one sequence
  int expert = 1;         // ranks that share the experts of a mixture
  int micro_batches = 1;  // that a stage computes in one step, one after the other
  double sequence = 4096;
  double micro_batch = 1;
  double lora_fraction = 0.005;  // the trained fraction of the parameters

  int data() const { return std::max(1, gpus / (tensor * pipeline * context)); }
  // Tokens of all ranks in one step.
  double step_tokens() const { return sequence * micro_batch * micro_batches * data(); }
};
struct TrainingMemory {  // bytes, per GPU
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, overhead = 0;
  double total() const { return weights + gradients + optimizer + activations + overhead; }
};
// Mixed precision with Adam: 2 bytes of weights, 2 of gradients, 12 of master copy and moments for
// every trained parameter.
TrainingMemory training_memory(const TrainingShape& shape, const TrainingPlan& plan);

// Bytes that one step moves per GPU, by who exchanges them; the links differ.
struct TrainingTraffic {
  double tensor = 0;    // sums inside every layer
  double context = 0;   // keys and values passed around
  double expert = 0;    // tokens to their experts and back
  double pipeline = 0;  // activations to the next stage and gradients back
  double data = 0;      // gradients, and with ZeRO-3 weights
  double total() const { return tensor + context + expert + pipeline + data; }
};
TrainingTraffic training_traffic(const TrainingShape& shape, const TrainingPlan& plan);

// The share of a step in which stages wait for the first and the last micro-batch, over the rest.
double pipeline_bubble(const TrainingPlan& plan);

}  // namespace billow::advise
