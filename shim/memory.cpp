/* Plain device allocations. In a suspendable job they are backed by chunks (see chunks.cpp): large
 * ones of up to 256 MiB each, small ones share 2 MiB slabs in units of 512 bytes. In other jobs
 * they remain driver allocations and are only counted.
 *
 * The job is charged what the device really holds: chunk sizes, and for driver allocations their
 * size rounded up to 2 MiB. Order: reserve, allocate, and roll back on failure; the program sees
 * only CUDA's usual out-of-memory error. */
#include <stdlib.h>
#include <string.h>

#include "shim/internal.h"

namespace shim {

pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
RegionTable regions;

namespace {

constexpr uint64_t granule = 2u << 20;
constexpr uint64_t chunk_bytes_max = 256u << 20;
constexpr uint64_t small_max = 1u << 20;
constexpr uint64_t unit = 512;
constexpr uint32_t units = granule / unit;

struct Slab {
  uint64_t base;
  uint32_t chunk;
  uint32_t used_units;
  uint32_t next;  // where the search for free units continues
  CUcontext context;
  int device;
  bool alive;
  uint64_t taken[units / 64];
};
Slab* slabs;
uint32_t slab_count, slab_capacity;

uint64_t round_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

// ---- large
CUresult back(
    uint64_t base, uint64_t bytes, CUdevice device, int index, uint32_t* ids, uint32_t* made) {
  CUmemAllocationProp prop{};
  prop.type = ALLOCATION_PINNED;
  prop.location = {LOCATION_DEVICE, device};
  static int rdma = -1;
  if (rdma < 0)
    REAL(cuDeviceGetAttribute, &rdma, static_cast<int>(ATTRIBUTE_RDMA_WITH_VMM), device);
  prop.allocFlags.gpuDirectRDMACapable = rdma > 0;
  CUmemAccessDesc access[BILLOW_DEVICES_MAX];
  uint32_t access_count = 0;
  chunk_peers(device, access, &access_count);
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t part = bytes - at < chunk_bytes_max ? bytes - at : chunk_bytes_max;
    uint32_t id = 0;
    CUresult r = chunk_create(&prop, part, index, true, &id);
    if (r != CUDA_OK)
      return r;
    ids[(*made)++] = id;
    r = chunk_map(id, base + at, part, 0);
    if (r == CUDA_OK)
      r = chunk_access_own(id, access, access_count);
    if (r != CUDA_OK)
      return r;
    at += part;
  }
  return CUDA_OK;
}

// Memory of `bytes` (whole granules) at a fresh address; already reserved in the account.
// chunk_drop returns the charge, so on failure only the part not yet created is unreserved here.
CUresult back_fresh(uint64_t bytes,
                    CUdevice device,
                    int index,
                    uint64_t* base,
                    uint32_t** ids,
                    uint32_t* id_count) {
  const uint32_t parts = static_cast<uint32_t>(round_up(bytes, chunk_bytes_max) / chunk_bytes_max);
  *ids = static_cast<uint32_t*>(malloc(parts * sizeof(uint32_t)));
  *id_count = 0;
  CUdeviceptr address = 0;
  CUresult r = !*ids ? CUDA_OUT_OF_MEMORY
                     : REAL(cuMemAddressReserve, &address, static_cast<size_t>(bytes),
                            static_cast<size_t>(granule), static_cast<CUdeviceptr>(0), 0ull);
  if (r == CUDA_OK) {
    r = back(address, bytes, device, index, *ids, id_count);
    if (r == CUDA_OK) {
      *base = address;
      return CUDA_OK;
    }
    uint64_t made = 0;
    for (uint32_t i = 0; i < *id_count; i++) {
      made += chunk_at((*ids)[i])->bytes;
      chunk_drop((*ids)[i]);
    }
    REAL(cuMemAddressFree, address, static_cast<size_t>(bytes));
    bytes -= made;
  }
  unreserve(index, bytes);
  free(*ids);
  *ids = nullptr;
  return r;
}

// ---- small
bool slab_take(Slab& s, uint32_t want, uint32_t* at) {
  if (units - s.used_units < want)
    return false;
  for (int pass = 0; pass < 2; pass++) {
    uint32_t run = 0;
    for (uint32_t i = pass ? 0 : s.next; i < units; i++) {
      if (!run && s.taken[i / 64] == ~0ull && i % 64 == 0) {
        i += 63;
        continue;
      }
      run = s.taken[i / 64] >> (i % 64) & 1 ? 0 : run + 1;
      if (run < want)
        continue;
      *at = i + 1 - want;
      for (uint32_t k = *at; k <= i; k++)
        s.taken[k / 64] |= 1ull << (k % 64);
      s.used_units += want;
      s.next = i + 1 < units ? i + 1 : 0;
      return true;
    }
  }
  return false;
}

CUresult small_alloc(
    uint64_t bytes, CUdevice device, int index, CUcontext context, CUdeviceptr* out) {
  const uint32_t want = static_cast<uint32_t>(round_up(bytes, unit) / unit);
  uint32_t at = 0, which = UINT32_MAX, dead = UINT32_MAX;
  for (uint32_t i = slab_count; i-- > 0 && which == UINT32_MAX;) {
    if (!slabs[i].alive)
      dead = i;
    else if (slabs[i].context == context && slab_take(slabs[i], want, &at))
      which = i;
  }
  if (which == UINT32_MAX) {
    if (dead == UINT32_MAX && slab_count == slab_capacity) {
      const uint32_t wanted = slab_capacity ? slab_capacity * 2 : 64;
      void* grown = realloc(slabs, wanted * sizeof(Slab));
      if (!grown)
        return CUDA_OUT_OF_MEMORY;
      slabs = static_cast<Slab*>(grown);
      slab_capacity = wanted;
    }
    if (!reserve(index, granule))
      return CUDA_OUT_OF_MEMORY;
    uint32_t* ids = nullptr;
    uint32_t id_count = 0;
    uint64_t base = 0;
    if (const CUresult r = back_fresh(granule, device, index, &base, &ids, &id_count); r != CUDA_OK)
      return r;
    which = dead != UINT32_MAX ? dead : slab_count++;
    slabs[which] = Slab{};
    slabs[which].base = base;
    slabs[which].chunk = ids[0];
    slabs[which].context = context;
    slabs[which].device = index;
    slabs[which].alive = true;
    free(ids);
    slab_take(slabs[which], want, &at);
  }
  *out = slabs[which].base + at * unit;
  Region region{};
  region.base = *out;
  region.bytes = bytes;
  region.kind = Region::slab_part;
  region.device = index;
  region.context = context;
  region.slab = which;
  return regions.insert(region) ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

void small_free(const Region& region) {
  Slab& s = slabs[region.slab];
  const uint32_t first = static_cast<uint32_t>((region.base - s.base) / unit),
                 n = static_cast<uint32_t>(round_up(region.bytes, unit) / unit);
  for (uint32_t k = first; k < first + n; k++)
    s.taken[k / 64] &= ~(1ull << (k % 64));
  s.used_units -= n;
  if (s.used_units)
    return;
  chunk_drop(s.chunk);
  REAL(cuMemAddressFree, static_cast<CUdeviceptr>(s.base), static_cast<size_t>(granule));
  s.alive = false;
}

void drop(const Region& region) {
  if (region.kind == Region::slab_part) {
    small_free(region);
  } else if (region.kind == Region::backed) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < region.chunk_count; i++) {
      bytes += chunk_at(region.chunks[i])->bytes;
      chunk_drop(region.chunks[i]);
    }
    REAL(cuMemAddressFree, static_cast<CUdeviceptr>(region.base), static_cast<size_t>(bytes));
    free(region.chunks);
  } else if (region.kind == Region::imported) {
    drop_imported(region);
  }
}

// Memory freed during a stream capture, when nothing may synchronise: it is released at the next
// opportunity.
uint64_t* late;
uint32_t late_count, late_capacity;

void free_late() {
  if (!late_count || any_capture())
    return;
  REAL(cuCtxSynchronize);
  Guard guard(&memory_lock);
  for (uint32_t i = 0; i < late_count; i++) {
    Region region;
    if (regions.remove(late[i], &region))
      drop(region);
  }
  late_count = 0;
}

}  // namespace

CUresult backed_alloc(uint64_t bytes, CUdeviceptr* out) {
  CUdevice device;
  int index;
  CUcontext context = nullptr;
  if (!current_device(&device, &index))
    return CUDA_INVALID_CONTEXT;
  REAL(cuCtxGetCurrent, &context);
  free_late();
  if (bytes <= small_max) {
    Guard guard(&memory_lock);
    return small_alloc(bytes, device, index, context, out);
  }
  const uint64_t whole = round_up(bytes, granule);
  if (whole < bytes)
    return CUDA_OUT_OF_MEMORY;
  if (!reserve(index, whole)) {
    trim_caches(index);
    if (!reserve(index, whole))
      return CUDA_OUT_OF_MEMORY;
  }
  Guard guard(&memory_lock);
  Region region{};
  region.bytes = bytes;
  region.kind = Region::backed;
  region.device = index;
  region.context = context;
  if (const CUresult r =
          back_fresh(whole, device, index, &region.base, &region.chunks, &region.chunk_count);
      r != CUDA_OK)
    return r;
  if (!regions.insert(region)) {
    drop(region);
    return CUDA_OUT_OF_MEMORY;
  }
  *out = region.base;
  return CUDA_OK;
}

// cuMemFree waits for the work that may still use the memory; unmapping does not, so we wait.
CUresult release_region(uint64_t base, bool* ours) {
  *ours = false;
  {
    Guard guard(&memory_lock);
    const Region* region = regions.find(base);
    if (!region || (region->kind != Region::backed && region->kind != Region::slab_part))
      return CUDA_OK;
    *ours = true;
    if (any_capture()) {
      if (late_count == late_capacity) {
        const uint32_t wanted = late_capacity ? late_capacity * 2 : 64;
        void* grown = realloc(late, wanted * sizeof *late);
        if (!grown)
          return CUDA_OUT_OF_MEMORY;
        late = static_cast<uint64_t*>(grown);
        late_capacity = wanted;
      }
      late[late_count++] = base;
      return CUDA_OK;
    }
  }
  free_late();
  const CUresult waited = REAL(cuCtxSynchronize);
  Guard guard(&memory_lock);
  Region region;
  if (!regions.remove(base, &region))
    return CUDA_INVALID_VALUE;
  drop(region);
  return waited;
}

void release_context(CUcontext context) {
  Guard guard(&memory_lock);
  for (size_t i = regions.size(); i-- > 0;) {
    if (regions.at(i).context != context)
      continue;
    Region region = regions.at(i);
    regions.remove(region.base, nullptr);
    if (region.kind == Region::backed || region.kind == Region::slab_part ||
        region.kind == Region::imported)
      drop(region);
    else {
      unreserve(region.device, region.charged);
      add_residue(-static_cast<int64_t>(region.charged));
    }
  }
}

uint32_t slab_chunk(const Region& part, uint64_t* offset) {
  const Slab& s = slabs[part.slab];
  *offset = part.base - s.base;
  return s.chunk;
}

void memory_after_fork() {
  pthread_mutex_init(&memory_lock, nullptr);
  regions.forget();
  chunks_clear();
  slabs = nullptr;
  late = nullptr;
  slab_count = slab_capacity = late_count = late_capacity = 0;
}

}  // namespace shim

using namespace shim;

namespace {
// An allocation that remains the driver's: counted, and residue for a suspend.
void note_plain(uint64_t base, uint64_t bytes, Region::Kind kind, int index, uint64_t charged) {
  Region region{};
  region.base = base;
  region.bytes = bytes;
  region.kind = kind;
  region.device = index;
  region.charged = charged;
  REAL(cuCtxGetCurrent, &region.context);
  add_residue(static_cast<int64_t>(charged));
  Guard guard(&memory_lock);
  regions.insert(region);
}

bool reserve_or_trim(int index, uint64_t bytes) {
  if (reserve(index, bytes))
    return true;
  trim_caches(index);
  return reserve(index, bytes);
}

template <class Allocate>
CUresult plain_alloc(uint64_t bytes, Region::Kind kind, const uint64_t* result, Allocate allocate) {
  CUdevice device;
  int index;
  current_device(&device, &index);
  const uint64_t charged = (bytes + (2u << 20) - 1) & ~((2ull << 20) - 1);
  const uint64_t charge = bytes < (2u << 20) ? ((bytes + 511) & ~511ull) : charged;
  if (!reserve_or_trim(index, charge))
    return CUDA_OUT_OF_MEMORY;
  const CUresult r = allocate();
  if (r != CUDA_OK || !result)
    unreserve(index, charge);
  else
    note_plain(*result, bytes, kind, index, charge);
  return r;
}

CUresult forget_plain(uint64_t base, CUresult freed) {
  if (freed != CUDA_OK)
    return freed;
  Guard guard(&memory_lock);
  Region region;
  if (const Region* r = regions.find(base);
      r && r->kind != Region::backed && r->kind != Region::slab_part &&
      r->kind != Region::imported && regions.remove(base, &region)) {
    unreserve(region.device, region.charged);
    add_residue(-static_cast<int64_t>(region.charged));
  }
  return freed;
}

uint64_t element_bytes(int format) {
  switch (format) {
    case 1:
    case 8:
      return 1;  // 8-bit integers
    case 2:
    case 9:
    case 16:
      return 2;  // 16-bit integers and halves
    default:
      return 4;  // 32-bit, and anything newer is charged generously
  }
}
uint64_t array_bytes(
    uint64_t width, uint64_t height, uint64_t depth, int format, unsigned channels) {
  const auto up = [](uint64_t v, uint64_t to) {
    return (v + to - 1) / to * to;
  };
  const uint64_t row = up(width * element_bytes(format) * (channels ? channels : 1), 64);
  return up(row * up(height ? height : 1, height > 1 ? 8 : 1) * (depth ? depth : 1), 64 << 10);
}
}  // namespace

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !bytes)
    return REAL(cuMemAlloc_v2, out, bytes);
  if (suspendable())
    return backed_alloc(bytes, out);
  return plain_alloc(bytes, Region::plain, out, [&] { return REAL(cuMemAlloc_v2, out, bytes); });
}

EXPORT CUresult
cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned element) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const bool sensible = out && pitch && width && height &&
                        (element == 4 || element == 8 || element == 16) && width < 1ull << 40 &&
                        height < 1ull << 24;
  if (!pages.slot || !sensible)
    return REAL(cuMemAllocPitch_v2, out, pitch, width, height, element);
  const size_t row = (width + 511) & ~static_cast<size_t>(511);
  if (suspendable()) {
    const CUresult r = backed_alloc(row * height, out);
    if (r == CUDA_OK)
      *pitch = row;
    return r;
  }
  return plain_alloc(row * height, Region::plain, out,
                     [&] { return REAL(cuMemAllocPitch_v2, out, pitch, width, height, element); });
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !bytes)
    return REAL(cuMemAllocManaged, out, bytes, flags);
  uses(BILLOW_USES_UVM);
  return plain_alloc(bytes, Region::managed, out,
                     [&] { return REAL(cuMemAllocManaged, out, bytes, flags); });
}

// The 32-bit functions of CUDA 2 are still exported; they allocate driver memory, counted by size.
EXPORT CUresult cuMemAlloc(unsigned* out, unsigned bytes) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !bytes)
    return REAL(cuMemAlloc, out, bytes);
  uint64_t base = 0;
  return plain_alloc(bytes, Region::plain, &base, [&] {
    const CUresult r = REAL(cuMemAlloc, out, bytes);
    base = *out;
    return r;
  });
}
EXPORT CUresult
cuMemAllocPitch(unsigned* out, unsigned* pitch, unsigned width, unsigned height, unsigned element) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !pitch || !width || !height)
    return REAL(cuMemAllocPitch, out, pitch, width, height, element);
  uint64_t base = 0;
  return plain_alloc((static_cast<uint64_t>(width) + 511) / 512 * 512 * height, Region::plain,
                     &base, [&] {
                       const CUresult r = REAL(cuMemAllocPitch, out, pitch, width, height, element);
                       base = *out;
                       return r;
                     });
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr base) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  bool ours = false;
  if (pages.slot && base) {
    const CUresult r = release_region(base, &ours);
    if (ours)
      return r;
  }
  return forget_plain(base, REAL(cuMemFree_v2, base));
}
EXPORT CUresult cuMemFree(unsigned base) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  return forget_plain(base, REAL(cuMemFree, base));
}

// ---- arrays: always the driver's
namespace {
template <class Create>
CUresult create_array(CUarray* out, uint64_t bytes, Create create) {
  uses(BILLOW_USES_ARRAYS);
  uint64_t key = 0;
  return plain_alloc(bytes, Region::array, &key, [&] {
    const CUresult r = create();
    key = reinterpret_cast<uint64_t>(*out);
    return r;
  });
}
struct Descriptor32 {
  unsigned Width, Height;
  int Format;
  unsigned NumChannels;
};
struct Descriptor3D32 {
  unsigned Width, Height, Depth;
  int Format;
  unsigned NumChannels, Flags;
};
}  // namespace

EXPORT CUresult cuArrayCreate_v2(CUarray* out, const CUarrayDescriptor* d) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !d)
    return REAL(cuArrayCreate_v2, out, d);
  return create_array(out, array_bytes(d->Width, d->Height, 1, d->Format, d->NumChannels),
                      [&] { return REAL(cuArrayCreate_v2, out, d); });
}
EXPORT CUresult cuArrayCreate(CUarray* out, const void* descriptor) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !descriptor)
    return REAL(cuArrayCreate, out, descriptor);
  const auto* d = static_cast<const Descriptor32*>(descriptor);
  return create_array(out, array_bytes(d->Width, d->Height, 1, d->Format, d->NumChannels),
                      [&] { return REAL(cuArrayCreate, out, descriptor); });
}
EXPORT CUresult cuArray3DCreate_v2(CUarray* out, const CUarray3DDescriptor* d) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !d)
    return REAL(cuArray3DCreate_v2, out, d);
  return create_array(out, array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels),
                      [&] { return REAL(cuArray3DCreate_v2, out, d); });
}
EXPORT CUresult cuArray3DCreate(CUarray* out, const void* descriptor) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !descriptor)
    return REAL(cuArray3DCreate, out, descriptor);
  const auto* d = static_cast<const Descriptor3D32*>(descriptor);
  return create_array(out, array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels),
                      [&] { return REAL(cuArray3DCreate, out, descriptor); });
}
EXPORT CUresult cuMipmappedArrayCreate(CUarray* out,
                                       const CUarray3DDescriptor* d,
                                       unsigned levels) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out || !d)
    return REAL(cuMipmappedArrayCreate, out, d, levels);
  uint64_t bytes = 0;
  for (unsigned level = 0; level < levels && level < 32; level++)
    bytes += array_bytes((d->Width >> level) + !(d->Width >> level), d->Height >> level,
                         d->Depth >> level, d->Format, d->NumChannels);
  return create_array(out, bytes, [&] { return REAL(cuMipmappedArrayCreate, out, d, levels); });
}
EXPORT CUresult cuArrayDestroy(CUarray array) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  return forget_plain(reinterpret_cast<uint64_t>(array), REAL(cuArrayDestroy, array));
}
EXPORT CUresult cuMipmappedArrayDestroy(CUarray array) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  return forget_plain(reinterpret_cast<uint64_t>(array), REAL(cuMipmappedArrayDestroy, array));
}
