// The part of NVML's binary interface that Billow uses, declared here because Debian ships no NVML
// header and because the library is loaded at run time. The binding (nvml_library.cpp) and the
// simulated library (sim/) both include this file, so the compiler checks them against each other,
// and the sizes below check both against the real library.
//
// Versioned structs carry `sizeof | version << 24` in their first member, so a size that is off by
// one byte is an error at run time and a static_assert here. Handles are opaque pointers.
#pragma once

#include <cstddef>

namespace billow::nvml {

using Return = int;
inline constexpr Return success = 0;
inline constexpr Return error_uninitialized = 1;
inline constexpr Return error_invalid_argument = 2;
inline constexpr Return error_not_supported = 3;
inline constexpr Return error_no_permission = 4;
inline constexpr Return error_not_found = 6;
inline constexpr Return error_insufficient_size = 7;
inline constexpr Return error_driver_not_loaded = 9;
inline constexpr Return error_timeout = 10;
inline constexpr Return error_function_not_found = 13;
inline constexpr Return error_gpu_is_lost = 15;
inline constexpr Return error_reset_required = 16;
inline constexpr Return error_version_mismatch_driver = 18;
inline constexpr Return error_in_use = 19;
inline constexpr Return error_no_data = 21;
inline constexpr Return error_insufficient_resources = 23;
inline constexpr Return error_argument_version = 25;
inline constexpr Return error_unknown = 999;

struct DeviceObject;
struct GpuInstanceObject;
struct ComputeInstanceObject;
struct EventSetObject;
struct GpmSampleObject;
using Device = DeviceObject*;
using GpuInstance = GpuInstanceObject*;
using ComputeInstance = ComputeInstanceObject*;
using EventSet = EventSetObject*;
using GpmSample = GpmSampleObject*;

inline constexpr unsigned not_available = 0xFFFFFFFFu;
inline constexpr unsigned long long not_available_64 = ~0ull;
inline constexpr unsigned name_bytes = 96;
inline constexpr unsigned uuid_bytes = 96;
inline constexpr unsigned version_bytes = 80;
inline constexpr unsigned nvlinks_max =
    18;  // a GPU's links; the constant of newer headers counts switches too
// GPU instance profiles are queried by numbers below this.
inline constexpr unsigned gpu_profiles_max = 0x12;
inline constexpr unsigned compute_profiles_max = 0x8;  // likewise compute instance profiles
inline constexpr unsigned gpm_metrics_max =
    512;  // more than any header's NVML_GPM_METRIC_MAX (98, 210, 333): only numMetrics are read

enum : unsigned { temperature_gpu = 0 };
enum : unsigned { clock_sm = 1, clock_mem = 2 };
enum : unsigned { pcie_tx = 0, pcie_rx = 1 };
enum : unsigned { ecc_corrected = 0, ecc_uncorrected = 1 };
enum : unsigned { ecc_volatile = 0, ecc_aggregate = 1 };
enum : unsigned {
  topology_internal = 0,
  topology_single = 10,
  topology_multiple = 20,
  topology_hostbridge = 30,
  topology_node = 40,
  topology_system = 50
};
enum : unsigned { p2p_read = 0, p2p_nvlink = 2 };
enum : unsigned { p2p_ok = 0, p2p_not_supported = 5 };
enum : unsigned { nvlink_to_gpu = 0, nvlink_to_switch = 2, nvlink_to_unknown = 0xFF };
enum : unsigned long long {
  event_single_bit_ecc = 0x1,
  event_double_bit_ecc = 0x2,
  event_xid = 0x8,
  event_gpu_unavailable = 0x4000
};
enum : unsigned {
  gpm_graphics_util = 1,
  gpm_sm_util = 2,
  gpm_tensor_util = 5,
  gpm_dram_util = 10,
  gpm_pcie_tx = 20,
  gpm_pcie_rx = 21,
  gpm_nvlink_rx = 60,
  gpm_nvlink_tx = 61
};
// Why a card reduces its clocks; the thermal reasons mean that it is too hot.
enum : unsigned long long { slow_hardware_thermal = 0x40, slow_software_thermal = 0x20 };
enum : unsigned { nvlink_error_counters = 4 };  // replay, recovery, CRC of flits, CRC of data

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
// One of many fields; the value's type is the library's, of which temperatures are unsigned.
enum : unsigned { field_memory_temperature = 82 };
struct FieldValue {
  unsigned field_id, scope_id;
  long long timestamp, latency_us;
  unsigned value_type;
  Return result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_long;
  } value;
};
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used_gpu_memory;
};
struct ProcessInfo {  // the _v2 and _v3 calls
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance_id, compute_instance_id;
};
struct ProcessUtilizationSample {
  unsigned pid;
  unsigned long long timestamp_us;
  unsigned sm_util, mem_util, enc_util, dec_util;
};
struct EventData {
  Device device;
  unsigned long long event_type, event_data;
  unsigned gpu_instance_id, compute_instance_id;
};
struct GpmSupport {
  unsigned version, is_supported;
};
struct GpmMetric {
  unsigned metric_id;
  Return result;
  double value;
  struct {
    char *short_name, *long_name, *unit;
  } info;
};
struct GpmMetricsGet {
  unsigned version, metric_count;
  GpmSample sample1, sample2;
  GpmMetric metrics[gpm_metrics_max];
};
struct Placement {
  unsigned start, size;
};
struct GpuInstanceProfile {
  unsigned id, is_p2p_supported, slice_count, instance_count, multiprocessor_count;
  unsigned copy_engines, decoders, encoders, jpegs, ofas;
  unsigned long long memory_mb;
};
struct GpuInstanceProfileV2 {
  unsigned version, id, is_p2p_supported, slice_count, instance_count, multiprocessor_count;
  unsigned copy_engines, decoders, encoders, jpegs, ofas;
  unsigned long long memory_mb;
  char name[name_bytes];
};
struct GpuInstanceInfo {
  Device device;
  unsigned id, profile_id;
  Placement placement;
};
struct ComputeInstanceProfile {
  unsigned id, slice_count, instance_count, multiprocessor_count;
  unsigned shared_copy_engines, shared_decoders, shared_encoders, shared_jpegs, shared_ofas;
};
struct ComputeInstanceInfo {
  Device device;
  GpuInstance gpu_instance;
  unsigned id, profile_id;
  Placement placement;
};
struct DeviceAttributes {
  unsigned multiprocessor_count, shared_copy_engines, shared_decoders, shared_encoders,
      shared_jpegs, shared_ofas;
  unsigned gpu_instance_slices, compute_instance_slices;
  unsigned long long memory_mb;
};

// The sizes on every 64-bit Linux.
static_assert(sizeof(void*) == 8, "NVML exists for 64-bit systems");
static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40);
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);
static_assert(sizeof(ProcessInfoV1) == 16 && sizeof(ProcessInfo) == 24 &&
              sizeof(ProcessUtilizationSample) == 32);
static_assert(sizeof(EventData) == 32 && sizeof(GpmMetric) == 40 &&
              offsetof(GpmMetricsGet, metrics) == 24);
static_assert(sizeof(GpuInstanceProfile) == 48 && sizeof(GpuInstanceProfileV2) == 152);
static_assert(sizeof(GpuInstanceInfo) == 24 && sizeof(ComputeInstanceProfile) == 36 &&
              sizeof(ComputeInstanceInfo) == 32);
static_assert(sizeof(DeviceAttributes) == 40);
static_assert(sizeof(FieldValue) == 40);

template <class T>
constexpr unsigned struct_version(unsigned version) {
  return static_cast<unsigned>(sizeof(T)) | version << 24;
}

}  // namespace billow::nvml

// Every function used: X(symbol, parameters). The first group exists in every NVML of the last ten
// years, and nothing works without it; the rest is optional, and `doctor` reports what is missing.
// clang-format off
#define BILLOW_NVML_REQUIRED(X) \
  X(nvmlInit_v2, (void)) \
  X(nvmlShutdown, (void)) \
  X(nvmlDeviceGetCount_v2, (unsigned* count)) \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned index, billow::nvml::Device* device)) \
  X(nvmlDeviceGetName, (billow::nvml::Device device, char* name, unsigned length)) \
  X(nvmlDeviceGetUUID, (billow::nvml::Device device, char* uuid, unsigned length)) \
  X(nvmlDeviceGetMemoryInfo, (billow::nvml::Device device, billow::nvml::Memory* memory))

#define BILLOW_NVML_OPTIONAL(X) \
  X(nvmlSystemGetDriverVersion, (char* version, unsigned length)) \
  X(nvmlSystemGetCudaDriverVersion_v2, (int* version)) \
  X(nvmlDeviceGetMemoryInfo_v2, (billow::nvml::Device device, billow::nvml::MemoryV2* memory)) \
  X(nvmlDeviceGetPciInfo_v3, (billow::nvml::Device device, billow::nvml::PciInfo* pci)) \
  X(nvmlDeviceGetMinorNumber, (billow::nvml::Device device, unsigned* minor)) \
  X(nvmlDeviceGetNumaNodeId, (billow::nvml::Device device, unsigned* node)) \
  X(nvmlDeviceGetCudaComputeCapability, (billow::nvml::Device device, int* major, int* minor)) \
  X(nvmlDeviceGetUtilizationRates, \
    (billow::nvml::Device device, billow::nvml::Utilization* utilization)) \
  X(nvmlDeviceGetPowerUsage, (billow::nvml::Device device, unsigned* milliwatts)) \
  X(nvmlDeviceGetEnforcedPowerLimit, (billow::nvml::Device device, unsigned* milliwatts)) \
  X(nvmlDeviceGetTotalEnergyConsumption, \
    (billow::nvml::Device device, unsigned long long* millijoules)) \
  X(nvmlDeviceGetTemperature, (billow::nvml::Device device, unsigned sensor, unsigned* celsius)) \
  X(nvmlDeviceGetClockInfo, (billow::nvml::Device device, unsigned clock, unsigned* mhz)) \
  X(nvmlDeviceGetEncoderUtilization, \
    (billow::nvml::Device device, unsigned* percent, unsigned* period_us)) \
  X(nvmlDeviceGetDecoderUtilization, \
    (billow::nvml::Device device, unsigned* percent, unsigned* period_us)) \
  X(nvmlDeviceGetPcieReplayCounter, (billow::nvml::Device device, unsigned* count)) \
  X(nvmlDeviceGetFieldValues, \
    (billow::nvml::Device device, int count, billow::nvml::FieldValue* values)) \
  X(nvmlDeviceGetPcieThroughput, (billow::nvml::Device device, unsigned counter, unsigned* kib_s)) \
  X(nvmlDeviceGetTotalEccErrors, \
    (billow::nvml::Device device, unsigned error, unsigned counter, unsigned long long* count)) \
  X(nvmlDeviceGetRemappedRows, \
    (billow::nvml::Device device, unsigned* corrected, unsigned* uncorrected, \
     unsigned* pending, unsigned* failed)) \
  X(nvmlDeviceGetTopologyCommonAncestor, \
    (billow::nvml::Device a, billow::nvml::Device b, unsigned* level)) \
  X(nvmlDeviceGetP2PStatus, \
    (billow::nvml::Device a, billow::nvml::Device b, unsigned capability, unsigned* status)) \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, \
    (billow::nvml::Device device, unsigned long long* reasons)) \
  X(nvmlDeviceGetNvLinkErrorCounter, \
    (billow::nvml::Device device, unsigned link, unsigned counter, unsigned long long* value)) \
  X(nvmlDeviceGetNvLinkState, (billow::nvml::Device device, unsigned link, unsigned* active)) \
  X(nvmlDeviceGetNvLinkRemoteDeviceType, \
    (billow::nvml::Device device, unsigned link, unsigned* type)) \
  X(nvmlDeviceGetNvLinkRemotePciInfo_v2, \
    (billow::nvml::Device device, unsigned link, billow::nvml::PciInfo* pci)) \
  X(nvmlDeviceGetComputeRunningProcesses_v3, \
    (billow::nvml::Device device, unsigned* count, billow::nvml::ProcessInfo* infos)) \
  X(nvmlDeviceGetComputeRunningProcesses_v2, \
    (billow::nvml::Device device, unsigned* count, billow::nvml::ProcessInfo* infos)) \
  X(nvmlDeviceGetComputeRunningProcesses, \
    (billow::nvml::Device device, unsigned* count, billow::nvml::ProcessInfoV1* infos)) \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3, \
    (billow::nvml::Device device, unsigned* count, billow::nvml::ProcessInfo* infos)) \
  X(nvmlDeviceGetProcessUtilization, \
    (billow::nvml::Device device, billow::nvml::ProcessUtilizationSample* samples, \
     unsigned* count, unsigned long long last_seen_us)) \
  X(nvmlEventSetCreate, (billow::nvml::EventSet* set)) \
  X(nvmlEventSetFree, (billow::nvml::EventSet set)) \
  X(nvmlEventSetWait_v2, \
    (billow::nvml::EventSet set, billow::nvml::EventData* data, unsigned timeout_ms)) \
  X(nvmlDeviceGetSupportedEventTypes, (billow::nvml::Device device, unsigned long long* types)) \
  X(nvmlDeviceRegisterEvents, \
    (billow::nvml::Device device, unsigned long long types, billow::nvml::EventSet set)) \
  X(nvmlGpmQueryDeviceSupport, (billow::nvml::Device device, billow::nvml::GpmSupport* support)) \
  X(nvmlGpmSampleAlloc, (billow::nvml::GpmSample* sample)) \
  X(nvmlGpmSampleFree, (billow::nvml::GpmSample sample)) \
  X(nvmlGpmSampleGet, (billow::nvml::Device device, billow::nvml::GpmSample sample)) \
  X(nvmlGpmMetricsGet, (billow::nvml::GpmMetricsGet* request)) \
  X(nvmlDeviceGetMigMode, (billow::nvml::Device device, unsigned* current, unsigned* pending)) \
  X(nvmlDeviceGetMaxMigDeviceCount, (billow::nvml::Device device, unsigned* count)) \
  X(nvmlDeviceGetMigDeviceHandleByIndex, \
    (billow::nvml::Device device, unsigned index, billow::nvml::Device* mig)) \
  X(nvmlDeviceGetGpuInstanceId, (billow::nvml::Device mig, unsigned* id)) \
  X(nvmlDeviceGetComputeInstanceId, (billow::nvml::Device mig, unsigned* id)) \
  X(nvmlDeviceGetAttributes_v2, \
    (billow::nvml::Device mig, billow::nvml::DeviceAttributes* attributes)) \
  X(nvmlDeviceGetGpuInstanceProfileInfo, \
    (billow::nvml::Device device, unsigned profile, billow::nvml::GpuInstanceProfile* info)) \
  X(nvmlDeviceGetGpuInstanceProfileInfoV, \
    (billow::nvml::Device device, unsigned profile, billow::nvml::GpuInstanceProfileV2* info)) \
  X(nvmlDeviceGetGpuInstancePossiblePlacements_v2, \
    (billow::nvml::Device device, unsigned profile_id, billow::nvml::Placement* placements, \
     unsigned* count)) \
  X(nvmlDeviceGetGpuInstanceRemainingCapacity, \
    (billow::nvml::Device device, unsigned profile_id, unsigned* count)) \
  X(nvmlDeviceGetGpuInstances, \
    (billow::nvml::Device device, unsigned profile_id, billow::nvml::GpuInstance* instances, \
     unsigned* count)) \
  X(nvmlDeviceGetGpuInstanceById, \
    (billow::nvml::Device device, unsigned id, billow::nvml::GpuInstance* instance)) \
  X(nvmlDeviceCreateGpuInstance, \
    (billow::nvml::Device device, unsigned profile_id, billow::nvml::GpuInstance* instance)) \
  X(nvmlDeviceCreateGpuInstanceWithPlacement, \
    (billow::nvml::Device device, unsigned profile_id, \
     const billow::nvml::Placement* placement, billow::nvml::GpuInstance* instance)) \
  X(nvmlGpuInstanceDestroy, (billow::nvml::GpuInstance instance)) \
  X(nvmlGpuInstanceGetInfo, \
    (billow::nvml::GpuInstance instance, billow::nvml::GpuInstanceInfo* info)) \
  X(nvmlGpuInstanceGetComputeInstanceProfileInfo, \
    (billow::nvml::GpuInstance instance, unsigned profile, unsigned engine_profile, \
     billow::nvml::ComputeInstanceProfile* info)) \
  X(nvmlGpuInstanceGetComputeInstances, \
    (billow::nvml::GpuInstance instance, unsigned profile_id, \
     billow::nvml::ComputeInstance* instances, unsigned* count)) \
  X(nvmlGpuInstanceCreateComputeInstance, \
    (billow::nvml::GpuInstance instance, unsigned profile_id, \
     billow::nvml::ComputeInstance* compute)) \
  X(nvmlComputeInstanceDestroy, (billow::nvml::ComputeInstance compute)) \
  X(nvmlComputeInstanceGetInfo_v2, \
    (billow::nvml::ComputeInstance compute, billow::nvml::ComputeInstanceInfo* info))

// Only the simulated library has these: its configuration, why it refused, and which vendor it
// simulates. They return success or an NVML error like the rest.
#define BILLOW_NVML_SIMULATED(X) \
  X(billowSimConfigure, (const char* spec, const char* state_dir)) \
  X(billowSimLastError, (char* text, unsigned length)) \
  X(billowSimDeviceVendor, (billow::nvml::Device device, unsigned* vendor))
// clang-format on
