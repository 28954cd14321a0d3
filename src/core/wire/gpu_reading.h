// One reading of one GPU, as an agent sends it with its heartbeat (agent_v1.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace billow::wire::agent_v1 {

struct GpuReading {
  std::int32_t gpu = 0;
  std::int32_t util_pct = -1;  // -1: unknown
  std::int64_t mem_used_mib = 0;
  std::int64_t power_mw = 0;
  std::int32_t temperature_c = 0;
  std::string unhealthy;
  std::int32_t sm_active_permille = -1;
  std::int32_t mem_util_pct = -1;
  std::int32_t sm_clock_mhz = -1;
  std::int64_t pcie_tx_kib_s = -1, pcie_rx_kib_s = -1, nvlink_tx_kib_s = -1, nvlink_rx_kib_s = -1;
  std::int64_t energy_mj = -1, ecc_corrected = -1, ecc_uncorrected = -1, link_errors = -1;
  // How well it is, 100 to 0; below 100 with the reason and when the newest fault was. The head
  // drains what is below 50.
  std::int32_t score = 100;
  std::string fault;
  WallTime fault_at;
  std::uint64_t xids = 0;  // since the agent began
  std::int32_t mem_clock_mhz = -1, mem_temperature_c = -1, enc_pct = -1, dec_pct = -1;
  std::int32_t engine_permille = -1, tensor_permille = -1, dram_permille = -1;  // by GPM
  std::int64_t reserved_mib = -1, pcie_replays = -1;
  std::int64_t remapped_corrected = -1, remapped_uncorrected = -1, remap_failed = -1;
  std::int32_t xid = 0;  // the newest; 0: none
  std::string pci_bus_id;
  bool lost = false;  // it does not answer; figures above that have no "unknown" are 0
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpu", s.gpu);
    v("util_pct", s.util_pct);
    v("mem_used_mib", s.mem_used_mib);
    v("power_mw", s.power_mw);
    v("temperature_c", s.temperature_c);
    v("unhealthy", s.unhealthy);
    v("sm_active_permille", s.sm_active_permille);
    v("mem_util_pct", s.mem_util_pct);
    v("sm_clock_mhz", s.sm_clock_mhz);
    v("pcie_tx_kib_s", s.pcie_tx_kib_s);
    v("pcie_rx_kib_s", s.pcie_rx_kib_s);
    v("nvlink_tx_kib_s", s.nvlink_tx_kib_s);
    v("nvlink_rx_kib_s", s.nvlink_rx_kib_s);
    v("energy_mj", s.energy_mj);
    v("ecc_corrected", s.ecc_corrected);
    v("ecc_uncorrected", s.ecc_uncorrected);
    v("link_errors", s.link_errors);
    v("score", s.score);
    v("fault", s.fault);
    v("fault_at_ns", s.fault_at);
    v("xids", s.xids);
    v("mem_clock_mhz", s.mem_clock_mhz);
    v("mem_temperature_c", s.mem_temperature_c);
    v("enc_pct", s.enc_pct);
    v("dec_pct", s.dec_pct);
    v("engine_permille", s.engine_permille);
    v("tensor_permille", s.tensor_permille);
    v("dram_permille", s.dram_permille);
    v("reserved_mib", s.reserved_mib);
    v("pcie_replays", s.pcie_replays);
    v("remapped_corrected", s.remapped_corrected);
    v("remapped_uncorrected", s.remapped_uncorrected);
    v("remap_failed", s.remap_failed);
    v("xid", s.xid);
    v("pci_bus_id", s.pci_bus_id);
    v("lost", s.lost);
  }
};

}  // namespace billow::wire::agent_v1
