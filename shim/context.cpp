/* Contexts and captures: where a process joins its job, where context memory is charged, and what
 * ends with a context. */
#include <string.h>

#include "shim/internal.h"

namespace shim {
namespace {
constexpr int contexts_max = 64;
struct Known {
  CUcontext context;
  CUdevice device;
  uint64_t charged;
};
Known known[contexts_max];
int known_count;
pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
bool exit_watched;

Known* find(CUcontext context) {
  for (int i = 0; i < known_count; i++)
    if (known[i].context == context)
      return &known[i];
  return nullptr;
}

void note_contexts() {
  uint64_t devices = 0;
  for (int i = 0; i < known_count; i++)
    if (const int index = device_index(known[i].device); index >= 0)
      devices |= 1ull << index;
  __atomic_store_n(&pages.slot->context_devices, devices, __ATOMIC_RELAXED);
  __atomic_store_n(&pages.slot->contexts, static_cast<uint32_t>(known_count), __ATOMIC_RELAXED);
}

// Reserves the context's memory before it is created; a known context is not charged again.
template <class Create>
CUresult create(CUcontext* out, CUdevice device, Create make) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  if (!pages.slot || !out)
    return make();
  const int index = device_index(device);
  const uint64_t bytes = index >= 0 ? pages.limit->devices[index].context_bytes : 0;
  const bool limited = limit_of(index) != 0;
  // Retaining a primary context again is common and free: check whether it exists before reserving.
  unsigned flags = 0;
  int active = 0;
  const bool reserved = !(REAL(cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_OK &&
                          active && context_of_device(device));
  if (reserved && !reserve(index, bytes) && limited)
    return CUDA_OUT_OF_MEMORY;
  const CUresult r = make();
  Guard guard(&context_lock);
  if (r == CUDA_OK && !exit_watched) {
    exit_watched = true;  // the driver may have registered an exit handler with its first context
    watch_exit();
  }
  if (r != CUDA_OK || find(*out) || known_count == contexts_max) {
    if (reserved)
      unreserve(index, bytes);
    return r;
  }
  known[known_count++] = {*out, device, reserved ? bytes : 0};
  note_contexts();
  return r;
}

void ended(CUcontext context) {
  release_context(context);
  meter_reset();
  Guard guard(&context_lock);
  Known* k = find(context);
  if (!k)
    return;
  unreserve(device_index(k->device), k->charged);
  *k = known[--known_count];
  if (pages.slot)
    note_contexts();
}

CUresult primary_ended(CUdevice device, CUcontext before, CUresult r) {
  unsigned flags = 0;
  int active = 0;
  if (r != CUDA_OK || !before ||
      REAL(cuDevicePrimaryCtxGetState, device, &flags, &active) != CUDA_OK || active)
    return r;
  ended(before);
  return r;
}

CUcontext primary(CUdevice device) {
  return pages.slot ? context_of_device(device) : nullptr;
}
}  // namespace

pthread_mutex_t teardown_lock = PTHREAD_MUTEX_INITIALIZER;

int known_contexts(CUcontext* out, int max) {
  Guard guard(&context_lock);
  int n = 0;
  for (; n < known_count && n < max; n++)
    out[n] = known[n].context;
  return n;
}
CUcontext context_of_device(CUdevice device) {
  Guard guard(&context_lock);
  for (int i = 0; i < known_count; i++)
    if (known[i].device == device)
      return known[i].context;
  return nullptr;
}
void contexts_after_fork() {
  pthread_mutex_init(&teardown_lock, nullptr);
  pthread_mutex_init(&context_lock, nullptr);
  known_count = 0;
}
}  // namespace shim

using namespace shim;

EXPORT CUresult cuInit(unsigned flags) {
  const CUresult r = REAL(cuInit, flags);
  return r == CUDA_OK ? join_job() : r;
}
EXPORT CUresult cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, device, [&] { return REAL(cuCtxCreate, out, flags, device); });
}
EXPORT CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, device, [&] { return REAL(cuCtxCreate_v2, out, flags, device); });
}
EXPORT CUresult
cuCtxCreate_v3(CUcontext* out, void* params, int count, unsigned flags, CUdevice device) {
  return create(out, device,
                [&] { return REAL(cuCtxCreate_v3, out, params, count, flags, device); });
}
EXPORT CUresult cuCtxCreate_v4(CUcontext* out, void* params, unsigned flags, CUdevice device) {
  return create(out, device, [&] { return REAL(cuCtxCreate_v4, out, params, flags, device); });
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return create(out, device, [&] { return REAL(cuDevicePrimaryCtxRetain, out, device); });
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&teardown_lock);
  const CUresult r = REAL(cuCtxDestroy_v2, context);
  if (r == CUDA_OK && pages.slot)
    ended(context);
  return r;
}
EXPORT CUresult cuCtxDestroy(CUcontext context) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  Guard guard(&teardown_lock);
  const CUresult r = REAL(cuCtxDestroy, context);
  if (r == CUDA_OK && pages.slot)
    ended(context);
  return r;
}
#define ENDS_PRIMARY(symbol)                                    \
  EXPORT CUresult symbol(CUdevice device) {                     \
    Entry entry(false);                                         \
    if (entry.error())                                          \
      return entry.error();                                     \
    CUcontext before = primary(device);                         \
    Guard guard(&teardown_lock);                                \
    return primary_ended(device, before, REAL(symbol, device)); \
  }
ENDS_PRIMARY(cuDevicePrimaryCtxRelease)
ENDS_PRIMARY(cuDevicePrimaryCtxRelease_v2)
ENDS_PRIMARY(cuDevicePrimaryCtxReset)
ENDS_PRIMARY(cuDevicePrimaryCtxReset_v2)

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  Entry entry(false);
  if (entry.error())
    return entry.error();
  const CUresult r = REAL(cuCtxEnablePeerAccess, peer, flags);
  CUdevice reader = -1, owner = -1;
  if (r != CUDA_OK || !pages.slot || REAL(cuCtxGetDevice, &reader) != CUDA_OK)
    return r;
  for (CUdevice d = 0; d < BILLOW_DEVICES_MAX; d++)
    if (context_of_device(d) == peer)
      owner = d;
  Guard guard(&memory_lock);
  chunks_peer(owner, reader);
  return r;
}

// ---- captures
namespace {
// Counted before the driver is called, so that nothing synchronises in between; undone if the
// driver refuses.
template <class Begin>
CUresult begin(Begin real) {
  capture_began();
  const CUresult r = real();
  if (r != CUDA_OK)
    capture_ended();
  return r;
}
template <class End>
CUresult end(CUgraph* graph, End real) {
  const CUresult r = real();
  // Whatever the answer, this stream no longer captures, unless it never did.
  if (r != CUDA_ILLEGAL_STATE && r != CUDA_INVALID_VALUE && r != CUDA_INVALID_HANDLE)
    capture_ended();
  if (!any_capture())
    graph_captured(r == CUDA_OK && graph ? *graph : nullptr);
  return r;
}
}  // namespace

EXPORT CUresult cuStreamBeginCapture(CUstream s) {
  return begin([&] { return REAL(cuStreamBeginCapture, s); });
}
EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream s) {
  return begin([&] { return REAL(cuStreamBeginCapture_ptsz, s); });
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream s, int mode) {
  return begin([&] { return REAL(cuStreamBeginCapture_v2, s, mode); });
}
EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, int mode) {
  return begin([&] { return REAL(cuStreamBeginCapture_v2_ptsz, s, mode); });
}
EXPORT CUresult
cuStreamBeginCaptureToGraph(CUstream s, CUgraph g, void* deps, void* edges, size_t n, int mode) {
  return begin([&] { return REAL(cuStreamBeginCaptureToGraph, s, g, deps, edges, n, mode); });
}
EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(
    CUstream s, CUgraph g, void* deps, void* edges, size_t n, int mode) {
  return begin([&] { return REAL(cuStreamBeginCaptureToGraph_ptsz, s, g, deps, edges, n, mode); });
}
EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph* g) {
  return end(g, [&] { return REAL(cuStreamEndCapture, s, g); });
}
EXPORT CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph* g) {
  return end(g, [&] { return REAL(cuStreamEndCapture_ptsz, s, g); });
}
