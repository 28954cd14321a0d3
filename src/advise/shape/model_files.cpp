// Models by name, size or path: where their config.json is found.
#include "advise/shape/model_shape.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr std::size_t config_bytes_max = 4 << 20;

}  // namespace

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
  return fail(Code::not_found,
              fmt::format("no model \"{}\": not a file, not a size, and not found in {}", name,
                          models_dir.empty() ? "a --models directory" : models_dir),
              "give the path of its config.json, or a size like 7B");
}

}  // namespace billow::advise
