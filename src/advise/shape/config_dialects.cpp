#include "advise/shape/config_dialects.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

namespace billow::advise {
namespace {

constexpr std::int64_t layers_max = 4096;

void fallback(Json& config, std::string_view name, const Json& value) {
  if (config[name].is_null() && !value.is_null())
    config.set(name, value);
}

void defaults(Json& config,
              std::initializer_list<std::pair<std::string_view, std::int64_t>> values) {
  for (auto& [name, value] : values)
    fallback(config, name, value);
}

std::int64_t layers_of(const Json& config) {
  return std::clamp<std::int64_t>(config["num_hidden_layers"].int_or(0), 0, layers_max);
}

template <class NameOf>
void name_layers(Json& config, NameOf name_of) {
  if (config["layer_types"].is_array())
    return;
  Json::Array types;
  for (std::int64_t i = 0, n = layers_of(config); i < n; ++i)
    types.emplace_back(name_of(i));
  config.set("layer_types", Json(std::move(types)));
}

void dbrx(Json& config) {
  const Json attention = config["attn_config"], ffn = config["ffn_config"];
  fallback(config, "num_key_value_heads", attention["kv_n_heads"]);
  fallback(config, "intermediate_size", ffn["ffn_hidden_size"]);
  fallback(config, "num_local_experts", ffn["moe_num_experts"]);
  fallback(config, "num_experts_per_tok", ffn["moe_top_k"]);
}

void chatglm(Json& config) {
  fallback(config, "vocab_size", config["padded_vocab_size"]);
  fallback(config, "intermediate_size", config["ffn_hidden_size"]);
  fallback(config, "head_dim", config["kv_channels"]);
  if (config["multi_query_attention"].bool_or(false))
    fallback(config, "num_key_value_heads", config["multi_query_group_num"]);
}

void whisper(Json& config) {
  fallback(config, "num_hidden_layers", config["decoder_layers"]);
  fallback(config, "num_attention_heads", config["decoder_attention_heads"]);
  fallback(config, "intermediate_size", config["decoder_ffn_dim"]);
  fallback(config, "max_position_embeddings", config["max_target_positions"]);
}

void gemma(Json& config, const std::string& type) {
  if (type == "gemma2") {
    defaults(config, {{"sliding_window", 4096}, {"vocab_size", 256000}});
    name_layers(config,
                [](std::int64_t i) { return i % 2 == 0 ? "sliding_attention" : "full_attention"; });
  } else if (type == "gemma3_text" || type == "gemma3") {
    defaults(config, {{"sliding_window", 4096},
                      {"sliding_window_pattern", 6},
                      {"vocab_size", 262208},
                      {"num_attention_heads", 8},
                      {"num_key_value_heads", 4},
                      {"head_dim", 256}});
  }
}

void llama_defaults(Json& config) {
  defaults(config, {{"hidden_size", 4096},
                    {"intermediate_size", 11008},
                    {"num_hidden_layers", 32},
                    {"num_attention_heads", 32},
                    {"vocab_size", 32000}});
}

void mistral_defaults(Json& config) {
  defaults(config, {{"hidden_size", 4096},
                    {"intermediate_size", 14336},
                    {"num_hidden_layers", 32},
                    {"num_attention_heads", 32},
                    {"num_key_value_heads", 8},
                    {"vocab_size", 32000}});
}

// Models that mix attention with recurrent layers: the kind of each layer under one name.
void hybrid(Json& config, const std::string& type) {
  if (type == "bamba") {
    const Json listed = config["attn_layer_indices"];
    name_layers(config, [&](std::int64_t i) {
      for (auto& at : listed.items())
        if (at.int_or(-1) == i)
          return "attention";
      return "mamba";
    });
  } else if (type == "jamba") {
    const std::int64_t period = std::max<std::int64_t>(1, config["attn_layer_period"].int_or(8)),
                       offset = config["attn_layer_offset"].int_or(4);
    name_layers(config,
                [&](std::int64_t i) { return i % period == offset ? "attention" : "mamba"; });
    const std::int64_t every = std::max<std::int64_t>(1, config["expert_layer_period"].int_or(2)),
                       first = config["expert_layer_offset"].int_or(1);
    Json::Array mixtures;
    for (std::int64_t i = 0, n = layers_of(config); i < n; ++i)
      mixtures.emplace_back(i % every == first ? 1 : 0);
    fallback(config, "moe_layer_freq", Json(std::move(mixtures)));
  } else if (type == "falcon_h1") {
    name_layers(config, [](std::int64_t) { return "attention_and_mamba"; });
  } else if (type == "granitemoehybrid") {
    fallback(config, "shared_expert_intermediate_size", config["shared_intermediate_size"]);
  } else if (type == "minimax_text_01" || type == "minimax") {
    const Json listed = config["attn_type_list"];
    if (listed.is_array())
      name_layers(config, [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        return at < listed.size() && listed.items()[at].int_or(1) == 0 ? "lightning"
                                                                       : "full_attention";
      });
  }
}

}  // namespace

Json with_common_names(Json config, bool nested) {
  if (!config.is_object())
    return config;
  const std::string type(config["model_type"].str_or(""));
  if (type == "dbrx")
    dbrx(config);
  else if (type == "chatglm")
    chatglm(config);
  else if (type == "whisper")
    whisper(config);
  else if (type == "llama" && nested)
    llama_defaults(config);
  else if (type == "mistral" && nested)
    mistral_defaults(config);
  else if (type.starts_with("gemma"))
    gemma(config, type);
  hybrid(config, type);
  return config;
}

bool ties_embeddings_by_default(std::string_view type) {
  static constexpr std::array tied = {"gpt2",    "gpt_bigcode", "opt",        "bloom",
                                      "mpt",     "falcon",      "starcoder2", "cohere",
                                      "cohere2", "t5",          "whisper"};
  return type.starts_with("gemma") || std::find(tied.begin(), tied.end(), type) != tied.end();
}

}  // namespace billow::advise
