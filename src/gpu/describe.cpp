#include "gpu/describe.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/text.h"

namespace billow {
namespace {

std::string link_text(const GpuInfo& gpu) {
  if (gpu.fabric_links == 0)
    return "PCIe";
  const char* name = gpu.vendor == Vendor::amd ? "xGMI" : "NVLink";
  return fmt::format("{} x{}{}", name, gpu.fabric_links, gpu.fabric_switched ? " switched" : "");
}

std::string mig_text(const MigState& mig) {
  if (!mig.capable)
    return "-";
  if (!mig.enabled)
    return "off";
  if (mig.instances.empty())
    return "on, empty";
  std::vector<std::string> names;
  for (const MigInstance& instance : mig.instances)
    names.push_back(instance.profile);
  return join(names, " ");
}

const char* level_text(LinkLevel level) {
  switch (level) {
    case LinkLevel::self:
      return "-";
    case LinkLevel::fabric:
      return "link";
    case LinkLevel::pcie_switch:
      return "switch";
    case LinkLevel::pcie_switches:
      return "switches";
    case LinkLevel::host_bridge:
      return "bridge";
    case LinkLevel::numa_node:
      return "socket";
    case LinkLevel::system:
      return "system";
    case LinkLevel::unknown:
      return "?";
  }
  return "?";
}

// Turns any struct with `fields` into Json: the small part of wire's codec that a document for
// people needs, with zeros kept, because "0" in a document is an answer.
struct JsonFields {
  Json& out;
  template <class T>
  void operator()(const char* name, T& value) {
    out.set(name, to_json(value));
  }

  template <class T>
  static Json to_json(T& value) {
    if constexpr (NamedEnum<T>)
      return Json(enum_name(value));
    else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
      return Json(value);
    else if constexpr (requires { value.has_value(); })
      return value ? to_json(*value) : Json();
    else if constexpr (requires { value.begin(); }) {
      Json list = Json::array();
      for (auto& item : value)
        list.push(to_json(item));
      return list;
    } else {
      Json object = Json::object();
      JsonFields visitor{object};
      value.fields(visitor);
      return object;
    }
  }
};

}  // namespace

GpuTable gpu_table(const GpuInventory& inventory) {
  GpuTable table{{"GPU", "TYPE", "MEMORY", "LINK", "NUMA", "MIG", "HEALTH", "DRIVER", "UUID"}, {}};
  for (const GpuInfo& gpu : inventory.gpus) {
    std::string health = enum_name(gpu.health);
    if (!gpu.health_reason.empty())
      health += ": " + gpu.health_reason;
    table.rows.push_back({std::to_string(gpu.index), gpu.type.empty() ? "?" : gpu.type,
                          format_bytes(static_cast<std::uint64_t>(gpu.memory_mib) << 20),
                          link_text(gpu), gpu.numa_node ? std::to_string(*gpu.numa_node) : "?",
                          mig_text(gpu.mig), health, gpu.driver_version, gpu.uuid});
  }
  return table;
}

std::string table_text(const GpuTable& table) {
  std::vector<std::size_t> widths;
  for (const std::string& column : table.columns)
    widths.push_back(column.size());
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      text += cells[i];
      if (i + 1 < cells.size())
        text.append(widths[i] - cells[i].size() + 2, ' ');
    }
    text += '\n';
  };
  line(table.columns);
  for (const auto& row : table.rows)
    line(row);
  return text;
}

GpuTable topology_table(const GpuTopology& topology) {
  GpuTable table{{"GPU"}, {}};
  for (std::uint32_t i = 0; i < topology.gpus; ++i)
    table.columns.push_back(std::to_string(i));
  for (std::uint32_t i = 0; i < topology.gpus; ++i) {
    std::vector<std::string> row = {std::to_string(i)};
    for (std::uint32_t j = 0; j < topology.gpus; ++j)
      row.emplace_back(level_text(topology.between(i, j)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Json gpu_json(const GpuInventory& inventory) {
  GpuInventory copy =
      inventory;  // a `fields` visitor may also be a reader, so it takes its struct mutable
  return JsonFields::to_json(copy);
}

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
        break;  // it works; what waits for a reset is for the administrator
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
  // Cards of one kind lack the same things; say each once.
  std::map<std::string, std::vector<std::string>> lacking;
  for (const GpuInfo& gpu : inventory->gpus)
    for (const std::string& what : gpu.missing)
      lacking[what].push_back(std::to_string(gpu.index));
  for (const auto& [what, indices] : lacking)
    findings.push_back({true, fmt::format("GPU {}: no {}", join(indices, ","), what), ""});
  return findings;
}

}  // namespace billow
