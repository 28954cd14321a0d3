// From config.json to a model's shape. Configs name the same thing in many ways; layer_reader.h
// recognises the kinds of layers by their fields. A model type that is unknown by name is read by
// its fields, and a note says so.
#include <cmath>
#include <set>

#include "advise/shape/config_dialects.h"
#include "advise/shape/layer_reader.h"
#include "advise/shape/model_shape.h"

namespace billow::advise {
namespace {

constexpr std::size_t config_bytes_max = 4 << 20;

// Python writes Infinity and NaN, which JSON does not allow. Outside strings they become numbers
// that nothing here reads.
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
    if (word("Infinity")) {
      out += "1e308";
      i += 7;
    } else if (word("NaN")) {
      out += "0";
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

bool known_type(const std::string& type) {
  // clang-format off
  static const std::set<std::string> known = {
      "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next",
      "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_vl_text", "qwen3_vl_moe_text",
      "qwen3_5_text", "qwen3_5_moe_text", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4",
      "gemma4_text", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "deepseek_ref",
      "glm_moe_dsa", "glm4", "glm4_moe", "gpt_oss", "llama4", "llama4_text", "minimax_m2",
      "minimax_m3", "mimo", "mimo_v2_flash", "step3p7", "kimi_k2", "kimi_k25", "kimi_k3",
      "kimi_linear", "nemotron", "nemotron_h", "phi", "phi3", "gpt2", "gpt_neox", "gptj",
      "gpt_bigcode", "mpt", "codegen", "falcon", "opt", "bloom", "starcoder2", "granite",
      "cohere", "cohere2", "olmo", "olmo2", "olmoe", "mt5", "t5", "whisper", "baichuan",
      "internlm2", "exaone",
      "stablelm", "dbrx", "chatglm", "bamba", "jamba", "falcon_h1", "granitemoe",
      "granitemoehybrid", "minimax_text_01", "minimax", "qwen2_vl", "qwen2_5_vl",
      "qwen2_vl_text", "qwen2_5_vl_text", "phimoe", "smollm3", "ernie4_5", "ernie4_5_moe"};
  // clang-format on
  return known.contains(type);
}

// Encoders return embeddings or labels in one pass: without tokens to generate there is no time per
// token, and no engine here serves them that way.
Status check_generates(const Json& config, const std::string& type) {
  static const std::set<std::string> encoders = {
      "albert",     "bert",  "camembert",  "deberta", "deberta-v2",  "distilbert",    "electra",
      "modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta", "xlm-roberta-xl"};
  if (!encoders.contains(type) || config["is_decoder"].bool_or(false))
    return {};
  return fail(Code::infeasible,
              fmt::format("{} models return embeddings or labels; Billow predicts only models that "
                          "generate text",
                          type),
              "measure it instead: billow profile --gpus 1 -- COMMAND");
}

double vision_parameters(const Json& root) {
  auto& v = root["vision_config"];
  // Qwen2-VL names the width embed_dim; its hidden_size is the width of the text model.
  double hidden =
             v["embed_dim"].double_or(v["hidden_size"].double_or(v["vt_hidden_size"].double_or(0))),
         inner = v["intermediate_size"].double_or(v["vt_intermediate_size"].double_or(4 * hidden));
  double depth = v["depth"].double_or(
      v["num_hidden_layers"].double_or(v["vt_num_hidden_layers"].double_or(0)));
  double out = v["embed_dim"].is_number() ? v["hidden_size"].double_or(0)
                                          : v["out_hidden_size"].double_or(0);
  double sum = depth * (4 * hidden * hidden + 2 * hidden * inner) + 4 * hidden * 4 * hidden +
               4 * hidden * out;
  return std::isfinite(sum) && sum > 0 && sum < 1e11 ? sum : 0;
}

Status finish_shape(ModelShape& shape, Fields& f, const Json& root, const Dims& d) {
  if (!f.error().empty())
    return fail(Code::invalid, "config.json: " + f.error());
  shape.tied_embeddings = f.json()["tie_word_embeddings"].bool_or(
      root["tie_word_embeddings"].bool_or(ties_embeddings_by_default(f.text("model_type"))));
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
        fmt::format("config.json describes a model of {:.3g} parameters, too large for any machine",
                    n));
  return {};
}

// The object that describes the text model: multi-modal configs nest it.
const Json& text_config(const Json& root) {
  const Json* text = &root;
  for (const char* inner : {"text_config", "language_config", "llm_config"})
    if (root[inner].is_object() && !root["num_hidden_layers"].is_number())
      text = &root[inner];
  return *text;
}

Result<Dims> read_dims(Fields& f, const Json& root, const std::string& pattern) {
  Dims d{};
  d.hidden = f.required({"hidden_size", "n_embd", "d_model"}, 8, 1 << 20);
  auto layers_fallback = pattern.empty() ? -1 : static_cast<std::int64_t>(pattern.size());
  d.layers = f.number({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, layers_fallback,
                      1, 4096);
  if (d.layers < 0)
    f.wrong("the field num_hidden_layers is missing");
  d.heads = f.required({"num_attention_heads", "n_head", "n_heads", "num_heads"}, 1, 65536);
  if (!f.error().empty())
    return fail(Code::invalid, "config.json: " + f.error(),
                "give the config.json of a text model from Hugging Face");
  d.kv_heads = f.number({"num_key_value_heads", "num_kv_heads"},
                        f.flag("multi_query") ? 1 : d.heads, 1, 65536);
  if (d.kv_heads > d.heads)
    f.wrong(fmt::format("num_key_value_heads is {}, more than the {} heads", d.kv_heads, d.heads));
  d.head_dim = f.number({"head_dim", "attention_head_dim", "d_kv"},
                        std::max<std::int64_t>(1, d.hidden / d.heads), 1, 65536);
  d.inner = f.number({"intermediate_size", "n_inner", "ffn_dim", "d_ff"}, 4 * d.hidden, 1, 1 << 24);
  d.vocabulary = f.number({"vocab_size"}, root["vocab_size"].int_or(0), 16, 100'000'000);
  if (d.vocabulary == 0)
    f.wrong("the field vocab_size is missing");
  if (!pattern.empty() && pattern.size() != static_cast<std::size_t>(d.layers))
    f.wrong(fmt::format("{} layers, but a pattern of {}", d.layers, pattern.size()));
  return d;
}

void read_layers(ModelShape& shape, Fields& f, const Dims& d, const std::string& pattern) {
  const std::string type = f.text("model_type");
  const Moe moe = read_moe(f, d, type);
  const std::int64_t encoder =
      shape.encoder_decoder ? f.number({"encoder_layers"}, d.layers, 1, 4096) : 0;
  const std::int64_t decoder =
      shape.encoder_decoder ? f.number({"num_decoder_layers"}, d.layers, 1, 4096) : d.layers;
  shape.layers.resize(static_cast<std::size_t>(encoder + decoder));
  const Json& blocks = f.json()["block_configs"];
  for (std::size_t i = 0; i < shape.layers.size() && f.error().empty(); ++i) {
    if (!pattern.empty())
      hybrid_layer(shape.layers[i], pattern[i], f, d, moe);
    else if (blocks.is_array() && i < blocks.size())
      searched_layer(shape.layers[i], blocks.items()[i], f, d);
    else
      ordinary_layer(shape.layers[i], f, d, moe, type, static_cast<std::int64_t>(i));
    if (shape.encoder_decoder && i >= static_cast<std::size_t>(encoder))
      cross_attention(shape.layers[i], d);
  }
}

// The stored precision: of the whole checkpoint, of its quantization, or from the name.
Result<ModelShape> with_precision(ModelShape shape,
                                  const Fields& f,
                                  const Json& root,
                                  std::string_view quant_config) {
  const std::string named = f.text("torch_dtype").empty() ? f.text("dtype") : f.text("torch_dtype");
  if (auto dtype = parse_precision(named); dtype && weight_bytes(*dtype) >= 2)
    shape = at_precision(std::move(shape), *dtype);
  else if (!named.empty() && !dtype)
    shape.notes.push_back(
        fmt::format("unknown torch_dtype \"{}\": taken as bf16", named.substr(0, 40)));
  if (!quant_config.empty()) {
    auto extra = parse_json(quant_config);
    if (!extra)
      return pass(extra.error(), "hf_quant_config.json");
    BILLOW_TRY_VOID(apply_quantization(shape, (*extra)["quantization"]));
  } else {
    for (const Json* holder : {&root, &f.json()})
      if ((*holder)["quantization_config"].is_object()) {
        BILLOW_TRY_VOID(apply_quantization(shape, (*holder)["quantization_config"]));
        break;
      }
  }
  if (!shape.quantized)
    for (std::string_view tail : {"-NVFP4", "-FP8"})
      if (shape.name.ends_with(tail)) {
        shape.notes.push_back(fmt::format(
            "config.json does not mention quantization: taken as {} from the model's name",
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

}  // namespace

Result<ModelShape> read_model_config(std::string_view config_json,
                                     std::string_view quant_config,
                                     std::string_view name) {
  if (config_json.size() > config_bytes_max)
    return fail(Code::too_large, fmt::format("config.json has {} bytes; the limit is {}",
                                             config_json.size(), config_bytes_max));
  auto parsed = parse_json(without_python_floats(config_json));
  if (!parsed)
    return pass(parsed.error(), "config.json");
  const Json& root = *parsed;
  if (!root.is_object())
    return fail(Code::invalid, fmt::format("config.json contains {}, not an object", root.kind()));
  const Json& text = text_config(root);
  const Json common = with_common_names(text, &text != &root);
  Fields f(common);
  ModelShape shape;
  shape.name = name;
  const std::string type = f.text("model_type");
  shape.architecture = std::string(root["architectures"].items().empty()
                                       ? std::string_view(type)
                                       : root["architectures"].items()[0].str_or(type));
  BILLOW_TRY_VOID(check_generates(common, type));
  const std::string pattern = hybrid_pattern(f.json());
  const Dims d = BILLOW_TRY(read_dims(f, root, pattern));
  shape.hidden = static_cast<int>(d.hidden);
  shape.vocabulary = static_cast<int>(d.vocabulary);
  shape.context_max = static_cast<int>(f.number(
      {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"}, 0, 0, 1 << 30));
  shape.encoder_decoder = f.json()["is_encoder_decoder"].bool_or(type == "t5" || type == "mt5");
  if (!known_type(type))
    shape.notes.push_back(
        fmt::format("unknown model type \"{}\": read by its fields", type.substr(0, 64)));
  if (shape.encoder_decoder)
    shape.notes.push_back(
        "encoder-decoder model: the encoder's layers are counted as further layers");
  read_layers(shape, f, d, pattern);
  BILLOW_TRY_VOID(finish_shape(shape, f, root, d));
  return with_precision(std::move(shape), f, root, quant_config);
}

}  // namespace billow::advise
