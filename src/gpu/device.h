// What Billow knows about an accelerator, vendor-neutral. Everything above gpu/ (agent, scheduler,
// ledger, CLI) uses these types; only backend.cpp decides which library they are read from.
//
// A figure that a card or driver cannot report is an empty optional, never zero: "0 %" is a fact
// that may mark a job as idle, "unknown" is not. Values that are stored or sent are declared once
// in `fields`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"

namespace billow {

enum class Vendor { unknown, nvidia, amd };

enum class GpuHealth {
  ok,
  degraded,  // works, but needs attention: uncorrected ECC errors, or a row remap that
             // waits for a reset
  failed,    // a hardware error was reported; nothing new is placed here
  lost,      // fell off the bus: no call about it succeeds any more
};

// How two GPUs of one node are connected, best first. `fabric` is NVLink or xGMI.
enum class LinkLevel {
  self,
  fabric,
  pcie_switch,
  pcie_switches,
  host_bridge,
  numa_node,
  system,
  unknown
};

enum class GpuEventKind { xid, ecc_corrected, ecc_uncorrected, lost };
// The likely culprit of an error, which decides what the agent does: fail the job, or take the card
// out of service.
enum class FaultClass { application, hardware, driver, informational };

// Start and length on the card's memory slices (8 on every MIG-capable card so far).
struct MigPlacement {
  std::uint32_t start = 0;
  std::uint32_t size = 0;
  bool operator==(const MigPlacement&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("start", s.start);
    v("size", s.size);
  }
};

// A shape that this card can be partitioned into, with every place it may start at (whether or not
// it is free now).
struct MigProfile {
  std::string name;      // "1g.10gb", "1g.10gb+me"
  std::uint32_t id = 0;  // the driver's number, needed to create one
  std::uint32_t compute_slices = 0;
  std::uint32_t memory_slices = 0;
  std::uint32_t instances_max = 0;
  std::int64_t mem_mib = 0;
  std::vector<MigPlacement> placements;
  bool operator==(const MigProfile&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("id", s.id);
    v("compute_slices", s.compute_slices);
    v("memory_slices", s.memory_slices);
    v("instances_max", s.instances_max);
    v("mem_mib", s.mem_mib);
    v("placements", s.placements);
  }
};

struct MigInstance {
  std::uint32_t gpu_instance = 0;  // the driver's id, unique on its card
  std::uint32_t compute_instance = 0;
  std::string uuid;  // "MIG-…": what a job is given; empty while it has no compute instance
  std::string profile;
  std::uint32_t compute_slices = 0;
  std::int64_t mem_mib = 0;
  MigPlacement placement;
  bool operator==(const MigInstance&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpu_instance", s.gpu_instance);
    v("compute_instance", s.compute_instance);
    v("uuid", s.uuid);
    v("profile", s.profile);
    v("compute_slices", s.compute_slices);
    v("mem_mib", s.mem_mib);
    v("placement", s.placement);
  }
};

struct MigState {
  bool capable = false;
  bool enabled = false;
  bool pending = false;  // the mode after the next reset, if it differs from `enabled`
  std::vector<MigInstance> instances;
  bool operator==(const MigState&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("capable", s.capable);
    v("enabled", s.enabled);
    v("pending", s.pending);
    v("instances", s.instances);
  }
};

struct GpuPeer {
  std::uint32_t index = 0;
  LinkLevel level = LinkLevel::unknown;
  std::uint32_t links = 0;  // fabric links usable towards this peer; through a switch, all of them
  bool operator==(const GpuPeer&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("index", s.index);
    v("level", s.level);
    v("links", s.links);
  }
};

struct GpuInfo {
  std::uint32_t index = 0;  // the library's order: stable while the driver stays loaded
  std::string uuid;         // permanent; jobs are given this
  Vendor vendor = Vendor::unknown;
  std::string model;  // "NVIDIA H100 80GB HBM3"
  std::string type;   // "H100", "A100-40", "L4": what users ask for and prices are listed by
  std::int64_t memory_mib = 0;
  std::string pci_bus_id;  // "00000000:1B:00.0"
  std::optional<std::int32_t> numa_node;
  std::optional<std::uint32_t> minor;     // N of /dev/nvidiaN, or of /dev/dri/renderD(128+N)
  std::vector<std::string> device_files;  // of this card only; visibility() adds the shared ones
  std::uint32_t fabric_links = 0;         // active NVLink or xGMI links
  bool fabric_switched = false;     // connected to a switch: every GPU of the node is one hop away
  std::vector<GpuPeer> peers;       // every other GPU of the node
  std::string driver_version;       // "580.65.06"
  std::string runtime_version;      // highest CUDA or ROCm the driver can run: "13.0"
  std::string compute_capability;   // "9.0"; "gfx942"
  std::int64_t power_limit_mw = 0;  // 0: unknown
  std::int64_t power_idle_mw = 0;   // typical of the type, for comparison with samples; 0: unknown
  MigState mig;
  GpuHealth health = GpuHealth::ok;
  std::string health_reason;  // empty while ok
  bool simulated = false;
  // What this driver or card cannot report, as sentences for `doctor`.
  std::vector<std::string> missing;

  bool operator==(const GpuInfo&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("index", s.index);
    v("uuid", s.uuid);
    v("vendor", s.vendor);
    v("model", s.model);
    v("type", s.type);
    v("memory_mib", s.memory_mib);
    v("pci_bus_id", s.pci_bus_id);
    v("numa_node", s.numa_node);
    v("minor", s.minor);
    v("device_files", s.device_files);
    v("fabric_links", s.fabric_links);
    v("fabric_switched", s.fabric_switched);
    v("peers", s.peers);
    v("driver_version", s.driver_version);
    v("runtime_version", s.runtime_version);
    v("compute_capability", s.compute_capability);
    v("power_limit_mw", s.power_limit_mw);
    v("power_idle_mw", s.power_idle_mw);
    v("mig", s.mig);
    v("health", s.health);
    v("health_reason", s.health_reason);
    v("simulated", s.simulated);
    v("missing", s.missing);
  }
};

struct GpuProcess {
  std::int64_t pid = 0;
  std::optional<std::int64_t> mem_mib;
  std::optional<std::int32_t> sm_util_pct;
  std::optional<std::uint32_t> gpu_instance;  // if the card is partitioned
  bool operator==(const GpuProcess&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pid", s.pid);
    v("mem_mib", s.mem_mib);
    v("sm_util_pct", s.sm_util_pct);
    v("gpu_instance", s.gpu_instance);
  }
};

struct GpuEvent {
  std::uint32_t index = 0;
  GpuEventKind kind = GpuEventKind::xid;
  std::int64_t code = 0;  // the XID
  FaultClass fault = FaultClass::informational;
  std::string text;  // "XID 79: the GPU has fallen off the bus"
  WallTime time;
  bool operator==(const GpuEvent&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("index", s.index);
    v("kind", s.kind);
    v("code", s.code);
    v("fault", s.fault);
    v("text", s.text);
    v("time", s.time);
  }
};

// One sample of one GPU. Percentages are 0–100 over the time since the previous sample (GPM) or the
// driver's last window.
struct GpuSample {
  std::uint32_t index = 0;
  WallTime time;
  SteadyTime steady;
  GpuHealth health = GpuHealth::ok;
  // Time with any kernel running: 100 says little, 0 says much.
  std::optional<std::int32_t> util_pct;
  std::optional<std::int32_t> mem_util_pct;  // time the memory controller was busy
  std::optional<double> sm_active_pct;       // GPM, Hopper and later
  std::optional<double> dram_active_pct;     // GPM
  std::optional<double> tensor_active_pct;   // GPM
  std::optional<std::int64_t> mem_used_mib;
  std::optional<std::int64_t> power_mw;
  // The type's usual idle draw, repeated so that a sample is self-contained.
  std::optional<std::int64_t> power_idle_mw;
  // Since the driver was loaded; differences are the use of a job.
  std::optional<std::int64_t> energy_mj;
  std::optional<std::int32_t> temperature_c;
  std::optional<std::int32_t> sm_clock_mhz;
  std::optional<std::int64_t> pcie_tx_kib_s;
  std::optional<std::int64_t> pcie_rx_kib_s;
  std::optional<std::int64_t> nvlink_tx_kib_s;  // GPM
  std::optional<std::int64_t> nvlink_rx_kib_s;
  std::optional<std::int64_t> link_errors;    // of all NVLinks, since the driver was loaded
  std::optional<bool> thermal_slowdown;       // its clocks are reduced because it is too hot
  std::optional<std::int64_t> ecc_corrected;  // since the driver was loaded
  std::optional<std::int64_t> ecc_uncorrected;
  std::optional<double> engine_active_pct;  // GPM: graphics or compute engine
  std::optional<std::int32_t> mem_clock_mhz, mem_temperature_c, enc_pct, dec_pct;
  std::optional<std::int64_t> reserved_mib;  // by the driver
  std::optional<std::int64_t> pcie_replays;  // since the driver was loaded
  std::optional<std::int64_t> remapped_corrected, remapped_uncorrected, remap_failed;  // rows
  std::vector<GpuProcess> processes;

  bool operator==(const GpuSample&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("index", s.index);
    v("time", s.time);
    v("steady", s.steady);
    v("health", s.health);
    v("util_pct", s.util_pct);
    v("mem_util_pct", s.mem_util_pct);
    v("sm_active_pct", s.sm_active_pct);
    v("dram_active_pct", s.dram_active_pct);
    v("tensor_active_pct", s.tensor_active_pct);
    v("mem_used_mib", s.mem_used_mib);
    v("power_mw", s.power_mw);
    v("power_idle_mw", s.power_idle_mw);
    v("energy_mj", s.energy_mj);
    v("temperature_c", s.temperature_c);
    v("sm_clock_mhz", s.sm_clock_mhz);
    v("pcie_tx_kib_s", s.pcie_tx_kib_s);
    v("pcie_rx_kib_s", s.pcie_rx_kib_s);
    v("nvlink_tx_kib_s", s.nvlink_tx_kib_s);
    v("nvlink_rx_kib_s", s.nvlink_rx_kib_s);
    v("link_errors", s.link_errors);
    v("thermal_slowdown", s.thermal_slowdown);
    v("ecc_corrected", s.ecc_corrected);
    v("ecc_uncorrected", s.ecc_uncorrected);
    v("engine_active_pct", s.engine_active_pct);
    v("mem_clock_mhz", s.mem_clock_mhz);
    v("mem_temperature_c", s.mem_temperature_c);
    v("enc_pct", s.enc_pct);
    v("dec_pct", s.dec_pct);
    v("reserved_mib", s.reserved_mib);
    v("pcie_replays", s.pcie_replays);
    v("remapped_corrected", s.remapped_corrected);
    v("remapped_uncorrected", s.remapped_uncorrected);
    v("remap_failed", s.remap_failed);
    v("processes", s.processes);
  }
};

// The node's GPUs as the scheduler sees them: levels is a square matrix in index order, row by row.
struct GpuTopology {
  std::uint32_t gpus = 0;
  std::vector<LinkLevel> levels;
  std::vector<std::int32_t> numa_nodes;       // -1 where unknown
  std::vector<std::uint32_t> fabric_domains;  // GPUs with the same number are connected by the
                                              // fabric, directly or through others
  LinkLevel between(std::uint32_t a, std::uint32_t b) const { return levels[a * gpus + b]; }
  bool operator==(const GpuTopology&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpus", s.gpus);
    v("levels", s.levels);
    v("numa_nodes", s.numa_nodes);
    v("fabric_domains", s.fabric_domains);
  }
};

struct GpuInventory {
  std::string library;  // path or name of the loaded library
  bool simulated = false;
  std::vector<GpuInfo> gpus;
  GpuTopology topology;
  bool operator==(const GpuInventory&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("library", s.library);
    v("simulated", s.simulated);
    v("gpus", s.gpus);
    v("topology", s.topology);
  }
};

BILLOW_ENUM_NAMES(Vendor,
                  {Vendor::unknown, "unknown"},
                  {Vendor::nvidia, "nvidia"},
                  {Vendor::amd, "amd"});
BILLOW_ENUM_NAMES(GpuHealth,
                  {GpuHealth::ok, "ok"},
                  {GpuHealth::degraded, "degraded"},
                  {GpuHealth::failed, "failed"},
                  {GpuHealth::lost, "lost"});
BILLOW_ENUM_NAMES(LinkLevel,
                  {LinkLevel::self, "self"},
                  {LinkLevel::fabric, "fabric"},
                  {LinkLevel::pcie_switch, "pcie_switch"},
                  {LinkLevel::pcie_switches, "pcie_switches"},
                  {LinkLevel::host_bridge, "host_bridge"},
                  {LinkLevel::numa_node, "numa_node"},
                  {LinkLevel::system, "system"},
                  {LinkLevel::unknown, "unknown"});
BILLOW_ENUM_NAMES(GpuEventKind,
                  {GpuEventKind::xid, "xid"},
                  {GpuEventKind::ecc_corrected, "ecc_corrected"},
                  {GpuEventKind::ecc_uncorrected, "ecc_uncorrected"},
                  {GpuEventKind::lost, "lost"});
BILLOW_ENUM_NAMES(FaultClass,
                  {FaultClass::application, "application"},
                  {FaultClass::hardware, "hardware"},
                  {FaultClass::driver, "driver"},
                  {FaultClass::informational, "informational"});

}  // namespace billow
