/* Stream-ordered pools and the memory nodes of graphs. The driver manages both: it caches memory
 * and shares it between streams, so the charge is what a pool has reserved now, not what the
 * program requested. Before an allocation the worst-case growth is reserved in the account;
 * afterwards the account is set to the pool's size. At the limit, caches are trimmed before an
 * allocation is refused. */
#include <stdlib.h>
#include <string.h>

#include "shim/internal.h"

namespace shim {

namespace {
constexpr uint64_t mib = 1u << 20;
constexpr uint64_t pool_step = 32 * mib;  // growth step of a pool
constexpr int pools_max = 256;
struct Pool {
  CUmempool pool;
  int index;
  uint64_t charged;
};
Pool pools[pools_max];
int pool_count;
pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
uint64_t captured_bytes[BILLOW_DEVICES_MAX];  // allocated in captures that have not ended yet

uint64_t whole(uint64_t bytes) {
  return (bytes + 2 * mib - 1) / (2 * mib) * (2 * mib);
}

Pool* account_of(CUmempool pool, int index) {
  for (int i = 0; i < pool_count; i++)
    if (pools[i].pool == pool)
      return &pools[i];
  if (pool_count == pools_max)
    return nullptr;
  pools[pool_count] = {pool, index, 0};
  return &pools[pool_count++];
}

uint64_t reserved_now(const Pool& p) {
  uint64_t value = p.charged;
  REAL(cuMemPoolGetAttribute, p.pool, static_cast<int>(POOL_RESERVED_CURRENT),
       static_cast<void*>(&value));
  return value;
}

void set_charge(Pool& p, uint64_t bytes) {
  if (bytes < p.charged)
    unreserve(p.index, p.charged - bytes);
  add_residue(static_cast<int64_t>(bytes) - static_cast<int64_t>(p.charged));
  p.charged = bytes;
}

void reconcile_locked() {
  for (int i = 0; i < pool_count; i++) {
    const uint64_t now = reserved_now(pools[i]);
    if (now < pools[i].charged)
      set_charge(pools[i], now);
  }
}
void trim_locked(int index) {
  for (int i = 0; i < pool_count; i++)
    if (index < 0 || pools[i].index == index)
      REAL(cuMemPoolTrimTo, pools[i].pool, static_cast<size_t>(0));
  reconcile_locked();
}

template <class Allocate>
CUresult pool_alloc(Pool* p, CUdeviceptr* out, uint64_t bytes, Allocate allocate) {
  if (!p || p->index < 0)
    return allocate();
  uint64_t ahead = 0;
  const auto worst = [&] {
    const uint64_t need = reserved_now(*p) + whole(bytes) + pool_step;
    return need > p->charged ? need - p->charged : 0;
  };
  ahead = worst();
  if (!reserve(p->index, ahead)) {
    trim_locked(p->index);
    ahead = worst();
    if (!reserve(p->index, ahead)) {
      // The exact size may fit although the worst case does not.
      ahead = whole(bytes);
      if (!reserve(p->index, ahead))
        return CUDA_OUT_OF_MEMORY;
    }
  }
  const CUresult r = allocate();
  const uint64_t covered = p->charged + ahead, now = reserved_now(*p);
  if (now <= covered) {
    unreserve(p->index, covered - now);
  } else if (!reserve(p->index, now - covered)) {
    if (r == CUDA_OK) {
      REAL(cuMemFree_v2, *out);
      *out = 0;
    }
    REAL(cuMemPoolTrimTo, p->pool, static_cast<size_t>(0));
    const uint64_t after = reserved_now(*p);
    if (after < covered)
      unreserve(p->index, covered - after);
    add_residue(static_cast<int64_t>(after) - static_cast<int64_t>(p->charged));
    p->charged = after < covered ? after : covered;
    return CUDA_OUT_OF_MEMORY;
  }
  add_residue(static_cast<int64_t>(now) - static_cast<int64_t>(p->charged));
  p->charged = now;
  return r;
}

bool stream_captures(CUstream stream, bool per_thread) {
  if (!any_capture())
    return false;
  int status = 0;
  const CUresult r = per_thread ? REAL(cuStreamIsCapturing_ptsz, stream, &status)
                                : REAL(cuStreamIsCapturing, stream, &status);
  return r == CUDA_OK && status != 0;
}

template <class Allocate>
CUresult async_alloc(CUdeviceptr* out,
                     size_t bytes,
                     CUmempool pool,
                     CUstream stream,
                     bool per_thread,
                     Allocate allocate) {
  Entry entry(true);
  if (entry.error())
    return entry.error();
  CUdevice device;
  int index;
  if (!pages.slot || !out || !bytes || !current_device(&device, &index))
    return allocate();
  if (stream_captures(stream, per_thread)) {
    uses(BILLOW_USES_GRAPH_MEMORY);
    if (!reserve(index, whole(bytes)))
      return CUDA_OUT_OF_MEMORY;
    const CUresult r = allocate();
    if (r != CUDA_OK)
      unreserve(index, whole(bytes));
    else if (index >= 0)
      __atomic_fetch_add(&captured_bytes[index], whole(bytes), __ATOMIC_RELAXED);
    return r;
  }
  uses(BILLOW_USES_POOLS);
  if (!pool && REAL(cuDeviceGetMemPool, &pool, device) != CUDA_OK)
    return allocate();
  Guard guard(&pool_lock);
  return pool_alloc(account_of(pool, index), out, bytes, allocate);
}

// ---- graphs: the charge of memory nodes follows graph -> executable graph, and ends with it
void carry(void* owner, Region::Kind kind, int index, uint64_t bytes) {
  Guard guard(&memory_lock);
  if (Region* r = regions.find(reinterpret_cast<uint64_t>(owner))) {
    r->charged += bytes;
  } else {
    Region region{};
    region.base = reinterpret_cast<uint64_t>(owner);
    region.bytes = 1;
    region.kind = kind;
    region.device = index;
    region.charged = bytes;
    regions.insert(region);
  }
  add_residue(static_cast<int64_t>(bytes));
}

template <class Add>
CUresult add_memory_node(CUgraph graph, const CUmemAllocNodeParams* params, Add add) {
  if (!params || params->poolProps.location.type != LOCATION_DEVICE)
    return add();
  const int index = device_index(params->poolProps.location.id);
  const uint64_t bytes = whole(params->bytesize);
  uses(BILLOW_USES_GRAPH_MEMORY);
  if (!reserve(index, bytes)) {
    trim_caches(index);
    if (!reserve(index, bytes))
      return CUDA_OUT_OF_MEMORY;
  }
  const CUresult r = add();
  if (r != CUDA_OK)
    unreserve(index, bytes);
  else if (index >= 0)
    carry(graph, Region::graph, index, bytes);
  return r;
}

CUresult instantiated(void** exec, CUgraph graph, CUresult r) {
  if (r != CUDA_OK || !pages.slot || !exec)
    return r;
  Region region;
  {
    Guard guard(&memory_lock);
    const Region* found = regions.find(reinterpret_cast<uint64_t>(graph));
    if (!found || found->kind != Region::graph || !regions.remove(found->base, &region))
      return r;
  }
  add_residue(-static_cast<int64_t>(region.charged));
  carry(*exec, Region::graph_exec, region.device, region.charged);
  return r;
}

CUresult ended(void* owner, CUresult r) {
  if (r != CUDA_OK || !pages.slot)
    return r;
  Region region;
  {
    Guard guard(&memory_lock);
    const Region* found = regions.find(reinterpret_cast<uint64_t>(owner));
    if (!found || (found->kind != Region::graph && found->kind != Region::graph_exec))
      return r;
    regions.remove(found->base, &region);
  }
  if (region.kind == Region::graph_exec)
    REAL(cuDeviceGraphMemTrim, device_of_index(region.device));
  unreserve(region.device, region.charged);
  add_residue(-static_cast<int64_t>(region.charged));
  return r;
}
}  // namespace

void reconcile_pools() {
  Guard guard(&pool_lock);
  reconcile_locked();
}
void trim_caches(int index) {
  Guard guard(&pool_lock);
  trim_locked(index);
}
void pools_trim_all() {
  trim_caches(-1);
}

void graph_captured(CUgraph graph) {
  for (int i = 0; i < BILLOW_DEVICES_MAX; i++) {
    const uint64_t bytes = __atomic_exchange_n(&captured_bytes[i], 0u, __ATOMIC_ACQ_REL);
    if (bytes && graph)
      carry(graph, Region::graph, i, bytes);
    else
      unreserve(i, bytes);
  }
}

void pools_after_fork() {
  pthread_mutex_init(&pool_lock, nullptr);
  pool_count = 0;
  memset(captured_bytes, 0, sizeof captured_bytes);
}

}  // namespace shim

using namespace shim;

EXPORT CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return async_alloc(out, bytes, nullptr, stream, false,
                     [&] { return REAL(cuMemAllocAsync, out, bytes, stream); });
}
EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return async_alloc(out, bytes, nullptr, stream, true,
                     [&] { return REAL(cuMemAllocAsync_ptsz, out, bytes, stream); });
}
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out,
                                        size_t bytes,
                                        CUmempool pool,
                                        CUstream stream) {
  return async_alloc(out, bytes, pool, stream, false,
                     [&] { return REAL(cuMemAllocFromPoolAsync, out, bytes, pool, stream); });
}
EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out,
                                             size_t bytes,
                                             CUmempool pool,
                                             CUstream stream) {
  return async_alloc(out, bytes, pool, stream, true,
                     [&] { return REAL(cuMemAllocFromPoolAsync_ptsz, out, bytes, pool, stream); });
}
EXPORT CUresult cuMemFreeAsync(CUdeviceptr base, CUstream stream) {
  Entry entry(true);
  return entry.error() ? entry.error() : REAL(cuMemFreeAsync, base, stream);
}
EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr base, CUstream stream) {
  Entry entry(true);
  return entry.error() ? entry.error() : REAL(cuMemFreeAsync_ptsz, base, stream);
}
EXPORT CUresult cuMemPoolCreate(CUmempool* out, const CUmemPoolProps* props) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const CUresult r = REAL(cuMemPoolCreate, out, props);
  if (r != CUDA_OK || !pages.slot || !out || !props)
    return r;
  if (props->location.type >= LOCATION_HOST)
    uses(BILLOW_USES_HOST_MAPPED);
  Guard guard(&pool_lock);
  account_of(*out, props->location.type == LOCATION_DEVICE ? device_index(props->location.id) : -1);
  return r;
}
EXPORT CUresult cuMemPoolDestroy(CUmempool pool) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const CUresult r = REAL(cuMemPoolDestroy, pool);
  if (r != CUDA_OK || !pages.slot)
    return r;
  Guard guard(&pool_lock);
  for (int i = 0; i < pool_count; i++) {
    if (pools[i].pool != pool)
      continue;
    set_charge(pools[i], 0);
    pools[i] = pools[--pool_count];
    break;
  }
  return r;
}
EXPORT CUresult cuMemPoolTrimTo(CUmempool pool, size_t keep) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const CUresult r = REAL(cuMemPoolTrimTo, pool, keep);
  if (pages.slot)
    reconcile_pools();
  return r;
}
EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  Entry entry(false);
  return entry.error() ? entry.error() : REAL(cuDeviceGraphMemTrim, device);
}

EXPORT CUresult cuGraphAddMemAllocNode(
    void* node, CUgraph graph, const void* deps, size_t count, CUmemAllocNodeParams* params) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  return add_memory_node(graph, pages.slot ? params : nullptr, [&] {
    return REAL(cuGraphAddMemAllocNode, node, graph, deps, count, params);
  });
}
EXPORT CUresult cuGraphAddNode(
    void* node, CUgraph graph, const void* deps, size_t count, CUgraphNodeParams* params) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const bool memory = pages.slot && params && params->type == GRAPH_NODE_MEM_ALLOC;
  return add_memory_node(graph, memory ? &params->u.alloc : nullptr,
                         [&] { return REAL(cuGraphAddNode, node, graph, deps, count, params); });
}
EXPORT CUresult cuGraphAddNode_v2(void* node,
                                  CUgraph graph,
                                  const void* deps,
                                  const void* edges,
                                  size_t count,
                                  CUgraphNodeParams* params) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const bool memory = pages.slot && params && params->type == GRAPH_NODE_MEM_ALLOC;
  return add_memory_node(graph, memory ? &params->u.alloc : nullptr, [&] {
    return REAL(cuGraphAddNode_v2, node, graph, deps, edges, count, params);
  });
}

EXPORT CUresult cuGraphInstantiate(void** exec, CUgraph graph, void* a, void* b, size_t c) {
  Entry entry(false);
  return entry.error() ? entry.error()
                       : instantiated(exec, graph, REAL(cuGraphInstantiate, exec, graph, a, b, c));
}
EXPORT CUresult cuGraphInstantiate_v2(void** exec, CUgraph graph, void* a, void* b, size_t c) {
  Entry entry(false);
  return entry.error()
             ? entry.error()
             : instantiated(exec, graph, REAL(cuGraphInstantiate_v2, exec, graph, a, b, c));
}
EXPORT CUresult cuGraphInstantiateWithFlags(void** exec, CUgraph graph, unsigned long long flags) {
  Entry entry(false);
  return entry.error()
             ? entry.error()
             : instantiated(exec, graph, REAL(cuGraphInstantiateWithFlags, exec, graph, flags));
}
EXPORT CUresult cuGraphInstantiateWithParams(void** exec, CUgraph graph, void* params) {
  Entry entry(false);
  return entry.error()
             ? entry.error()
             : instantiated(exec, graph, REAL(cuGraphInstantiateWithParams, exec, graph, params));
}
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(void** exec, CUgraph graph, void* params) {
  Entry entry(false);
  return entry.error() ? entry.error()
                       : instantiated(exec, graph,
                                      REAL(cuGraphInstantiateWithParams_ptsz, exec, graph, params));
}
EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  Entry entry(false);
  return entry.error() ? entry.error() : ended(graph, REAL(cuGraphDestroy, graph));
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  Entry entry(false);
  return entry.error() ? entry.error() : ended(exec, REAL(cuGraphExecDestroy, exec));
}
