// From config.json to layers. Configs name the same thing in many ways and hide whole architectures
// in one field, so each kind of attention is recognised by the fields that define it, not by a list
// of model names: a new model of a known kind is read without a change here. A model type that is
// not known by name is read by its fields and said so.
#include <cmath>
#include <set>

#include "advise/model_shape.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr std::size_t config_bytes_max = 4 << 20;

// Python writes Infinity and NaN, which is no JSON. Outside strings they become numbers that
// nothing here reads.
std::string without_python_floats(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '"')
      quoted = !quoted;
    if (quoted && c == '\\' && i + 1 < text.size()) {
      out += c;
      out += text[++i];
      continue;
    }
    auto word = [&](std::string_view w) {
      return !quoted && text.substr(i, w.size()) == w;
    };
    if (word("Infinity"))
      out += "1e308", i += 7;
    else if (word("NaN"))
      out += "0", i += 2;
    else
      out += c;
  }
  return out;
}

// Reads fields with bounds; remembers the first thing that was wrong.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}
  const Json& json() const { return json_; }

  // The first of the names that holds a number; `fallback` where none does. Out of bounds is an
  // error, never clamped.
  std::int64_t number(std::initializer_list<const char*> names,
                      std::int64_t fallback,
                      std::int64_t min,
                      std::int64_t max) {
    for (auto name : names) {
      const Json* field = json_.find(name);
      if (!field || field->is_null())
        continue;
      double value = field->is_number() ? field->double_or(0) : std::nan("");
      if (!std::isfinite(value) || value != std::floor(value) || value < static_cast<double>(min) ||
          value > static_cast<double>(max)) {
        if (error_.empty())
          error_ = fmt::format("{} is {}, not a whole number from {} to {}", name,
                               field->dump().substr(0, 40), min, max);
        return fallback;
      }
      return static_cast<std::int64_t>(value);
    }
    return fallback;
  }
  std::int64_t required(std::initializer_list<const char*> names,
                        std::int64_t min,
                        std::int64_t max) {
    auto value = number(names, -1, min, max);
    if (value < 0 && error_.empty())
      error_ = fmt::format("no field {}", *names.begin());
    return value;
  }
  bool flag(const char* name) const { return json_[name].bool_or(false); }
  std::string text(const char* name) const { return std::string(json_[name].str_or("")); }
  void wrong(std::string what) {
    if (error_.empty())
      error_ = std::move(what);
  }
  const std::string& error() const { return error_; }

 private:
  const Json& json_;
  std::string error_;
};

struct Dims {
  std::int64_t layers, hidden, heads, kv_heads, head_dim, inner, vocabulary;
};

bool two_matrix_mlp(const std::string& type) {
  for (auto t : {"gpt2", "gpt_neox", "gptj", "gpt_bigcode", "mpt", "codegen", "falcon", "opt",
                 "bloom", "phi", "starcoder2", "nemotron", "nemotron_h", "t5"})
    if (type == t)
      return true;
  return false;
}

bool known_type(const std::string& type) {
  static const std::set<std::string> known = {"llama",
                                              "mistral",
                                              "mixtral",
                                              "qwen2",
                                              "qwen2_moe",
                                              "qwen3",
                                              "qwen3_moe",
                                              "qwen3_next",
                                              "qwen3_vl",
                                              "qwen3_vl_moe",
                                              "qwen3_5",
                                              "qwen3_5_moe",
                                              "qwen3_vl_text",
                                              "qwen3_vl_moe_text",
                                              "qwen3_5_text",
                                              "qwen3_5_moe_text",
                                              "gemma",
                                              "gemma2",
                                              "gemma3",
                                              "gemma3_text",
                                              "gemma4",
                                              "gemma4_text",
                                              "deepseek_v2",
                                              "deepseek_v3",
                                              "deepseek_v32",
                                              "deepseek_v4",
                                              "deepseek_ref",
                                              "glm_moe_dsa",
                                              "glm4",
                                              "glm4_moe",
                                              "gpt_oss",
                                              "llama4",
                                              "llama4_text",
                                              "minimax_m2",
                                              "minimax_m3",
                                              "mimo",
                                              "mimo_v2_flash",
                                              "step3p7",
                                              "kimi_k2",
                                              "kimi_k25",
                                              "kimi_k3",
                                              "kimi_linear",
                                              "nemotron",
                                              "nemotron_h",
                                              "nemotron-nas",
                                              "phi",
                                              "phi3",
                                              "gpt2",
                                              "gpt_neox",
                                              "gptj",
                                              "gpt_bigcode",
                                              "mpt",
                                              "codegen",
                                              "falcon",
                                              "opt",
                                              "bloom",
                                              "starcoder2",
                                              "granite",
                                              "cohere",
                                              "olmo",
                                              "olmo2",
                                              "mt5",
                                              "t5",
                                              "baichuan",
                                              "internlm2",
                                              "exaone",
                                              "stablelm"};
  return known.contains(type);
}

void add(Layer& layer, std::string name, double parameters, bool quantizable = true) {
  if (parameters > 0)
    layer.tensors.push_back({std::move(name), parameters, Precision::bf16, quantizable});
}

Attention gqa(Layer& layer,
              double hidden,
              std::int64_t q_heads,
              std::int64_t kv_heads,
              std::int64_t k_dim,
              std::int64_t v_dim,
              bool output_gate,
              const char* prefix = "self_attn") {
  std::string p = prefix;
  add(layer, p + ".q_proj", hidden * q_heads * k_dim * (output_gate ? 2 : 1));
  add(layer, p + ".k_proj", hidden * kv_heads * k_dim);
  add(layer, p + ".v_proj", hidden * kv_heads * v_dim);
  add(layer, p + ".o_proj", hidden * q_heads * v_dim);
  return {.kind = AttentionKind::full,
          .q_heads = static_cast<int>(q_heads),
          .kv_heads = static_cast<int>(kv_heads),
          .k_dim = static_cast<int>(k_dim),
          .v_dim = static_cast<int>(v_dim)};
}

// DeepSeek's latent attention: one compressed vector per token for all heads, with or without a
// sparse indexer.
Attention mla(Layer& layer, Fields& f, double hidden, std::int64_t heads, bool own_indexer) {
  auto kv_lora = f.required({"kv_lora_rank"}, 1, 65536),
       rope = f.number({"qk_rope_head_dim"}, 64, 0, 4096);
  auto nope = f.number({"qk_nope_head_dim"}, 128, 0, 4096),
       v = f.number({"v_head_dim"}, 128, 1, 4096), q_lora = f.number({"q_lora_rank"}, 0, 0, 65536);
  if (q_lora > 0) {
    add(layer, "self_attn.q_a_proj", hidden * q_lora);
    add(layer, "self_attn.q_b_proj", static_cast<double>(q_lora) * heads * (nope + rope));
  } else {
    add(layer, "self_attn.q_proj", hidden * heads * (nope + rope));
  }
  add(layer, "self_attn.kv_a_proj_with_mqa", hidden * (kv_lora + rope));
  add(layer, "self_attn.kv_b_proj", static_cast<double>(kv_lora) * heads * (nope + v));
  add(layer, "self_attn.o_proj", hidden * heads * v);
  if (f.flag("mla_use_output_gate"))
    add(layer, "self_attn.g_proj", hidden * heads * v);
  Attention a{.kind = AttentionKind::mla,
              .q_heads = static_cast<int>(heads),
              .kv_heads = 1,
              .k_dim = static_cast<int>(nope + rope),
              .v_dim = static_cast<int>(v),
              .latent = static_cast<int>(kv_lora + rope)};
  auto index_heads = f.number({"index_n_heads"}, 0, 0, 4096),
       index_dim = f.number({"index_head_dim"}, 0, 0, 65536);
  if (index_heads > 0) {
    a.index_topk = static_cast<int>(f.number({"index_topk"}, 2048, 1, 1 << 24));
    if (own_indexer) {
      a.index_dim = static_cast<int>(index_dim);
      add(layer, "self_attn.indexer",
          static_cast<double>(q_lora > 0 ? q_lora : static_cast<std::int64_t>(hidden)) *
                  index_heads * index_dim +
              hidden * (index_dim + index_heads));
    }
  }
  return a;
}

// DeepSeek V4: keys and values of `ratio` tokens folded into one vector of head_dim, a short window
// kept whole.
Attention compressed(Layer& layer,
                     Fields& f,
                     double hidden,
                     std::int64_t heads,
                     std::int64_t head_dim,
                     std::int64_t ratio) {
  auto q_lora = f.number({"q_lora_rank"}, 1024, 1, 65536),
       o_lora = f.number({"o_lora_rank"}, 1024, 1, 65536),
       groups = f.number({"o_groups"}, 8, 1, 1024);
  add(layer, "self_attn.q_a_proj", hidden * q_lora);
  add(layer, "self_attn.q_b_proj", static_cast<double>(q_lora) * heads * head_dim);
  add(layer, "self_attn.kv_proj", hidden * head_dim);
  add(layer, "self_attn.o_a_proj", static_cast<double>(heads) * head_dim * o_lora);
  add(layer, "self_attn.o_b_proj", hidden * groups * o_lora);
  Attention a{.kind = AttentionKind::compressed,
              .q_heads = static_cast<int>(heads),
              .kv_heads = 1,
              .k_dim = static_cast<int>(head_dim),
              .v_dim = 0,
              .window = static_cast<int>(f.number({"sliding_window"}, 128, 1, 1 << 24)),
              .compress = static_cast<int>(ratio)};
  if (ratio > 0)
    add(layer, "self_attn.compressor", hidden * head_dim * (ratio <= 8 ? 4 : 2));
  if (ratio > 0 && ratio <= 8) {  // the finely compressed layers choose among their entries with an
                                  // indexer, the coarse ones read all
    auto index_heads = f.number({"index_n_heads"}, 64, 0, 4096),
         index_dim = f.number({"index_head_dim"}, 128, 0, 65536);
    a.index_dim = static_cast<int>(index_dim);
    a.index_topk = static_cast<int>(f.number({"index_topk"}, 512, 1, 1 << 24));
    add(layer, "self_attn.indexer",
        static_cast<double>(q_lora) * index_heads * index_dim +
            hidden * (4 * index_dim + index_heads));
  }
  return a;
}

double element_bytes(const std::string& dtype) {
  return dtype == "bfloat16" || dtype == "float16" ? 2 : 4;
}

// Gated delta rule (Qwen3-Next, Qwen3.5): a matrix of key × value dimensions per value head,
// whatever the length.
Attention delta(Layer& layer, Fields& f, double hidden) {
  auto k_heads = f.required({"linear_num_key_heads"}, 1, 4096),
       v_heads = f.required({"linear_num_value_heads"}, 1, 4096);
  auto k_dim = f.required({"linear_key_head_dim"}, 1, 8192),
       v_dim = f.required({"linear_value_head_dim"}, 1, 8192);
  auto kernel = f.number({"linear_conv_kernel_dim"}, 4, 1, 64);
  double keys = static_cast<double>(k_heads * k_dim), values = static_cast<double>(v_heads * v_dim);
  add(layer, "linear_attn.in_proj_qkv", hidden * (2 * keys + values));
  add(layer, "linear_attn.in_proj_z", hidden * values);
  add(layer, "linear_attn.in_proj_ba", hidden * 2 * v_heads, false);
  add(layer, "linear_attn.out_proj", hidden * values);
  add(layer, "linear_attn.conv1d", (2 * keys + values) * kernel, false);
  return {.kind = AttentionKind::linear,
          .q_heads = static_cast<int>(v_heads),
          .kv_heads = static_cast<int>(k_heads),
          .k_dim = static_cast<int>(k_dim),
          .v_dim = static_cast<int>(v_dim),
          .state_elements = v_heads * k_dim * v_dim,
          .state_element_bytes = element_bytes(f.text("mamba_ssm_dtype")),
          .conv_elements = static_cast<std::int64_t>(2 * keys + values) * (kernel - 1)};
}

// Kimi's delta attention: the same idea with a gate per channel.
Attention kda(Layer& layer, Fields& f, double hidden) {
  Fields c(f.json()["linear_attn_config"]);
  auto heads = c.required({"num_heads"}, 1, 4096), dim = c.required({"head_dim"}, 1, 8192),
       kernel = c.number({"short_conv_kernel_size"}, 4, 1, 64);
  if (!c.error().empty())
    f.wrong("linear_attn_config: " + c.error());
  double width = static_cast<double>(heads * dim);
  add(layer, "self_attn.qkv_proj", hidden * 3 * width);
  add(layer, "self_attn.o_proj", hidden * width);
  add(layer, "self_attn.g_proj",
      c.flag("use_full_rank_gate") ? hidden * width : dim * (hidden + width));
  add(layer, "self_attn.f_proj", dim * (hidden + width));
  add(layer, "self_attn.b_proj", hidden * heads, false);
  return {.kind = AttentionKind::linear,
          .q_heads = static_cast<int>(heads),
          .kv_heads = static_cast<int>(heads),
          .k_dim = static_cast<int>(dim),
          .v_dim = static_cast<int>(dim),
          .state_elements = heads * dim * dim,
          .state_element_bytes = 4,
          .conv_elements = static_cast<std::int64_t>(3 * width) * (kernel - 1)};
}

Attention mamba(Layer& layer, Fields& f, double hidden) {
  auto heads = f.required({"mamba_num_heads"}, 1, 65536),
       dim = f.required({"mamba_head_dim"}, 1, 8192);
  auto groups = f.number({"n_groups"}, 1, 1, 4096),
       state = f.number({"ssm_state_size"}, 128, 1, 65536),
       kernel = f.number({"conv_kernel"}, 4, 1, 64);
  double inner = static_cast<double>(heads * dim),
         conv = inner + 2.0 * static_cast<double>(groups * state);
  add(layer, "mixer.in_proj",
      hidden *
          (2 * inner + 2.0 * static_cast<double>(groups * state) + static_cast<double>(heads)));
  add(layer, "mixer.out_proj", hidden * inner);
  add(layer, "mixer.conv1d", conv * kernel, false);
  return {.kind = AttentionKind::mamba,
          .q_heads = static_cast<int>(heads),
          .kv_heads = static_cast<int>(groups),
          .k_dim = static_cast<int>(dim),
          .v_dim = static_cast<int>(state),
          .state_elements = heads * dim * state,
          .state_element_bytes = f.text("mamba_ssm_cache_dtype") == "float32" ? 4.0 : 2.0,
          .conv_elements = static_cast<std::int64_t>(conv) * (kernel - 1)};
}

void dense_mlp(Layer& layer, double hidden, double inner, int matrices) {
  if (matrices == 3)
    add(layer, "mlp.gate_proj", hidden * inner);
  add(layer, "mlp.up_proj", hidden * inner);
  add(layer, "mlp.down_proj", hidden * inner);
}

struct Moe {
  std::int64_t experts = 0, per_token = 0, inner = 0, shared_inner = 0, latent = 0;
  int matrices = 3;
};

void moe_mlp(Layer& layer, double hidden, const Moe& m) {
  double width = m.latent > 0 ? static_cast<double>(m.latent) : hidden;
  layer.experts = static_cast<int>(m.experts);
  layer.experts_per_token = static_cast<int>(std::min(m.per_token, m.experts));
  add(layer, "mlp.gate", hidden * m.experts, false);
  add(layer, "mlp.experts", width * m.inner * m.matrices * m.experts);
  if (m.latent > 0)
    add(layer, "mlp.latent_proj", 2 * hidden * width);
  if (m.shared_inner > 0)
    add(layer, "mlp.shared_experts", hidden * m.shared_inner * m.matrices);
}

Moe read_moe(Fields& f, const Dims& d, const std::string& type) {
  Moe m;
  m.experts = f.number({"n_routed_experts", "num_local_experts", "num_experts"}, 0, 0, 65536);
  if (m.experts == 0)
    return m;
  m.per_token = f.number({"num_experts_per_tok", "num_experts_per_token", "experts_per_token",
                          "top_k_experts", "moe_topk"},
                         0, 1, 65536);
  if (m.per_token == 0)
    f.wrong("it has experts and no num_experts_per_tok");
  m.inner = f.number({"moe_intermediate_size", "expert_intermediate_size"}, d.inner, 1, 1 << 22);
  m.matrices = two_matrix_mlp(type) ? 2 : 3;
  m.latent = f.number({"moe_latent_size", "routed_expert_hidden_size"}, 0, 0, 1 << 20);
  m.shared_inner = f.number({"moe_shared_expert_intermediate_size",
                             "shared_expert_intermediate_size", "share_expert_dim"},
                            -1, 0, 1 << 22);
  if (m.shared_inner < 0) {
    auto shared = f.number({"n_shared_experts", "num_shared_experts"},
                           type == "llama4_text" || type == "llama4" ? 1 : 0, 0, 64);
    m.shared_inner = shared * m.inner;
  }
  return m;
}

// Which layers are mixtures: by list, by first dense layers, by step; all where the config says
// nothing.
bool is_moe_layer(Fields& f, std::int64_t i) {
  auto& json = f.json();
  for (auto name : {"moe_layer_freq", "mlp_layer_types"})
    if (json[name].is_array() && static_cast<std::size_t>(i) < json[name].size()) {
      auto& item = json[name].items()[static_cast<std::size_t>(i)];
      return item.is_string() ? item.str_or("") == "sparse" : item.int_or(1) != 0;
    }
  if (i < f.number({"first_k_dense_replace"}, 0, 0, 1 << 20))
    return false;
  for (auto& dense : json["mlp_only_layers"].items())
    if (dense.int_or(-1) == i)
      return false;
  auto step = f.number({"interleave_moe_layer_step", "decoder_sparse_step"}, 1, 1, 1 << 20);
  return (i + 1) % step == 0;
}

std::string layer_kind(Fields& f, std::int64_t i, std::int64_t layers) {
  auto& json = f.json();
  auto at = static_cast<std::size_t>(i);
  auto& types = json["layer_types"];
  if (types.is_array() && at < types.size())
    return std::string(types.items()[at].str_or(""));
  auto& pattern = json["hybrid_layer_pattern"];
  if (pattern.is_array() && at < pattern.size())
    return pattern.items()[at].int_or(0) ? "sliding_attention" : "full_attention";
  for (auto& l : json.at("linear_attn_config", "kda_layers").items())
    if (l.int_or(0) == i + 1)
      return "kda";
  if (json["full_attention_interval"].is_integer() && json["linear_num_value_heads"].is_integer())
    return (i + 1) % f.number({"full_attention_interval"}, 4, 1, 1 << 20) == 0 ? "full_attention"
                                                                               : "linear_attention";
  if (json["attention_chunk_size"].is_integer() && !json["hybrid_layer_pattern"].is_array())
    return (i + 1) % 4 == 0 ? "full_attention" : "chunked_attention";
  bool sliding = json["sliding_window"].is_number() && json["use_sliding_window"].bool_or(true);
  if (sliding && json["sliding_window_pattern"].is_integer())
    return (i + 1) % f.number({"sliding_window_pattern"}, 6, 1, 1 << 20) == 0 ? "full_attention"
                                                                              : "sliding_attention";
  if (sliding && json["use_sliding_window"].bool_or(false))
    return i >= f.number({"max_window_layers"}, layers, 0, 1 << 20) ? "sliding_attention"
                                                                    : "full_attention";
  if (sliding && json["compress_ratios"].is_null() && json["use_sliding_window"].is_null())
    return "sliding_attention";
  return "full_attention";
}

void ordinary_layer(Layer& layer,
                    Fields& f,
                    const Dims& d,
                    const Moe& moe,
                    const std::string& type,
                    std::int64_t i) {
  auto hidden = static_cast<double>(d.hidden);
  auto kind = layer_kind(f, i, d.layers);
  auto& json = f.json();
  auto at = static_cast<std::size_t>(i);
  bool gate = f.flag("attn_output_gate") || f.flag("attention_output_gate");
  if (kind == "linear_attention") {
    layer.attention = delta(layer, f, hidden);
  } else if (kind == "kda") {
    layer.attention = kda(layer, f, hidden);
  } else if (json["compress_ratios"].is_array() && at < json["compress_ratios"].size()) {
    layer.attention = compressed(layer, f, hidden, d.heads, d.head_dim,
                                 json["compress_ratios"].items()[at].int_or(0));
  } else if (json["kv_lora_rank"].is_integer()) {
    auto& indexers = json["indexer_types"];
    bool own = !indexers.is_array() || at >= indexers.size() ||
               indexers.items()[at].str_or("full") == "full";
    layer.attention = mla(layer, f, hidden, d.heads, own);
  } else if (kind == "sliding_attention") {
    auto kv = f.number({"swa_num_key_value_heads"}, d.kv_heads, 1, 65536),
         k = f.number({"swa_head_dim"}, d.head_dim, 1, 65536);
    auto v = f.number({"swa_v_head_dim", "v_head_dim"}, k, 1, 65536);
    layer.attention = gqa(layer, hidden, f.number({"swa_num_attention_heads"}, d.heads, 1, 65536),
                          kv, k, v, gate);
    layer.attention.kind = AttentionKind::sliding;
    layer.attention.window =
        static_cast<int>(f.number({"sliding_window", "sliding_window_size"}, 4096, 1, 1 << 24));
  } else {
    auto kv = f.number({"num_global_key_value_heads"}, d.kv_heads, 1, 65536),
         k = f.number({"global_head_dim"}, d.head_dim, 1, 65536);
    layer.attention =
        gqa(layer, hidden, d.heads, kv, k, f.number({"v_head_dim"}, k, 1, 65536), gate);
    if (kind == "chunked_attention") {
      layer.attention.kind = AttentionKind::chunked;
      layer.attention.window =
          static_cast<int>(f.number({"attention_chunk_size"}, 8192, 1, 1 << 24));
    }
    auto& sparse = json["sparse_attention_config"];
    if (sparse.is_object() && at < sparse["sparse_attention_freq"].size() &&
        sparse["sparse_attention_freq"].items()[at].int_or(0) != 0) {
      layer.attention.index_dim = static_cast<int>(sparse["sparse_index_dim"].int_or(0));
      layer.attention.index_topk = static_cast<int>(sparse["sparse_topk_blocks"].int_or(16) *
                                                    sparse["sparse_block_size"].int_or(128));
      add(layer, "self_attn.indexer",
          hidden * layer.attention.index_dim *
              (1.0 + static_cast<double>(sparse["sparse_num_index_heads"].int_or(4))));
    }
  }
  int matrices = two_matrix_mlp(type) ? 2 : 3;
  bool both = f.flag("enable_moe_block");  // Gemma 4 runs a dense MLP beside its experts
  if (moe.experts > 0 && (both || is_moe_layer(f, i))) {
    moe_mlp(layer, hidden, moe);
    if (both)
      dense_mlp(layer, hidden, static_cast<double>(d.inner), matrices);
  } else {
    dense_mlp(layer, hidden,
              static_cast<double>(f.number({"intermediate_size_mlp", "dense_intermediate_size"},
                                           d.inner, 1, 1 << 24)),
              matrices);
  }
}

// Nemotron-H writes its layers as a string: M mamba, * attention, E experts, - dense; newer ones as
// a list of names.
std::string hybrid_pattern(const Json& json) {
  std::string pattern(json["hybrid_override_pattern"].str_or(""));
  if (pattern.empty())
    for (auto& block : json["layers_block_type"].items()) {
      auto name = block.str_or("");
      pattern += name == "mamba" ? 'M' : name == "moe" ? 'E' : name == "attention" ? '*' : '-';
    }
  return pattern;
}

void hybrid_layer(Layer& layer, char symbol, Fields& f, const Dims& d, const Moe& moe) {
  auto hidden = static_cast<double>(d.hidden);
  if (symbol == 'M')
    layer.attention = mamba(layer, f, hidden);
  else if (symbol == '*')
    layer.attention =
        gqa(layer, hidden, d.heads, d.kv_heads, d.head_dim, d.head_dim, false, "mixer");
  else if (symbol == 'E')
    moe_mlp(layer, hidden, moe);
  else
    dense_mlp(layer, hidden, static_cast<double>(d.inner), 2);
}

// Nemotron-NAS: every block has its own group size and MLP width, some have none.
void searched_layer(Layer& layer, const Json& block, Fields& f, const Dims& d) {
  auto hidden = static_cast<double>(d.hidden);
  auto& attention = block["attention"];
  if (!attention["no_op"].bool_or(false) && attention["n_heads_in_group"].is_integer()) {
    auto group = attention["n_heads_in_group"].int_or(0);
    if (group < 1 || group > d.heads)
      return f.wrong("block_configs: n_heads_in_group out of range");
    layer.attention = gqa(layer, hidden, d.heads, std::max<std::int64_t>(1, d.heads / group),
                          d.head_dim, d.head_dim, false);
  }
  auto& ffn = block["ffn"];
  double multiple = ffn["ffn_mult"].double_or(0);
  if (!ffn["no_op"].bool_or(false) && multiple > 0 && multiple < 64) {
    double inner = std::floor(2 * multiple * hidden / 3);
    inner = std::ceil(inner / 256) * 256;
    dense_mlp(layer, hidden, inner, 3);
  }
}

double vision_parameters(const Json& root) {
  auto& v = root["vision_config"];
  double hidden = v["hidden_size"].double_or(v["vt_hidden_size"].double_or(0)),
         inner = v["intermediate_size"].double_or(v["vt_intermediate_size"].double_or(4 * hidden));
  double depth = v["depth"].double_or(
      v["num_hidden_layers"].double_or(v["vt_num_hidden_layers"].double_or(0)));
  double sum = depth * (4 * hidden * hidden + 2 * hidden * inner) + 4 * hidden * 4 * hidden +
               4 * hidden * v["out_hidden_size"].double_or(0);
  return std::isfinite(sum) && sum > 0 && sum < 1e11 ? sum : 0;
}

Status finish(ModelShape& shape, Fields& f, const Json& root, const Dims& d) {
  if (!f.error().empty())
    return fail(Code::invalid, "config.json: " + f.error());
  shape.tied_embeddings =
      f.json()["tie_word_embeddings"].bool_or(root["tie_word_embeddings"].bool_or(false));
  shape.embedding_parameters = shape.head_parameters =
      static_cast<double>(d.vocabulary) * static_cast<double>(d.hidden);
  shape.vision_parameters = vision_parameters(root);
  auto drafts = f.number({"num_nextn_predict_layers", "mtp_num_hidden_layers"}, 0, 0, 64);
  if (drafts > 0 && !shape.layers.empty()) {
    double last = 0;
    for (auto& tensor : shape.layers.back().tensors)
      last += tensor.parameters;
    shape.mtp_parameters =
        static_cast<double>(drafts) *
        (last + 2.0 * static_cast<double>(d.hidden) * static_cast<double>(d.hidden));
  }
  double width = 0;
  for (auto& layer : shape.layers)
    for (auto& tensor : layer.tensors) {
      double each = tensor.parameters / static_cast<double>(d.hidden);
      if (tensor.name == "mlp.experts")
        each = each / layer.experts * layer.experts_per_token;
      width = std::max(width, tensor.name == "mlp.gate_proj" ? 2 * each : each);
    }
  shape.query_width_max = static_cast<int>(std::min(width, 1e8));
  if (double n = shape.parameters(); !(n > 1e4 && n < 1e14))
    return fail(
        Code::invalid,
        fmt::format("config.json describes a model of {:.3g} parameters, which no machine holds",
                    n));
  return {};
}

}  // namespace

Result<ModelShape> read_model_config(std::string_view config_json,
                                     std::string_view quant_config,
                                     std::string_view name) {
  if (config_json.size() > config_bytes_max)
    return fail(Code::too_large, fmt::format("config.json is {} bytes; at most {}",
                                             config_json.size(), config_bytes_max));
  auto parsed = parse_json(without_python_floats(config_json));
  if (!parsed)
    return pass(parsed.error(), "config.json");
  const Json& root = *parsed;
  if (!root.is_object())
    return fail(Code::invalid, fmt::format("config.json holds {}, not an object", root.kind()));
  const Json* text = &root;
  for (auto inner : {"text_config", "language_config", "llm_config"})
    if (root[inner].is_object() && !root["num_hidden_layers"].is_number())
      text = &root[inner];
  Fields f(*text);
  ModelShape shape;
  shape.name = name;
  std::string type = f.text("model_type");
  shape.architecture = std::string(root["architectures"].items().empty()
                                       ? std::string_view(type)
                                       : root["architectures"].items()[0].str_or(type));
  auto pattern = hybrid_pattern(*text);
  Dims d{};
  d.hidden = f.required({"hidden_size", "n_embd", "d_model"}, 8, 1 << 20);
  auto layers_fallback = pattern.empty() ? -1 : static_cast<std::int64_t>(pattern.size());
  d.layers = f.number({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, layers_fallback,
                      1, 4096);
  if (d.layers < 0)
    f.wrong("no field num_hidden_layers");
  d.heads = f.required({"num_attention_heads", "n_head", "n_heads", "num_heads"}, 1, 65536);
  if (!f.error().empty())
    return fail(Code::invalid, "config.json: " + f.error(),
                "a text model's config.json from Hugging Face is expected");
  d.kv_heads = f.number({"num_key_value_heads", "num_kv_heads"},
                        f.flag("multi_query") ? 1 : d.heads, 1, 65536);
  d.head_dim = f.number({"head_dim", "attention_head_dim", "d_kv"},
                        std::max<std::int64_t>(1, d.hidden / d.heads), 1, 65536);
  d.inner = f.number({"intermediate_size", "n_inner", "ffn_dim", "d_ff"}, 4 * d.hidden, 1, 1 << 24);
  d.vocabulary = f.number({"vocab_size"}, root["vocab_size"].int_or(0), 16, 100'000'000);
  if (d.vocabulary == 0)
    f.wrong("no field vocab_size");
  shape.hidden = static_cast<int>(d.hidden);
  shape.vocabulary = static_cast<int>(d.vocabulary);
  shape.context_max = static_cast<int>(f.number(
      {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"}, 0, 0, 1 << 30));
  shape.encoder_decoder = text->operator[]("is_encoder_decoder").bool_or(false);
  if (!known_type(type))
    shape.notes.push_back(
        fmt::format("unknown: model type \"{}\", treated by its fields", type.substr(0, 64)));
  if (shape.encoder_decoder)
    shape.notes.push_back("encoder-decoder: the encoder's layers are counted as further layers");
  auto moe = read_moe(f, d, type);
  shape.layers.resize(static_cast<std::size_t>(d.layers * (shape.encoder_decoder ? 2 : 1)));
  if (!pattern.empty() && pattern.size() != static_cast<std::size_t>(d.layers))
    f.wrong(fmt::format("{} layers and a pattern of {}", d.layers, pattern.size()));
  for (std::size_t i = 0; i < shape.layers.size() && f.error().empty(); ++i) {
    auto& blocks = (*text)["block_configs"];
    if (!pattern.empty())
      hybrid_layer(shape.layers[i], pattern[i], f, d, moe);
    else if (blocks.is_array() && i < blocks.size())
      searched_layer(shape.layers[i], blocks.items()[i], f, d);
    else
      ordinary_layer(shape.layers[i], f, d, moe, type, static_cast<std::int64_t>(i));
  }
  BILLOW_TRY_VOID(finish(shape, f, root, d));
  if (auto dtype =
          parse_precision(f.text("torch_dtype").empty() ? f.text("dtype") : f.text("torch_dtype"));
      dtype && weight_bytes(*dtype) >= 2)
    shape = at_precision(std::move(shape), *dtype);
  if (!quant_config.empty()) {
    auto extra = parse_json(quant_config);
    if (!extra)
      return pass(extra.error(), "hf_quant_config.json");
    BILLOW_TRY_VOID(apply_quantization(shape, (*extra)["quantization"]));
  } else {
    for (auto* holder : {&root, text})
      if ((*holder)["quantization_config"].is_object()) {
        BILLOW_TRY_VOID(apply_quantization(shape, (*holder)["quantization_config"]));
        break;
      }
  }
  if (!shape.quantized)
    for (std::string_view tail : {"-NVFP4", "-FP8"})
      if (shape.name.ends_with(tail)) {
        shape.notes.push_back(fmt::format(
            "unknown: config.json says nothing of quantization, treated as {} by its name",
            tail.substr(1)));
        shape = at_precision(std::move(shape), tail == "-FP8" ? Precision::fp8 : Precision::nvfp4);
        break;
      }
  if (f.text("expert_dtype") == "fp4")
    for (auto& layer : shape.layers)
      for (auto& tensor : layer.tensors)
        if (tensor.name == "mlp.experts" && tensor.precision == Precision::fp8)
          tensor.precision = Precision::fp4;
  return shape;
}

Result<ModelShape> read_model_file(const std::string& path) {
  auto text = read_file(path, config_bytes_max);
  if (!text)
    return pass(text.error());
  std::string quant_path;
  if (auto at = path.rfind("config.json"); at != std::string::npos)
    quant_path = path.substr(0, at) + "hf_quant_config.json";
  std::string quant;
  if (!quant_path.empty() && file_exists(quant_path))
    if (auto read = read_file(quant_path, config_bytes_max))
      quant = *read;
  auto name = path.substr(path.rfind('/') + 1);
  for (std::string_view tail : {"_config.json", ".json"})
    if (name.ends_with(tail))
      name.resize(name.size() - tail.size());
  if (auto at = name.find("--"); at != std::string::npos)
    name.replace(at, 2, "/");
  auto shape = read_model_config(*text, quant, name);
  if (!shape)
    return pass(shape.error(), path);
  return shape;
}

Result<ModelShape> find_model(std::string_view wanted, const std::string& models_dir) {
  std::string name(trim(wanted));
  if (name.empty())
    return fail(Code::invalid, "no model given",
                "--model takes a config.json, a name found in --models, or a size like 7B");
  if (file_exists(name))
    return read_model_file(file_exists(name + "/config.json") ? name + "/config.json" : name);
  if (auto sized = model_of_size(name))
    return sized;
  if (!models_dir.empty() && name.find("..") == std::string::npos) {
    auto flat = name;
    if (auto slash = flat.find('/'); slash != std::string::npos)
      flat.replace(slash, 1, "--");
    for (auto& candidate :
         {models_dir + "/" + flat + "_config.json", models_dir + "/" + flat + ".json",
          models_dir + "/" + name + "/config.json", models_dir + "/" + flat + "/config.json"})
      if (file_exists(candidate))
        return read_model_file(candidate);
  }
  return fail(Code::not_found,
              fmt::format("no model \"{}\": not a file, not a size, and not found in {}", name,
                          models_dir.empty() ? "a --models directory" : models_dir),
              "give the path of its config.json, or a size like 7B");
}

}  // namespace billow::advise
