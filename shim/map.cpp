/* The program's own virtual memory management. In a suspendable job we return our own
 * handles, because the driver's change when memory is saved and restored. Other handles are passed
 * to the driver unchanged. */
#include <string.h>

#include "shim/internal.h"

using namespace shim;

namespace {
// Our handles carry a mark in the upper half that the driver's pointers and counters never have.
constexpr uint64_t mark = 0xb110ull << 48;
CUmemHandle give(uint32_t id) {
  return mark | id;
}
bool ours(CUmemHandle handle, uint32_t* id) {
  if ((handle & (0xffffull << 48)) != mark)
    return false;
  *id = static_cast<uint32_t>(handle);
  return chunk_at(*id) != nullptr && !chunk_at(*id)->own;
}
}  // namespace

EXPORT CUresult cuMemCreate(CUmemHandle* out,
                            size_t bytes,
                            const CUmemAllocationProp* prop,
                            unsigned long long flags) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const int index = pages.slot && prop && prop->location.type == LOCATION_DEVICE
                        ? device_index(prop->location.id)
                        : -1;
  if (!out || index < 0)
    return REAL(cuMemCreate, out, bytes, prop, flags);
  if (!reserve(index, bytes)) {
    trim_caches(index);
    if (!reserve(index, bytes))
      return CUDA_OUT_OF_MEMORY;
  }
  Guard guard(&memory_lock);
  if (suspendable() && flags == 0) {
    uint32_t id = 0;
    const CUresult r = chunk_create(prop, bytes, index, false, &id);
    if (r != CUDA_OK)
      unreserve(index, bytes);
    else
      *out = give(id);
    return r;
  }
  const CUresult r = REAL(cuMemCreate, out, bytes, prop, flags);
  if (r != CUDA_OK) {
    unreserve(index, bytes);
    return r;
  }
  Region region{};
  region.base = *out;
  region.bytes = 1;
  region.kind = Region::plain;
  region.device = index;
  region.charged = bytes;
  regions.insert(region);
  add_residue(static_cast<int64_t>(bytes));
  return r;
}

EXPORT CUresult cuMemRelease(CUmemHandle handle) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&memory_lock);
  uint32_t id;
  if (ours(handle, &id))
    return chunk_unref(id);
  const CUresult r = REAL(cuMemRelease, handle);
  Region region;
  // The driver keeps the memory until its last mapping is gone; the charge ends with the handle,
  // and the watchdog sees the rest.
  if (r == CUDA_OK && regions.remove(handle, &region)) {
    unreserve(region.device, region.charged);
    add_residue(-static_cast<int64_t>(region.charged));
  }
  return r;
}

EXPORT CUresult cuMemMap(CUdeviceptr address,
                         size_t bytes,
                         size_t offset,
                         CUmemHandle handle,
                         unsigned long long flags) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&memory_lock);
  uint32_t id;
  if (ours(handle, &id) && flags == 0)
    return chunk_map(id, address, bytes, offset);
  const CUresult r = REAL(cuMemMap, address, bytes, offset, handle, flags);
  CUmemAllocationProp prop{};
  if (r == CUDA_OK && pages.slot &&
      REAL(cuMemGetAllocationPropertiesFromHandle, &prop, handle) == CUDA_OK &&
      prop.location.type >= LOCATION_HOST)
    uses(BILLOW_USES_HOST_MAPPED);
  return r;
}
EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&memory_lock);
  return pages.slot ? chunk_unmap(address, bytes) : REAL(cuMemUnmap, address, bytes);
}
EXPORT CUresult cuMemSetAccess(CUdeviceptr address,
                               size_t bytes,
                               const CUmemAccessDesc* access,
                               size_t count) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&memory_lock);
  return pages.slot && access ? chunk_access(address, bytes, access, count)
                              : REAL(cuMemSetAccess, address, bytes, access, count);
}
EXPORT CUresult cuMemAddressReserve(
    CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
  Entry entry(false);
  return entry.error() ? entry.error()
                       : REAL(cuMemAddressReserve, out, bytes, alignment, wish, flags);
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Entry entry(false);
  return entry.error() ? entry.error() : REAL(cuMemAddressFree, address, bytes);
}
EXPORT CUresult cuMemRetainAllocationHandle(CUmemHandle* out, void* address) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&memory_lock);
  uint32_t id;
  if (out && pages.slot && chunk_of_address(reinterpret_cast<uint64_t>(address), &id)) {
    chunk_at(id)->references++;
    *out = give(id);
    return CUDA_OK;
  }
  // Our allocation has a handle behind it, but the program asked for plain memory and must not find
  // one.
  const Region* region = regions.containing(reinterpret_cast<uint64_t>(address));
  if (region && (region->kind == Region::backed || region->kind == Region::slab_part))
    return CUDA_INVALID_VALUE;
  return REAL(cuMemRetainAllocationHandle, out, address);
}
EXPORT CUresult cuMemExportToShareableHandle(void* out,
                                             CUmemHandle handle,
                                             int type,
                                             unsigned long long flags) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&memory_lock);
  uint32_t id;
  if (!ours(handle, &id))
    return REAL(cuMemExportToShareableHandle, out, handle, type, flags);
  if (!out || !(chunk_at(id)->asked_handle_types & type))
    return CUDA_INVALID_VALUE;
  if (type == HANDLE_POSIX_FD && !chunk_at(id)->foreign) {
    uses(BILLOW_USES_SHARED);
    const int fd = chunk_name(id);
    *static_cast<int*>(out) = fd;
    return fd >= 0 ? CUDA_OK : CUDA_OUT_OF_MEMORY;
  }
  uses(BILLOW_USES_IPC);
  return REAL(cuMemExportToShareableHandle, out, chunk_at(id)->handle, type, flags);
}
EXPORT CUresult cuMemImportFromShareableHandle(CUmemHandle* out, void* handle, int type) {
  uint32_t id;
  CUresult r;
  if (out && pages.slot && type == HANDLE_POSIX_FD &&
      import_name(static_cast<int>(reinterpret_cast<intptr_t>(handle)), &id, &r)) {
    if (r == CUDA_OK)
      *out = give(id);
    return r;
  }
  Entry entry(false);
  if (entry.error())
    return entry.error();
  r = REAL(cuMemImportFromShareableHandle, out, handle, type);
  if (r == CUDA_OK)
    uses(BILLOW_USES_IPC);
  return r;
}
EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                       CUmemHandle handle) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&memory_lock);
  uint32_t id;
  if (!ours(handle, &id))
    return REAL(cuMemGetAllocationPropertiesFromHandle, prop, handle);
  const CUresult r = REAL(cuMemGetAllocationPropertiesFromHandle, prop, chunk_at(id)->handle);
  if (r == CUDA_OK && prop)
    prop->requestedHandleTypes = chunk_at(id)->asked_handle_types;
  return r;
}
EXPORT CUresult cuMulticastBindMem(CUmemHandle multicast,
                                   size_t offset,
                                   CUmemHandle handle,
                                   size_t at,
                                   size_t bytes,
                                   unsigned long long flags) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  uses(BILLOW_USES_MULTICAST);
  Guard guard(&memory_lock);
  uint32_t id;
  return REAL(cuMulticastBindMem, multicast, offset,
              ours(handle, &id) ? chunk_at(id)->handle : handle, at, bytes, flags);
}
