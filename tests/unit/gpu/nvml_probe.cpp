// Holds nvml_abi.h to a library, real or simulated: calls everything that only reads, prints each
// answer, and fails where one makes no sense (a wrong structure shows as a wrong bus id, an
// impossible wattage, two sizes for one memory). Where the CUDA toolkit's header is at hand, sizes
// and offsets are compared with it at compile time.
//
// It stands alone, so that it can be built on a GPU machine that has a compiler and nothing else:
//     g++ -std=c++23 -Isrc -I/usr/local/cuda/include tests/unit/gpu/nvml_probe.cpp -o nvml_probe &&
//     ./nvml_probe
// It changes no setting of any card.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/nvml_abi.h"

#if __has_include(<nvml.h>)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
namespace header_check {
using namespace billow::nvml;
static_assert(sizeof(Memory) == sizeof(nvmlMemory_t) &&
              sizeof(MemoryV2) == sizeof(nvmlMemory_v2_t));
static_assert(sizeof(PciInfo) == sizeof(nvmlPciInfo_t) &&
              offsetof(PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId));
static_assert(sizeof(ProcessInfo) == sizeof(nvmlProcessInfo_v2_t) &&
              sizeof(ProcessInfoV1) == sizeof(nvmlProcessInfo_v1_t));
static_assert(sizeof(ProcessUtilizationSample) == sizeof(nvmlProcessUtilizationSample_t));
static_assert(sizeof(EventData) == sizeof(nvmlEventData_t) &&
              offsetof(EventData, event_data) == offsetof(nvmlEventData_t, eventData));
static_assert(sizeof(GpmMetric) == sizeof(nvmlGpmMetric_t) &&
              offsetof(GpmMetricsGet, metrics) == offsetof(nvmlGpmMetricsGet_t, metrics));
static_assert(gpm_metrics_max >= NVML_GPM_METRIC_MAX &&
              gpu_profiles_max <= NVML_GPU_INSTANCE_PROFILE_COUNT + 1);
static_assert(sizeof(GpuInstanceProfile) == sizeof(nvmlGpuInstanceProfileInfo_t));
static_assert(sizeof(GpuInstanceProfileV2) == sizeof(nvmlGpuInstanceProfileInfo_v2_t));
static_assert(sizeof(GpuInstanceInfo) == sizeof(nvmlGpuInstanceInfo_t) &&
              sizeof(ComputeInstanceInfo) == sizeof(nvmlComputeInstanceInfo_t));
static_assert(sizeof(ComputeInstanceProfile) == sizeof(nvmlComputeInstanceProfileInfo_t) &&
              sizeof(DeviceAttributes) == sizeof(nvmlDeviceAttributes_t));
static_assert(struct_version<MemoryV2>(2) == nvmlMemory_v2 &&
              struct_version<GpuInstanceProfileV2>(2) == nvmlGpuInstanceProfileInfo_v2);
static_assert(int(gpm_sm_util) == NVML_GPM_METRIC_SM_UTIL &&
              int(gpm_dram_util) == NVML_GPM_METRIC_DRAM_BW_UTIL &&
              int(gpm_pcie_tx) == NVML_GPM_METRIC_PCIE_TX_PER_SEC);
static_assert(event_xid == nvmlEventTypeXidCriticalError &&
              error_gpu_is_lost == NVML_ERROR_GPU_IS_LOST);
constexpr const char* compared = "compared with the toolkit's header";
}  // namespace header_check
#else
namespace header_check {
constexpr const char* compared = "no toolkit header to compare with";
}
#endif

// Code of ours, in a namespace, so that the header's names do not meet.
namespace probe {
namespace n = billow::nvml;

struct Functions {
#define BILLOW_FUNCTION(name, parameters) n::Return(*name##_) parameters = nullptr;
  BILLOW_NVML_REQUIRED(BILLOW_FUNCTION)
  BILLOW_NVML_OPTIONAL(BILLOW_FUNCTION)
#undef BILLOW_FUNCTION
};

int failures = 0;
void expect(bool holds, const char* what) {
  if (holds)
    return;
  ++failures;
  std::printf("  WRONG: %s\n", what);
}

template <class F, class... Args>
n::Return ask(F function, Args... args) {
  return function ? function(args...) : n::error_function_not_found;
}

// Prints "name = value", or the error code; returns whether there was a value.
template <class T, class F, class... Args>
bool show(const char* name, T& value, F function, Args... args) {
  const n::Return code = ask(function, args..., &value);
  if (code == n::success)
    std::printf("  %s = %lld\n", name, static_cast<long long>(value));
  else
    std::printf("  %s: NVML error %d\n", name, code);
  return code == n::success;
}

void show_identity(const Functions& f, n::Device card) {
  char text[n::name_bytes] = {};
  expect(f.nvmlDeviceGetName_(card, text, sizeof text) == n::success && text[0], "a name");
  char uuid[n::uuid_bytes] = {};
  expect(f.nvmlDeviceGetUUID_(card, uuid, sizeof uuid) == n::success &&
             std::strncmp(uuid, "GPU-", 4) == 0,
         "a uuid that begins with GPU-");
  std::printf("  %s\n", text);
  n::PciInfo pci{};
  if (ask(f.nvmlDeviceGetPciInfo_v3_, card, &pci) == n::success) {
    unsigned domain = 0, bus = 0, device = 0;
    const int parts = std::sscanf(pci.bus_id, "%x:%x:%x", &domain, &bus, &device);
    std::printf("  bus = %s\n", pci.bus_id);
    expect(parts == 3 && bus == pci.bus && domain == pci.domain && device == pci.device,
           "the bus id's text agrees with its numbers");
  }
  unsigned value = 0;
  show("minor", value, f.nvmlDeviceGetMinorNumber_, card);
  show("numa node", value, f.nvmlDeviceGetNumaNodeId_, card);
  int major = 0, minor = 0;
  if (ask(f.nvmlDeviceGetCudaComputeCapability_, card, &major, &minor) == n::success)
    std::printf("  capability = %d.%d\n", major, minor);
  unsigned links = 0, switched = 0;
  for (unsigned link = 0; link < n::nvlinks_max; ++link) {
    unsigned active = 0, type = 0;
    if (ask(f.nvmlDeviceGetNvLinkState_, card, link, &active) == n::success && active)
      ++links;
    if (active && ask(f.nvmlDeviceGetNvLinkRemoteDeviceType_, card, link, &type) == n::success &&
        type == n::nvlink_to_switch)
      ++switched;
  }
  std::printf("  links = %u active, %u to a switch\n", links, switched);
}

void show_readings(const Functions& f, n::Device card) {
  n::Memory memory{};
  expect(f.nvmlDeviceGetMemoryInfo_(card, &memory) == n::success, "memory");
  std::printf("  memory = %llu MiB, used %llu\n", memory.total >> 20, memory.used >> 20);
  expect(memory.total >= memory.used && memory.total > (1ull << 30) && memory.total < (1ull << 41),
         "a believable memory size");
  n::MemoryV2 memory2{};
  memory2.version = n::struct_version<n::MemoryV2>(2);
  if (const auto code = ask(f.nvmlDeviceGetMemoryInfo_v2_, card, &memory2); code == n::success) {
    std::printf("  memory, second version = %llu MiB, used %llu, reserved %llu\n",
                memory2.total >> 20, memory2.used >> 20, memory2.reserved >> 20);
    expect(memory2.total == memory.total, "both versions give one size");
    expect(memory2.used + memory2.free + memory2.reserved <= memory2.total + (64ull << 20),
           "the parts add up");
  } else {
    std::printf("  memory, second version: NVML error %d\n", code);
    expect(code != n::error_argument_version, "the version number of the memory structure");
  }
  n::Utilization utilization{};
  if (ask(f.nvmlDeviceGetUtilizationRates_, card, &utilization) == n::success) {
    std::printf("  utilisation = %u %%, memory %u %%\n", utilization.gpu, utilization.memory);
    expect(utilization.gpu <= 100 && utilization.memory <= 100, "percentages");
  }
  unsigned power = 0, limit = 0, value = 0;
  unsigned long long big = 0;
  if (show("power limit mW", limit, f.nvmlDeviceGetEnforcedPowerLimit_, card) &&
      show("power mW", power, f.nvmlDeviceGetPowerUsage_, card)) {
    expect(power > 1000 && power < limit * 2, "a believable power");
  }
  show("energy mJ", big, f.nvmlDeviceGetTotalEnergyConsumption_, card);
  if (show("temperature C", value, f.nvmlDeviceGetTemperature_, card, unsigned(n::temperature_gpu)))
    expect(value > 0 && value < 120, "a believable temperature");
  show("sm clock MHz", value, f.nvmlDeviceGetClockInfo_, card, unsigned(n::clock_sm));
  show("pcie tx KiB/s", value, f.nvmlDeviceGetPcieThroughput_, card, unsigned(n::pcie_tx));
  show("uncorrected errors", big, f.nvmlDeviceGetTotalEccErrors_, card,
       unsigned(n::ecc_uncorrected), unsigned(n::ecc_volatile));
  unsigned rows[4] = {};
  const auto code = ask(f.nvmlDeviceGetRemappedRows_, card, &rows[0], &rows[1], &rows[2], &rows[3]);
  std::printf("  remapped rows: code %d, %u corrected, %u uncorrected, pending %u, failed %u\n",
              code, rows[0], rows[1], rows[2], rows[3]);
}

void show_processes(const Functions& f, n::Device card) {
  std::vector<n::ProcessInfo> list(64);
  unsigned count = 64;
  if (const auto code = ask(f.nvmlDeviceGetComputeRunningProcesses_v3_, card, &count, list.data());
      code == n::success) {
    std::printf("  processes = %u\n", count);
    for (unsigned i = 0; i < count; ++i) {
      const auto& p = list[i];
      std::printf("    pid %u, %lld MiB, instance %d\n", p.pid,
                  p.used_gpu_memory == n::not_available_64
                      ? -1
                      : static_cast<long long>(p.used_gpu_memory >> 20),
                  static_cast<int>(p.gpu_instance_id));
      expect(p.pid > 0 && p.pid < (1u << 23), "a believable pid");
    }
  } else {
    std::printf("  processes: NVML error %d\n", code);
  }
  unsigned room = 0;
  auto code = ask(f.nvmlDeviceGetProcessUtilization_, card,
                  static_cast<n::ProcessUtilizationSample*>(nullptr), &room, 0ull);
  std::vector<n::ProcessUtilizationSample> samples(room);
  if (room)
    code = ask(f.nvmlDeviceGetProcessUtilization_, card, samples.data(), &room, 0ull);
  std::printf("  process utilisation: code %d, %u samples\n", code, room);
  for (unsigned i = 0; code == n::success && i < room && i < 4; ++i)
    std::printf("    pid %u, sm %u %%, at %llu us\n", samples[i].pid, samples[i].sm_util,
                samples[i].timestamp_us);
}

void show_activity(const Functions& f, n::Device card) {
  n::GpmSupport support{1, 0};
  const auto code = ask(f.nvmlGpmQueryDeviceSupport_, card, &support);
  std::printf("  gpm: code %d, supported %u\n", code, support.is_supported);
  expect(code != n::error_argument_version, "the version number of the GPM structure");
  n::GpmSample a = nullptr, b = nullptr;
  if (code != n::success || !support.is_supported || ask(f.nvmlGpmSampleAlloc_, &a) != n::success ||
      ask(f.nvmlGpmSampleAlloc_, &b) != n::success)
    return;
  const auto first = ask(f.nvmlGpmSampleGet_, card, a);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto second = ask(f.nvmlGpmSampleGet_, card, b);
  auto request = std::make_unique<n::GpmMetricsGet>();
  request->version = 1;
  request->sample1 = a;
  request->sample2 = b;
  constexpr unsigned wanted[] = {n::gpm_sm_util, n::gpm_dram_util, n::gpm_tensor_util,
                                 n::gpm_pcie_tx, n::gpm_pcie_rx};
  for (const unsigned id : wanted)
    request->metrics[request->metric_count++].metric_id = id;
  const auto got = ask(f.nvmlGpmMetricsGet_, request.get());
  std::printf("  gpm samples: codes %d %d %d\n", first, second, got);
  for (unsigned i = 0; got == n::success && i < request->metric_count; ++i) {
    const n::GpmMetric& metric = request->metrics[i];
    std::printf("    metric %u: code %d, %.2f %s\n", metric.metric_id, metric.result, metric.value,
                metric.info.short_name ? metric.info.short_name : "");
    if (metric.result == n::success && i < 3)
      expect(metric.value >= 0 && metric.value <= 101, "a percentage");
  }
  ask(f.nvmlGpmSampleFree_, a);
  ask(f.nvmlGpmSampleFree_, b);
}

void show_mig(const Functions& f, n::Device card) {
  unsigned current = 0, pending = 0;
  const auto mode = ask(f.nvmlDeviceGetMigMode_, card, &current, &pending);
  std::printf("  mig: code %d, mode %u\n", mode, current);
  if (mode != n::success)
    return;
  for (unsigned number = 0; number < n::gpu_profiles_max; ++number) {
    n::GpuInstanceProfile info{};
    if (ask(f.nvmlDeviceGetGpuInstanceProfileInfo_, card, number, &info) != n::success)
      continue;
    n::GpuInstanceProfileV2 named{};
    named.version = n::struct_version<n::GpuInstanceProfileV2>(2);
    const auto code = ask(f.nvmlDeviceGetGpuInstanceProfileInfoV_, card, number, &named);
    expect(code != n::error_argument_version, "the version number of the profile structure");
    unsigned count = 0;
    n::Placement places[64] = {};
    const auto sized = ask(f.nvmlDeviceGetGpuInstancePossiblePlacements_v2_, card, info.id,
                           static_cast<n::Placement*>(nullptr), &count);
    if (sized == n::success && count <= 64)
      ask(f.nvmlDeviceGetGpuInstancePossiblePlacements_v2_, card, info.id, places, &count);
    std::printf(
        "    profile %u: id %u, \"%s\", %u slices, at most %u, %llu MiB, placements(code %d)",
        number, info.id, code == n::success ? named.name : "?", info.slice_count,
        info.instance_count, info.memory_mb, sized);
    for (unsigned i = 0; i < count && i < 64; ++i)
      std::printf(" %u:%u", places[i].start, places[i].size);
    std::printf("\n");
    if (code == n::success)
      expect(named.id == info.id && named.slice_count == info.slice_count &&
                 named.memory_mb == info.memory_mb,
             "both versions of a profile agree");
  }
}

void show_events(const Functions& f, const std::vector<n::Device>& cards) {
  n::EventSet set = nullptr;
  if (const auto code = ask(f.nvmlEventSetCreate_, &set); code != n::success) {
    std::printf("events: NVML error %d\n", code);
    return;
  }
  for (const n::Device card : cards) {
    unsigned long long types = 0;
    const auto supported = ask(f.nvmlDeviceGetSupportedEventTypes_, card, &types);
    const auto registered = ask(f.nvmlDeviceRegisterEvents_, card,
                                types & (n::event_xid | n::event_double_bit_ecc), set);
    std::printf("events: codes %d %d, types 0x%llx\n", supported, registered, types);
  }
  n::EventData data{};
  const auto waited = ask(f.nvmlEventSetWait_v2_, set, &data, 100u);
  std::printf("events: waiting gives code %d (10 is none)\n", waited);
  expect(waited == n::error_timeout || waited == n::success, "waiting for events ends in time");
  ask(f.nvmlEventSetFree_, set);
}

int run(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  Functions f;
#define BILLOW_REQUIRED(name, parameters)                                            \
  if (!(f.name##_ = reinterpret_cast<decltype(f.name##_)>(dlsym(library, #name)))) { \
    std::printf("lacks %s\n", #name);                                                \
    return 2;                                                                        \
  }
#define BILLOW_OPTIONAL(name, parameters)                                          \
  if (!(f.name##_ = reinterpret_cast<decltype(f.name##_)>(dlsym(library, #name)))) \
    std::printf("lacks %s\n", #name);
  BILLOW_NVML_REQUIRED(BILLOW_REQUIRED)
  BILLOW_NVML_OPTIONAL(BILLOW_OPTIONAL)
#undef BILLOW_REQUIRED
#undef BILLOW_OPTIONAL
  std::printf("structures: %s\n", header_check::compared);
  if (const auto code = f.nvmlInit_v2_(); code != n::success) {
    std::printf("init: NVML error %d\n", code);
    return 2;
  }
  char version[n::version_bytes] = {};
  ask(f.nvmlSystemGetDriverVersion_, version, unsigned(sizeof version));
  int runtime = 0;
  ask(f.nvmlSystemGetCudaDriverVersion_v2_, &runtime);
  unsigned count = 0;
  expect(f.nvmlDeviceGetCount_v2_(&count) == n::success && count > 0, "at least one card");
  std::printf("driver %s, runtime %d, %u cards\n", version, runtime, count);
  std::vector<n::Device> cards;
  for (unsigned index = 0; index < count; ++index) {
    n::Device card = nullptr;
    if (f.nvmlDeviceGetHandleByIndex_v2_(index, &card) != n::success) {
      std::printf("card %u does not answer\n", index);
      continue;
    }
    cards.push_back(card);
    std::printf("card %u\n", index);
    show_identity(f, card);
    show_readings(f, card);
    show_processes(f, card);
    show_activity(f, card);
    show_mig(f, card);
  }
  show_events(f, cards);
  f.nvmlShutdown_();
  std::printf(failures ? "%d answers make no sense\n" : "all answers make sense\n", failures);
  return failures ? 1 : 0;
}
}  // namespace probe

int main(int argc, char** argv) {
  return probe::run(argc > 1 ? argv[1] : "libnvidia-ml.so.1");
}
