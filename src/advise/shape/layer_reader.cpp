// Each kind of attention is recognised by the fields that define it, not by a list of model names:
// a new model of a known kind needs no change here.
#include "advise/shape/layer_reader.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace billow::advise {
namespace {

bool two_matrix_mlp(Fields& f, const std::string& type) {
  if (f.text("feed_forward_proj").starts_with("gated"))
    return false;
  for (auto t : {"gpt2", "gpt_neox", "gptj", "gpt_bigcode", "mpt", "codegen", "falcon", "opt",
                 "bloom", "phi", "starcoder2", "nemotron", "nemotron_h", "t5", "mt5", "whisper"})
    if (type == t)
      return true;
  return false;
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

// Mamba-2: a state of head × state dimensions per head. The two sets of names are those of
// Nemotron-H and of Bamba, Falcon-H1 and Granite.
Attention mamba(Layer& layer, Fields& f, double hidden) {
  auto heads = f.required({"mamba_num_heads", "mamba_n_heads"}, 1, 65536),
       dim = f.number({"mamba_head_dim", "mamba_d_head"}, 64, 1, 8192);
  auto groups = f.number({"n_groups", "mamba_n_groups"}, 1, 1, 4096),
       state = f.number({"ssm_state_size", "mamba_d_state"}, 128, 1, 65536),
       kernel = f.number({"conv_kernel", "mamba_d_conv"}, 4, 1, 64);
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

// Mamba-1 (Jamba): a state of `mamba_d_state` for every channel, without heads.
Attention mamba_channels(Layer& layer, Fields& f, double hidden) {
  auto expand = f.number({"mamba_expand"}, 2, 1, 64),
       state = f.number({"mamba_d_state"}, 16, 1, 65536),
       kernel = f.number({"mamba_d_conv"}, 4, 1, 64),
       rank = f.number({"mamba_dt_rank"}, static_cast<std::int64_t>(std::ceil(hidden / 16)), 1,
                       1 << 20);
  double inner = static_cast<double>(expand) * hidden;
  add(layer, "mixer.in_proj", hidden * 2 * inner);
  add(layer, "mixer.x_proj", inner * static_cast<double>(rank + 2 * state));
  add(layer, "mixer.dt_proj", inner * static_cast<double>(rank));
  add(layer, "mixer.out_proj", hidden * inner);
  add(layer, "mixer.conv1d", inner * static_cast<double>(kernel + state), false);
  return {.kind = AttentionKind::mamba,
          .q_heads = static_cast<int>(std::min(inner, 65536.0)),
          .kv_heads = 1,
          .k_dim = 1,
          .v_dim = static_cast<int>(state),
          .state_elements = static_cast<std::int64_t>(inner) * state,
          .state_element_bytes = 4,
          .conv_elements = static_cast<std::int64_t>(inner) * (kernel - 1)};
}

// MiniMax-Text-01: linear attention with a gate; one matrix of head × head dimensions per head.
Attention lightning(Layer& layer, const Dims& d) {
  const double hidden = static_cast<double>(d.hidden),
               width = static_cast<double>(d.heads * d.head_dim);
  add(layer, "self_attn.qkv_proj", hidden * 3 * width);
  add(layer, "self_attn.output_gate", hidden * width);
  add(layer, "self_attn.out_proj", hidden * width);
  return {.kind = AttentionKind::linear,
          .q_heads = static_cast<int>(d.heads),
          .kv_heads = static_cast<int>(d.heads),
          .k_dim = static_cast<int>(d.head_dim),
          .v_dim = static_cast<int>(d.head_dim),
          .state_elements = d.heads * d.head_dim * d.head_dim,
          .state_element_bytes = 4};
}

// A recurrent layer, alone or beside attention (Falcon-H1 runs both on the same input).
Attention recurrent(Layer& layer, Fields& f, const Dims& d, bool beside_attention) {
  const double hidden = static_cast<double>(d.hidden);
  const bool heads =
      f.json()["mamba_n_heads"].is_number() || f.json()["mamba_num_heads"].is_number();
  Attention state = heads ? mamba(layer, f, hidden) : mamba_channels(layer, f, hidden);
  if (!beside_attention)
    return state;
  Attention both = gqa(layer, hidden, d.heads, d.kv_heads, d.head_dim, d.head_dim, false);
  both.state_elements = state.state_elements;
  both.state_element_bytes = state.state_element_bytes;
  both.conv_elements = state.conv_elements;
  return both;
}

void dense_mlp(Layer& layer, double hidden, double inner, int matrices) {
  if (matrices == 3)
    add(layer, "mlp.gate_proj", hidden * inner);
  add(layer, "mlp.up_proj", hidden * inner);
  add(layer, "mlp.down_proj", hidden * inner);
}

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

// Which layers are mixtures: by list, by first dense layers, by step; all of them if the config
// does not say.
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

}  // namespace

Moe read_moe(Fields& f, const Dims& d, const std::string& type) {
  Moe m;
  m.experts = f.number({"n_routed_experts", "num_local_experts", "num_experts"}, 0, 0, 65536);
  if (m.experts == 0)
    return m;
  m.per_token = f.number({"num_experts_per_tok", "num_experts_per_token", "experts_per_token",
                          "top_k_experts", "moe_topk"},
                         0, 1, 65536);
  if (m.per_token == 0)
    f.wrong("the model has experts but no num_experts_per_tok");
  m.inner = f.number({"moe_intermediate_size", "expert_intermediate_size"}, d.inner, 1, 1 << 22);
  m.matrices = two_matrix_mlp(f, type) ? 2 : 3;
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
  } else if (kind == "mamba" || kind == "attention_and_mamba") {
    layer.attention = recurrent(layer, f, d, kind != "mamba");
  } else if (kind == "lightning") {
    layer.attention = lightning(layer, d);
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
  int matrices = two_matrix_mlp(f, type) ? 2 : 3;
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

void cross_attention(Layer& layer, const Dims& d) {
  gqa(layer, static_cast<double>(d.hidden), d.heads, d.kv_heads, d.head_dim, d.head_dim, false,
      "cross_attn");
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

}  // namespace billow::advise
