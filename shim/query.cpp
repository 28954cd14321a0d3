/* Consistent answers about memory: inside a job, the driver's queries and NVML's both report the
 * slice. */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include <type_traits>

#include "shim/internal.h"

using namespace shim;

namespace {
bool is_ours(const Region& r) {
  return r.kind == Region::backed || r.kind == Region::slab_part || r.kind == Region::imported;
}
template <class Size>
CUresult memory_info(Size* free_bytes, Size* total_bytes, CUresult r) {
  CUdevice device;
  int index;
  if (r != CUDA_OK || !pages.slot || !current_device(&device, &index))
    return r;
  const uint64_t limit = limit_of(index);
  if (!limit)
    return r;
  reconcile_pools();
  const uint64_t used = used_by_job(index), left = used < limit ? limit - used : 0;
  if (free_bytes && left < *free_bytes)
    *free_bytes = static_cast<Size>(left);
  if (total_bytes && limit < *total_bytes)
    *total_bytes = static_cast<Size>(limit);
  return r;
}
}  // namespace

EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  return memory_info(free_bytes, total_bytes, REAL(cuMemGetInfo_v2, free_bytes, total_bytes));
}
EXPORT CUresult cuMemGetInfo(unsigned* free_bytes, unsigned* total_bytes) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  return memory_info(free_bytes, total_bytes, REAL(cuMemGetInfo, free_bytes, total_bytes));
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const CUresult r = REAL(cuDeviceTotalMem_v2, bytes, device);
  const uint64_t limit = limit_of(device_index(device));
  if (r == CUDA_OK && bytes && limit && limit < *bytes)
    *bytes = limit;
  return r;
}
EXPORT CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device) {
  const CUresult r = REAL(cuDeviceTotalMem, bytes, device);
  const uint64_t limit = limit_of(device_index(device));
  if (r == CUDA_OK && bytes && limit && limit < *bytes)
    *bytes = static_cast<unsigned>(limit);
  return r;
}

// A small allocation shares its 2 MiB with others, and a large one consists of pieces: the driver
// would report those.
EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  if (pages.slot) {
    Guard guard(&memory_lock);
    const Region* r = regions.containing(address);
    if (r && is_ours(*r)) {
      if (base)
        *base = r->base;
      if (bytes)
        *bytes = r->bytes;
      return CUDA_OK;
    }
  }
  return REAL(cuMemGetAddressRange_v2, base, bytes, address);
}
EXPORT CUresult cuMemGetAddressRange(unsigned* base, unsigned* bytes, unsigned address) {
  return REAL(cuMemGetAddressRange, base, bytes, address);
}

namespace {
bool range_attribute(void* data, int attribute, CUdeviceptr address) {
  if ((attribute != POINTER_RANGE_START && attribute != POINTER_RANGE_SIZE) || !data || !pages.slot)
    return false;
  Guard guard(&memory_lock);
  const Region* r = regions.containing(address);
  if (!r || !is_ours(*r))
    return false;
  if (attribute == POINTER_RANGE_START)
    *static_cast<CUdeviceptr*>(data) = r->base;
  else
    *static_cast<size_t*>(data) = r->bytes;
  return true;
}
}  // namespace

namespace {
// Whether cuIpcGetMemHandle works on it: ours does. The driver has written "no" in its own width.
void ipc_attribute(void* data, int attribute, CUdeviceptr address) {
  if (attribute != POINTER_IPC_CAPABLE || !data || !pages.slot)
    return;
  Guard guard(&memory_lock);
  const Region* r = regions.containing(address);
  if (r && (r->kind == Region::backed || r->kind == Region::slab_part))
    *static_cast<unsigned char*>(data) = 1;
}
}  // namespace

EXPORT CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  if (range_attribute(data, attribute, address))
    return CUDA_OK;
  const CUresult r = REAL(cuPointerGetAttribute, data, attribute, address);
  if (r == CUDA_OK)
    ipc_attribute(data, attribute, address);
  return r;
}
EXPORT CUresult cuPointerGetAttributes(unsigned count,
                                       const int* attributes,
                                       void** data,
                                       CUdeviceptr address) {
  const CUresult r = REAL(cuPointerGetAttributes, count, attributes, data, address);
  if (r == CUDA_OK && attributes && data)
    for (unsigned i = 0; i < count && i < 256; i++)
      if (!range_attribute(data[i], attributes[i], address))  // there are some twenty
        ipc_attribute(data[i], attributes[i], address);
  return r;
}

// ---- NVML: found by dlsym only, as every user of it does
namespace {
struct MemoryV1 {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessV1 {
  unsigned pid;
  unsigned long long used;
};
struct ProcessV2 {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

int (*real_memory)(void*, MemoryV1*);
int (*real_memory_v2)(void*, MemoryV2*);
int (*real_processes)(void*, unsigned*, ProcessV1*);
int (*real_processes_v2)(void*, unsigned*, ProcessV2*);
int (*real_processes_v3)(void*, unsigned*, ProcessV2*);

int hex(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// The index in the limit page of an NVML device: by its UUID ("GPU-8a3c…"), or by number if limits
// have no UUID.
int place_of(void* device) {
  if (!join_pages() || !pages.limit)
    return -1;
  static void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library)
    return -1;
  static auto get_uuid =
      reinterpret_cast<int (*)(void*, char*, unsigned)>(real_dlsym(library, "nvmlDeviceGetUUID"));
  static auto get_index =
      reinterpret_cast<int (*)(void*, unsigned*)>(real_dlsym(library, "nvmlDeviceGetIndex"));
  char text[96] = {};
  uint8_t uuid[16] = {};
  if (get_uuid && get_uuid(device, text, sizeof text) == 0) {
    int digits = 0;
    for (const char* c = text + (strncmp(text, "GPU-", 4) ? 0 : 4); *c && digits < 32; c++) {
      if (hex(*c) < 0)
        continue;
      uuid[digits / 2] = static_cast<uint8_t>(uuid[digits / 2] << 4 | hex(*c));
      digits++;
    }
  }
  unsigned index = 0;
  if (get_index)
    get_index(device, &index);
  static const uint8_t unnamed[16] = {};
  for (uint32_t i = 0; i < pages.limit->device_count && i < BILLOW_DEVICES_MAX; i++) {
    const uint8_t* name = pages.limit->devices[i].uuid;
    if (memcmp(name, unnamed, 16) ? !memcmp(name, uuid, 16) : i == index)
      return static_cast<int>(i);
  }
  return -1;
}

template <class Memory>
void show_slice(void* device, Memory* memory) {
  const int place = place_of(device);
  const uint64_t limit = limit_of(place);
  if (!limit || limit >= memory->total)
    return;
  const uint64_t used = used_by_job(place);
  memory->total = limit;
  memory->used = used < limit ? used : limit;
  memory->free = limit - memory->used;
}
int memory_hook(void* device, MemoryV1* memory) {
  const int r = real_memory(device, memory);
  if (r == 0 && memory)
    show_slice(device, memory);
  return r;
}
int memory_v2_hook(void* device, MemoryV2* memory) {
  const int r = real_memory_v2(device, memory);
  if (r == 0 && memory) {
    show_slice(device, memory);
    if (limit_of(place_of(device)))
      memory->reserved = 0;
  }
  return r;
}

template <class Process>
int own_processes(int (*real)(void*, unsigned*, Process*),
                  void* device,
                  unsigned* count,
                  Process* list) {
  const int r = real(device, count, list);
  if (r != 0 || !count || !list || limit_of(place_of(device)) == 0)
    return r;
  unsigned kept = 0;
  for (unsigned i = 0; i < *count; i++)
    for (const auto& slot : pages.usage->slots)
      if (slot.pid && slot.pid == list[i].pid) {
        list[kept++] = list[i];
        break;
      }
  *count = kept;
  return r;
}
int processes_hook(void* d, unsigned* c, ProcessV1* l) {
  return own_processes(real_processes, d, c, l);
}
int processes_v2_hook(void* d, unsigned* c, ProcessV2* l) {
  return own_processes(real_processes_v2, d, c, l);
}
int processes_v3_hook(void* d, unsigned* c, ProcessV2* l) {
  return own_processes(real_processes_v3, d, c, l);
}
}  // namespace

namespace shim {
AnyFunction nvml_hook(const char* name, void* real) {
  const auto ours = [&](auto*& slot, auto* hook) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(real);
    return reinterpret_cast<AnyFunction>(hook);
  };
  if (!strcmp(name, "nvmlDeviceGetMemoryInfo"))
    return ours(real_memory, memory_hook);
  if (!strcmp(name, "nvmlDeviceGetMemoryInfo_v2"))
    return ours(real_memory_v2, memory_v2_hook);
  if (!strcmp(name, "nvmlDeviceGetComputeRunningProcesses"))
    return ours(real_processes, processes_hook);
  if (!strcmp(name, "nvmlDeviceGetComputeRunningProcesses_v2"))
    return ours(real_processes_v2, processes_v2_hook);
  if (!strcmp(name, "nvmlDeviceGetComputeRunningProcesses_v3"))
    return ours(real_processes_v3, processes_v3_hook);
  return nullptr;
}
}  // namespace shim
