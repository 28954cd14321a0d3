// The activity of the cards: samples, processes, and reported errors.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "gpu/nvml_backend.h"

namespace billow {
namespace {

constexpr unsigned processes_max = 4096;  // per card; more are ignored
// The library makes about one sample per process and second; faster queries find none, which does
// not mean idle.
constexpr Duration process_util_life = seconds(2);
constexpr int events_per_poll_max = 256;  // a storm of errors is read in portions

// The field stays empty if the answer is `unsupported` or `unknown`.
template <class T, class Value, class F, class... Args>
void read(std::optional<T>& field, F function, Args... args) {
  Value value{};
  if (call_nvml(function, args..., &value) == nvml::success)
    field = static_cast<T>(value);
}

// NVML needs a buffer of unknown size: ask, enlarge, ask again while processes come and go.
template <class Info, class F>
std::vector<Info> running(F function, nvml::Device device) {
  std::vector<Info> infos;
  if (!function)
    return infos;
  unsigned count = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto code = function(device, &count, infos.empty() ? nullptr : infos.data());
    if (code == nvml::success) {
      infos.resize(std::min<std::size_t>(count, infos.size()));
      return infos;
    }
    if (code != nvml::error_insufficient_size)
      break;
    count = std::min(count + 8, processes_max);
    infos.assign(count, Info{});
  }
  infos.clear();
  return infos;
}

GpuProcess to_process(const nvml::ProcessInfo& info) {
  GpuProcess process;
  process.pid = info.pid;
  if (info.used_gpu_memory != nvml::not_available_64)
    process.mem_mib = static_cast<std::int64_t>(info.used_gpu_memory >> 20);
  if (info.gpu_instance_id != nvml::not_available)
    process.gpu_instance = info.gpu_instance_id;
  return process;
}

}  // namespace

NvmlBackend::~NvmlBackend() {
  const NvmlFunctions& nvml = library_->call();
  auto looks = looks_.lock();
  for (auto* list : {&looks->gpm_before, &looks->gpm_spare}) {
    for (nvml::GpmSample sample : *list)
      if (sample)
        call_nvml(nvml.nvmlGpmSampleFree, sample);
  }
  if (events_)
    call_nvml(nvml.nvmlEventSetFree, events_);
}

void NvmlBackend::start_gpm(std::uint32_t index) {
  const NvmlFunctions& nvml = library_->call();
  DeviceEntry& entry = devices_[index];
  if (!entry.gpm)
    return;
  auto looks = looks_.lock();
  if (call_nvml(nvml.nvmlGpmSampleAlloc, &looks->gpm_before[index]) != nvml::success ||
      call_nvml(nvml.nvmlGpmSampleAlloc, &looks->gpm_spare[index]) != nvml::success) {
    entry.gpm = false;
    return;
  }
  looks->gpm_primed[index] =
      call_nvml(nvml.nvmlGpmSampleGet, entry.handle, looks->gpm_before[index]) == nvml::success;
}

// The activity since the previous sample. GPM's PCIe rates are in MiB/s and cost nothing extra.
void NvmlBackend::sample_gpm(std::uint32_t index, GpuSample& sample) {
  const NvmlFunctions& nvml = library_->call();
  const DeviceEntry& entry = devices_[index];
  if (!entry.gpm)
    return;
  auto looks = looks_.lock();
  if (call_nvml(nvml.nvmlGpmSampleGet, entry.handle, looks->gpm_spare[index]) != nvml::success)
    return;
  if (looks->gpm_primed[index]) {
    auto request = std::make_unique<nvml::GpmMetricsGet>();
    request->version = 1;
    request->sample1 = looks->gpm_before[index];
    request->sample2 = looks->gpm_spare[index];
    constexpr unsigned wanted[] = {
        nvml::gpm_sm_util, nvml::gpm_dram_util, nvml::gpm_tensor_util, nvml::gpm_pcie_tx,
        nvml::gpm_pcie_rx, nvml::gpm_nvlink_tx, nvml::gpm_nvlink_rx,   nvml::gpm_graphics_util};
    for (const unsigned id : wanted)
      request->metrics[request->metric_count++].metric_id = id;
    if (call_nvml(nvml.nvmlGpmMetricsGet, request.get()) == nvml::success) {
      const auto value = [&](unsigned slot) -> std::optional<double> {
        const nvml::GpmMetric& metric = request->metrics[slot];
        if (metric.result != nvml::success || !(metric.value >= 0))
          return std::nullopt;  // NaN too is "unknown"
        return metric.value;
      };
      sample.sm_active_pct = value(0);
      sample.dram_active_pct = value(1);
      sample.tensor_active_pct = value(2);
      sample.engine_active_pct = value(7);
      if (const auto rate = value(3))
        sample.pcie_tx_kib_s = static_cast<std::int64_t>(*rate * 1024);
      if (const auto rate = value(4))
        sample.pcie_rx_kib_s = static_cast<std::int64_t>(*rate * 1024);
      if (const auto rate = value(5))
        sample.nvlink_tx_kib_s = static_cast<std::int64_t>(*rate * 1024);
      if (const auto rate = value(6))
        sample.nvlink_rx_kib_s = static_cast<std::int64_t>(*rate * 1024);
    }
  }
  std::swap(looks->gpm_before[index], looks->gpm_spare[index]);
  looks->gpm_primed[index] = true;
}

std::vector<GpuProcess> NvmlBackend::read_processes(std::uint32_t index) {
  const NvmlFunctions& nvml = library_->call();
  nvml::Device device = devices_[index].handle;
  std::vector<GpuProcess> list;
  if (nvml.nvmlDeviceGetComputeRunningProcesses_v3 ||
      nvml.nvmlDeviceGetComputeRunningProcesses_v2) {
    const auto function = nvml.nvmlDeviceGetComputeRunningProcesses_v3
                              ? nvml.nvmlDeviceGetComputeRunningProcesses_v3
                              : nvml.nvmlDeviceGetComputeRunningProcesses_v2;
    for (const auto& info : running<nvml::ProcessInfo>(function, device))
      list.push_back(to_process(info));
  } else {
    for (const auto& info :
         running<nvml::ProcessInfoV1>(nvml.nvmlDeviceGetComputeRunningProcesses, device)) {
      list.push_back(
          to_process({info.pid, info.used_gpu_memory, nvml::not_available, nvml::not_available}));
    }
  }
  // Graphics processes use the card too; a process that is both is listed once.
  for (const auto& info :
       running<nvml::ProcessInfo>(nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, device)) {
    const bool known =
        std::ranges::any_of(list, [&](const GpuProcess& p) { return p.pid == info.pid; });
    if (!known)
      list.push_back(to_process(info));
  }
  read_process_util(index, list);
  return list;
}

// The library keeps a short history of samples per process; those since the last call are averaged.
void NvmlBackend::read_process_util(std::uint32_t index, std::vector<GpuProcess>& list) {
  const auto function = library_->call().nvmlDeviceGetProcessUtilization;
  if (!function || list.empty())
    return;
  nvml::Device device = devices_[index].handle;
  auto looks = looks_.lock();
  unsigned long long& seen = looks->process_seen_us[index];
  unsigned count = 0;
  auto code = function(device, nullptr, &count, seen);
  std::vector<nvml::ProcessUtilizationSample> samples(std::min(count, processes_max));
  if (!samples.empty())
    code = function(device, samples.data(), &count, seen);
  if (code == nvml::success && !samples.empty()) {
    samples.resize(std::min<std::size_t>(count, samples.size()));
    std::map<unsigned, std::pair<std::uint64_t, std::uint64_t>> sums;
    for (const auto& s : samples) {
      if (s.timestamp_us <= seen || s.sm_util > 100)
        continue;  // unused slots contain garbage
      auto& [sum, n] = sums[s.pid];
      sum += s.sm_util;
      ++n;
    }
    for (const auto& s : samples)
      if (s.sm_util <= 100)
        seen = std::max(seen, s.timestamp_us);
    auto& known = looks->process_util[index];
    looks->process_util_at[index] = clock_->steady();
    known.clear();
    for (const auto& [pid, sum] : sums)
      known.emplace_back(pid, static_cast<int>(sum.first / sum.second));
  } else if (code == nvml::error_not_found) {
    if (clock_->steady() - looks->process_util_at[index] > process_util_life)
      looks->process_util[index].clear();
  } else {
    return;
  }
  for (GpuProcess& process : list) {
    process.sm_util_pct = 0;
    for (const auto& [pid, percent] : looks->process_util[index])
      if (pid == process.pid)
        process.sm_util_pct = percent;
  }
}

Result<std::vector<GpuProcess>> NvmlBackend::processes(std::uint32_t index) {
  const DeviceEntry* device = BILLOW_TRY(entry(index));
  if (!device->handle)
    return failed("processes", index, device->opened);
  return read_processes(index);
}

nvml::Return NvmlBackend::sample_memory(const DeviceEntry& device, GpuSample& s) const {
  const NvmlFunctions& nvml = library_->call();
  nvml::Memory memory{};
  const nvml::Return code =
      device.handle ? nvml.nvmlDeviceGetMemoryInfo(device.handle, &memory) : device.opened;
  if (code == nvml::success)
    s.mem_used_mib = static_cast<std::int64_t>(memory.used >> 20);
  if (code != nvml::success && code != nvml::error_not_supported)
    return code;
  // Version 1 counts the driver's reserved memory as used; version 2 does not.
  nvml::MemoryV2 memory2{};
  memory2.version = nvml::struct_version<nvml::MemoryV2>(2);
  if (call_nvml(nvml.nvmlDeviceGetMemoryInfo_v2, device.handle, &memory2) == nvml::success)
    s.mem_used_mib = static_cast<std::int64_t>(memory2.used >> 20);
  if (memory2.total > 0)
    s.reserved_mib = static_cast<std::int64_t>(memory2.reserved >> 20);
  return code;
}

// Figures for monitoring only: nothing is decided by them.
void NvmlBackend::sample_details(const DeviceEntry& device, GpuSample& s) const {
  const NvmlFunctions& nvml = library_->call();
  read<std::int32_t, unsigned>(s.mem_clock_mhz, nvml.nvmlDeviceGetClockInfo, device.handle,
                               unsigned(nvml::clock_mem));
  read<std::int64_t, unsigned>(s.pcie_replays, nvml.nvmlDeviceGetPcieReplayCounter, device.handle);
  unsigned percent = 0, period_us = 0;
  if (call_nvml(nvml.nvmlDeviceGetEncoderUtilization, device.handle, &percent, &period_us) ==
      nvml::success)
    s.enc_pct = static_cast<std::int32_t>(percent);
  if (call_nvml(nvml.nvmlDeviceGetDecoderUtilization, device.handle, &percent, &period_us) ==
      nvml::success)
    s.dec_pct = static_cast<std::int32_t>(percent);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (call_nvml(nvml.nvmlDeviceGetRemappedRows, device.handle, &corrected, &uncorrected, &pending,
                &failed) == nvml::success) {
    s.remapped_corrected = corrected;
    s.remapped_uncorrected = uncorrected;
    s.remap_failed = failed;
  }
  nvml::FieldValue field{};
  field.field_id = nvml::field_memory_temperature;
  if (call_nvml(nvml.nvmlDeviceGetFieldValues, device.handle, 1, &field) == nvml::success &&
      field.result == nvml::success)
    s.mem_temperature_c = static_cast<std::int32_t>(field.value.as_unsigned);
}

void NvmlBackend::sample_counters(const DeviceEntry& device, GpuSample& s) const {
  const NvmlFunctions& nvml = library_->call();
  nvml::Utilization utilization{};
  if (call_nvml(nvml.nvmlDeviceGetUtilizationRates, device.handle, &utilization) == nvml::success) {
    s.util_pct = static_cast<std::int32_t>(utilization.gpu);
    s.mem_util_pct = static_cast<std::int32_t>(utilization.memory);
  }
  read<std::int64_t, unsigned>(s.power_mw, nvml.nvmlDeviceGetPowerUsage, device.handle);
  read<std::int64_t, unsigned long long>(s.energy_mj, nvml.nvmlDeviceGetTotalEnergyConsumption,
                                         device.handle);
  read<std::int32_t, unsigned>(s.temperature_c, nvml.nvmlDeviceGetTemperature, device.handle,
                               unsigned(nvml::temperature_gpu));
  read<std::int32_t, unsigned>(s.sm_clock_mhz, nvml.nvmlDeviceGetClockInfo, device.handle,
                               unsigned(nvml::clock_sm));
  read<std::int64_t, unsigned long long>(s.ecc_corrected, nvml.nvmlDeviceGetTotalEccErrors,
                                         device.handle, unsigned(nvml::ecc_corrected),
                                         unsigned(nvml::ecc_volatile));
  read<std::int64_t, unsigned long long>(s.ecc_uncorrected, nvml.nvmlDeviceGetTotalEccErrors,
                                         device.handle, unsigned(nvml::ecc_uncorrected),
                                         unsigned(nvml::ecc_volatile));
  unsigned long long slow = 0;
  if (call_nvml(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device.handle, &slow) ==
      nvml::success)
    s.thermal_slowdown = (slow & (nvml::slow_hardware_thermal | nvml::slow_software_thermal)) != 0;
  for (unsigned link = 0; link < device.fixed.fabric_links; ++link) {
    for (unsigned counter = 0; counter < nvml::nvlink_error_counters; ++counter) {
      unsigned long long errors = 0;
      if (call_nvml(nvml.nvmlDeviceGetNvLinkErrorCounter, device.handle, link, counter, &errors) ==
          nvml::success)
        s.link_errors = s.link_errors.value_or(0) + static_cast<std::int64_t>(errors);
    }
  }
  if (s.ecc_uncorrected.value_or(0) > 0)
    s.health = GpuHealth::degraded;
}

Result<GpuSample> NvmlBackend::sample(std::uint32_t index, GpuSampleOptions options) {
  const DeviceEntry* device = BILLOW_TRY(entry(index));
  const NvmlFunctions& nvml = library_->call();
  GpuSample s;
  s.index = index;
  s.time = clock_->wall();
  s.steady = clock_->steady();
  if (device->fixed.power_idle_mw)
    s.power_idle_mw = device->fixed.power_idle_mw;
  const nvml::Return code = sample_memory(*device, s);
  if (code == nvml::error_gpu_is_lost || code == nvml::error_not_found) {
    s.health = GpuHealth::lost;
    return s;
  }
  if (code != nvml::success && code != nvml::error_not_supported) {
    s.health = GpuHealth::failed;
    return s;
  }
  sample_counters(*device, s);
  sample_details(*device, s);
  sample_gpm(index, s);
  if (options.slow_pcie && !s.pcie_tx_kib_s) {
    read<std::int64_t, unsigned>(s.pcie_tx_kib_s, nvml.nvmlDeviceGetPcieThroughput, device->handle,
                                 unsigned(nvml::pcie_tx));
    read<std::int64_t, unsigned>(s.pcie_rx_kib_s, nvml.nvmlDeviceGetPcieThroughput, device->handle,
                                 unsigned(nvml::pcie_rx));
  }
  if (options.processes)
    s.processes = read_processes(index);
  return s;
}

void NvmlBackend::start_events() {
  const NvmlFunctions& nvml = library_->call();
  if (call_nvml(nvml.nvmlEventSetCreate, &events_) != nvml::success) {
    events_ = nullptr;
    return;
  }
  bool any = false;
  for (DeviceEntry& entry : devices_) {
    if (!entry.handle)
      continue;
    unsigned long long supported = 0;
    if (call_nvml(nvml.nvmlDeviceGetSupportedEventTypes, entry.handle, &supported) != nvml::success)
      continue;
    // Corrected errors are routine and frequent; the counters include them.
    const unsigned long long wanted = supported & (nvml::event_xid | nvml::event_double_bit_ecc);
    if (wanted &&
        call_nvml(nvml.nvmlDeviceRegisterEvents, entry.handle, wanted, events_) == nvml::success)
      any = true;
    else
      entry.fixed.missing.emplace_back("error events (XID)");
  }
  if (!any) {
    call_nvml(nvml.nvmlEventSetFree, events_);
    events_ = nullptr;
  }
}

GpuEvent NvmlBackend::describe_event(const nvml::EventData& data) const {
  GpuEvent event;
  event.time = clock_->wall();
  for (const DeviceEntry& entry : devices_)
    if (entry.handle == data.device)
      event.index = entry.fixed.index;
  if (data.event_type & nvml::event_xid) {
    event.code = static_cast<std::int64_t>(data.event_data);
    const XidMeaning meaning = xid_meaning(event.code);
    event.kind = event.code == 79 ? GpuEventKind::lost : GpuEventKind::xid;
    event.fault = meaning.fault;
    event.text = fmt::format("XID {}: {}", event.code, meaning.text);
  } else if (data.event_type & nvml::event_double_bit_ecc) {
    event.kind = GpuEventKind::ecc_uncorrected;
    event.fault = FaultClass::hardware;
    event.text = "an uncorrected memory error";
  } else {
    event.kind = GpuEventKind::ecc_corrected;
    event.text = "a corrected memory error";
  }
  return event;
}

Result<std::vector<GpuEvent>> NvmlBackend::poll_events(Duration wait) {
  std::vector<GpuEvent> events;
  if (!events_)
    return events;
  const auto function = library_->call().nvmlEventSetWait_v2;
  unsigned timeout_ms = static_cast<unsigned>(std::clamp<std::int64_t>(wait.ms(), 0, 60'000));
  for (int taken = 0; taken < events_per_poll_max; ++taken) {
    nvml::EventData data{};
    const nvml::Return code = call_nvml(function, events_, &data, timeout_ms);
    if (code == nvml::error_timeout)
      break;
    // A card of the set is gone; its next sample shows which.
    if (code == nvml::error_gpu_is_lost)
      break;
    if (code != nvml::success)
      return fail(Code::unavailable, fmt::format("GPU events: {}", library_->error_text(code)));
    events.push_back(describe_event(data));
    timeout_ms = 0;
  }
  return events;
}

}  // namespace billow
