#include "agent/node/gpu_readings.h"

#include <fmt/format.h>
#include <poll.h>

#include "base/log.h"
#include "gpu/host.h"

namespace billow::agent {
namespace {

constexpr int left_behind_rounds = 20, left_behind_wait_ms = 250;
constexpr std::int64_t left_behind_slack_mib = 64;

// What occupies one GPU; empty: nothing.
std::string occupied_by(std::uint32_t index, const GpuSample& sample, std::int64_t usual_mib) {
  const std::int64_t used_mib = sample.mem_used_mib.value_or(0);
  if (!sample.processes.empty())
    return fmt::format("GPU {} is held by process {}", index, sample.processes.front().pid);
  if (used_mib > usual_mib + left_behind_slack_mib)
    return fmt::format("GPU {} holds {} MiB", index, used_mib - usual_mib);
  return {};
}

void add_details(wire::agent_v1::GpuReading& reading, const GpuInfo& gpu, const GpuSample& sample) {
  const auto permille = [](const std::optional<double>& percent) {
    return percent ? static_cast<std::int32_t>(*percent * 10) : -1;
  };
  reading.engine_permille = permille(sample.engine_active_pct);
  reading.tensor_permille = permille(sample.tensor_active_pct);
  reading.dram_permille = permille(sample.dram_active_pct);
  reading.mem_clock_mhz = sample.mem_clock_mhz.value_or(-1);
  reading.mem_temperature_c = sample.mem_temperature_c.value_or(-1);
  reading.enc_pct = sample.enc_pct.value_or(-1);
  reading.dec_pct = sample.dec_pct.value_or(-1);
  reading.reserved_mib = sample.reserved_mib.value_or(-1);
  reading.pcie_replays = sample.pcie_replays.value_or(-1);
  reading.remapped_corrected = sample.remapped_corrected.value_or(-1);
  reading.remapped_uncorrected = sample.remapped_uncorrected.value_or(-1);
  reading.remap_failed = sample.remap_failed.value_or(-1);
  reading.pci_bus_id = gpu.pci_bus_id;
  reading.lost = sample.health == GpuHealth::lost;
}

}  // namespace

wire::agent_v1::GpuReading GpuReadings::reading_of(const GpuInfo& gpu,
                                                   const GpuSample& sample,
                                                   WallTime now) {
  wire::agent_v1::GpuReading reading;
  reading.gpu = static_cast<std::int32_t>(&gpu - gpus_.data());
  reading.util_pct = sample.util_pct.value_or(-1);
  reading.mem_used_mib = sample.mem_used_mib.value_or(0);
  reading.power_mw = sample.power_mw.value_or(0);
  reading.temperature_c = sample.temperature_c.value_or(0);
  if (sample.health == GpuHealth::lost || sample.health == GpuHealth::failed)
    reading.unhealthy = enum_name(sample.health);
  if (sample.sm_active_pct)
    reading.sm_active_permille = static_cast<std::int32_t>(*sample.sm_active_pct * 10);
  reading.mem_util_pct = sample.mem_util_pct.value_or(-1);
  reading.sm_clock_mhz = sample.sm_clock_mhz.value_or(-1);
  reading.pcie_tx_kib_s = sample.pcie_tx_kib_s.value_or(-1);
  reading.pcie_rx_kib_s = sample.pcie_rx_kib_s.value_or(-1);
  reading.nvlink_tx_kib_s = sample.nvlink_tx_kib_s.value_or(-1);
  reading.nvlink_rx_kib_s = sample.nvlink_rx_kib_s.value_or(-1);
  reading.energy_mj = sample.energy_mj.value_or(-1);
  reading.ecc_corrected = sample.ecc_corrected.value_or(-1);
  reading.ecc_uncorrected = sample.ecc_uncorrected.value_or(-1);
  reading.link_errors = sample.link_errors.value_or(-1);
  add_details(reading, gpu, sample);
  GpuHealthWatch& health = health_[gpu.index];
  health.take(sample);
  const HealthVerdict verdict = health.verdict(now);
  reading.score = verdict.score;
  reading.fault = verdict.fault;
  reading.fault_at = verdict.fault_at;
  reading.xids = verdict.xids;
  reading.xid = last_xid_[gpu.index];
  return reading;
}

NodeSample GpuReadings::read(const std::vector<WatchedTask>& watched,
                             const std::vector<std::pair<TaskId, int>>& supervisors) {
  NodeSample out;
  Sampled sampled = sampler_.look(watched, system_clock().steady());
  const WallTime now = system_clock().wall();
  if (backend_)
    if (const auto events = backend_->poll_events({}))
      for (const GpuEvent& event : *events) {
        log_warn("GPU {}: {}", event.index, event.text);
        health_[event.index].take(event);
        if (event.kind == GpuEventKind::xid || event.kind == GpuEventKind::lost)
          last_xid_[event.index] = static_cast<std::int32_t>(event.code);
      }
  for (const GpuInfo& gpu : gpus_)
    if (const auto card = sampled.cards.find(gpu.index); card != sampled.cards.end())
      out.beat.gpus.push_back(reading_of(gpu, card->second, now));
  if (!gpus_.empty())
    out.beat.driver = gpus_.front().driver_version;
  const auto host = read_host();
  const auto load = read_host_load();
  if (host && load)
    out.beat.mem_used_mib = host->memory_mib - load->memory_available_mib;
  usage_.read(system_clock().steady(), supervisors, out.beat);
  out.tasks = std::move(sampled.tasks);
  return out;
}

std::string find_left_behind(GpuBackend& backend,
                             const std::vector<GpuInfo>& gpus,
                             const std::map<std::uint32_t, std::int64_t>& idle_mem_mib) {
  std::string left;
  for (int round = 0; round < left_behind_rounds; ++round) {
    left.clear();
    for (const GpuInfo& gpu : gpus) {
      const auto sample = backend.sample(gpu.index, {.processes = true});
      if (!sample)
        continue;
      const auto idle = idle_mem_mib.find(gpu.index);
      const std::int64_t usual_mib =
          idle == idle_mem_mib.end() ? sample->mem_used_mib.value_or(0) : idle->second;
      if (const std::string what = occupied_by(gpu.index, *sample, usual_mib); !what.empty())
        left += (left.empty() ? "" : "; ") + what;
    }
    if (left.empty())
      break;
    ::poll(nullptr, 0, left_behind_wait_ms);
  }
  return left;
}

}  // namespace billow::agent
