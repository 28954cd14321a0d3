#include "advise/memory.h"

#include <algorithm>
#include <cmath>

namespace billow::advise {
namespace {

constexpr double kv_block_tokens = 16;  // caches are allocated in blocks

double kv_element_bytes(Precision kv) {
  switch (kv) {
    case Precision::fp32:
      return 4;
    case Precision::bf16:
    case Precision::fp16:
      return 2;
    case Precision::fp8:
    case Precision::int8:
      return 1;
    case Precision::int4:
    case Precision::fp4:
    case Precision::nvfp4:
      return weight_bytes(kv);  // with their scales
  }
  return 2;
}
// The indexer keeps its keys in FP8 with one float scale per 128, whatever the precision of the
// cache.
double index_token_bytes(int dim) {
  return dim * (1 + 4.0 / 128);
}

// Elements that one token adds in this layer while inside the window.
double token_elements(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::none:
    case AttentionKind::linear:
    case AttentionKind::mamba:
      return 0;
    case AttentionKind::full:
    case AttentionKind::sliding:
    case AttentionKind::chunked:
      return static_cast<double>(a.kv_heads) * (a.k_dim + a.v_dim);
    case AttentionKind::mla:
      return a.latent;
    case AttentionKind::compressed:
      return a.compress > 0 ? static_cast<double>(a.k_dim) / a.compress : 0;
  }
  return 0;
}

bool windowed(const Attention& a) {
  return a.kind == AttentionKind::sliding || a.kind == AttentionKind::chunked;
}

// Heads are distributed over the tensor ranks; with more ranks than heads, ranks keep copies. Each
// rank keeps all latents.
double rank_share(const Attention& a, int tensor) {
  if (tensor <= 1)
    return 1;
  if (a.kind == AttentionKind::mla || a.kind == AttentionKind::compressed)
    return 1;
  if (a.kind == AttentionKind::linear || a.kind == AttentionKind::mamba)
    return 1.0 / std::min(tensor, std::max(1, a.q_heads));
  if (a.kv_heads <= 0)
    return 1;
  return std::ceil(static_cast<double>(a.kv_heads) / tensor) / a.kv_heads;
}

double state_bytes_of(const Attention& a) {
  return static_cast<double>(a.state_elements) * a.state_element_bytes +
         static_cast<double>(a.conv_elements) * 2;
}

}  // namespace

std::string parallelism_name(const Parallelism& p) {
  std::string name = fmt::format("tp{}", p.tensor);
  if (p.pipeline > 1)
    name += fmt::format(" pp{}", p.pipeline);
  if (p.attention_data > 1)
    name += fmt::format(" attention dp{}", p.attention_data);
  if (p.expert > 1)
    name += fmt::format(" ep{}", p.expert);
  return name;
}

KvPerToken kv_per_token(const ModelShape& shape, Precision kv) {
  KvPerToken out;
  double bytes = kv_element_bytes(kv);
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    double mine = token_elements(a) * bytes;
    out.bytes += mine;
    if (!windowed(a))
      out.bytes_far += mine;
    if (a.index_dim > 0)
      out.index_bytes += index_token_bytes(a.index_dim) / std::max(1, a.compress);
    out.state_bytes += state_bytes_of(a);
  }
  return out;
}

double kv_bytes(const ModelShape& shape, Precision kv, double tokens, int tensor) {
  double sum = 0, bytes = kv_element_bytes(kv);
  double blocks = std::ceil(tokens / kv_block_tokens) * kv_block_tokens;
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    double kept = blocks;
    if (windowed(a))
      kept = std::min(blocks, std::ceil((a.window - 1.0) / kv_block_tokens + 1) * kv_block_tokens);
    double mine = token_elements(a) * bytes * kept;
    if (a.kind == AttentionKind::compressed)
      mine += std::min<double>(blocks, a.window) * a.k_dim * bytes;
    if (a.index_dim > 0)
      mine += index_token_bytes(a.index_dim) / std::max(1, a.compress) * blocks;
    sum += (mine + state_bytes_of(a)) * rank_share(a, tensor);
  }
  return sum;
}

double kv_read_bytes(const ModelShape& shape, Precision kv, double tokens, int tensor) {
  double sum = 0, bytes = kv_element_bytes(kv);
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    double read = windowed(a) ? std::min<double>(tokens, a.window) : tokens;
    if (a.index_topk > 0 && a.kind != AttentionKind::compressed)
      read = std::min<double>(read, a.index_topk);
    double mine = token_elements(a) * bytes * read;
    if (a.kind == AttentionKind::compressed) {
      double entries = a.compress > 0 ? tokens / a.compress : 0;
      if (a.index_topk > 0)
        entries = std::min<double>(entries, a.index_topk);
      mine = (entries + std::min<double>(tokens, a.window)) * a.k_dim * bytes;
    }
    if (a.index_dim > 0)
      mine += index_token_bytes(a.index_dim) / std::max(1, a.compress) * tokens;
    sum += (mine + 2 * state_bytes_of(a)) * rank_share(a, tensor);  // states are read and written
  }
  return sum;
}

WeightParts weight_parts(const ModelShape& shape) {
  WeightParts w;
  for (auto& layer : shape.layers)
    for (auto& tensor : layer.tensors) {
      double bytes = tensor.parameters * weight_bytes(tensor.precision);
      if (tensor.name == "mlp.experts")
        w.experts += bytes;
      else if (tensor.name == "mlp.shared_experts" || tensor.name == "mlp.latent_proj")
        w.shared += bytes;
      else if (tensor.name == "mlp.gate")
        w.router += bytes;
      else if (tensor.name.starts_with("mlp."))
        w.dense += bytes;
      else
        w.attention += bytes;
    }
  double plain = shape.native == Precision::fp32
                     ? 4
                     : 2;  // embeddings and the head stay in the activation type
  w.embedding = shape.embedding_parameters * plain;
  w.head = shape.tied_embeddings ? 0 : shape.head_parameters * plain;
  w.vision = shape.vision_parameters * 2;
  return w;
}

double weight_bytes_per_gpu(const ModelShape& shape, const Parallelism& p) {
  auto w = weight_parts(shape);
  int ranks = p.tensor;
  int attention_ranks = std::max(1, ranks / std::max(1, p.attention_data));
  int expert_ranks = p.expert_tensor > 0 ? p.expert_tensor * p.expert : std::max(ranks, p.expert);
  // Stages hold whole layers, so the fullest holds one layer more than the average.
  double stage = p.pipeline > 1 ? std::ceil(static_cast<double>(shape.layers.size()) / p.pipeline) /
                                      static_cast<double>(shape.layers.size())
                                : 1;
  double layers = (w.attention + w.dense) / attention_ranks + w.shared / ranks +
                  w.experts / expert_ranks + w.router;
  return layers * stage + (w.embedding + w.head) / attention_ranks + w.vision;
}

Memory serving_memory(const ModelShape& shape,
                      Precision kv,
                      const Parallelism& p,
                      const ServingLoad& load,
                      double capacity_bytes,
                      const MemoryOptions& options) {
  Memory m;
  m.capacity = capacity_bytes;
  m.usable = capacity_bytes * options.utilisation;
  m.weights = weight_bytes_per_gpu(shape, p);
  int attention_ranks = std::max(1, p.tensor / std::max(1, p.attention_data));
  // Stages split the layers, and with them the cache.
  double stage = p.pipeline > 1 ? std::ceil(static_cast<double>(shape.layers.size()) / p.pipeline) /
                                      static_cast<double>(shape.layers.size())
                                : 1;
  double one = kv_bytes(shape, kv, load.context, attention_ranks) * stage;
  double here = std::ceil(load.sequences / std::max(1, p.attention_data));
  m.kv = one * here;
  // The widest intermediate of a full prefill step, its input and output, and logits. Engines
  // reserve this for the largest possible step, so it does not depend on the load.
  constexpr double logits_sequences = 256;
  double tokens = load.batched_tokens_max;
  double width = 4.0 * shape.hidden + static_cast<double>(shape.query_width_max) / attention_ranks;
  m.activations = tokens * width * 2 + logits_sequences * shape.vocabulary * 4.0 / attention_ranks;
  m.communication = p.gpus() > 1 ? options.communication_bytes : 0;
  m.overhead = options.overhead_bytes;
  double free = m.usable - (m.total() - m.kv);
  m.sequences_max =
      free > 0 && one > 0 ? std::floor(free / one) * std::max(1, p.attention_data) : 0;
  return m;
}

}  // namespace billow::advise
