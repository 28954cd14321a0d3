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

namespace {

// Shapes of well-known dense models by size: a size alone is taken as the nearest of them. A model
// of 13B is an old one with a key/value head for each query head; those of 14B share them.
struct TypicalShape {
  double billions;
  int layers, hidden, heads, kv_heads, head_dim, inner, vocabulary;
};
constexpr TypicalShape typical_shapes[] = {
    {0.124, 12, 768, 12, 12, 64, 3072, 50257},    {0.355, 24, 1024, 16, 16, 64, 4096, 50257},
    {0.6, 28, 1024, 16, 8, 128, 3072, 151936},    {1.2, 16, 2048, 32, 8, 64, 8192, 128256},
    {1.7, 28, 2048, 16, 8, 128, 6144, 151936},    {3.2, 28, 3072, 24, 8, 128, 8192, 128256},
    {4.0, 36, 2560, 32, 8, 128, 9728, 151936},    {7.2, 32, 4096, 32, 8, 128, 14336, 32000},
    {8.0, 32, 4096, 32, 8, 128, 14336, 128256},   {9.2, 40, 4096, 32, 2, 128, 13696, 151552},
    {12.2, 40, 5120, 32, 8, 128, 14336, 131072},  {13.0, 40, 5120, 40, 40, 128, 13824, 32000},
    {14.7, 40, 5120, 40, 10, 128, 17920, 100352}, {22.2, 56, 6144, 48, 8, 128, 16384, 32768},
    {27.2, 62, 5376, 32, 16, 128, 21504, 262208}, {32.5, 64, 5120, 40, 8, 128, 27648, 152064},
    {34.4, 60, 7168, 56, 8, 128, 20480, 64000},   {70.6, 80, 8192, 64, 8, 128, 28672, 128256},
    {111.0, 80, 8192, 64, 8, 128, 49152, 152064}, {122.6, 88, 12288, 96, 8, 128, 28672, 32768},
    {179.5, 80, 14848, 232, 8, 64, 59392, 65024}, {405.9, 126, 16384, 128, 8, 128, 53248, 128256},
};

TypicalShape typical_shape(double billions) {
  const TypicalShape* nearest = &typical_shapes[0];
  auto off = [&](const TypicalShape& t) {
    return std::fabs(std::log(t.billions / billions));
  };
  for (auto& t : typical_shapes)
    if (off(t) < off(*nearest))
      nearest = &t;
  TypicalShape t = *nearest;
  // Far outside the table, depth and width grow together.
  if (const double ratio = billions / t.billions; ratio > 1.5 || ratio < 1 / 1.5) {
    const double grow = std::cbrt(ratio);
    t.layers = std::max(1, static_cast<int>(std::lround(t.layers * grow)));
    t.hidden = std::max(64, static_cast<int>(std::lround(t.hidden * grow / 64)) * 64);
    t.inner = std::max(64, static_cast<int>(std::lround(t.inner * grow / 64)) * 64);
    t.heads = std::max(1, t.hidden / t.head_dim);
    t.kv_heads = std::min(t.kv_heads, t.heads);
  }
  return t;
}

}  // namespace

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
  const TypicalShape t = typical_shape(wanted / 1e9);
  ModelShape shape;
  shape.hidden = t.hidden;
  // A vocabulary may not outweigh a tiny model.
  shape.vocabulary = static_cast<int>(std::min<double>(t.vocabulary, wanted / 4 / t.hidden));
  shape.embedding_parameters = shape.head_parameters =
      static_cast<double>(shape.vocabulary) * t.hidden;
  shape.tied_embeddings = wanted < 3e9;  // as small models do
  shape.layers.resize(static_cast<std::size_t>(t.layers));
  const double h = t.hidden, q = static_cast<double>(t.heads) * t.head_dim,
               kv = static_cast<double>(t.kv_heads) * t.head_dim, inner = t.inner;
  for (auto& layer : shape.layers) {
    layer.attention = {.kind = AttentionKind::full,
                       .q_heads = t.heads,
                       .kv_heads = t.kv_heads,
                       .k_dim = t.head_dim,
                       .v_dim = t.head_dim};
    layer.tensors = {{"self_attn.q_proj", h * q},  {"self_attn.k_proj", h * kv},
                     {"self_attn.v_proj", h * kv}, {"self_attn.o_proj", h * q},
                     {"mlp.gate_proj", h * inner}, {"mlp.up_proj", h * inner},
                     {"mlp.down_proj", h * inner}};
  }
  shape.query_width_max = 2 * t.inner;
  // Scale the layers so that the total is exactly the requested size.
  const double embeddings = shape.embedding_parameters * (shape.tied_embeddings ? 1 : 2),
               scale = (wanted - embeddings) / shape.layer_parameters("");
  for (auto& layer : shape.layers)
    for (auto& tensor : layer.tensors)
      tensor.parameters *= scale;
  shape.context_max = 131072;
  shape.name = std::string(trim(text));
  shape.architecture = "size only";
  shape.notes.push_back(fmt::format(
      "only the size is known: taken as a dense model with {} layers, width {}, {} key/value heads "
      "of {}",
      t.layers, t.hidden, t.kv_heads, t.head_dim));
  return shape;
}

}  // namespace billow::advise
