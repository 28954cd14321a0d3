#include "gpu/describe.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/text.h"

namespace billow {

std::vector<NodeGpu> node_gpus(const GpuInventory& inventory, bool mig_changes) {
  std::vector<NodeGpu> gpus;
  for (const GpuInfo& gpu : inventory.gpus) {
    NodeGpu node;
    node.index = static_cast<std::int32_t>(gpu.index);
    node.uuid = gpu.uuid;
    node.vendor = enum_name(gpu.vendor);
    node.model = gpu.model;
    node.type = gpu.type;
    node.mem_mib = gpu.memory_mib;
    node.nvlink_domain =
        gpu.fabric_links ? static_cast<std::int32_t>(inventory.topology.fabric_domains[gpu.index])
                         : -1;
    node.numa = gpu.numa_node.value_or(-1);
    switch (gpu.health) {
      case GpuHealth::ok:
      case GpuHealth::degraded:
        break;  // it works; a pending reset is up to the administrator
      case GpuHealth::failed:
      case GpuHealth::lost:
        node.unhealthy = gpu.health_reason.empty() ? enum_name(gpu.health) : gpu.health_reason;
        break;
    }
    for (const MigInstance& instance : gpu.mig.instances)
      node.mig.push_back(fmt::format("{}@{}", instance.profile, instance.placement.start));
    if (gpu.mig.enabled && mig_changes)
      node.mig.emplace_back("any");
    if (gpu.mig.enabled && node.mig.empty() && node.unhealthy.empty())
      node.unhealthy =
          "MIG mode is on and there is no instance: nvidia-smi mig -cgi PROFILE -C makes one";
    gpus.push_back(std::move(node));
  }
  return gpus;
}

std::vector<GpuFinding> diagnose_gpus(const GpuBackendOptions& options) {
  std::vector<GpuFinding> findings;
  auto backend = GpuBackend::open(options);
  if (!backend)
    return {{false, backend.error().message, backend.error().hint}};
  auto inventory = (*backend)->inventory();
  if (!inventory)
    return {{false, inventory.error().message, inventory.error().hint}};
  if (inventory->gpus.empty()) {
    return {{false, fmt::format("{} finds no GPU", inventory->library),
             "check that the card is seen by lspci and the driver by nvidia-smi"}};
  }
  std::map<std::string, int> types;
  for (const GpuInfo& gpu : inventory->gpus)
    ++types[gpu.type];
  std::vector<std::string> parts;
  for (const auto& [type, count] : types)
    parts.push_back(fmt::format("{}x{}", count, type));
  const GpuInfo& first = inventory->gpus.front();
  findings.push_back(
      {true,
       fmt::format("{}{} (driver {}, {} {}) through {}", inventory->simulated ? "simulated " : "",
                   join(parts, ", "), first.driver_version,
                   first.vendor == Vendor::amd ? "ROCm" : "CUDA", first.runtime_version,
                   inventory->library),
       ""});
  for (const GpuInfo& gpu : inventory->gpus) {
    if (gpu.health == GpuHealth::ok)
      continue;
    findings.push_back(
        {false,
         fmt::format("GPU {} is {}: {}", gpu.index, enum_name(gpu.health), gpu.health_reason),
         "drain the node, then reset the card (nvidia-smi --gpu-reset) or reboot"});
  }
  for (const std::string& sentence : (*backend)->missing_features())
    findings.push_back({true, sentence, "a newer driver has it"});
  // Cards of one kind lack the same features; report each once.
  std::map<std::string, std::vector<std::string>> lacking;
  for (const GpuInfo& gpu : inventory->gpus)
    for (const std::string& what : gpu.missing)
      lacking[what].push_back(std::to_string(gpu.index));
  for (const auto& [what, indices] : lacking)
    findings.push_back({true, fmt::format("GPU {}: no {}", join(indices, ","), what), ""});
  return findings;
}

}  // namespace billow
