// The inventory: names, memory, PCI addresses, links between cards, health.
#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "gpu/nvml_backend.h"
#include "gpu/topology.h"
#include "gpu/types.h"

namespace billow {
namespace {

constexpr unsigned gpus_max = 128;

// Calls an optional function; returns `not found` if the library lacks it, so that callers check
// one thing.
// "00000000:1B:00.0" (NVML) → "0000:1b:00.0" (the kernel).
std::string kernel_bus_id(std::string_view id) {
  const auto colon = id.find(':');
  if (colon == std::string_view::npos)
    return lower(id);
  std::string_view domain = id.substr(0, colon);
  if (domain.size() > 4)
    domain.remove_prefix(domain.size() - 4);
  return lower(domain) + lower(id.substr(colon));
}

std::optional<std::int32_t> numa_from_kernel(const std::string& bus_id) {
  const auto text = read_file("/sys/bus/pci/devices/" + kernel_bus_id(bus_id) + "/numa_node", 64);
  if (!text)
    return std::nullopt;
  const auto node = parse_int(trim(*text), 0, 4096);  // the kernel writes -1 if unknown
  return node ? std::optional(static_cast<std::int32_t>(*node)) : std::nullopt;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::unexpected<Error> NvmlBackend::failed(std::string_view what,
                                           std::uint32_t index,
                                           nvml::Return code) const {
  const std::string text = fmt::format("GPU {}: {}: {}", index, what, library_->error_text(code));
  if (code == nvml::error_gpu_is_lost)
    return fail(Code::unavailable, text,
                "the card fell off the bus: drain the node and reset or reboot it");
  if (code == nvml::error_no_permission)
    return fail(Code::forbidden, text,
                "this needs root, or the capability the administrator can grant");
  if (code == nvml::error_not_supported || code == nvml::error_function_not_found)
    return fail(Code::unsupported, text);
  if (code == nvml::error_insufficient_resources)
    return fail(Code::exhausted, text);
  if (code == nvml::error_in_use)
    return fail(Code::conflict, text, "processes still use it");
  return fail(Code::internal, text);
}

Result<std::unique_ptr<GpuBackend>> NvmlBackend::open(std::unique_ptr<NvmlLibrary> library,
                                                      const GpuBackendOptions& options) {
  std::unique_ptr<NvmlBackend> backend(new NvmlBackend(std::move(library)));
  backend->allow_mig_changes_ = options.allow_mig_changes;
  backend->clock_ = options.clock ? options.clock : &system_clock();
  const NvmlFunctions& nvml = backend->library_->call();
  unsigned count = 0;
  if (const auto code = nvml.nvmlDeviceGetCount_v2(&count); code != nvml::success) {
    return fail(Code::unsupported,
                fmt::format("cannot count GPUs: {}", backend->library_->error_text(code)));
  }
  if (count > gpus_max)
    return fail(Code::too_large,
                fmt::format("{} GPUs on one node; Billow handles {}", count, gpus_max));
  backend->devices_.resize(count);
  for (unsigned index = 0; index < count; ++index)
    backend->read_fixed(backend->devices_[index], index);
  backend->read_peers();
  {
    auto looks = backend->looks_.lock();
    looks->gpm_before.resize(count);
    looks->gpm_spare.resize(count);
    looks->gpm_primed.resize(count);
    looks->process_seen_us.resize(count);
    looks->process_util.resize(count);
    looks->process_util_at.resize(count);
  }
  for (unsigned index = 0; index < count; ++index)
    backend->start_gpm(index);
  backend->start_events();
  return std::unique_ptr<GpuBackend>(std::move(backend));
}

Result<NvmlBackend::DeviceEntry*> NvmlBackend::entry(std::uint32_t index) {
  if (index >= devices_.size()) {
    return fail(Code::not_found,
                fmt::format("no GPU {}: this node has {}", index, devices_.size()));
  }
  return &devices_[index];
}

void NvmlBackend::read_fixed(DeviceEntry& entry, std::uint32_t index) {
  const NvmlFunctions& nvml = library_->call();
  GpuInfo& info = entry.fixed;
  info.index = index;
  info.simulated = library_->simulated();
  info.vendor = Vendor::nvidia;
  entry.opened = nvml.nvmlDeviceGetHandleByIndex_v2(index, &entry.handle);
  if (entry.opened != nvml::success) {
    entry.handle = nullptr;
    return;
  }
  if (unsigned vendor = 0;
      call_nvml(nvml.billowSimDeviceVendor, entry.handle, &vendor) == nvml::success)
    info.vendor = static_cast<Vendor>(vendor);

  char text[nvml::name_bytes] = {};
  if (nvml.nvmlDeviceGetName(entry.handle, text, sizeof text) == nvml::success)
    info.model = text;
  char uuid[nvml::uuid_bytes] = {};
  if (nvml.nvmlDeviceGetUUID(entry.handle, uuid, sizeof uuid) == nvml::success)
    info.uuid = uuid;
  nvml::Memory memory{};
  if (nvml.nvmlDeviceGetMemoryInfo(entry.handle, &memory) == nvml::success)
    info.memory_mib = static_cast<std::int64_t>(memory.total >> 20);
  info.type = normalise_gpu_type(info.model, info.memory_mib);
  if (const GpuTypeFacts* facts = find_gpu_type(info.type))
    info.power_idle_mw = facts->power_idle_w * 1000;

  read_place(entry);
  read_versions(entry);
  read_abilities(entry);
  read_links(entry);
}

// The card's location: PCI address, device files, NUMA node.
void NvmlBackend::read_place(DeviceEntry& entry) {
  const NvmlFunctions& nvml = library_->call();
  GpuInfo& info = entry.fixed;
  nvml::PciInfo pci{};
  if (call_nvml(nvml.nvmlDeviceGetPciInfo_v3, entry.handle, &pci) == nvml::success)
    info.pci_bus_id = pci.bus_id;
  unsigned number = 0;
  if (call_nvml(nvml.nvmlDeviceGetMinorNumber, entry.handle, &number) == nvml::success)
    info.minor = number;
  // The library answers for Grace and newer; for older machines the kernel knows the card's node.
  if (call_nvml(nvml.nvmlDeviceGetNumaNodeId, entry.handle, &number) == nvml::success &&
      number != nvml::not_available)
    info.numa_node = number;
  else if (!info.simulated && !info.pci_bus_id.empty())
    info.numa_node = numa_from_kernel(info.pci_bus_id);
  if (info.minor)
    info.device_files = gpu_device_files(info.vendor, *info.minor);
}

void NvmlBackend::read_versions(DeviceEntry& entry) {
  const NvmlFunctions& nvml = library_->call();
  GpuInfo& info = entry.fixed;
  char version[nvml::version_bytes] = {};
  if (call_nvml(nvml.nvmlSystemGetDriverVersion, version, unsigned(sizeof version)) ==
      nvml::success)
    info.driver_version = version;
  int runtime = 0;
  if (call_nvml(nvml.nvmlSystemGetCudaDriverVersion_v2, &runtime) == nvml::success)
    info.runtime_version = version_text(runtime);
  int major = 0, minor = 0;
  if (call_nvml(nvml.nvmlDeviceGetCudaComputeCapability, entry.handle, &major, &minor) ==
      nvml::success) {
    info.compute_capability = info.vendor == Vendor::amd ? fmt::format("gfx{:x}", major)
                                                         : fmt::format("{}.{}", major, minor);
  }
}

void NvmlBackend::read_abilities(DeviceEntry& entry) {
  const NvmlFunctions& nvml = library_->call();
  GpuInfo& info = entry.fixed;
  unsigned limit_mw = 0;
  if (call_nvml(nvml.nvmlDeviceGetEnforcedPowerLimit, entry.handle, &limit_mw) == nvml::success)
    info.power_limit_mw = limit_mw;
  unsigned current = 0, pending = 0;
  info.mig.capable =
      call_nvml(nvml.nvmlDeviceGetMigMode, entry.handle, &current, &pending) == nvml::success;
  nvml::GpmSupport support{1, 0};
  entry.gpm = call_nvml(nvml.nvmlGpmQueryDeviceSupport, entry.handle, &support) == nvml::success &&
              support.is_supported;
  if (!entry.gpm)
    info.missing.emplace_back("SM and DRAM activity (GPM)");
  nvml::Utilization utilization{};
  if (call_nvml(nvml.nvmlDeviceGetUtilizationRates, entry.handle, &utilization) ==
      nvml::error_not_supported)
    info.missing.emplace_back("utilisation");
}

void NvmlBackend::read_links(DeviceEntry& entry) {
  const NvmlFunctions& nvml = library_->call();
  for (unsigned link = 0; link < nvml::nvlinks_max; ++link) {
    unsigned active = 0;
    const auto code = call_nvml(nvml.nvmlDeviceGetNvLinkState, entry.handle, link, &active);
    if (code == nvml::error_not_supported || code == nvml::error_function_not_found)
      return;  // no link at all
    if (code != nvml::success || !active)
      continue;
    ++entry.fixed.fabric_links;
    unsigned type = nvml::nvlink_to_unknown;
    if (call_nvml(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, entry.handle, link, &type) ==
            nvml::success &&
        type == nvml::nvlink_to_switch) {
      entry.fixed.fabric_switched = true;
    }
  }
}

// Links that end at exactly this card; through a switch every link reaches every card.
std::uint32_t NvmlBackend::links_between(const DeviceEntry& a, const DeviceEntry& b) const {
  if (a.fixed.fabric_switched && b.fixed.fabric_switched)
    return std::min(a.fixed.fabric_links, b.fixed.fabric_links);
  const NvmlFunctions& nvml = library_->call();
  std::uint32_t links = 0;
  for (unsigned link = 0; link < nvml::nvlinks_max && a.fixed.fabric_links; ++link) {
    nvml::PciInfo remote{};
    if (call_nvml(nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2, a.handle, link, &remote) !=
        nvml::success)
      continue;
    if (kernel_bus_id(remote.bus_id) == kernel_bus_id(b.fixed.pci_bus_id))
      ++links;
  }
  return links;
}

LinkLevel NvmlBackend::link_level(const DeviceEntry& a, const DeviceEntry& b) const {
  const NvmlFunctions& nvml = library_->call();
  unsigned status = nvml::p2p_not_supported;
  if (call_nvml(nvml.nvmlDeviceGetP2PStatus, a.handle, b.handle, unsigned(nvml::p2p_nvlink),
                &status) == nvml::success &&
      status == nvml::p2p_ok) {
    return LinkLevel::fabric;
  }
  unsigned level = 0;
  if (call_nvml(nvml.nvmlDeviceGetTopologyCommonAncestor, a.handle, b.handle, &level) !=
      nvml::success)
    return LinkLevel::unknown;
  if (level <= nvml::topology_single)
    return LinkLevel::pcie_switch;
  if (level <= nvml::topology_multiple)
    return LinkLevel::pcie_switches;
  if (level <= nvml::topology_hostbridge)
    return LinkLevel::host_bridge;
  if (level <= nvml::topology_node)
    return LinkLevel::numa_node;
  return LinkLevel::system;
}

void NvmlBackend::read_peers() {
  for (DeviceEntry& a : devices_) {
    for (const DeviceEntry& b : devices_) {
      if (&a == &b)
        continue;
      GpuPeer peer{b.fixed.index, LinkLevel::unknown, 0};
      if (a.handle && b.handle) {
        peer.level = link_level(a, b);
        if (peer.level == LinkLevel::fabric)
          peer.links = links_between(a, b);
      }
      a.fixed.peers.push_back(peer);
    }
  }
}

void NvmlBackend::read_health(const DeviceEntry& entry, GpuInfo& info) const {
  const NvmlFunctions& nvml = library_->call();
  nvml::Memory memory{};
  const nvml::Return code =
      entry.handle ? nvml.nvmlDeviceGetMemoryInfo(entry.handle, &memory) : entry.opened;
  if (code == nvml::error_gpu_is_lost || code == nvml::error_not_found) {
    info.health = GpuHealth::lost;
    info.health_reason = "the GPU has fallen off the bus";
    return;
  }
  if (code != nvml::success) {
    info.health = GpuHealth::failed;
    info.health_reason = library_->error_text(code);
    return;
  }
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed_rows = 0;
  if (call_nvml(nvml.nvmlDeviceGetRemappedRows, entry.handle, &corrected, &uncorrected, &pending,
                &failed_rows) == nvml::success) {
    if (failed_rows) {
      info.health = GpuHealth::failed;
      info.health_reason = "a memory row could not be remapped: the card must be replaced";
      return;
    }
    if (pending) {
      info.health = GpuHealth::degraded;
      info.health_reason = "a memory row waits to be remapped: reset the GPU";
      return;
    }
  }
  unsigned long long errors = 0;
  if (call_nvml(nvml.nvmlDeviceGetTotalEccErrors, entry.handle, unsigned(nvml::ecc_uncorrected),
                unsigned(nvml::ecc_volatile), &errors) == nvml::success &&
      errors > 0) {
    info.health = GpuHealth::degraded;
    info.health_reason =
        fmt::format("{} uncorrected memory errors since the driver was loaded", errors);
  }
}

Result<GpuInventory> NvmlBackend::inventory() {
  GpuInventory inventory;
  inventory.library = library_->path();
  inventory.simulated = library_->simulated();
  for (const DeviceEntry& entry : devices_) {
    GpuInfo info = entry.fixed;
    read_health(entry, info);
    unsigned current = 0, pending = 0;
    if (entry.handle && call_nvml(library_->call().nvmlDeviceGetMigMode, entry.handle, &current,
                                  &pending) == nvml::success) {
      info.mig.enabled = current == 1;
      info.mig.pending = pending == 1;
      if (info.mig.enabled) {
        if (auto instances = mig_instances(info.index))
          info.mig.instances = std::move(*instances);
      }
    }
    inventory.gpus.push_back(std::move(info));
  }
  inventory.topology = make_topology(inventory.gpus);
  return inventory;
}

}  // namespace billow
