/* The simulated driver's memory: plain allocations, virtual memory management, pools, arrays,
 * copies, and process checkpoints. */
#include "shim/sim/sim.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

using namespace simcuda;

namespace simcuda {
uint64_t address_of_new(uint64_t bytes) {
  void* p = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(p);
}
namespace {
constexpr uint64_t granule = 2u << 20;
void* at(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

CUresult plain(CUdeviceptr* out, uint64_t bytes) {
  SIM_NEED_CONTEXT();
  if (!out || !bytes)
    return CUDA_INVALID_VALUE;
  LOCKED();
  if (bytes > world().memory || !take(current()->device, round_up(bytes, granule)))
    return CUDA_OUT_OF_MEMORY;
  *out = address_of_new(bytes);
  world().plain[*out] = {bytes, current()->device};
  return CUDA_OK;
}

Pool* pool_of(int device) {
  World& w = world();
  if (!w.default_pool[device])
    w.default_pool[device] = new Pool{device, false};
  return w.default_pool[device];
}
CUresult pooled(CUdeviceptr* out, uint64_t bytes, Pool* pool, CUstream stream) {
  if (!out || !bytes || !pool)
    return CUDA_INVALID_VALUE;
  LOCKED();
  Stream* s = stream_of(stream);
  if (!s)
    return CUDA_INVALID_HANDLE;
  if (s->capture) {
    Node n;
    n.memory = bytes;
    n.device = pool->device;
    s->capture->nodes.push_back(n);
    *out = address_of_new(bytes);
    return CUDA_OK;
  }
  const uint64_t used = pool->used + round_up(bytes, granule), reserved = round_up(used, 32u << 20);
  if (reserved > pool->reserved) {
    if (!pool->on_host && !take(pool->device, reserved - pool->reserved))
      return CUDA_OUT_OF_MEMORY;
    pool->reserved = reserved;
  }
  pool->used = used;
  *out = address_of_new(bytes);
  world().pooled[*out] = {bytes, pool};
  return CUDA_OK;
}
}  // namespace
}  // namespace simcuda

// ---- plain
SIM_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  SIM_ENTER(cuMemAlloc_v2);
  return plain(out, bytes);
}
SIM_EXPORT CUresult
cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned) {
  SIM_ENTER(cuMemAllocPitch_v2);
  if (!pitch || !width || !height)
    return CUDA_INVALID_VALUE;
  *pitch = round_up(width, 512);
  return plain(out, *pitch * height);
}
SIM_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned) {
  SIM_ENTER(cuMemAllocManaged);
  return plain(out, bytes);
}
SIM_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  SIM_ENTER(cuMemFree_v2);
  LOCKED();
  World& w = world();
  if (!address)
    return CUDA_OK;
  if (auto p = w.pooled.find(address); p != w.pooled.end()) {
    p->second.second->used -= round_up(p->second.first, granule);
    munmap(at(address), p->second.first);
    w.pooled.erase(p);
    return CUDA_OK;
  }
  const auto p = w.plain.find(address);
  if (p == w.plain.end())
    return CUDA_INVALID_VALUE;
  give(p->second.second, round_up(p->second.first, granule));
  munmap(at(address), p->second.first);
  w.plain.erase(p);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  SIM_ENTER(cuMemGetInfo_v2);
  SIM_NEED_CONTEXT();
  if (!free_bytes || !total)
    return CUDA_INVALID_VALUE;
  uint64_t used = 0;
  for (Process& p : world().shared->processes)
    if (p.pid && p.state != checkpointed)
      used += p.used[current()->device];
  *total = world().memory;
  *free_bytes = used < world().memory ? world().memory - used : 0;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  SIM_ENTER(cuDeviceTotalMem_v2);
  if (!bytes || device < 0 || device >= world().device_count)
    return CUDA_INVALID_VALUE;
  *bytes = world().memory;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  SIM_ENTER(cuMemGetAddressRange_v2);
  LOCKED();
  for (const auto& [start, entry] : world().plain)
    if (address - start < entry.first) {
      if (base)
        *base = start;
      if (bytes)
        *bytes = entry.first;
      return CUDA_OK;
    }
  return CUDA_NOT_FOUND;
}

// ---- virtual memory management
SIM_EXPORT CUresult
cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  SIM_ENTER(cuMemAddressReserve);
  if (!out || !bytes || bytes % granule)
    return CUDA_INVALID_VALUE;
  LOCKED();
  // Over-reserve and trim, so that addresses are aligned like the driver's.
  char* p = static_cast<char*>(mmap(nullptr, bytes + granule, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (p == MAP_FAILED)
    return CUDA_OUT_OF_MEMORY;
  const uint64_t start = round_up(reinterpret_cast<uint64_t>(p), granule);
  if (start > reinterpret_cast<uint64_t>(p))
    munmap(p, start - reinterpret_cast<uint64_t>(p));
  const uint64_t end = reinterpret_cast<uint64_t>(p) + bytes + granule;
  if (end > start + bytes)
    munmap(at(start + bytes), end - start - bytes);
  world().reserved[start] = bytes;
  *out = start;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  SIM_ENTER(cuMemAddressFree);
  LOCKED();
  const auto r = world().reserved.find(address);
  if (r == world().reserved.end() || r->second != bytes)
    return CUDA_INVALID_VALUE;
  munmap(at(address), bytes);
  world().reserved.erase(r);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemCreate(CUmemHandle* out,
                                size_t bytes,
                                const CUmemAllocationProp* prop,
                                unsigned long long) {
  SIM_ENTER(cuMemCreate);
  if (!out || !prop || !bytes || bytes % granule)
    return CUDA_INVALID_VALUE;
  LOCKED();
  World& w = world();
  const bool device = prop->location.type == LOCATION_DEVICE;
  if (device && (prop->location.id < 0 || prop->location.id >= w.device_count))
    return CUDA_INVALID_DEVICE;
  if (device && !take(prop->location.id, bytes))
    return CUDA_OUT_OF_MEMORY;
  const int fd = memfd_create("simcuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return CUDA_OUT_OF_MEMORY;
  w.physical[w.next_handle] = new Physical{fd, bytes, *prop, 1, false};
  *out = w.next_handle++;
  return CUDA_OK;
}
namespace {
CUresult unref(uint64_t handle) {
  World& w = world();
  const auto p = w.physical.find(handle);
  if (p == w.physical.end())
    return CUDA_INVALID_VALUE;
  if (--p->second->references > 0)
    return CUDA_OK;
  if (!p->second->imported && p->second->prop.location.type == LOCATION_DEVICE)
    give(p->second->prop.location.id, p->second->bytes);
  close(p->second->fd);
  delete p->second;
  w.physical.erase(p);
  return CUDA_OK;
}
}  // namespace
SIM_EXPORT CUresult cuMemRelease(CUmemHandle handle) {
  SIM_ENTER(cuMemRelease);
  LOCKED();
  return unref(handle);
}
SIM_EXPORT CUresult
cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long) {
  SIM_ENTER(cuMemMap);
  LOCKED();
  World& w = world();
  const auto p = w.physical.find(handle);
  if (p == w.physical.end() || !bytes || offset + bytes > p->second->bytes)
    return CUDA_INVALID_VALUE;
  bool inside = false;
  for (const auto& [start, size] : w.reserved)
    inside |= address >= start && address + bytes <= start + size;
  if (!inside || w.mapped.count(address))
    return CUDA_INVALID_VALUE;
  if (mmap(at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, p->second->fd,
           static_cast<off_t>(offset)) == MAP_FAILED)
    return CUDA_OUT_OF_MEMORY;
  p->second->references++;
  w.mapped[address] = {bytes, handle};
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  SIM_ENTER(cuMemUnmap);
  LOCKED();
  World& w = world();
  const uint64_t end = address + bytes;
  if (!w.mapped.count(address))
    return CUDA_INVALID_VALUE;
  for (auto m = w.mapped.find(address); m != w.mapped.end() && m->first < end;
       m = w.mapped.erase(m)) {
    mmap(at(m->first), m->second.first, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    unref(m->second.second);
  }
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemSetAccess(CUdeviceptr address,
                                   size_t bytes,
                                   const CUmemAccessDesc* access,
                                   size_t count) {
  SIM_ENTER(cuMemSetAccess);
  LOCKED();
  if (!access || !count || !bytes)
    return CUDA_INVALID_VALUE;
  for (auto m = world().mapped.find(address);
       m != world().mapped.end() && m->first < address + bytes; ++m)
    mprotect(at(m->first), m->second.first, access->flags ? PROT_READ | PROT_WRITE : PROT_NONE);
  return world().mapped.count(address) ? CUDA_OK : CUDA_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemExportToShareableHandle(void* out,
                                                 CUmemHandle handle,
                                                 int type,
                                                 unsigned long long) {
  SIM_ENTER(cuMemExportToShareableHandle);
  LOCKED();
  const auto p = world().physical.find(handle);
  if (!out || p == world().physical.end() || type != HANDLE_POSIX_FD ||
      !(p->second->prop.requestedHandleTypes & HANDLE_POSIX_FD))
    return CUDA_INVALID_VALUE;
  *static_cast<int*>(out) = dup(p->second->fd);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemImportFromShareableHandle(CUmemHandle* out, void* handle, int type) {
  SIM_ENTER(cuMemImportFromShareableHandle);
  LOCKED();
  struct stat s {};
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  if (!out || type != HANDLE_POSIX_FD || fstat(fd, &s) != 0)
    return CUDA_INVALID_VALUE;
  World& w = world();
  CUmemAllocationProp prop{};
  prop.requestedHandleTypes = HANDLE_POSIX_FD;
  w.physical[w.next_handle] =
      new Physical{dup(fd), static_cast<uint64_t>(s.st_size), prop, 1, true};
  *out = w.next_handle++;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemRetainAllocationHandle(CUmemHandle* out, void* address) {
  SIM_ENTER(cuMemRetainAllocationHandle);
  LOCKED();
  if (!out)
    return CUDA_INVALID_VALUE;
  for (const auto& [start, entry] : world().mapped)
    if (reinterpret_cast<uint64_t>(address) - start < entry.first) {
      world().physical[entry.second]->references++;
      *out = entry.second;
      return CUDA_OK;
    }
  return CUDA_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                           CUmemHandle handle) {
  SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
  LOCKED();
  const auto p = world().physical.find(handle);
  if (!prop || p == world().physical.end())
    return CUDA_INVALID_VALUE;
  *prop = p->second->prop;
  return CUDA_OK;
}

// ---- pools
SIM_EXPORT CUresult cuDeviceGetMemPool(CUmempool* out, CUdevice device) {
  if (!out || device < 0 || device >= world().device_count)
    return CUDA_INVALID_VALUE;
  LOCKED();
  *out = pool_of(device);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmempool* out, CUdevice device) {
  return cuDeviceGetMemPool(out, device);
}
SIM_EXPORT CUresult cuMemPoolCreate(CUmempool* out, const CUmemPoolProps* props) {
  SIM_ENTER(cuMemPoolCreate);
  if (!out || !props)
    return CUDA_INVALID_VALUE;
  *out = new Pool{props->location.id, props->location.type != LOCATION_DEVICE};
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemPoolDestroy(CUmempool pool) {
  SIM_ENTER(cuMemPoolDestroy);
  if (!pool)
    return CUDA_INVALID_VALUE;
  auto* p = static_cast<Pool*>(pool);
  if (!p->on_host)
    give(p->device, p->reserved);
  delete p;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  SIM_ENTER(cuMemAllocAsync);
  SIM_NEED_CONTEXT();
  return pooled(out, bytes, pool_of(current()->device), stream);
}
SIM_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  SIM_ENTER(cuMemAllocAsync_ptsz);
  SIM_NEED_CONTEXT();
  return pooled(out, bytes, pool_of(current()->device), stream);
}
SIM_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out,
                                            size_t bytes,
                                            CUmempool pool,
                                            CUstream stream) {
  SIM_ENTER(cuMemAllocFromPoolAsync);
  SIM_NEED_CONTEXT();
  return pooled(out, bytes, static_cast<Pool*>(pool), stream);
}
SIM_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out,
                                                 size_t bytes,
                                                 CUmempool pool,
                                                 CUstream stream) {
  SIM_ENTER(cuMemAllocFromPoolAsync_ptsz);
  SIM_NEED_CONTEXT();
  return pooled(out, bytes, static_cast<Pool*>(pool), stream);
}
SIM_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream) {
  SIM_ENTER(cuMemFreeAsync);
  LOCKED();
  return world().pooled.count(address) ? cuMemFree_v2(address) : CUDA_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream s) {
  SIM_ENTER(cuMemFreeAsync_ptsz);
  return cuMemFreeAsync(address, s);
}
SIM_EXPORT CUresult cuMemPoolTrimTo(CUmempool pool, size_t) {
  SIM_ENTER(cuMemPoolTrimTo);
  if (!pool)
    return CUDA_INVALID_VALUE;
  LOCKED();
  auto* p = static_cast<Pool*>(pool);
  const uint64_t keep = round_up(p->used, 32u << 20);
  if (keep < p->reserved) {
    if (!p->on_host)
      give(p->device, p->reserved - keep);
    p->reserved = keep;
  }
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemPoolGetAttribute(CUmempool pool, int attribute, void* value) {
  SIM_ENTER(cuMemPoolGetAttribute);
  if (!pool || !value)
    return CUDA_INVALID_VALUE;
  const auto* p = static_cast<Pool*>(pool);
  *static_cast<uint64_t*>(value) = attribute == POOL_RESERVED_CURRENT ? p->reserved
                                   : attribute == POOL_USED_CURRENT   ? p->used
                                                                      : 0;
  return CUDA_OK;
}

// ---- arrays
namespace {
CUresult make_array(CUarray* out, uint64_t bytes) {
  SIM_NEED_CONTEXT();
  if (!out || !bytes)
    return CUDA_INVALID_VALUE;
  LOCKED();
  if (!take(current()->device, bytes))
    return CUDA_OUT_OF_MEMORY;
  *out = malloc(16);
  world().arrays[*out] = {bytes, current()->device};
  return CUDA_OK;
}
CUresult end_array(CUarray array) {
  LOCKED();
  const auto a = world().arrays.find(array);
  if (a == world().arrays.end())
    return CUDA_INVALID_HANDLE;
  give(a->second.second, a->second.first);
  free(array);
  world().arrays.erase(a);
  return CUDA_OK;
}
}  // namespace
SIM_EXPORT CUresult cuArrayCreate_v2(CUarray* out, const CUarrayDescriptor* d) {
  SIM_ENTER(cuArrayCreate_v2);
  return d ? make_array(out, d->Width * (d->Height ? d->Height : 1) * d->NumChannels * 4)
           : CUDA_INVALID_VALUE;
}
SIM_EXPORT CUresult cuArray3DCreate_v2(CUarray* out, const CUarray3DDescriptor* d) {
  SIM_ENTER(cuArray3DCreate_v2);
  return d ? make_array(out, d->Width * (d->Height ? d->Height : 1) * (d->Depth ? d->Depth : 1) *
                                 d->NumChannels * 4)
           : CUDA_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMipmappedArrayCreate(CUarray* out, const CUarray3DDescriptor* d, unsigned) {
  SIM_ENTER(cuMipmappedArrayCreate);
  return d ? make_array(out, d->Width * (d->Height ? d->Height : 1) * d->NumChannels * 4)
           : CUDA_INVALID_VALUE;
}
SIM_EXPORT CUresult cuArrayDestroy(CUarray a) {
  SIM_ENTER(cuArrayDestroy);
  return end_array(a);
}
SIM_EXPORT CUresult cuMipmappedArrayDestroy(CUarray a) {
  SIM_ENTER(cuMipmappedArrayDestroy);
  return end_array(a);
}

// ---- copies
SIM_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  SIM_ENTER(cuMemcpyHtoD_v2);
  if (!to || !from)
    return CUDA_INVALID_VALUE;
  std::memcpy(at(to), from, bytes);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  SIM_ENTER(cuMemcpyDtoH_v2);
  if (!to || !from)
    return CUDA_INVALID_VALUE;
  std::memcpy(to, at(from), bytes);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  SIM_ENTER(cuMemcpyHtoDAsync_v2);
  if (!to || !from)
    return CUDA_INVALID_VALUE;
  std::memcpy(at(to), from, bytes);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  SIM_ENTER(cuMemcpyDtoHAsync_v2);
  if (!to || !from)
    return CUDA_INVALID_VALUE;
  std::memcpy(to, at(from), bytes);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  SIM_ENTER(cuMemcpyDtoDAsync_v2);
  if (!to || !from)
    return CUDA_INVALID_VALUE;
  std::memcpy(at(to), at(from), bytes);
  return CUDA_OK;
}
// A copy between devices takes time, BILLOW_SIM_CUDA_PEER_GB_S (300), so that bandwidth tests have
// something to measure.
SIM_EXPORT CUresult cuMemcpyPeerAsync(
    CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  SIM_ENTER(cuMemcpyPeerAsync);
  if (!to || !from)
    return CUDA_INVALID_VALUE;
  static const double bytes_per_ns = [] {
    const char* text = std::getenv("BILLOW_SIM_CUDA_PEER_GB_S");
    const double given = text ? std::atof(text) : 0;
    return given > 0 ? given : 300.0;
  }();
  std::memcpy(at(to), at(from), std::min<size_t>(bytes, 4096));  // enough to check the direction
  if (auto* s = static_cast<Stream*>(stream))
    s->done_ns = std::max<uint64_t>(s->done_ns, now_ns()) +
                 static_cast<uint64_t>(static_cast<double>(bytes) / bytes_per_ns);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  SIM_ENTER(cuDeviceCanAccessPeer);
  if (!can)
    return CUDA_INVALID_VALUE;
  *can = 1;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
  SIM_ENTER(cuMemsetD8_v2);
  if (!to)
    return CUDA_INVALID_VALUE;
  std::memset(at(to), value, bytes);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream) {
  SIM_ENTER(cuMemsetD8Async);
  if (!to)
    return CUDA_INVALID_VALUE;
  std::memset(at(to), value, bytes);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemHostRegister_v2(void* p, size_t bytes, unsigned) {
  SIM_ENTER(cuMemHostRegister_v2);
  return p && bytes ? CUDA_OK : CUDA_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  SIM_ENTER(cuMemHostAlloc);
  if (!out)
    return CUDA_INVALID_VALUE;
  *out = malloc(bytes);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuMemFreeHost(void* p) {
  SIM_ENTER(cuMemFreeHost);
  free(p);
  return CUDA_OK;
}

// ---- checkpoints of whole processes
namespace {
Process* process_of(int pid) {
  for (Process& p : world().shared->processes)
    if (p.pid == static_cast<uint32_t>(pid))
      return &p;
  return nullptr;
}
CUresult move(int pid, uint32_t from, uint32_t to) {
  if (!world().initialized)
    return CUDA_NOT_INITIALIZED;
  Process* p = process_of(pid);
  if (!p)
    return CUDA_INVALID_VALUE;
  return p->state.compare_exchange_strong(from, to) ? CUDA_OK : CUDA_ILLEGAL_STATE;
}
}  // namespace
SIM_EXPORT CUresult cuCheckpointProcessLock(int pid, void*) {
  SIM_ENTER(cuCheckpointProcessLock);
  return move(pid, running, locked);
}
SIM_EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, void*) {
  SIM_ENTER(cuCheckpointProcessCheckpoint);
  return move(pid, locked, checkpointed);
}
SIM_EXPORT CUresult cuCheckpointProcessRestore(int pid, void*) {
  SIM_ENTER(cuCheckpointProcessRestore);
  const CUresult r = move(pid, checkpointed, locked);
  if (r == CUDA_OK)
    process_of(pid)->restored = 1;
  return r;
}
SIM_EXPORT CUresult cuCheckpointProcessUnlock(int pid, void*) {
  SIM_ENTER(cuCheckpointProcessUnlock);
  return move(pid, locked, running);
}
SIM_EXPORT CUresult cuCheckpointProcessGetState(int pid, int* state) {
  SIM_ENTER(cuCheckpointProcessGetState);
  Process* p = world().initialized ? process_of(pid) : nullptr;
  if (!p || !state)
    return CUDA_INVALID_VALUE;
  *state = static_cast<int>(p->state.load());
  return CUDA_OK;
}
