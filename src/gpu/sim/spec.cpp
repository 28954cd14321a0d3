#include "gpu/sim/spec.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "gpu/sim/mig_table.h"

namespace billow {
namespace {

constexpr std::size_t spec_file_bytes_max = 1 << 20;

std::unexpected<Error> unknown_type(std::string_view type, std::string_view where) {
  const auto names = gpu_type_names();
  const std::string close = nearest(type, names);
  return fail(Code::invalid,
              fmt::format("unknown GPU type \"{}\" in \"{}\"; known types: {}", type, where,
                          join(names, ", ")),
              close.empty() ? "write it like 8xH100 or 2xA100-40,4xL4"
                            : fmt::format("did you mean {}?", close));
}

// Common short family names, mapped to the size that the price catalogue uses.
std::string_view alias(std::string_view type) {
  const std::string low = lower(type);
  if (low == "a100")
    return "A100-40";
  if (low == "v100")
    return "V100-16";
  return type;
}

Status check_gpu(const SimGpu& gpu, std::string_view where) {
  if (gpu.mig && !gpu.facts->mig)
    return fail(Code::invalid, fmt::format("{} has no MIG, in \"{}\"", gpu.facts->type, where));
  for (const std::string& name : gpu.mig_instances) {
    const auto profiles = sim_mig_profiles(*gpu.facts);
    std::vector<std::string> names;
    bool found = false;
    for (const auto& profile : profiles) {
      names.push_back(profile.name);
      found |= profile.name == name;
    }
    if (!found)
      return fail(Code::invalid, fmt::format("{} has no MIG profile \"{}\"; it has {}",
                                             gpu.facts->type, name, join(names, ", ")));
  }
  if (gpu.memory_mib < 1 || gpu.memory_mib > 16'777'216)
    return fail(Code::invalid, fmt::format("impossible memory size in \"{}\"", where));
  return {};
}

Status add_gpus(SimSpec& spec, SimGpu gpu, std::int64_t count, std::string_view where) {
  BILLOW_TRY_VOID(check_gpu(gpu, where));
  if (count < 1 || spec.gpus.size() + static_cast<std::size_t>(count) > sim_gpus_max) {
    return fail(Code::invalid,
                fmt::format("\"{}\": a simulated node has 1 to {} GPUs", where, sim_gpus_max));
  }
  if (!spec.gpus.empty() && spec.vendor() != gpu.facts->vendor) {
    return fail(Code::invalid, fmt::format("\"{}\": one node holds GPUs of one vendor", where),
                "start two nodes, one for each");
  }
  spec.gpus.insert(spec.gpus.end(), static_cast<std::size_t>(count), gpu);
  return {};
}

Status parse_item(SimSpec& spec, std::string_view item) {
  if (item.starts_with("driver=")) {
    spec.driver_version = item.substr(7);
    return {};
  }
  if (item.starts_with("runtime=")) {
    spec.runtime_version = item.substr(8);
    return {};
  }
  const auto options = split(item, '+');
  std::string_view type = options.front();
  std::int64_t count = 1;
  std::size_t digits = 0;
  while (digits < type.size() && type[digits] >= '0' && type[digits] <= '9')
    ++digits;
  if (digits > 0 && digits < type.size() &&
      (type[digits] == 'x' || type[digits] == 'X' || type[digits] == '*')) {
    const auto number = parse_int(type.substr(0, digits), 0, 1'000'000);
    if (!number)
      return fail(Code::invalid, fmt::format("\"{}\" is no count of GPUs", type.substr(0, digits)));
    count = *number;
    type.remove_prefix(digits + 1);
  }
  SimGpu gpu;
  gpu.facts = find_gpu_type(alias(type));
  if (!gpu.facts)
    return unknown_type(type, item);
  gpu.memory_mib = gpu.facts->memory_mib;
  for (std::size_t i = 1; i < options.size(); ++i) {
    const std::string_view option = options[i];
    if (option == "mig") {
      gpu.mig = true;
    } else if (option.starts_with("mig=")) {
      gpu.mig = true;
      gpu.mig_instances = split(option.substr(4), '/');
    } else if (option.starts_with("mem=")) {
      const auto mib = parse_int(option.substr(4), 1, 16'777'216);
      if (!mib)
        return fail(Code::invalid, fmt::format("\"{}\": mem= wants mebibytes", item));
      gpu.memory_mib = *mib;
    } else if (option == "me" && !gpu.mig_instances.empty()) {
      gpu.mig_instances.back() += "+me";  // the profile's own name holds a plus: "1g.10gb+me"
    } else {
      return fail(Code::invalid, fmt::format("\"{}\": unknown option +{}", item, option),
                  "there are +mig, +mig=PROFILE/PROFILE and +mem=MIB");
    }
  }
  return add_gpus(spec, gpu, count, item);
}

Result<SimSpec> parse_json_spec(std::string_view text, const std::string& path) {
  auto json = parse_json(text);
  if (!json)
    return pass(std::move(json.error()), path);
  SimSpec spec;
  spec.driver_version = (*json)["driver"].str_or("");
  spec.runtime_version = (*json)["runtime"].str_or("");
  for (const Json& entry : (*json)["gpus"].items()) {
    const std::string_view type = entry["type"].str_or("");
    SimGpu gpu;
    gpu.facts = find_gpu_type(alias(type));
    if (!gpu.facts)
      return unknown_type(type, path);
    gpu.memory_mib = entry["memory_mib"].int_or(gpu.facts->memory_mib);
    gpu.mig = entry["mig"].bool_or(entry["mig"].is_array());
    for (const Json& name : entry["mig"].items())
      gpu.mig_instances.emplace_back(name.str_or(""));
    BILLOW_TRY_VOID(add_gpus(spec, gpu, entry["count"].int_or(1), path));
  }
  return spec;
}

}  // namespace

Result<SimSpec> parse_sim_spec(std::string_view text) {
  text = trim(text);
  SimSpec spec;
  if (text.ends_with(".json") || text.starts_with("/") || text.starts_with("./")) {
    auto content = read_file(std::string(text), spec_file_bytes_max);
    if (!content)
      return pass(std::move(content.error()), "specification of simulated GPUs");
    spec = BILLOW_TRY(parse_json_spec(*content, std::string(text)));
  } else {
    for (const std::string& item : split(text, ','))
      BILLOW_TRY_VOID(parse_item(spec, trim(item)));
  }
  if (spec.gpus.empty())
    return fail(Code::invalid, fmt::format("\"{}\" names no GPU", text),
                "write it like 8xH100 or 2xA100-40,4xL4");
  const bool amd = spec.vendor() == Vendor::amd;
  if (spec.driver_version.empty())
    spec.driver_version = amd ? "6.12.12" : "580.65.06";
  if (spec.runtime_version.empty())
    spec.runtime_version = amd ? "6.4" : "13.0";
  return spec;
}

std::string sim_spec_text(const SimSpec& spec) {
  std::vector<std::string> items = {"driver=" + spec.driver_version,
                                    "runtime=" + spec.runtime_version};
  for (const SimGpu& gpu : spec.gpus) {
    std::string item = gpu.facts->type;
    if (gpu.memory_mib != gpu.facts->memory_mib)
      item += fmt::format("+mem={}", gpu.memory_mib);
    if (!gpu.mig_instances.empty())
      item += "+mig=" + join(gpu.mig_instances, "/");
    else if (gpu.mig)
      item += "+mig";
    items.push_back(std::move(item));
  }
  return join(items, ",");
}

}  // namespace billow
