#include "gpu/topology.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

namespace billow {

GpuTopology make_topology(const std::vector<GpuInfo>& gpus) {
  GpuTopology topology;
  const std::size_t n = gpus.size();
  topology.gpus = static_cast<std::uint32_t>(n);
  topology.levels.assign(n * n, LinkLevel::unknown);
  topology.fabric_domains.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    topology.levels[i * n + i] = LinkLevel::self;
    topology.numa_nodes.push_back(gpus[i].numa_node.value_or(-1));
    topology.fabric_domains[i] = static_cast<std::uint32_t>(i);
    for (const GpuPeer& peer : gpus[i].peers)
      if (peer.index < n)
        topology.levels[i * n + peer.index] = peer.level;
  }
  // A domain takes the smallest index that it can reach over the fabric; n is small enough to
  // repeat until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (topology.levels[i * n + j] != LinkLevel::fabric ||
            topology.fabric_domains[j] >= topology.fabric_domains[i])
          continue;
        topology.fabric_domains[i] = topology.fabric_domains[j];
        changed = true;
      }
    }
  }
  return topology;
}

std::vector<std::string> gpu_device_files(Vendor vendor, std::uint32_t minor) {
  switch (vendor) {
    case Vendor::nvidia:
      return {fmt::format("/dev/nvidia{}", minor)};
    case Vendor::amd:
      return {fmt::format("/dev/dri/renderD{}", 128 + minor),
              fmt::format("/dev/dri/card{}", minor)};
    case Vendor::unknown:
      return {};
  }
  return {};
}

namespace {

// A process that opens a MIG instance must also open the capability files of its GPU and compute
// instance; their minor numbers are read from the driver.
void add_mig_capabilities(const GpuInfo& gpu,
                          const MigInstance& instance,
                          std::vector<std::string>& files) {
  const std::string root = fmt::format("/proc/driver/nvidia/capabilities/gpu{}/mig/gi{}",
                                       gpu.minor.value_or(gpu.index), instance.gpu_instance);
  for (const std::string& path :
       {root + "/access", fmt::format("{}/ci{}/access", root, instance.compute_instance)}) {
    const auto text = read_file(path, 4096);
    if (!text)
      continue;
    for (const std::string& line : split(*text, '\n')) {
      constexpr std::string_view key = "DeviceFileMinor:";
      if (!line.starts_with(key))
        continue;
      if (const auto minor =
              parse_int(trim(std::string_view(line).substr(key.size())), 0, 1 << 20)) {
        files.push_back(fmt::format("/dev/nvidia-caps/nvidia-cap{}", *minor));
      }
    }
  }
}

}  // namespace

Visibility visibility(const VisibilityRequest& request) {
  Visibility result;
  std::vector<std::string> nvidia, amd, amd_positions;
  for (const GpuInfo& gpu : request.gpus) {
    result.device_files.insert(result.device_files.end(), gpu.device_files.begin(),
                               gpu.device_files.end());
    switch (gpu.vendor) {
      case Vendor::nvidia:
        nvidia.push_back(gpu.uuid);
        break;
      case Vendor::amd:
        amd.push_back(gpu.uuid);
        amd_positions.push_back(std::to_string(amd_positions.size()));
        break;
      case Vendor::unknown:
        break;
    }
    for (const MigInstance& instance : gpu.mig.instances) {
      if (std::ranges::find(request.mig_uuids, instance.uuid) != request.mig_uuids.end())
        add_mig_capabilities(gpu, instance, result.device_files);
    }
  }
  if (!request.mig_uuids.empty())
    nvidia = request.mig_uuids;
  if (!nvidia.empty()) {
    for (const char* file :
         {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"})
      result.device_files.emplace_back(file);
  }
  if (!amd.empty())
    result.device_files.emplace_back("/dev/kfd");
  result.hidden_patterns = {"/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/kfd", "/dev/dri/*"};

  // "-1" names no device in all of these; an empty value would mean "all" to some versions of HIP.
  // UUIDs instead of numbers, because numbering differs between libraries and restarts. HIP counts
  // within what ROCR leaves visible.
  const auto list = [](const std::vector<std::string>& items) {
    return items.empty() ? std::string("-1") : join(items, ",");
  };
  result.env["CUDA_VISIBLE_DEVICES"] = list(nvidia);
  result.env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  result.env["NVIDIA_VISIBLE_DEVICES"] = nvidia.empty() ? "void" : join(nvidia, ",");
  result.env["ROCR_VISIBLE_DEVICES"] = list(amd);
  result.env["HIP_VISIBLE_DEVICES"] = list(amd_positions);
  return result;
}

}  // namespace billow
