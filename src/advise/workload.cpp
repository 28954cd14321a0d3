#include "advise/workload.h"

#include <algorithm>
#include <cmath>

namespace billow::advise {
namespace {

// How many distinct ones of E experts `tokens` tokens activate, with k each. Routers prefer some
// experts: with popularities distributed exponentially the count is below that of an even draw (a
// batch of 64 over 8 of 256: 172 instead of 222), and measured steps agree with it better.
double distinct_experts(double experts, double per_token, double tokens) {
  if (per_token >= experts)
    return experts;
  const double odds = tokens * per_token / (experts - per_token);
  return experts * odds / (1 + odds);
}

// To how many ranks a token goes whose experts are spread over all.
double ranks_reached(const ModelShape& shape, double ranks) {
  double most = 0;
  for (auto& layer : shape.layers)
    if (layer.experts > 0)
      most = std::max<double>(most, layer.experts_per_token);
  return most > 0 ? ranks * (1 - std::pow(1 - 1 / ranks, most)) : 1;
}

// Operations of one token's attention over `context` tokens, in all layers.
double attention_flops(const ModelShape& shape, double context) {
  double sum = 0;
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    double seen = context;
    switch (a.kind) {
      case AttentionKind::none:
        continue;
      case AttentionKind::sliding:
      case AttentionKind::chunked:
        seen = std::min<double>(context, a.window);
        [[fallthrough]];
      case AttentionKind::full:
        if (a.index_topk > 0)
          seen = std::min<double>(seen, a.index_topk);
        sum += 2.0 * a.q_heads * (a.k_dim + a.v_dim) * seen;
        break;
      case AttentionKind::mla:
        if (a.index_topk > 0) {
          sum += 2.0 * 32 * a.index_dim * context;
          seen = std::min<double>(seen, a.index_topk);
        }
        sum += 2.0 * a.q_heads * (2.0 * a.latent) * seen;
        break;
      case AttentionKind::compressed: {
        double entries = a.compress > 0 ? context / a.compress : 0;
        if (a.index_topk > 0)
          entries = std::min<double>(entries, a.index_topk);
        sum += 2.0 * a.q_heads * 2.0 * a.k_dim * (entries + std::min<double>(context, a.window));
        break;
      }
      case AttentionKind::linear:
      case AttentionKind::mamba:
        sum += 6.0 * static_cast<double>(a.state_elements);
        break;
    }
  }
  return sum;
}

// Prefill attends with the heads as they are, not through the latents.
double prefill_attention_flops(const ModelShape& shape, double input) {
  double sum = 0;
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    switch (a.kind) {
      case AttentionKind::none:
        break;
      case AttentionKind::linear:
      case AttentionKind::mamba:
        sum += 6.0 * static_cast<double>(a.state_elements) * input;
        break;
      case AttentionKind::full:
      case AttentionKind::sliding:
      case AttentionKind::chunked:
      case AttentionKind::mla:
      case AttentionKind::compressed: {
        double seen = input / 2;
        if (a.window > 0)
          seen = std::min<double>(seen, a.window);
        if (a.index_topk > 0)
          seen = std::min<double>(seen, a.index_topk);
        sum += 2.0 * a.q_heads * (a.k_dim + std::max(a.v_dim, 1)) * seen * input;
        break;
      }
    }
  }
  return sum;
}

// Draft heads (EAGLE, MTP, Medusa) read about this share of the model for each proposed token.
constexpr double draft_share = 0.05;

}  // namespace

double ServingExtras::tokens_per_step() const {
  double sum = 1, chance = 1;
  for (int i = 0; i < draft_tokens; ++i) {
    chance *= accepted;
    sum += chance;
  }
  return sum;
}

double adapter_bytes(const ModelShape& shape, int rank) {
  double sides = 0;  // input plus output width of every matrix, as if it were square
  for (auto& layer : shape.layers)
    for (auto& tensor : layer.tensors)
      if (tensor.quantizable && tensor.name != "mlp.experts")
        sides += 2 * std::sqrt(tensor.parameters);
  return sides * rank * 2;
}

MemoryOptions memory_options(const ModelShape& shape, const ServingExtras& extras) {
  MemoryOptions options;
  if (extras.adapters > 0)
    options.overhead_bytes += extras.adapters * adapter_bytes(shape, extras.adapter_rank);
  return options;
}

Work work_of(const ModelShape& shape, Precision kv, const Parallelism& p, const Traffic& traffic) {
  Work w;
  auto parts = weight_parts(shape);
  double ranks = std::max(1, p.tensor), data = std::max(1, p.attention_data);
  double attention_ranks = std::max(1.0, ranks / data);
  w.gpus = p.gpus();
  w.layers = static_cast<double>(shape.layers.size());
  // Pipeline stages work on different sequences at once, and a token passes all of them: it takes
  // the time of every layer, for the sequences that travel with it.
  double together = std::max(1.0, traffic.concurrency / std::max(1, p.pipeline));
  w.tokens_rank = std::max(1.0, together / data);
  const ServingExtras& extras = traffic.extras;
  // A step that checks drafts computes all of them, for one reading of weights and cache.
  double computed = together * (1 + extras.draft_tokens);
  double context = traffic.input + traffic.output / 2;
  w.weight_bytes = (parts.attention + parts.dense) / attention_ranks + parts.shared / ranks +
                   parts.router +
                   (shape.tied_embeddings ? parts.embedding : parts.head) / attention_ranks;
  w.draft_bytes = extras.draft_tokens * draft_share * w.weight_bytes;
  if (extras.adapters > 0)
    w.weight_bytes += std::min<double>(extras.adapters, w.tokens_rank) *
                      adapter_bytes(shape, extras.adapter_rank) / attention_ranks;
  for (auto& layer : shape.layers)
    if (layer.experts > 0)
      for (auto& tensor : layer.tensors)
        if (tensor.name == "mlp.experts") {
          double bytes = tensor.parameters * weight_bytes(tensor.precision);
          w.expert_bytes += bytes *
                            distinct_experts(layer.experts, layer.experts_per_token, computed) /
                            layer.experts / ranks;
        }
  w.kv_bytes = w.tokens_rank * kv_read_bytes(shape, kv, context, static_cast<int>(attention_ranks));
  double active = shape.active_parameters();
  w.step_flops = 2 * active * computed / ranks;
  w.step_attention_flops = attention_flops(shape, context) * computed / ranks;
  double attention_layers = shape.attention_layers(), mlp_layers = 0;
  for (auto& layer : shape.layers)
    for (auto& tensor : layer.tensors)
      if (tensor.name == "mlp.down_proj" || tensor.name == "mlp.experts") {
        ++mlp_layers;
        break;
      }
  w.exchanges = (ranks > 1 ? (attention_ranks > 1 ? attention_layers : 0) + mlp_layers : 0) +
                std::max(1, p.pipeline) - 1;
  w.exchange_bytes = w.exchanges * w.tokens_rank * (1 + extras.draft_tokens) * shape.hidden * 2;
  // Ranks that attend to different sequences send each token to the ranks of its experts, and get
  // the sum back from each.
  if (data > 1 && ranks > 1)
    w.exchange_bytes *= ranks_reached(shape, ranks);
  // Tokens found in the prefix cache are not computed, but the others attend to them.
  double cached = std::clamp(extras.cached_share, 0.0, 1.0);
  w.prefill_flops = 2 * (active - shape.head_parameters) * traffic.input * (1 - cached) / ranks;
  w.prefill_attention_flops =
      prefill_attention_flops(shape, traffic.input) * (1 - cached * cached) / ranks;
  w.prefill_bytes = w.weight_bytes + parts.experts / ranks;
  return w;
}

}  // namespace billow::advise
