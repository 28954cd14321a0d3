// Models by name, size or path: where their config.json is found.
#include "advise/shape/model_shape.h"
#include "base/file.h"
#include "base/text.h"

std::string_view billow_embedded_models();

namespace billow::advise {
namespace {

constexpr std::size_t config_bytes_max = 4 << 20;

// The line of data/models.txt that lists this name, with or without its organisation, in any case;
// empty if none does.
struct ShippedLine {
  std::string name, config;
  double billions = 0;
};
std::vector<ShippedLine> shipped_lines(std::string_view wanted) {
  std::vector<ShippedLine> found;
  const std::string name = lower(wanted);
  for (auto& line : split(billow_embedded_models(), '\n')) {
    const auto first = line.find('|'), second = line.find('|', first + 1);
    if (line.starts_with("#") || second == std::string::npos)
      continue;
    for (auto& listed : split(line.substr(first + 1, second - first - 1), ' ')) {
      const std::string low = lower(listed);
      if (!name.empty() && low != name && low.substr(low.find('/') + 1) != name)
        continue;
      found.push_back(
          {listed, line.substr(second + 1), parse_double(line.substr(0, first)).value_or(0)});
      if (!name.empty())
        return found;
    }
  }
  return found;
}

}  // namespace

Result<ModelShape> shipped_model(const std::string& wanted) {
  // Quantized copies have the same layers under a longer name.
  static constexpr std::pair<std::string_view, Precision> endings[] = {
      {"", Precision::bf16},           {"-awq", Precision::int4},
      {"-gptq", Precision::int4},      {"-gptq-int4", Precision::int4},
      {"-gptq-int8", Precision::int8}, {"-w8a8", Precision::int8},
      {"-int8", Precision::int8},      {"-int4", Precision::int4},
      {"-fp8", Precision::fp8},        {"-nvfp4", Precision::nvfp4},
      {"-fp4", Precision::nvfp4},      {"-bnb-4bit", Precision::int4}};
  const std::string name = lower(wanted);
  for (auto& [ending, precision] : endings) {
    if (name.size() <= ending.size() || !name.ends_with(ending))
      continue;
    const auto stem = name.substr(0, name.size() - ending.size());
    auto lines = shipped_lines(stem);
    // People leave out how a model was tuned; it has the same layers.
    for (std::string_view tuned : {"-instruct", "-it", "-chat", "-base"})
      if (lines.empty())
        lines = shipped_lines(stem + std::string(tuned));
    if (lines.empty())
      continue;
    auto shape = read_model_config(lines.front().config, {}, lines.front().name);
    if (!shape)
      return pass(shape.error(), "the shipped shape of " + lines.front().name);
    if (!lower(lines.front().name).ends_with(stem))
      shape->notes.push_back(fmt::format("{} is taken as {}", wanted, lines.front().name));
    if (!ending.empty()) {
      *shape = at_precision(std::move(*shape), precision);
      shape->name = wanted;
    }
    return shape;
  }
  return fail(Code::not_found, fmt::format("no shipped model \"{}\"", wanted));
}

std::vector<ShippedModel> shipped_models() {
  std::vector<ShippedModel> models;
  for (auto& line : shipped_lines(""))
    models.push_back({line.name, line.billions});
  return models;
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
                "--model accepts a config.json, a name found in --models, or a size like 7B");
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
  if (auto shipped = shipped_model(name))
    return shipped;
  const auto near = join(models_like(name), ", ");
  return fail(
      Code::not_found,
      fmt::format("no model \"{}\": not a file, not a size, not among the {} names Billow knows, "
                  "and not found in {}",
                  name, shipped_models().size(),
                  models_dir.empty() ? "a --models directory" : models_dir),
      near.empty()
          ? "give the path of its config.json, or a size like 7B"
          : fmt::format("did you mean {}? Otherwise give the path of its config.json", near));
}

}  // namespace billow::advise
