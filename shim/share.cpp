/* Device memory shared between the processes of a job (CUDA IPC): legacy handles, and the program's
 * own allocations exported as descriptors.
 *
 * In a suspendable job the driver's handles do not work: plain allocations are chunks, which the
 * driver's IPC refuses, and a chunk's memory is another one after a suspend. So a handle names the
 * owner (its slot in the usage page) and the allocation, and the importing process fetches the
 * descriptors from the owner through the GPU memory service. An exported descriptor is one end of a
 * socket pair that holds such a name: it can be passed on like the driver's, and its owner sees
 * when the last copy is closed. A suspend undoes the mappings in every process, a resume makes them
 * again.
 *
 * Descriptors are fetched in front of the gate, because two processes that import from each other
 * would otherwise wait for each other's gates; if a suspend came in between, they are fetched
 * again. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "shim/internal.h"

namespace shim {
namespace {

constexpr char share_magic[8] = {'B', 'I', 'L', 'W', 'S', 'H', 'R', '1'};

int own_slot() {
  return static_cast<int>(pages.slot - pages.usage->slots);
}

// All chunks behind a name, with one descriptor each.
struct Fetched {
  billow_shared_chunk* chunks = nullptr;
  int* fds = nullptr;
  uint32_t count = 0;
  uint64_t offset = 0;
  ~Fetched() { clear(); }
  void clear() {
    for (uint32_t i = 0; i < count; i++)
      if (fds[i] >= 0)
        close(fds[i]);
    free(chunks);
    free(fds);
    chunks = nullptr;
    fds = nullptr;
    count = 0;
  }
};

// Runs `take` behind the gate with the descriptors of a name.
template <class Take>
CUresult with_shared(const ShareName& name, Take take) {
  for (int tries = 0;; tries++) {
    const uint32_t epoch = gate_epoch();
    Fetched f;
    const int status = fetch_shared(name, &f.chunks, &f.fds, &f.count, &f.offset);
    if (status == EAGAIN && tries < 100) {  // the owner is suspended, and so is this process soon
      gate_wait_open();
      timespec pause{0, 5000000};
      nanosleep(&pause, nullptr);
      continue;
    }
    if (status)
      return status == ENOTSUP ? CUDA_NOT_SUPPORTED : CUDA_INVALID_VALUE;
    Entry entry(false);
    if (entry.error())
      return entry.error();
    if (gate_epoch() == epoch)
      return take(f);
  }
}

CUresult open_region(const ShareName& name, CUdeviceptr* out) {
  return with_shared(name, [&](Fetched& f) {
    CUdevice device;
    int index;
    if (!f.count || !current_device(&device, &index))
      return static_cast<CUresult>(f.count ? CUDA_INVALID_CONTEXT : CUDA_INVALID_VALUE);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f.count; i++)
      bytes += f.chunks[i].bytes;
    Region region{};
    region.kind = Region::imported;
    region.device = -1;
    region.bytes = name.bytes;
    region.chunks = static_cast<uint32_t*>(malloc(f.count * sizeof(uint32_t)));
    REAL(cuCtxGetCurrent, &region.context);
    CUdeviceptr base = 0;
    Guard guard(&memory_lock);
    CUresult r = !region.chunks ? CUDA_OUT_OF_MEMORY
                                : REAL(cuMemAddressReserve, &base, static_cast<size_t>(bytes),
                                       static_cast<size_t>(2u << 20), CUdeviceptr{0}, 0ull);
    const CUmemAccessDesc access{{LOCATION_DEVICE, device}, ACCESS_READ_WRITE};
    for (uint64_t at = 0; r == CUDA_OK && region.chunk_count < f.count;) {
      const billow_shared_chunk& c = f.chunks[region.chunk_count];
      uint32_t id = 0;
      r = chunk_import(f.fds[region.chunk_count], c, name.slot, name.generation, true, &id);
      if (r != CUDA_OK)
        break;
      region.chunks[region.chunk_count++] = id;
      r = chunk_map(id, base + at, c.bytes, 0);
      if (r == CUDA_OK)
        r = chunk_access_own(id, &access, 1);
      at += c.bytes;
    }
    region.base = base + f.offset;
    if (r == CUDA_OK && !regions.insert(region))
      r = CUDA_OUT_OF_MEMORY;
    if (r == CUDA_OK) {
      uses(BILLOW_USES_SHARED);
      *out = region.base;
      return r;
    }
    for (uint32_t i = 0; i < region.chunk_count; i++)
      chunk_drop(region.chunks[i]);
    if (base)
      REAL(cuMemAddressFree, base, static_cast<size_t>(bytes));
    free(region.chunks);
    return r;
  });
}

bool name_of(const void* bytes, ShareName* name) {
  memcpy(name, bytes, sizeof *name);
  return !memcmp(name->magic, share_magic, sizeof share_magic);
}

}  // namespace

void drop_imported(const Region& region) {
  uint64_t bytes = 0, base = 0;
  for (uint32_t i = 0; i < region.chunk_count; i++) {
    const Chunk* c = chunk_at(region.chunks[i]);
    if (i == 0 && c->mapping_count)
      base = c->mappings[0].address;
    bytes += c->bytes;
    chunk_drop(region.chunks[i]);
  }
  if (base)
    REAL(cuMemAddressFree, base, static_cast<size_t>(bytes));
  free(region.chunks);
}

// A descriptor that names a chunk of this process; -1 if none can be made.
int name_chunk(uint64_t serial, uint64_t bytes, int* kept) {
  ShareName name{};
  memcpy(name.magic, share_magic, sizeof share_magic);
  name.slot = static_cast<uint32_t>(own_slot());
  name.generation = pages.slot->generation;
  name.kind = BILLOW_SHARE_CHUNK;
  name.key = serial;
  name.bytes = bytes;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return -1;
  if (send(pair[0], &name, sizeof name, MSG_NOSIGNAL) != sizeof name) {
    close(pair[0]);
    close(pair[1]);
    return -1;
  }
  *kept = pair[0];
  return pair[1];
}
bool name_closed(int kept) {
  pollfd p{kept, 0, 0};
  return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

// Whether the descriptor is one of name_chunk's; if so, imports the chunk it names.
bool import_name(int fd, uint32_t* id, CUresult* result) {
  ShareName name{};
  const int saved_errno = errno;
  const ssize_t n = recv(fd, &name, sizeof name, MSG_PEEK | MSG_DONTWAIT);
  errno = saved_errno;
  if (n != sizeof name || memcmp(name.magic, share_magic, sizeof share_magic))
    return false;
  if (static_cast<int>(name.slot) == own_slot() && name.generation == pages.slot->generation) {
    Entry entry(false);
    Guard guard(&memory_lock);
    *result = entry.error()                       ? entry.error()
              : chunk_retain_serial(name.key, id) ? CUDA_OK
                                                  : CUDA_INVALID_VALUE;
    return true;
  }
  *result = with_shared(name, [&](Fetched& f) {
    if (f.count != 1)
      return static_cast<CUresult>(CUDA_INVALID_VALUE);
    Guard guard(&memory_lock);
    const CUresult r = chunk_import(f.fds[0], f.chunks[0], name.slot, name.generation, false, id);
    if (r == CUDA_OK)
      uses(BILLOW_USES_SHARED);
    return r;
  });
  return true;
}

// The owner's answer to SHARE: descriptors of up to a batch of chunks, from `first` on.
int share_chunks(uint64_t kind,
                 uint64_t key,
                 uint64_t first,
                 billow_shared_chunk* out,
                 int* fds,
                 int* count,
                 uint64_t* total,
                 uint64_t* offset) {
  Guard guard(&memory_lock);
  uint32_t one = 0;
  const uint32_t* ids = &one;
  uint32_t id_count = 1;
  *offset = 0;
  *count = 0;
  if (kind == BILLOW_SHARE_CHUNK) {
    if (!chunk_of_serial(key, &one))
      return ENOENT;
  } else {
    const Region* r = regions.find(key);
    if (!r || (r->kind != Region::backed && r->kind != Region::slab_part))
      return ENOENT;
    if (r->kind == Region::slab_part)
      one = slab_chunk(*r, offset);
    else {
      ids = r->chunks;
      id_count = r->chunk_count;
    }
  }
  *total = id_count;
  for (uint64_t i = first; i < id_count && *count < BILLOW_BATCH_MAX; i++) {
    const Chunk* c = chunk_at(ids[i]);
    if (!c->resident)
      return EAGAIN;
    if (const int r = chunk_export(ids[i], &fds[*count]))
      return r;
    out[(*count)++] = {c->serial, c->bytes};
  }
  return 0;
}

}  // namespace shim

using namespace shim;

struct IpcHandle {  // CUipcMemHandle and CUipcEventHandle: passed by value, so on the stack
  char bytes[64];
};
static_assert(sizeof(ShareName) <= sizeof(IpcHandle));

EXPORT CUresult cuIpcGetMemHandle(IpcHandle* out, CUdeviceptr address) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (out && pages.slot) {
    Guard guard(&memory_lock);
    const Region* r = regions.containing(address);
    if (r && (r->kind == Region::backed || r->kind == Region::slab_part)) {
      ShareName name{};
      memcpy(name.magic, share_magic, sizeof share_magic);
      name.slot = static_cast<uint32_t>(own_slot());
      name.generation = pages.slot->generation;
      name.kind = BILLOW_SHARE_REGION;
      name.key = r->base;
      name.bytes = r->bytes;
      memset(out, 0, sizeof *out);
      memcpy(out, &name, sizeof name);
      uses(BILLOW_USES_SHARED);
      return CUDA_OK;
    }
  }
  const CUresult r = REAL(cuIpcGetMemHandle, out, address);
  if (r == CUDA_OK)
    uses(BILLOW_USES_IPC);
  return r;
}

namespace {
template <class Real>
CUresult open_handle(CUdeviceptr* out, const IpcHandle& handle, Real real) {
  ShareName name;
  if (out && pages.slot && name_of(handle.bytes, &name)) {
    if (static_cast<int>(name.slot) == own_slot() && name.generation == pages.slot->generation)
      return CUDA_INVALID_CONTEXT;  // as the driver answers in the process that made the handle
    return open_region(name, out);
  }
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const CUresult r = real();
  if (r == CUDA_OK)
    uses(BILLOW_USES_IPC);
  return r;
}
}  // namespace

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* out, IpcHandle handle, unsigned flags) {
  return open_handle(out, handle, [&] { return REAL(cuIpcOpenMemHandle, out, handle, flags); });
}
EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, IpcHandle handle, unsigned flags) {
  const auto real = [&] {
    return REAL(cuIpcOpenMemHandle_v2, out, handle, flags);
  };
  return open_handle(out, handle, real);
}
EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  bool ours = false;
  if (pages.slot) {
    Guard guard(&memory_lock);
    const Region* r = regions.find(address);
    ours = r && r->kind == Region::imported;
  }
  if (!ours)
    return REAL(cuIpcCloseMemHandle, address);
  const CUresult waited = any_capture() ? CUDA_OK : REAL(cuCtxSynchronize);
  Guard guard(&memory_lock);
  Region region;
  if (regions.remove(address, &region))
    drop_imported(region);
  return waited;
}

// Events stay the driver's, which keeps them over a warm suspend and, as of driver 580, over its
// own checkpoint; a driver that refuses leaves a cold suspend warm.
EXPORT CUresult cuIpcGetEventHandle(IpcHandle* out, CUevent event) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const CUresult r = REAL(cuIpcGetEventHandle, out, event);
  if (r == CUDA_OK)
    uses(BILLOW_USES_IPC_EVENTS);
  return r;
}
EXPORT CUresult cuIpcOpenEventHandle(CUevent* out, IpcHandle handle) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const CUresult r = REAL(cuIpcOpenEventHandle, out, handle);
  if (r == CUDA_OK)
    uses(BILLOW_USES_IPC_EVENTS);
  return r;
}
