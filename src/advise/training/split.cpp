#include "advise/training/split.h"

#include <algorithm>
#include <cmath>

namespace billow::advise {
namespace {

// Parameters on the fullest GPU, before ZeRO: experts are spread over more ranks than the rest, and
// the first stage also has the embeddings, which are not split by stages.
struct Held {
  double dense = 0, experts = 0;
};
Held held(const TrainingShape& shape, const TrainingPlan& plan) {
  const double ends = plan.pipeline > 1 ? shape.ends : 0;
  return {((shape.dense - ends) / plan.pipeline + ends) / plan.tensor,
          shape.experts / plan.pipeline / plan.tensor / plan.expert};
}

double layers_per_stage(const TrainingShape& shape, const TrainingPlan& plan) {
  return std::ceil(shape.layers / plan.pipeline);
}

// Ranks that hold the same weights: data ranks, and those that share a sequence.
double replicas(const TrainingPlan& plan) {
  return static_cast<double>(plan.data()) * plan.context;
}
double expert_replicas(const TrainingPlan& plan) {
  return std::max(1.0, replicas(plan) / plan.expert);
}

// Per layer and token: about 34 widths of bytes with fused attention (Korthikanti et al. 2022), 10
// of them outside the tensor-parallel part; two if only the layer's input is kept and the rest is
// recomputed. A gated MLP or experts widen it.
double activation_bytes(const TrainingShape& shape, const TrainingPlan& plan) {
  const double layers = layers_per_stage(shape, plan), h = shape.hidden;
  const double widest = std::max(1.0, shape.widest / (8.0 * h));
  const double whole_layer = (10 + 24 * widest / plan.tensor) * h;
  double kept = 0, once = 0;
  switch (plan.checkpointing) {
    case Checkpointing::none:
      kept = whole_layer * layers;
      break;
    case Checkpointing::selective:
      kept = (10 + 14 * widest / plan.tensor) * h * layers;
      break;
    case Checkpointing::full:
      kept = 2 * h * layers;
      once = whole_layer;
      break;
  }
  const double tokens = plan.sequence * plan.micro_batch / plan.context;
  // The loss keeps logits in FP32 beside a half-precision copy.
  const double logits = tokens * shape.vocabulary * 6.0 / plan.tensor;
  // The first stage has started as many micro-batches as there are stages before it ends one; the
  // last stage has one, and the logits.
  const double started = std::min(plan.pipeline, plan.micro_batches);
  const double first = tokens * (kept * started + once), last = tokens * (kept + once) + logits;
  return plan.pipeline > 1 ? std::max(first, last) : last;
}

}  // namespace

TrainingShape::TrainingShape(const ModelShape& shape)
    : experts(shape.layer_parameters("mlp.experts")),
      ends(std::max(shape.embedding_parameters, shape.head_parameters)),
      layers(static_cast<double>(shape.layers.size())),
      hidden(shape.hidden),
      widest(shape.query_width_max),
      vocabulary(shape.vocabulary) {
  dense = shape.parameters() + shape.vision_parameters - experts;
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    kv_width += a.kind == AttentionKind::mla ? a.latent : a.kv_heads * (a.k_dim + a.v_dim);
    if (layer.experts > 0) {
      ++moe_layers;
      experts_all = std::max<double>(experts_all, layer.experts);
      experts_per_token = std::max<double>(experts_per_token, layer.experts_per_token);
    }
  }
}

const char* zero_name(Zero zero) {
  switch (zero) {
    case Zero::none:
      return "no ZeRO";
    case Zero::optimizer:
      return "ZeRO-1";
    case Zero::gradients:
      return "ZeRO-2";
    case Zero::parameters:
      return "ZeRO-3";
  }
  return "?";
}

TrainingMemory training_memory(const TrainingShape& shape, const TrainingPlan& plan) {
  const Held here = held(shape, plan);
  const double trained = plan.tuning == Tuning::full ? 1 : plan.lora_fraction;
  const double stored = (plan.tuning == Tuning::qlora ? weight_bytes(Precision::int4) : 2) +
                        (plan.tuning == Tuning::full ? 0 : trained * 2);
  auto sum = [&](double bytes, bool sharded) {
    return bytes * (here.dense / (sharded ? replicas(plan) : 1) +
                    here.experts / (sharded ? expert_replicas(plan) : 1));
  };
  TrainingMemory m;
  m.weights = sum(stored, plan.zero == Zero::parameters);
  m.gradients = sum(trained * 2, plan.zero == Zero::gradients || plan.zero == Zero::parameters);
  m.optimizer = sum(trained * 12, plan.zero != Zero::none);
  m.activations = activation_bytes(shape, plan);
  // ZeRO-3 gathers two layers at a time; every plan keeps communication buckets and the CUDA
  // context.
  const double gathered =
      plan.zero == Zero::parameters && replicas(plan) > 1
          ? 2 * stored * (here.dense + here.experts) / std::max(1.0, layers_per_stage(shape, plan))
          : 0;
  m.overhead = 2.5e9 + (plan.gpus > 1 ? 1.0e9 : 0) + gathered;
  return m;
}

TrainingTraffic training_traffic(const TrainingShape& shape, const TrainingPlan& plan) {
  const double layers = layers_per_stage(shape, plan), m = plan.micro_batches;
  const double tokens = plan.sequence * plan.micro_batch / plan.context;
  const double width = tokens * shape.hidden * 2;  // bytes of one activation
  TrainingTraffic t;
  if (plan.tensor > 1)
    t.tensor = 4 * layers * m * width * 2.0 * (plan.tensor - 1) / plan.tensor;
  // Forward once, backward the same again with the gradients beside it.
  if (plan.context > 1)
    t.context =
        3 * m * (plan.context - 1) * tokens * shape.kv_width * 2 / plan.pipeline / plan.tensor;
  // To the experts and back, in both passes.
  if (plan.expert > 1)
    t.expert = 4 * m * width * shape.moe_layers / plan.pipeline *
               std::min<double>(shape.experts_per_token, plan.expert) * (plan.expert - 1) /
               plan.expert;
  if (plan.pipeline > 1)
    t.pipeline = 2 * m * width / plan.tensor;
  const Held here = held(shape, plan);
  const double trained = plan.tuning == Tuning::full ? 1 : plan.lora_fraction;
  auto ring = [](double ranks) {
    return 2.0 * (ranks - 1) / ranks;
  };
  // Sharded gradients are reduced after every micro-batch (half a ring), whole ones once a step.
  const double times =
      plan.zero == Zero::gradients || plan.zero == Zero::parameters ? 0.5 * (1 + m) : 1;
  auto shared = [&](double parameters, double ranks) {
    if (ranks <= 1)
      return 0.0;
    double bytes = ring(ranks) * parameters * trained * 2 * times;
    if (plan.zero == Zero::parameters)
      bytes += m * ring(ranks) * parameters * 2;  // weights gathered in both passes
    return bytes;
  };
  t.data = shared(here.dense, replicas(plan)) + shared(here.experts, expert_replicas(plan));
  return t;
}

double pipeline_bubble(const TrainingPlan& plan) {
  return static_cast<double>(plan.pipeline - 1) / plan.micro_batches;
}

}  // namespace billow::advise
