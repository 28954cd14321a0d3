// Metrics of the cards: load, memory, power, processes, activity counters and errors.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "gpu/sim/handles.h"

using namespace billow;
using namespace billow::sim;
using namespace billow::nvml;

namespace {

constexpr long long mib = 1 << 20;
constexpr auto event_poll = std::chrono::milliseconds(10);
constexpr int mem_clock_mhz = 2619;
constexpr double pcie_mib_s_busy = 200;  // of a busy card, in each direction
constexpr double nvlink_mib_s_busy = 4000;

// The memory that a handle sees: the card's, or its instance's part of it.
struct MemoryView {
  long long total_mib = 0, used_mib = 0;
};
MemoryView memory_of(const Call& call) {
  if (!call.instance)
    return {call.card->spec.memory_mib, call.card->mem_used_mib};
  MemoryView view{profile_of(call).mem_mib, 0};
  for (const SimGpuProcess& p : call.card->processes)
    if (p.gpu_instance == call.instance->id)
      view.used_mib += p.mem_mib;
  return view;
}

template <class T, class F>
Return answer(Device device, T* out, F value) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!out)
    return error_invalid_argument;
  *out = static_cast<T>(value(*call.card));
  return success;
}

}  // namespace

Return nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  Call call = enter(device, true);
  if (!call)
    return call.code;
  if (!memory)
    return error_invalid_argument;
  const MemoryView view = memory_of(call);
  memory->total = static_cast<unsigned long long>(view.total_mib * mib);
  memory->used = static_cast<unsigned long long>(view.used_mib * mib);
  memory->free = memory->total - memory->used;
  return success;
}

Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* memory) {
  Call call = enter(device, true);
  if (!call)
    return call.code;
  if (!memory)
    return error_invalid_argument;
  if (memory->version != struct_version<MemoryV2>(2))
    return error_argument_version;
  const MemoryView view = memory_of(call);
  memory->total = static_cast<unsigned long long>(view.total_mib * mib);
  memory->reserved = 0;
  memory->used = static_cast<unsigned long long>(view.used_mib * mib);
  memory->free = memory->total - memory->used;
  return success;
}

Return nvmlDeviceGetUtilizationRates(Device device, Utilization* utilization) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!utilization)
    return error_invalid_argument;
  if (call.card->spec.mig)
    return error_not_supported;  // as on real partitioned cards
  utilization->gpu = static_cast<unsigned>(call.card->util_pct());
  utilization->memory = call.card->hung ? 0 : static_cast<unsigned>(call.card->load * 60);
  return success;
}

Return nvmlDeviceGetPowerUsage(Device device, unsigned* milliwatts) {
  return answer(device, milliwatts, [](const SimCard& card) { return card.power_w() * 1000; });
}
Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* milliwatts) {
  return answer(device, milliwatts,
                [](const SimCard& card) { return card.spec.facts->power_max_w * 1000; });
}
Return nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* millijoules) {
  return answer(device, millijoules, [](const SimCard& card) { return card.energy_mj; });
}
Return nvmlDeviceGetTemperature(Device device, unsigned, unsigned* celsius) {
  return answer(device, celsius,
                [](const SimCard& card) { return card.hung ? 34 : 30 + 40 * card.load; });
}
Return nvmlDeviceGetClockInfo(Device device, unsigned clock, unsigned* mhz) {
  return answer(device, mhz, [clock](const SimCard& card) {
    if (clock == clock_mem)
      return mem_clock_mhz;
    return static_cast<int>(card.load > 0.02 || card.hung ? card.spec.facts->sm_clock_mhz_max
                                                          : 345);
  });
}
Return nvmlDeviceGetEncoderUtilization(Device device, unsigned* percent, unsigned* period_us) {
  if (!period_us)
    return error_invalid_argument;
  *period_us = 100'000;
  return answer(device, percent, [](const SimCard&) { return 0; });
}
Return nvmlDeviceGetDecoderUtilization(Device device, unsigned* percent, unsigned* period_us) {
  return nvmlDeviceGetEncoderUtilization(device, percent, period_us);
}
Return nvmlDeviceGetPcieReplayCounter(Device device, unsigned* count) {
  return answer(device, count, [](const SimCard&) { return 0; });
}
Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!values)
    return error_invalid_argument;
  for (int i = 0; i < count; ++i) {
    values[i].result =
        values[i].field_id == field_memory_temperature ? success : error_not_supported;
    values[i].value.as_unsigned =
        static_cast<unsigned>(call.card->hung ? 38 : 36 + 42 * call.card->load);
  }
  return success;
}
Return nvmlDeviceGetPcieThroughput(Device device, unsigned, unsigned* kib_s) {
  return answer(device, kib_s, [](const SimCard& card) {
    return card.hung ? 0 : card.load * pcie_mib_s_busy * 1024;
  });
}
Return nvmlDeviceGetTotalEccErrors(Device device,
                                   unsigned error,
                                   unsigned,
                                   unsigned long long* count) {
  return answer(device, count, [&](const SimCard& card) {
    return error == ecc_uncorrected ? card.ecc_uncorrected : 0;
  });
}
Return nvmlDeviceGetRemappedRows(Device device,
                                 unsigned* corrected,
                                 unsigned* uncorrected,
                                 unsigned* pending,
                                 unsigned* failed) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!corrected || !uncorrected || !pending || !failed)
    return error_invalid_argument;
  *corrected = *uncorrected = *pending = *failed = 0;
  return success;
}

Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* infos) {
  Call call = enter(device, true);
  if (!call)
    return call.code;
  if (!count)
    return error_invalid_argument;
  std::vector<const SimGpuProcess*> list;
  for (const SimGpuProcess& p : call.card->processes) {
    if (!call.instance || p.gpu_instance == call.instance->id)
      list.push_back(&p);
  }
  const unsigned capacity = infos ? *count : 0;
  *count = static_cast<unsigned>(list.size());
  if (list.size() > capacity)
    return error_insufficient_size;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const unsigned instance =
        list[i]->gpu_instance < 0 ? not_available : static_cast<unsigned>(list[i]->gpu_instance);
    infos[i] = {static_cast<unsigned>(list[i]->pid),
                static_cast<unsigned long long>(list[i]->mem_mib * mib), instance,
                instance == not_available ? not_available : 0};
  }
  return success;
}
Return nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count, ProcessInfo* infos) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}
Return nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, ProcessInfoV1* infos) {
  if (!count)
    return error_invalid_argument;
  std::vector<ProcessInfo> full(infos ? *count : 0);
  const Return code =
      nvmlDeviceGetComputeRunningProcesses_v3(device, count, full.empty() ? nullptr : full.data());
  if (code == success)
    for (unsigned i = 0; i < *count; ++i)
      infos[i] = {full[i].pid, full[i].used_gpu_memory};
  return code;
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned* count, ProcessInfo*) {
  Call call = enter(device, true);
  if (!call)
    return call.code;
  if (!count)
    return error_invalid_argument;
  *count = 0;
  return success;
}

Return nvmlDeviceGetProcessUtilization(Device device,
                                       ProcessUtilizationSample* samples,
                                       unsigned* count,
                                       unsigned long long last_seen_us) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!count)
    return error_invalid_argument;
  const auto at_us = static_cast<unsigned long long>(call.simulator().refreshed_ns() / 1000);
  const auto& list = call.card->processes;
  if (list.empty() || at_us <= last_seen_us) {
    *count = 0;
    return error_not_found;
  }
  const unsigned capacity = samples ? *count : 0;
  *count = static_cast<unsigned>(list.size());
  if (list.size() > capacity)
    return error_insufficient_size;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const double util = call.card->hung ? 1.0 / static_cast<double>(list.size()) : list[i].util;
    samples[i] = {
        static_cast<unsigned>(list[i].pid), at_us, static_cast<unsigned>(std::lround(util * 100)),
        static_cast<unsigned>(util * 60),   0,     0};
  }
  return success;
}

Return nvmlEventSetCreate(EventSet* set) {
  Call call = enter();
  if (!call)
    return call.code;
  if (!set)
    return error_invalid_argument;
  auto object = std::make_unique<EventSetObject>();
  object->position = call.simulator().events().size();
  *set = object.get();
  call.library.event_sets[*set] = std::move(object);
  return success;
}
Return nvmlEventSetFree(EventSet set) {
  Call call = enter();
  if (!call)
    return call.code;
  return call.library.event_sets.erase(set) ? success : error_invalid_argument;
}
Return nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long* types) {
  return answer(device, types, [](const SimCard& card) {
    return card.spec.facts->vendor == Vendor::nvidia ? event_xid | event_double_bit_ecc : 0ull;
  });
}
Return nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet set) {
  Call call = enter(device);
  if (!call)
    return call.code;
  const auto found = call.library.event_sets.find(set);
  if (found == call.library.event_sets.end())
    return error_invalid_argument;
  found->second->wanted[call.card->index] |= types;
  return success;
}

Return nvmlEventSetWait_v2(EventSet set, EventData* data, unsigned timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    {
      Call call = enter();
      if (!call)
        return call.code;
      const auto found = call.library.event_sets.find(set);
      if (found == call.library.event_sets.end() || !data)
        return error_invalid_argument;
      EventSetObject& object = *found->second;
      const auto& events = call.simulator().events();
      while (object.position < events.size()) {
        const SimEvent& event = events[object.position++];
        const unsigned long long type = event.xid ? event_xid : event_double_bit_ecc;
        if (!(object.wanted[event.gpu] & type))
          continue;
        *data = {call.library.card_handle(event.gpu), type,
                 event.xid ? static_cast<unsigned long long>(event.value) : 0, not_available,
                 not_available};
        return success;
      }
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline)
      return error_timeout;
    std::this_thread::sleep_for(
        std::min<std::chrono::steady_clock::duration>(event_poll, deadline - now));
  }
}

Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* reasons) {
  return answer(device, reasons,
                [](const SimCard& card) { return card.hot ? slow_software_thermal : 0ull; });
}
Return nvmlDeviceGetNvLinkErrorCounter(Device device,
                                       unsigned link,
                                       unsigned counter,
                                       unsigned long long* value) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!value || link >= call.card->links.size() || counter >= nvlink_error_counters)
    return error_invalid_argument;
  *value = link == 0 && counter == 0 ? static_cast<unsigned long long>(call.card->link_errors) : 0;
  return success;
}

Return nvmlGpmQueryDeviceSupport(Device device, GpmSupport* support) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!support)
    return error_invalid_argument;
  if (support->version != 1)
    return error_argument_version;
  support->is_supported = call.card->spec.facts->gpm ? 1 : 0;
  return success;
}
Return nvmlGpmSampleAlloc(GpmSample* sample) {
  Call call = enter();
  if (!call)
    return call.code;
  if (!sample)
    return error_invalid_argument;
  auto object = std::make_unique<GpmSampleObject>();
  *sample = object.get();
  call.library.gpm_samples[*sample] = std::move(object);
  return success;
}
Return nvmlGpmSampleFree(GpmSample sample) {
  Call call = enter();
  if (!call)
    return call.code;
  return call.library.gpm_samples.erase(sample) ? success : error_invalid_argument;
}
Return nvmlGpmSampleGet(Device device, GpmSample sample) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!call.card->spec.facts->gpm || call.card->spec.mig)
    return error_not_supported;
  if (!call.library.gpm_samples.contains(sample))
    return error_invalid_argument;
  // The counters are those of the last refresh; a sample carries that timestamp, so differences are
  // exact.
  *sample = {call.card->index,
             true,
             call.simulator().refreshed_ns(),
             call.card->activity_ns,
             call.card->tensor_ns,
             call.card->dram_ns};
  return success;
}
Return nvmlGpmMetricsGet(GpmMetricsGet* request) {
  Call call = enter();
  if (!call)
    return call.code;
  if (!request)
    return error_invalid_argument;
  if (request->version != 1)
    return error_argument_version;
  if (!call.library.gpm_samples.contains(request->sample1) ||
      !call.library.gpm_samples.contains(request->sample2))
    return error_invalid_argument;
  const GpmSampleObject &a = *request->sample1, &b = *request->sample2;
  if (!a.taken || !b.taken || a.gpu != b.gpu)
    return error_invalid_argument;
  const double window_ns = static_cast<double>(b.at_ns - a.at_ns);
  for (unsigned i = 0; i < std::min(request->metric_count, gpm_metrics_max); ++i) {
    GpmMetric& metric = request->metrics[i];
    metric.info = {};
    metric.value = 0;
    metric.result = window_ns > 0 ? success : error_no_data;
    if (window_ns <= 0)
      continue;
    const double active = (b.activity_ns - a.activity_ns) / window_ns;
    switch (metric.metric_id) {
      case gpm_graphics_util:
      case gpm_sm_util:
        metric.value = active * 100;
        break;
      case gpm_tensor_util:
        metric.value = (b.tensor_ns - a.tensor_ns) / window_ns * 100;
        break;
      case gpm_dram_util:
        metric.value = (b.dram_ns - a.dram_ns) / window_ns * 100;
        break;
      case gpm_pcie_tx:
      case gpm_pcie_rx:
        metric.value = active * pcie_mib_s_busy;
        break;
      case gpm_nvlink_tx:
      case gpm_nvlink_rx:
        if (call.simulator().cards()[a.gpu].links.empty())
          metric.result = error_not_supported;
        else
          metric.value = active * nvlink_mib_s_busy;
        break;
      default:
        metric.result = error_not_supported;
    }
  }
  return success;
}
