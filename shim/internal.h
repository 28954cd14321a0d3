/* Shared declarations of libbillow-cuda.so. The library is C++ without the C++ run-time library: no
 * exceptions, no operator new, only libc and libdl, so that it can be preloaded into any program.
 *
 * Rules: no signal handlers, no exit, no output except one line when a job cannot join; errno is
 * preserved; unknown pointers and handles go to the driver unchanged; calls with unknown arguments
 * are forwarded. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/abi.h"
#include "shim/cuda_types.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORT extern "C" __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

namespace shim {

using Word = uintptr_t;  // any argument of the driver API: an integer or a pointer
using AnyFunction = void (*)();

enum class Class {
  resolve,
  context,
  alloc,
  free,
  graph,
  map,
  query,
  capture,
  launch,
  copy,
  code,
  share,
  wait,
  none
};

// One number for each export in cuda_api.def.
enum Api : int {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) api_##symbol,
#include "shim/cuda_api.def"
#undef BILLOW_API
  api_count
};

struct ApiEntry {
  const char* symbol;
  const char* name;
  int since;
  short arguments;
  short stream;
  Class kind;
  AnyFunction hook;  // nullptr for Class::none
};
extern HIDDEN const ApiEntry api_table[api_count];

// ---- resolve.cpp: the real functions
extern HIDDEN AnyFunction real_table[api_count];
// Loads libcuda if necessary; nullptr if the driver has no such export.
HIDDEN AnyFunction resolve_real(Api api);
HIDDEN void* real_dlsym(void* handle, const char* name);
HIDDEN AnyFunction nvml_hook(const char* name,
                             void* real);  // query.cpp; nullptr for a name that is not hooked

template <class... A>
inline CUresult call(Api api, A... arguments) {
  AnyFunction function = real_table[api];
  if (UNLIKELY(!function))
    function = resolve_real(api);
  if (UNLIKELY(!function))
    return CUDA_NOT_FOUND;
  return reinterpret_cast<CUresult (*)(A...)>(function)(arguments...);
}
inline bool have(Api api) {
  return real_table[api] || resolve_real(api);
}
#define REAL(symbol, ...) ::shim::call(::shim::api_##symbol __VA_OPT__(, ) __VA_ARGS__)

// ---- gate.cpp: who may call the driver now
enum : uint32_t { outside = 0, inside = 1, waiting_inside = 2 };
struct Thread {      // one per thread that ever called in; scanned to close the gate
  uint32_t in_call;  // waiting_inside: it only asks whether work is done
  uint32_t depth;
  uint32_t captures;  // stream captures this thread began: it never waits, because a
                      // capture puts nothing on the GPU
  uint32_t metered;
  uint32_t taken;
  uint32_t skip, skipped;  // launches on skip_stream that need no mark: left, and at first
  CUstream skip_stream;
} __attribute__((aligned(64)));

enum : uint32_t { local_open = 0, local_closed = 1, local_lost = 2 };
extern HIDDEN uint32_t local_gate;  // closed while suspending, suspended or resuming
extern HIDDEN const volatile uint32_t* volatile arbiter_gate;  // into the limit page, or a
                                                               // local zero
extern HIDDEN __thread Thread* this_thread;

HIDDEN Thread* register_thread();
HIDDEN CUresult gate_slow(Thread* thread, bool waits_for_turn, uint32_t kind);
HIDDEN void gate_wait_open();        // until no suspend is in progress; for the exit of the process
extern HIDDEN uint32_t exit_wanted;  // the process has called exit: waits for the GPU are abandoned
HIDDEN void meter(Thread* thread, CUstream stream, bool per_thread_stream);
HIDDEN bool gate_close(int timeout_ms);  // false: the GPU or a thread did not become idle in time,
                                         // and the gate is open again
HIDDEN void gate_step();                 // lets one call pass the closed gate, if one comes soon
HIDDEN void gate_open();
HIDDEN void gate_lose();  // the image is lost: all calls now fail with CUDA_DEVICE_UNAVAILABLE
HIDDEN void gate_wake();
HIDDEN uint32_t gate_epoch();  // changes with every suspend and resume
// Null: no arbiter, or it has ended: its gate is open.
HIDDEN void gate_attach(const volatile uint32_t* word);
HIDDEN bool drain(int timeout_ms);
HIDDEN void gate_after_fork();
HIDDEN void gate_init();
HIDDEN void capture_began();
HIDDEN void capture_ended();
HIDDEN bool any_capture();
HIDDEN void meter_reset();
extern HIDDEN bool fence_on_entry;  // if membarrier is missing

// Held during a call into the driver that touches device memory. `turn`: whether it also waits for
// the arbiter's turn (work on the GPU) or only for the end of a suspend (everything else).
class Entry {
 public:
  explicit Entry(bool turn, uint32_t kind = inside) {
    Thread* t = this_thread;
    if (UNLIKELY(!t))
      t = register_thread();
    thread_ = t;
    if (t->depth++)
      return;
    __atomic_store_n(&t->in_call, kind, __ATOMIC_RELAXED);
    if (UNLIKELY(fence_on_entry))
      __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
      __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint32_t closed = __atomic_load_n(&local_gate, __ATOMIC_RELAXED);
    if (turn)
      closed |= *arbiter_gate;
    if (UNLIKELY(closed))
      error_ = gate_slow(t, turn, kind);
  }
  ~Entry() {
    if (--thread_->depth == 0)
      __atomic_store_n(&thread_->in_call, uint32_t{outside}, __ATOMIC_RELEASE);
  }
  Entry(const Entry&) = delete;
  CUresult error() const { return error_; }
  Thread* thread() const { return thread_; }

 private:
  Thread* thread_;
  CUresult error_ = CUDA_OK;
};

// ---- account.cpp: the job's pages
struct Pages {
  const billow_limit_page* limit;
  billow_usage_page* usage;
  billow_process_slot* slot;
};
extern HIDDEN Pages pages;  // all null until the process has joined a job
HIDDEN bool suspendable();
HIDDEN int device_index(CUdevice device);  // index in the limit page, or -1
HIDDEN CUdevice device_of_index(int index);
HIDDEN uint64_t limit_of(int index);  // 0: none
HIDDEN uint64_t used_by_job(int index);
HIDDEN bool reserve(int index, uint64_t bytes);  // false: over the limit, nothing changed
HIDDEN void unreserve(int index, uint64_t bytes);
HIDDEN void add_residue(int64_t bytes);
HIDDEN void add_backed(int64_t bytes);
HIDDEN void uses(uint64_t features);
HIDDEN bool current_device(CUdevice* device, int* index);
HIDDEN void account_attach(const billow_limit_page* limit, billow_usage_page* usage, uint32_t slot);
HIDDEN void account_after_fork();
HIDDEN void account_devices();  // asks the driver for the devices' UUIDs, after cuInit
HIDDEN int visible_devices(uint8_t (*uuids)[16], int max);

// ---- table.cpp: sorted tables by address
struct Region {
  uint64_t base, bytes;
  enum Kind : uint32_t {
    backed,
    slab_part,
    plain,
    managed,
    array,
    graph,
    graph_exec,
    imported  // another process's, by a legacy IPC handle
  } kind;
  int device;  // index into the limit page, -1 if not charged
  uint64_t charged;
  CUcontext context;
  uint32_t* chunks;  // backed: ids, in address order; owned by the region's owner
  uint32_t chunk_count;
  uint32_t slab;  // slab_part: which slab
};
class RegionTable {
 public:
  bool insert(const Region& region);
  Region* find(uint64_t base);  // exact
  Region* containing(uint64_t address);
  bool remove(uint64_t base, Region* out);
  size_t size() const { return count_; }
  Region& at(size_t i) { return items_[i]; }
  void forget();  // without freeing: a fork may have interrupted a change

 private:
  size_t lower(uint64_t base) const;
  Region* items_ = nullptr;
  size_t count_ = 0, capacity_ = 0;
};

// ---- chunks.cpp: physical memory that the GPU memory service can save and restore
struct Mapping {
  uint64_t address, bytes, offset;
  uint32_t access_count;
  CUmemAccessDesc access[BILLOW_DEVICES_MAX];
};
struct Chunk {
  CUmemHandle handle;  // the driver's; changes with a suspend
  uint64_t bytes;
  CUmemAllocationProp prop;
  int asked_handle_types;
  int device;
  uint32_t references;  // of the program's handle (cuMemRelease, cuMemRetainAllocationHandle);
                        // 1 for our own
  bool used, resident, own;
  bool foreign;     // another process's memory: not charged, not saved
  uint64_t serial;  // of this process's chunk, or the owner's number of a foreign one
  uint32_t owner_slot, owner_generation;
  int* exports;  // kept ends of descriptors that name it (share.cpp)
  uint32_t export_count;
  Mapping* mappings;
  uint32_t mapping_count, mapping_capacity;
};
HIDDEN CUresult
chunk_create(const CUmemAllocationProp* prop, uint64_t bytes, int device, bool own, uint32_t* id);
HIDDEN CUresult chunk_map(uint32_t id, uint64_t address, uint64_t bytes, uint64_t offset);
HIDDEN CUresult chunk_access(uint64_t address,
                             uint64_t bytes,
                             const CUmemAccessDesc* access,
                             size_t count);
HIDDEN CUresult chunk_access_own(uint32_t id, const CUmemAccessDesc* access, size_t count);
HIDDEN CUresult chunk_unmap(uint64_t address, uint64_t bytes);
HIDDEN CUresult chunk_drop(uint32_t id);   // one of ours: unmap and free
HIDDEN CUresult chunk_unref(uint32_t id);  // without references and mappings the memory is freed
HIDDEN Chunk* chunk_at(uint32_t id);
HIDDEN bool chunk_of_address(uint64_t address, uint32_t* id);  // the program's own chunks only
HIDDEN uint32_t chunk_slots();
HIDDEN int chunk_export(uint32_t id, int* fd);  // 0 or an errno
HIDDEN int chunk_release(uint32_t id);
HIDDEN int chunk_restore(uint32_t id, int* fd);
HIDDEN uint32_t chunks_away();  // how many are saved in the GPU memory service
HIDDEN void chunks_clear();
HIDDEN bool chunk_of_serial(uint64_t serial, uint32_t* id);      // of this process's own
HIDDEN bool chunk_retain_serial(uint64_t serial, uint32_t* id);  // of the program's handles
HIDDEN CUresult chunk_import(int fd,
                             const billow_shared_chunk& shared,
                             uint32_t owner_slot,
                             uint32_t owner_generation,
                             bool own,
                             uint32_t* id);
HIDDEN int chunk_attach(uint32_t id, int fd);  // maps a foreign chunk again
HIDDEN int chunk_name(uint32_t id);            // a descriptor that names it, or -1
HIDDEN void chunks_peer(CUdevice owner, CUdevice peer);
HIDDEN bool chunk_peers(CUdevice owner, CUmemAccessDesc* access, uint32_t* count);

// ---- memory.cpp
struct Guard {  // the only lock of the memory tables; never held while waiting for the GPU
  explicit Guard(pthread_mutex_t* m) : m_(m) { pthread_mutex_lock(m_); }
  ~Guard() { pthread_mutex_unlock(m_); }
  pthread_mutex_t* m_;
};
extern HIDDEN pthread_mutex_t memory_lock;
extern HIDDEN RegionTable regions;
HIDDEN CUresult backed_alloc(uint64_t bytes, CUdeviceptr* out);
HIDDEN CUresult release_region(uint64_t base, bool* ours);
HIDDEN void release_context(CUcontext context);
HIDDEN void memory_after_fork();
HIDDEN uint32_t slab_chunk(const Region& part, uint64_t* offset);
HIDDEN void trim_caches(int index);  // frees memory cached by pools and graphs
HIDDEN void pools_after_fork();
HIDDEN void pools_trim_all();  // before a suspend: memory cached by pools leaves the device
HIDDEN void reconcile_pools();
HIDDEN void graph_captured(CUgraph graph);

// ---- share.cpp
struct ShareName {
  char magic[8];
  uint32_t slot, generation;
  uint64_t kind, key, bytes;
};
HIDDEN void drop_imported(const Region& region);
HIDDEN int name_chunk(uint64_t serial, uint64_t bytes, int* kept);
HIDDEN bool name_closed(int kept);
HIDDEN bool import_name(int fd, uint32_t* id, CUresult* result);
HIDDEN int share_chunks(uint64_t kind,
                        uint64_t key,
                        uint64_t first,
                        billow_shared_chunk* out,
                        int* fds,
                        int* count,
                        uint64_t* total,
                        uint64_t* offset);

// ---- control.cpp
// Asks the service for another process's memory. 0 or an errno; the caller frees and closes.
HIDDEN int fetch_shared(const ShareName& name,
                        billow_shared_chunk** chunks,
                        int** fds,
                        uint32_t* count,
                        uint64_t* offset);
HIDDEN CUresult join_job();  // after cuInit; CUDA_OK if there is no job to join
HIDDEN bool join_pages();    // only the limit and usage pages, which suffice for NVML's answers
HIDDEN void control_after_fork();
// Registers the handler that exit() runs before the driver's own, which were registered earlier.
HIDDEN void watch_exit();

// ---- context.cpp
extern HIDDEN pthread_mutex_t teardown_lock;  // held to end a context, and while drain() uses one
HIDDEN void contexts_after_fork();
HIDDEN int known_contexts(CUcontext* out, int max);
HIDDEN CUcontext context_of_device(CUdevice device);

}  // namespace shim
