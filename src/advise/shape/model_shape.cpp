// Sums over a model's tensors, and the names of things.
#include "advise/shape/model_shape.h"

#include <cmath>

#include "base/text.h"

namespace billow::advise {

const char* precision_name(Precision p) {
  switch (p) {
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
    case Precision::fp8:
      return "fp8";
    case Precision::int8:
      return "int8";
    case Precision::int4:
      return "int4";
    case Precision::fp4:
      return "fp4";
    case Precision::nvfp4:
      return "nvfp4";
  }
  return "?";
}

Result<Precision> parse_precision(std::string_view text) {
  auto name = lower(trim(text));
  for (Precision p : {Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8,
                      Precision::int8, Precision::int4, Precision::fp4, Precision::nvfp4})
    if (name == precision_name(p))
      return p;
  // As engines and checkpoints name them. Plain W8A8 is INT8.
  if (name.find("nvfp4") != std::string::npos)
    return Precision::nvfp4;
  if (name.find("mxfp4") != std::string::npos)
    return Precision::fp4;
  if (name.starts_with("fp8") || name.starts_with("float8") || name == "e4m3" || name == "w8a8_fp8")
    return Precision::fp8;
  if (name == "int4_wo" || name == "awq" || name == "gptq" || name.starts_with("w4a16") ||
      name.starts_with("w4a8"))
    return Precision::int4;
  if (name == "int8_wo" || name == "int8_sq" || name.starts_with("w8a8") || name == "w8a16")
    return Precision::int8;
  if (name == "bfloat16")
    return Precision::bf16;
  if (name == "float16" || name == "half")
    return Precision::fp16;
  if (name == "float32" || name == "float")
    return Precision::fp32;
  return fail(Code::invalid, fmt::format("unknown precision \"{}\"", text),
              "choose one of fp32, bf16, fp16, fp8, int8, int4, fp4, nvfp4");
}

double weight_bytes(Precision p) {
  switch (p) {
    case Precision::fp32:
      return 4;
    case Precision::bf16:
      return 2;
    case Precision::fp16:
      return 2;
    case Precision::fp8:
      return 1 + 4.0 / (128 * 128);
    case Precision::int8:
      return 1;
    case Precision::int4:
      return 0.5 + 2.0 / 32;
    case Precision::fp4:
      return 0.5 + 1.0 / 32;
    case Precision::nvfp4:
      return 0.5 + 1.0 / 16;
  }
  return 2;
}

const char* attention_name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::none:
      return "none";
    case AttentionKind::full:
      return "full";
    case AttentionKind::sliding:
      return "sliding";
    case AttentionKind::chunked:
      return "chunked";
    case AttentionKind::mla:
      return "latent";
    case AttentionKind::compressed:
      return "compressed";
    case AttentionKind::linear:
      return "linear";
    case AttentionKind::mamba:
      return "mamba";
  }
  return "?";
}

double ModelShape::parameters() const {
  double sum = embedding_parameters + (tied_embeddings ? 0 : head_parameters);
  for (auto& layer : layers)
    for (auto& tensor : layer.tensors)
      sum += tensor.parameters;
  return sum;
}

double ModelShape::active_parameters() const {
  double sum = head_parameters;
  for (auto& layer : layers)
    for (auto& tensor : layer.tensors)
      sum += tensor.name == "mlp.experts"
                 ? tensor.parameters * layer.experts_per_token / layer.experts
                 : tensor.parameters;
  return sum;
}

double ModelShape::layer_parameters(std::string_view prefix) const {
  double sum = 0;
  for (auto& layer : layers)
    for (auto& tensor : layer.tensors)
      if (tensor.name.starts_with(prefix))
        sum += tensor.parameters;
  return sum;
}

bool ModelShape::is_moe() const {
  for (auto& layer : layers)
    if (layer.experts > 0)
      return true;
  return false;
}

bool ModelShape::has(AttentionKind kind) const {
  for (auto& layer : layers)
    if (layer.attention.kind == kind)
      return true;
  return false;
}

int ModelShape::attention_layers() const {
  int n = 0;
  for (auto& layer : layers)
    n += layer.attention.kind != AttentionKind::none;
  return n;
}

std::string ModelShape::attention_summary() const {
  std::vector<std::string> parts;
  for (AttentionKind kind :
       {AttentionKind::full, AttentionKind::sliding, AttentionKind::chunked, AttentionKind::mla,
        AttentionKind::compressed, AttentionKind::linear, AttentionKind::mamba}) {
    int n = 0;
    for (auto& layer : layers)
      n += layer.attention.kind == kind;
    if (n)
      parts.push_back(fmt::format("{} {}", n, attention_name(kind)));
  }
  return join(parts, " + ");
}

ModelShape at_precision(ModelShape shape, Precision p) {
  if (shape.quantized && p == shape.native)
    return shape;
  for (auto& layer : shape.layers)
    for (auto& tensor : layer.tensors)
      if (tensor.quantizable || p == Precision::fp32)
        tensor.precision = p;
  shape.native = p;
  shape.quantized = weight_bytes(p) < 2;
  return shape;
}

Result<ModelShape> model_of_size(std::string_view text) {
  auto s = lower(trim(text));
  double unit = 0;
  if (!s.empty() && s.back() == 'b')
    unit = 1e9;
  else if (!s.empty() && s.back() == 'm')
    unit = 1e6;
  else if (!s.empty() && s.back() == 't')
    unit = 1e12;
  const auto value = parse_double(unit > 0 ? std::string_view(s).substr(0, s.size() - 1) : "");
  if (!value || *value <= 0)
    return fail(Code::invalid, fmt::format("\"{}\" is not a model size", text),
                "write it as 7B, 350M or 1.5T");
  double wanted = *value * unit;
  if (wanted < 1e6 || wanted > 2e13)
    return fail(Code::invalid, fmt::format("{} parameters are out of range: 1M to 20T", text));
  // The usual proportions: width about 128 times the depth at 7B, growing together; gated MLP
  // of 3.5 widths; 128 per head; eight key/value heads; and a vocabulary that grows with the model.
  ModelShape best;
  double best_error = 1e300;
  for (int layers = 4; layers <= 160; layers += 4)
    for (int hidden = 256; hidden <= 65536; hidden += hidden < 4096 ? 128 : 512) {
      double ratio = hidden / static_cast<double>(layers);
      if (ratio < 60 || ratio > 420)
        continue;
      double vocabulary = wanted < 3e9 ? 32000 : 128256;
      double per_layer = 2.0 * hidden * hidden + 2.0 * hidden * std::min(hidden, 1024) +
                         3.0 * hidden * std::round(hidden * 3.5 / 256) * 256;
      double error = std::fabs(layers * per_layer + 2 * vocabulary * hidden - wanted) / wanted +
                     1e-5 * std::fabs(ratio - 115);
      if (error < best_error) {
        best_error = error;
        best = ModelShape{};
        best.hidden = hidden;
        best.vocabulary = static_cast<int>(vocabulary);
        best.layers.resize(static_cast<std::size_t>(layers));
      }
    }
  int heads = std::max(1, best.hidden / 128), kv = std::min(8, heads);
  double inner = std::round(best.hidden * 3.5 / 256) * 256;
  for (auto& layer : best.layers) {
    layer.attention = {
        .kind = AttentionKind::full, .q_heads = heads, .kv_heads = kv, .k_dim = 128, .v_dim = 128};
    double h = best.hidden;
    layer.tensors = {{"self_attn.q_proj", h * h},        {"self_attn.k_proj", h * 128 * kv},
                     {"self_attn.v_proj", h * 128 * kv}, {"self_attn.o_proj", h * h},
                     {"mlp.gate_proj", h * inner},       {"mlp.up_proj", h * inner},
                     {"mlp.down_proj", h * inner}};
  }
  best.embedding_parameters = best.head_parameters =
      static_cast<double>(best.vocabulary) * best.hidden;
  best.query_width_max = static_cast<int>(2 * inner);
  // Scale the rest so that the total is exactly the requested size.
  double body = best.layer_parameters(""), scale = (wanted - 2 * best.embedding_parameters) / body;
  if (scale > 0)
    for (auto& layer : best.layers)
      for (auto& tensor : layer.tensors)
        tensor.parameters *= scale;
  best.context_max = 131072;
  best.name = std::string(trim(text));
  best.architecture = "size only";
  best.notes.push_back(
      fmt::format("only the size is known: taken as a dense model with {} layers, width {}, {} "
                  "key/value heads of 128",
                  best.layers.size(), best.hidden, kv));
  return best;
}

}  // namespace billow::advise
