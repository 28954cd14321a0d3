/* Contexts of the simulated driver. */
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "shim/sim/sim.h"

using namespace simcuda;

namespace {
std::vector<Context*>& stack() {
  thread_local std::vector<Context*> contexts;
  return contexts;
}
CUresult new_context(CUcontext* out, CUdevice device, bool primary) {
  World& w = world();
  if (!w.initialized)
    return CUDA_NOT_INITIALIZED;
  if (!out)
    return CUDA_INVALID_VALUE;
  if (device < 0 || device >= w.device_count)
    return CUDA_INVALID_DEVICE;
  if (!take(device, w.context_bytes))
    return CUDA_OUT_OF_MEMORY;
  auto* c = new Context{device, primary, 1};
  w.contexts.push_back(c);
  *out = c;
  return CUDA_OK;
}
void end_context(Context* c) {
  World& w = world();
  give(c->device, w.context_bytes);
  std::erase(w.contexts, c);
  for (auto i = w.plain.begin(); i != w.plain.end();)  // the context's allocations end with it
    if (i->second.second == c->device) {
      munmap(reinterpret_cast<void*>(i->first), i->second.first);
      give(c->device, round_up(i->second.first, 2u << 20));
      i = w.plain.erase(i);
    } else
      ++i;
  if (current() == c)
    current() = nullptr;
}
}  // namespace
SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext* out, unsigned, CUdevice device) {
  SIM_ENTER(cuCtxCreate_v2);
  LOCKED();
  const CUresult r = new_context(out, device, false);
  if (r == CUDA_OK) {
    stack().push_back(current());
    current() = static_cast<Context*>(*out);
  }
  return r;
}
SIM_EXPORT CUresult cuCtxCreate(CUcontext* out, unsigned f, CUdevice d) {
  SIM_ENTER(cuCtxCreate);
  return cuCtxCreate_v2(out, f, d);
}
SIM_EXPORT CUresult cuCtxCreate_v3(CUcontext* out, void*, int, unsigned f, CUdevice d) {
  SIM_ENTER(cuCtxCreate_v3);
  return cuCtxCreate_v2(out, f, d);
}
SIM_EXPORT CUresult cuCtxCreate_v4(CUcontext* out, void*, unsigned f, CUdevice d) {
  SIM_ENTER(cuCtxCreate_v4);
  return cuCtxCreate_v2(out, f, d);
}
SIM_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  SIM_ENTER(cuCtxDestroy_v2);
  LOCKED();
  World& w = world();
  if (std::find(w.contexts.begin(), w.contexts.end(), context) == w.contexts.end())
    return CUDA_INVALID_CONTEXT;
  end_context(static_cast<Context*>(context));
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxDestroy(CUcontext c) {
  SIM_ENTER(cuCtxDestroy);
  return cuCtxDestroy_v2(c);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxRetain);
  LOCKED();
  World& w = world();
  if (!w.initialized)
    return CUDA_NOT_INITIALIZED;
  if (!out)
    return CUDA_INVALID_VALUE;
  if (device < 0 || device >= w.device_count)
    return CUDA_INVALID_DEVICE;
  if (w.primary[device]) {
    w.primary[device]->references++;
    *out = w.primary[device];
    return CUDA_OK;
  }
  const CUresult r = new_context(out, device, true);
  if (r == CUDA_OK)
    w.primary[device] = static_cast<Context*>(*out);
  return r;
}
SIM_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxRelease_v2);
  LOCKED();
  World& w = world();
  if (device < 0 || device >= w.device_count || !w.primary[device])
    return CUDA_INVALID_CONTEXT;
  if (--w.primary[device]->references > 0)
    return CUDA_OK;
  end_context(w.primary[device]);
  w.primary[device] = nullptr;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice d) {
  SIM_ENTER(cuDevicePrimaryCtxRelease);
  return cuDevicePrimaryCtxRelease_v2(d);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxReset_v2);
  LOCKED();
  if (device < 0 || device >= world().device_count)
    return CUDA_INVALID_DEVICE;
  if (world().primary[device]) {
    end_context(world().primary[device]);
    world().primary[device] = nullptr;
  }
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice d) {
  SIM_ENTER(cuDevicePrimaryCtxReset);
  return cuDevicePrimaryCtxReset_v2(d);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  LOCKED();
  if (!flags || !active || device < 0 || device >= world().device_count)
    return CUDA_INVALID_VALUE;
  *flags = 0;
  *active = world().primary[device] != nullptr;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  SIM_ENTER(cuCtxSetCurrent);
  current() = static_cast<Context*>(context);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxGetCurrent(CUcontext* out) {
  if (!out)
    return CUDA_INVALID_VALUE;
  *out = current();
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  stack().push_back(current());
  current() = static_cast<Context*>(context);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  if (out)
    *out = current();
  if (!stack().empty()) {
    current() = stack().back();
    stack().pop_back();
  }
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  SIM_ENTER(cuCtxGetDevice);
  SIM_NEED_CONTEXT();
  if (!device)
    return CUDA_INVALID_VALUE;
  *device = current()->device;
  return CUDA_OK;
}
namespace {
uint64_t context_done(Context* c, bool* capturing, Meeting* newest) {
  uint64_t at = 0;
  const std::lock_guard guard(world().lock);
  for (Stream* s : world().streams) {
    if (s->context->device != c->device)
      continue;
    at = std::max(at, s->done_ns.load());
    if (s->meeting.number > newest->number)
      *newest = s->meeting;
    if (s->capture) {
      *capturing = true;
      s->invalidated = true;
    }
  }
  return at;
}
}  // namespace
SIM_EXPORT CUresult cuCtxSynchronize() {
  SIM_READ_DONE();
  SIM_ENTER(cuCtxSynchronize);
  SIM_NEED_CONTEXT();
  bool capturing = false;
  Meeting newest;
  const uint64_t at = context_done(current(), &capturing, &newest);
  if (capturing) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  if (const CUresult met = wait_until_met(newest); met != CUDA_OK)
    return met;
  sleep_until(at);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  SIM_ENTER(cuCtxRecordEvent);
  if (!context || !event)
    return CUDA_INVALID_VALUE;
  bool capturing = false;
  auto* e = static_cast<Event*>(event);
  e->meeting = {};
  e->at_ns = context_done(static_cast<Context*>(context), &capturing, &e->meeting);
  if (capturing) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  return CUDA_OK;
}
