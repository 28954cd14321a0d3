// Which tensors a checkpoint stores in fewer bits. Quantizers name the modules they left unchanged
// by paths, globs or expressions; each is matched against the canonical names, layer by layer, so
// that "attention of layers 0 to 3 in BF16" is counted exactly.
#include <cmath>

#include "advise/shape/model_shape.h"
#include "base/glob.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr std::size_t patterns_max = 50'000;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// One spelling for modules that families name differently, without the part before "layers.".
std::string canonical(std::string pattern) {
  replace_all(pattern, "block_sparse_moe", "mlp");
  replace_all(pattern, ".ffn", ".mlp");
  replace_all(pattern, "feed_forward", "mlp");
  replace_all(pattern, "shared_experts", "shared_expert");
  replace_all(pattern, "shared_expert_gate", "gate");
  replace_all(pattern, "shared_expert", "shared_experts");
  if (pattern.starts_with("*.attn") || pattern.find(".attn.") != std::string::npos)
    replace_all(pattern, ".attn", ".self_attn");
  if (auto at = pattern.find("layers."); at != std::string::npos)
    pattern = pattern.substr(at);
  return pattern;
}

// Converts "re:.*mlp\.(gate|up)_proj.*" to globs. Only the forms that quantizers write: ".*",
// escaped dots, one group of alternatives.
void expand_expression(std::string_view expression, std::vector<std::string>& out) {
  std::string text(expression);
  replace_all(text, "\\.", "\x01");
  replace_all(text, ".*", "*");
  replace_all(text, ".+", "*");
  replace_all(text, "\x01", ".");
  std::erase_if(text, [](char c) { return c == '^' || c == '$' || c == '\\'; });
  auto open = text.find('('), close = text.find(')');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    for (auto& choice : split(text.substr(open + 1, close - open - 1), '|'))
      out.push_back(canonical(text.substr(0, open) + choice + text.substr(close + 1)));
  } else {
    out.push_back(canonical(text));
  }
}

bool matches(const std::string& pattern, std::string_view name, std::string_view tensor) {
  if (pattern.find('*') != std::string::npos)
    return star_matches(pattern, name) || star_matches(pattern + ".*", name) ||
           star_matches("*." + pattern, name);
  if (name == pattern ||
      (name.size() > pattern.size() && name.starts_with(pattern) && name[pattern.size()] == '.'))
    return true;
  if (pattern.size() > name.size() && pattern.starts_with(name) && pattern[name.size()] == '.')
    return true;  // a part of this tensor
  // A bare module name ("gate", "self_attn") anywhere in the path.
  return pattern.find('.') == std::string::npos &&
         (tensor == pattern || tensor.starts_with(pattern + ".") ||
          tensor.ends_with("." + pattern));
}

Result<Precision> algorithm(const Json& q) {
  auto algo = lower(q["quant_algo"].str_or(q["quant_method"].str_or("")));
  for (auto& [name, group] : q["config_groups"].members()) {
    auto bits = group.at("weights", "num_bits").int_or(0);
    bool is_float = group.at("weights", "type").str_or("float") == "float";
    if (bits == 8)
      algo = is_float ? "fp8" : "int8";
    else if (bits == 4)
      algo = !is_float                                                          ? "int4"
             : lower(q["format"].str_or("")).find("mxfp4") != std::string::npos ? "mxfp4"
                                                                                : "nvfp4";
    else if (bits != 0)
      return fail(Code::unsupported, fmt::format("weights of {} bits", bits));
  }
  auto moe = lower(q["moe_quant_algo"].str_or(""));
  if (!moe.empty())
    algo = moe;
  auto bits = q["bits"].int_or(q["w_bit"].int_or(0));
  if (algo == "gptq" || algo == "awq" || algo == "bitsandbytes")
    algo = q["load_in_8bit"].bool_or(false) || bits == 8 ? "int8" : "int4";
  if (algo.find("nvfp4") != std::string::npos)
    return Precision::nvfp4;
  if (algo.find("fp4") != std::string::npos)
    return Precision::fp4;
  if (algo.find("fp8") != std::string::npos || algo == "mixed_precision")
    return Precision::fp8;
  if (algo.find("w4") != std::string::npos || algo.find("int4") != std::string::npos)
    return Precision::int4;
  if (algo.find("int8") != std::string::npos || algo.find("w8") != std::string::npos)
    return Precision::int8;
  return fail(Code::unsupported, fmt::format("quantization \"{}\"", algo.substr(0, 60)));
}

// Patterns of the modules that the quantizer left unchanged.
Result<std::vector<std::string>> excluded_modules(const Json& q) {
  std::vector<std::string> kept;
  for (auto list : {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"})
    for (auto& item : q[list].items()) {
      if (kept.size() >= patterns_max)
        return fail(
            Code::too_large,
            fmt::format("more than {} modules are excluded from quantization", patterns_max));
      std::string text(item.str_or(""));
      if (text.starts_with("re:"))
        expand_expression(text.substr(3), kept);
      else if (!text.empty())
        kept.push_back(canonical(text));
    }
  return kept;
}

using NamedModules = std::vector<std::pair<std::string, Precision>>;

// Mixed precision lists every quantized module; a module that is not listed keeps its precision.
NamedModules quantized_modules(const Json& q) {
  NamedModules named;
  for (auto& [module, how] : q["quantized_layers"].members()) {
    if (named.size() >= patterns_max)
      break;
    if (auto p = algorithm(how))
      named.emplace_back(canonical(module), *p);
  }
  return named;
}

void quantize_layer(Layer& layer,
                    std::size_t index,
                    Precision base,
                    const std::vector<std::string>& kept,
                    const NamedModules& named) {
  auto prefix = fmt::format("layers.{}.", index);
  // If a dense MLP runs beside the experts, "mlp" is the dense one and the experts are its sibling.
  bool beside = layer.experts > 0 && std::any_of(layer.tensors.begin(), layer.tensors.end(),
                                                 [](auto& t) { return t.name == "mlp.down_proj"; });
  for (auto& tensor : layer.tensors) {
    if (!tensor.quantizable)
      continue;
    auto name = prefix + (beside && tensor.name == "mlp.experts" ? "experts" : tensor.name);
    auto mine = [&](const std::string& pattern) {
      return (!pattern.starts_with("layers.") || pattern.starts_with(prefix) ||
              pattern.find('*') != std::string::npos) &&
             matches(pattern, name, tensor.name);
    };
    if (named.empty()) {
      if (std::none_of(kept.begin(), kept.end(), mine))
        tensor.precision = base;
      continue;
    }
    auto found =
        std::find_if(named.begin(), named.end(), [&](auto& module) { return mine(module.first); });
    if (found != named.end())
      tensor.precision = found->second;
  }
}

// The precision of most of the weights, which names the whole model.
Precision main_precision(const ModelShape& shape) {
  Precision main = shape.native;
  double most = 0;
  for (Precision p : {Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8,
                      Precision::int8, Precision::int4, Precision::fp4, Precision::nvfp4}) {
    double sum = 0;
    for (auto& layer : shape.layers)
      for (auto& tensor : layer.tensors)
        if (tensor.precision == p)
          sum += tensor.parameters;
    if (sum > most) {
      most = sum;
      main = p;
    }
  }
  return main;
}

}  // namespace

Status apply_quantization(ModelShape& shape, const Json& q) {
  auto base = algorithm(q);
  if (!base) {
    shape.notes.push_back(fmt::format("unknown {}: taken as not quantized", base.error().message));
    return {};
  }
  const auto kept = BILLOW_TRY(excluded_modules(q));
  const auto named = quantized_modules(q);
  for (std::size_t i = 0; i < shape.layers.size(); ++i)
    quantize_layer(shape.layers[i], i, *base, kept, named);
  shape.quantized = true;
  shape.native = main_precision(shape);
  auto kv = lower(q["kv_cache_quant_algo"].str_or(q["kv_cache_scheme"].str_or("")));
  if (kv == "fp8" || q.at("kv_cache_scheme", "num_bits").int_or(0) == 8)
    shape.kv_native = Precision::fp8;
  return {};
}

}  // namespace billow::advise
