// Memory, power and links come from the project's price data (gpu_specs.csv, with its sources);
// visible memory is what drivers report. Idle power is the usual draw of such cards with the driver
// loaded and nothing running (78 W was measured on an H200 with driver 580; the others are common
// reports): a hint to compare a sample with, never used for billing.
#include "gpu/types.h"

#include <array>

#include "base/text.h"

namespace billow {

const std::vector<GpuTypeFacts>& gpu_types() {
  using enum FabricKind;
  static const std::vector<GpuTypeFacts> table = {
      {"T4", "Tesla T4", Vendor::nvidia, 15360, 70, 10, none, 0, 1590, "7.5", false, false},
      {"V100-16", "Tesla V100-SXM2-16GB", Vendor::nvidia, 16384, 300, 40, mesh, 6, 1530, "7.0",
       false, false},
      {"V100-32", "Tesla V100-SXM2-32GB", Vendor::nvidia, 32768, 300, 40, mesh, 6, 1530, "7.0",
       false, false},
      {"A10G", "NVIDIA A10G", Vendor::nvidia, 23028, 300, 16, none, 0, 1710, "8.6", false, false},
      {"L4", "NVIDIA L4", Vendor::nvidia, 23034, 72, 16, none, 0, 2040, "8.9", false, false},
      {"L40S", "NVIDIA L40S", Vendor::nvidia, 46068, 350, 35, none, 0, 2520, "8.9", false, false},
      {"A100-40", "NVIDIA A100-SXM4-40GB", Vendor::nvidia, 40960, 400, 55, switched, 12, 1410,
       "8.0", false, true},
      {"A100-80", "NVIDIA A100-SXM4-80GB", Vendor::nvidia, 81920, 400, 60, switched, 12, 1410,
       "8.0", false, true},
      {"A100-80-PCIe", "NVIDIA A100 80GB PCIe", Vendor::nvidia, 81920, 300, 45, none, 0, 1410,
       "8.0", false, true},
      {"H100", "NVIDIA H100 80GB HBM3", Vendor::nvidia, 81559, 700, 70, switched, 18, 1980, "9.0",
       true, true},
      {"H100-PCIe", "NVIDIA H100 PCIe", Vendor::nvidia, 81559, 350, 48, none, 0, 1755, "9.0", true,
       true},
      {"H200", "NVIDIA H200", Vendor::nvidia, 143771, 700, 78, switched, 18, 1980, "9.0", true,
       true},
      {"B200", "NVIDIA B200", Vendor::nvidia, 183359, 1000, 140, switched, 18, 1965, "10.0", true,
       true},
      {"GB200", "NVIDIA GB200", Vendor::nvidia, 189471, 1200, 160, switched, 18, 2062, "10.0", true,
       true},
      {"B300", "NVIDIA B300 SXM6 AC", Vendor::nvidia, 275040, 1100, 160, switched, 18, 2032, "10.3",
       true, true},
      {"MI300X", "AMD Instinct MI300X", Vendor::amd, 196592, 750, 130, mesh, 7, 2100, "gfx942",
       false, false},
      {"MI250X", "AMD Instinct MI250X", Vendor::amd, 65520, 560, 90, mesh, 8, 1700, "gfx90a", false,
       false},
  };
  return table;
}

const GpuTypeFacts* find_gpu_type(std::string_view type) {
  const std::string wanted = lower(type);
  for (const GpuTypeFacts& facts : gpu_types()) {
    if (lower(facts.type) == wanted)
      return &facts;
  }
  return nullptr;
}

std::vector<std::string> gpu_type_names() {
  std::vector<std::string> names;
  for (const GpuTypeFacts& facts : gpu_types())
    names.emplace_back(facts.type);
  return names;
}

namespace {

// The words of a model name: "NVIDIA A100-SXM4-40GB" → NVIDIA, A100, SXM4, 40GB.
std::vector<std::string> words(std::string_view model) {
  std::vector<std::string> result;
  std::string word;
  for (const char c : model) {
    if (c == ' ' || c == '-' || c == '_' || c == '(' || c == ')' || c == '/') {
      if (!word.empty())
        result.push_back(std::move(word));
      word.clear();
    } else {
      word += c;
    }
  }
  if (!word.empty())
    result.push_back(std::move(word));
  return result;
}

bool vendor_word(const std::string& word) {
  static constexpr std::array names = {"nvidia", "tesla",    "quadro", "geforce",
                                       "amd",    "instinct", "radeon", "corporation"};
  const std::string low = lower(word);
  for (const char* name : names)
    if (low == name)
      return true;
  return false;
}

}  // namespace

std::string normalise_gpu_type(std::string_view model, std::int64_t memory_mib) {
  std::vector<std::string> parts;
  for (std::string& word : words(model)) {
    if (!vendor_word(word))
      parts.push_back(std::move(word));
  }
  if (parts.empty())
    return "GPU";
  const std::string family = parts.front();
  const auto has = [&](std::string_view word) {
    for (const std::string& part : parts)
      if (lower(part) == lower(word))
        return true;
    return false;
  };
  // Two memory sizes under one family name are two types: their prices and capacities differ.
  if (family == "A100") {
    const std::string sized = memory_mib > 50'000 ? "A100-80" : "A100-40";
    return has("PCIe") ? sized + "-PCIe" : sized;
  }
  if (family == "V100")
    return memory_mib > 20'000 ? "V100-32" : "V100-16";
  if (family == "H100")
    return has("PCIe") ? "H100-PCIe" : has("NVL") ? "H100-NVL" : "H100";
  if (family == "H200")
    return has("NVL") ? "H200-NVL" : "H200";
  if (find_gpu_type(family))
    return find_gpu_type(family)->type;
  std::string name;
  for (const std::string& part : parts) {
    const std::string low = lower(part);
    if (low.ends_with("gb") || low == "pcie" || low.starts_with("sxm") || low == "gpu" ||
        low == "oam")
      continue;
    if (!name.empty())
      name += '-';
    name += part;
  }
  return name.empty() ? "GPU" : name.substr(0, 32);
}

}  // namespace billow
