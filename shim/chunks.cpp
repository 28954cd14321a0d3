/* Physical device memory that the GPU memory service can save and restore.
 *
 * A chunk is one cuMemCreate: ours behind a plain allocation, or the program's own (PyTorch's
 * expandable segments, NCCL). We translate the program's handles, because the driver's handle
 * changes when the memory is restored. The addresses stay reserved, so every pointer in the program
 * is valid again afterwards. All functions here are called with memory_lock held, or with the gate
 * closed and no thread inside. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/internal.h"

namespace shim {

namespace {
Chunk* chunks;
uint32_t count, capacity;
uint32_t free_hint;
uint64_t next_serial = 1;
uint8_t peers[BILLOW_DEVICES_MAX][BILLOW_DEVICES_MAX];  // [owner][reader], by ordinal

uint32_t new_slot() {
  for (uint32_t i = free_hint; i < count; i++)
    if (!chunks[i].used) {
      free_hint = i + 1;
      return i;
    }
  if (count == capacity) {
    const uint32_t wanted = capacity ? capacity * 2 : 256;
    void* grown = realloc(chunks, wanted * sizeof(Chunk));
    if (!grown)
      return UINT32_MAX;
    chunks = static_cast<Chunk*>(grown);
    capacity = wanted;
  }
  free_hint = count + 1;
  return count++;
}

// Among the program's own mappings only: ours are found through the allocation they back.
bool find_mapping(uint64_t address, uint32_t* id, uint32_t* at) {
  for (uint32_t i = 0; i < count; i++) {
    if (!chunks[i].used || chunks[i].own)
      continue;
    for (uint32_t k = 0; k < chunks[i].mapping_count; k++) {
      if (address - chunks[i].mappings[k].address < chunks[i].mappings[k].bytes) {
        *id = i;
        *at = k;
        return true;
      }
    }
  }
  return false;
}

void give_back(Chunk& c) {
  if (c.resident)
    REAL(cuMemRelease, c.handle);
  if (!c.foreign) {
    unreserve(c.device, c.bytes);
    add_backed(-static_cast<int64_t>(c.bytes));
  }
  free(c.exports);
  free(c.mappings);
  const uint32_t id = static_cast<uint32_t>(&c - chunks);
  memset(&c, 0, sizeof c);
  if (id < free_hint)
    free_hint = id;
}

// Whether a descriptor that names it is still open somewhere.
bool still_named(Chunk& c) {
  uint32_t open = 0;
  for (uint32_t i = 0; i < c.export_count; i++) {
    if (name_closed(c.exports[i]))
      close(c.exports[i]);
    else
      c.exports[open++] = c.exports[i];
  }
  c.export_count = open;
  return open != 0;
}
uint32_t named_count;  // chunks that were ever named; 0 in almost every program

// Frees chunks of which only the descriptors were left, once those are closed.
void sweep_named() {
  for (uint32_t i = 0; named_count && i < count; i++)
    if (chunks[i].used && chunks[i].exports && !chunks[i].references && !chunks[i].mapping_count &&
        !still_named(chunks[i])) {
      named_count--;
      give_back(chunks[i]);
    }
}
void give_back_unless_named(Chunk& c) {
  if (c.exports && still_named(c))
    return;
  named_count -= c.exports != nullptr;
  give_back(c);
}

int to_errno(CUresult r) {
  switch (r) {
    case CUDA_OK:
      return 0;
    case CUDA_OUT_OF_MEMORY:
      return ENOMEM;
    case CUDA_INVALID_VALUE:
      return EINVAL;
    case CUDA_NOT_SUPPORTED:
      return ENOTSUP;
    case CUDA_DEINITIALIZED:
      return ESHUTDOWN;
    default:
      return EIO;
  }
}
}  // namespace

Chunk* chunk_at(uint32_t id) {
  return id < count && chunks[id].used ? &chunks[id] : nullptr;
}
uint32_t chunk_slots() {
  return count;
}

CUresult chunk_create(
    const CUmemAllocationProp* prop, uint64_t bytes, int device, bool own, uint32_t* id) {
  sweep_named();
  const uint32_t slot = new_slot();
  if (slot == UINT32_MAX)
    return CUDA_OUT_OF_MEMORY;
  Chunk& c = chunks[slot];
  memset(&c, 0, sizeof c);
  c.prop = *prop;
  c.asked_handle_types = prop->requestedHandleTypes;
  c.prop.requestedHandleTypes |= HANDLE_POSIX_FD;  // for sending it to the GPU memory service
  const CUresult r = REAL(cuMemCreate, &c.handle, static_cast<size_t>(bytes), &c.prop,
                          static_cast<unsigned long long>(0));
  if (r != CUDA_OK) {
    if (slot < free_hint)
      free_hint = slot;
    return r;
  }
  c.bytes = bytes;
  c.device = device;
  c.references = 1;
  c.used = c.resident = true;
  c.own = own;
  c.serial = next_serial++;
  add_backed(static_cast<int64_t>(bytes));
  *id = slot;
  return CUDA_OK;
}

CUresult chunk_map(uint32_t id, uint64_t address, uint64_t bytes, uint64_t offset) {
  Chunk& c = chunks[id];
  if (c.mapping_count == c.mapping_capacity) {
    const uint32_t wanted = c.own ? 1 : c.mapping_capacity ? c.mapping_capacity * 2 : 2;
    void* grown = realloc(c.mappings, wanted * sizeof(Mapping));
    if (!grown)
      return CUDA_OUT_OF_MEMORY;
    c.mappings = static_cast<Mapping*>(grown);
    c.mapping_capacity = wanted;
  }
  const CUresult r = REAL(cuMemMap, static_cast<CUdeviceptr>(address), static_cast<size_t>(bytes),
                          static_cast<size_t>(offset), c.handle, 0ull);
  if (r != CUDA_OK)
    return r;
  Mapping& m = c.mappings[c.mapping_count++];
  memset(&m, 0, sizeof m);
  m.address = address;
  m.bytes = bytes;
  m.offset = offset;
  return CUDA_OK;
}

namespace {
// One entry for each location that may access it; a later one replaces an earlier.
void note_access(Mapping& m, const CUmemAccessDesc* access, size_t access_count) {
  for (size_t a = 0; a < access_count; a++) {
    uint32_t k = 0;
    while (k < m.access_count &&
           memcmp(&m.access[k].location, &access[a].location, sizeof(CUmemLocation)))
      k++;
    if (k == BILLOW_DEVICES_MAX)
      continue;
    m.access[k] = access[a];
    if (k == m.access_count)
      m.access_count++;
  }
}
}  // namespace

CUresult chunk_access(uint64_t address,
                      uint64_t bytes,
                      const CUmemAccessDesc* access,
                      size_t access_count) {
  const CUresult r = REAL(cuMemSetAccess, static_cast<CUdeviceptr>(address),
                          static_cast<size_t>(bytes), access, access_count);
  if (r != CUDA_OK)
    return r;
  uint32_t id, at;
  for (uint64_t here = address; here < address + bytes && find_mapping(here, &id, &at);) {
    Mapping& m = chunks[id].mappings[at];
    note_access(m, access, access_count);
    here = m.address + m.bytes;
  }
  return CUDA_OK;
}

CUresult chunk_access_own(uint32_t id, const CUmemAccessDesc* access, size_t access_count) {
  Mapping& m = chunks[id].mappings[0];
  const CUresult r = REAL(cuMemSetAccess, static_cast<CUdeviceptr>(m.address),
                          static_cast<size_t>(m.bytes), access, access_count);
  if (r == CUDA_OK)
    note_access(m, access, access_count);
  return r;
}

CUresult chunk_unmap(uint64_t address, uint64_t bytes) {
  const CUresult r =
      REAL(cuMemUnmap, static_cast<CUdeviceptr>(address), static_cast<size_t>(bytes));
  if (r != CUDA_OK)
    return r;
  uint32_t id, at;
  for (uint64_t here = address; here < address + bytes && find_mapping(here, &id, &at);) {
    Chunk& c = chunks[id];
    here = c.mappings[at].address + c.mappings[at].bytes;
    c.mappings[at] = c.mappings[--c.mapping_count];
    if (c.references == 0 && c.mapping_count == 0)
      give_back_unless_named(c);
  }
  return CUDA_OK;
}

CUresult chunk_drop(uint32_t id) {
  Chunk& c = chunks[id];
  for (uint32_t i = 0; i < c.mapping_count; i++)
    REAL(cuMemUnmap, static_cast<CUdeviceptr>(c.mappings[i].address),
         static_cast<size_t>(c.mappings[i].bytes));
  c.mapping_count = 0;
  give_back(c);
  return CUDA_OK;
}

CUresult chunk_unref(uint32_t id) {
  Chunk& c = chunks[id];
  if (c.references == 0)
    return CUDA_INVALID_VALUE;
  if (--c.references == 0 && c.mapping_count == 0)
    give_back_unless_named(c);
  return CUDA_OK;
}

bool chunk_of_address(uint64_t address, uint32_t* id) {
  uint32_t at;
  return find_mapping(address, id, &at);
}

int chunk_export(uint32_t id, int* fd) {
  Chunk* c = chunk_at(id);
  if (!c || !c->resident)
    return EINVAL;
  *fd = -1;
  return to_errno(REAL(cuMemExportToShareableHandle, static_cast<void*>(fd), c->handle,
                       static_cast<int>(HANDLE_POSIX_FD), 0ull));
}

// Releasing a chunk that is away, or restoring one that is present, changes nothing: the service
// may repeat a request whose answer it did not get.
int chunk_release(uint32_t id) {
  Chunk* c = chunk_at(id);
  if (!c)
    return EINVAL;
  if (!c->resident)
    return 0;
  for (uint32_t i = 0; i < c->mapping_count; i++)
    if (const CUresult r = REAL(cuMemUnmap, static_cast<CUdeviceptr>(c->mappings[i].address),
                                static_cast<size_t>(c->mappings[i].bytes));
        r != CUDA_OK)
      return to_errno(r);
  const CUresult r = REAL(cuMemRelease, c->handle);
  if (r == CUDA_OK)
    c->resident = false;
  return to_errno(r);
}

namespace {
CUresult map_again(Chunk& c) {
  CUresult r = CUDA_OK;
  for (uint32_t i = 0; i < c.mapping_count && r == CUDA_OK; i++) {
    const Mapping& m = c.mappings[i];
    r = REAL(cuMemMap, static_cast<CUdeviceptr>(m.address), static_cast<size_t>(m.bytes),
             static_cast<size_t>(m.offset), c.handle, 0ull);
    if (r == CUDA_OK && m.access_count)
      r = REAL(cuMemSetAccess, static_cast<CUdeviceptr>(m.address), static_cast<size_t>(m.bytes),
               static_cast<const CUmemAccessDesc*>(m.access), static_cast<size_t>(m.access_count));
  }
  return r;
}
void unmap_all(const Chunk& c) {  // those that are not mapped are refused by the driver
  for (uint32_t i = 0; i < c.mapping_count; i++)
    REAL(cuMemUnmap, static_cast<CUdeviceptr>(c.mappings[i].address),
         static_cast<size_t>(c.mappings[i].bytes));
}
}  // namespace

int chunk_restore(uint32_t id, int* fd) {
  Chunk* c = chunk_at(id);
  if (!c)
    return EINVAL;
  if (c->resident)
    return chunk_export(id, fd);
  CUresult r = REAL(cuMemCreate, &c->handle, static_cast<size_t>(c->bytes), &c->prop,
                    static_cast<unsigned long long>(0));
  if (r != CUDA_OK)
    return to_errno(r);
  r = map_again(*c);
  *fd = -1;
  if (r == CUDA_OK)
    r = REAL(cuMemExportToShareableHandle, static_cast<void*>(fd), c->handle,
             static_cast<int>(HANDLE_POSIX_FD), 0ull);
  if (r == CUDA_OK) {
    c->resident = true;
    return 0;
  }
  unmap_all(*c);
  REAL(cuMemRelease, c->handle);
  return to_errno(r);
}

int chunk_attach(uint32_t id, int fd) {
  Chunk* c = chunk_at(id);
  if (!c || !c->foreign)
    return EINVAL;
  if (c->resident)
    return 0;
  CUresult r =
      REAL(cuMemImportFromShareableHandle, &c->handle,
           reinterpret_cast<void*>(static_cast<intptr_t>(fd)), static_cast<int>(HANDLE_POSIX_FD));
  if (r != CUDA_OK)
    return to_errno(r);
  r = map_again(*c);
  c->resident = r == CUDA_OK;
  if (r != CUDA_OK) {
    unmap_all(*c);
    REAL(cuMemRelease, c->handle);
  }
  return to_errno(r);
}

bool chunk_of_serial(uint64_t serial, uint32_t* id) {
  for (uint32_t i = 0; i < count; i++)
    if (chunks[i].used && !chunks[i].foreign && chunks[i].serial == serial) {
      *id = i;
      return true;
    }
  return false;
}
bool chunk_retain_serial(uint64_t serial, uint32_t* id) {
  if (!chunk_of_serial(serial, id) || chunks[*id].own)
    return false;
  chunks[*id].references++;
  return true;
}

CUresult chunk_import(int fd,
                      const billow_shared_chunk& shared,
                      uint32_t owner_slot,
                      uint32_t owner_generation,
                      bool own,
                      uint32_t* id) {
  const uint32_t slot = new_slot();
  if (slot == UINT32_MAX)
    return CUDA_OUT_OF_MEMORY;
  Chunk& c = chunks[slot];
  memset(&c, 0, sizeof c);
  const CUresult r =
      REAL(cuMemImportFromShareableHandle, &c.handle,
           reinterpret_cast<void*>(static_cast<intptr_t>(fd)), static_cast<int>(HANDLE_POSIX_FD));
  if (r != CUDA_OK) {
    if (slot < free_hint)
      free_hint = slot;
    return r;
  }
  REAL(cuMemGetAllocationPropertiesFromHandle, &c.prop, c.handle);
  c.asked_handle_types = HANDLE_POSIX_FD;
  c.bytes = shared.bytes;
  c.serial = shared.serial;
  c.device = -1;
  c.references = 1;
  c.used = c.resident = c.foreign = true;
  c.own = own;
  c.owner_slot = owner_slot;
  c.owner_generation = owner_generation;
  *id = slot;
  return CUDA_OK;
}

int chunk_name(uint32_t id) {
  Chunk& c = chunks[id];
  void* grown = realloc(c.exports, (c.export_count + 1) * sizeof(int));
  if (!grown)
    return -1;
  named_count += c.exports == nullptr;
  c.exports = static_cast<int*>(grown);
  const int fd = name_chunk(c.serial, c.bytes, &c.exports[c.export_count]);
  c.export_count += fd >= 0;
  return fd;
}

uint32_t chunks_away() {
  uint32_t away = 0;
  for (uint32_t i = 0; i < count; i++)
    away += chunks[i].used && !chunks[i].resident;
  return away;
}

// A device may now read another's memory. Plain allocations become accessible automatically; mapped
// ones need an explicit grant.
void chunks_peer(CUdevice owner, CUdevice reader) {
  if (owner < 0 || reader < 0 || owner >= BILLOW_DEVICES_MAX || reader >= BILLOW_DEVICES_MAX)
    return;
  peers[owner][reader] = 1;
  const CUmemAccessDesc access{{LOCATION_DEVICE, reader}, ACCESS_READ_WRITE};
  for (uint32_t i = 0; i < count; i++) {
    if (!chunks[i].used || !chunks[i].own || chunks[i].prop.location.id != owner)
      continue;
    if (chunks[i].mapping_count)
      chunk_access_own(i, &access, 1);
  }
}

bool chunk_peers(CUdevice owner, CUmemAccessDesc* access, uint32_t* access_count) {
  *access_count = 0;
  access[(*access_count)++] = {{LOCATION_DEVICE, owner}, ACCESS_READ_WRITE};
  if (owner < 0 || owner >= BILLOW_DEVICES_MAX)
    return false;
  for (int reader = 0; reader < BILLOW_DEVICES_MAX; reader++)
    if (peers[owner][reader] && reader != owner)
      access[(*access_count)++] = {{LOCATION_DEVICE, reader}, ACCESS_READ_WRITE};
  return true;
}

void chunks_clear() {
  chunks = nullptr;  // not freed: a fork may have interrupted a change
  count = capacity = free_hint = named_count = 0;
  memset(peers, 0, sizeof peers);
}

}  // namespace shim
