/* The simulated node: shared state, time, devices, contexts, streams, events, modules and launches.
 */
#include "shim/sim/sim.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "shim/hash.h"

namespace simcuda {

World& world() {
  static World* w = new World;
  return *w;
}
Context*& current() {
  thread_local Context* context = nullptr;
  return context;
}
namespace {
std::vector<Context*>& stack() {
  thread_local std::vector<Context*> contexts;
  return contexts;
}
uint64_t number(const char* name, uint64_t fallback) {
  const char* text = getenv(name);
  return text && *text ? strtoull(text, nullptr, 0) : fallback;
}

void map_shared(World& w) {
  const char* path = getenv("BILLOW_SIM_CUDA_STATE");
  const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
  if (fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0) {
    w.shared = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
  } else {
    w.shared = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  const auto pid = static_cast<uint32_t>(getpid());
  for (Process& p : w.shared->processes) {
    uint32_t seen = p.pid.load();
    if (seen != 0 && !(kill(static_cast<pid_t>(seen), 0) != 0 && errno == ESRCH))
      continue;
    if (!p.pid.compare_exchange_strong(seen, pid))
      continue;
    for (auto& used : p.used)
      used = 0;
    p.state = running;
    w.me = &p;
    break;
  }
  w.owner_pid = pid;
}
}  // namespace

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}
void sleep_until(uint64_t at_ns) {
  const timespec t{static_cast<time_t>(at_ns / 1000000000u),
                   static_cast<long>(at_ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {}
}

bool take(int device, uint64_t bytes) {
  World& w = world();
  if (!w.me)
    return true;
  w.me->used[device] += bytes;
  uint64_t sum = 0;
  for (Process& p : w.shared->processes)
    if (p.pid.load() && (p.state == running || p.state == locked))
      sum += p.used[device];
  if (sum <= w.memory)
    return true;
  w.me->used[device] -= bytes;
  return false;
}
void give(int device, uint64_t bytes) {
  if (world().me)
    world().me->used[device] -= bytes;
}

Stream* stream_of(CUstream handle) {
  World& w = world();
  if (reinterpret_cast<uintptr_t>(handle) > 2) {
    // A handle this driver never gave out is refused, as the real one does.
    return std::find(w.streams.begin(), w.streams.end(), handle) == w.streams.end()
               ? nullptr
               : static_cast<Stream*>(handle);
  }
  Context* c = current();
  if (!c)
    return nullptr;
  if (!w.default_stream[c->device]) {
    w.default_stream[c->device] = new Stream{c};
    w.streams.push_back(w.default_stream[c->device]);
  }
  return w.default_stream[c->device];
}

void execute(const Node& node, Stream* stream) {
  World& w = world();
  auto* function = static_cast<Function*>(node.function);
  if (function && function->name == "billow_hash_pieces" && node.words.size() >= 3) {
    struct Piece {
      uint64_t address, bytes;
    };
    const auto* pieces = reinterpret_cast<const Piece*>(node.words[0]);
    auto* out = reinterpret_cast<billow_piece_hash*>(node.words[1]);
    for (uint64_t i = 0; i < node.words[2]; i++)
      billow_hash_piece(reinterpret_cast<const void*>(pieces[i].address), pieces[i].bytes, &out[i]);
  } else if (function && function->name == "sim_add" &&
             node.words.size() >= 2) {  // adds words[2] to each of words[1] 64-bit numbers
    auto* at = reinterpret_cast<uint64_t*>(node.words[0]);
    for (uint64_t i = 0; i < node.words[1]; i++)
      at[i] += 1;
  }
  const auto scrambled = [](uint64_t i) {  // as tests/gpu/kernels.cu has it
    i += 0x9e3779b97f4a7c15ull;
    i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9ull;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
    return i ^ (i >> 31);
  };
  if (function && function->name == "probe_fill") {
    for (uint64_t i = 0; i < node.words[1]; i++)
      reinterpret_cast<uint64_t*>(node.words[0])[i] = scrambled(node.words[3] + i);
  } else if (function && function->name == "probe_check") {
    for (uint64_t i = 0; i < node.words[1]; i++)
      *reinterpret_cast<uint64_t*>(node.words[4]) +=
          reinterpret_cast<uint64_t*>(node.words[0])[i] != scrambled(node.words[3] + i);
  }
  if (!node.duration_ns)
    return;
  auto& busy = w.shared->busy_until_ns[stream->context->device];
  uint64_t before = busy.load(), end;
  do
    end = std::max({before, now_ns(), stream->done_ns.load()}) + node.duration_ns;
  while (!busy.compare_exchange_weak(before, end));
  stream->done_ns = end;
}

CUresult run_on(Stream* stream, Node node) {
  if (!stream)
    return CUDA_INVALID_HANDLE;
  if (stream->capture)
    stream->capture->nodes.push_back(std::move(node));
  else
    execute(node, stream);
  return CUDA_OK;
}

}  // namespace simcuda

using namespace simcuda;
#define LOCKED() const std::lock_guard sim_guard(world().lock)

SIM_EXPORT uint64_t billow_sim_violations() {
  return world().violations;
}
SIM_EXPORT uint64_t billow_sim_used(int device) {
  return world().me ? world().me->used[device].load() : 0;
}

SIM_EXPORT CUresult cuInit(unsigned flags) {
  SIM_ENTER(cuInit);
  LOCKED();
  World& w = world();
  if (flags)
    return CUDA_INVALID_VALUE;
  if (w.initialized && w.owner_pid != static_cast<uint32_t>(getpid()))
    return CUDA_NOT_INITIALIZED;  // a fork of a process that used CUDA
  if (w.initialized)
    return CUDA_OK;
  w.device_count =
      static_cast<int>(std::min<uint64_t>(number("BILLOW_SIM_CUDA_DEVICES", 1), devices_max));
  w.memory = number("BILLOW_SIM_CUDA_MEMORY", 1ull << 30);
  w.context_bytes = number("BILLOW_SIM_CUDA_CONTEXT", 16u << 20);
  map_shared(w);
  w.initialized = true;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (!version)
    return CUDA_INVALID_VALUE;
  *version = 13000;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDeviceGetCount(int* count) {
  SIM_ENTER(cuDeviceGetCount);
  if (!world().initialized)
    return CUDA_NOT_INITIALIZED;
  if (!count)
    return CUDA_INVALID_VALUE;
  *count = world().device_count;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_ENTER(cuDeviceGet);
  if (!device || ordinal < 0 || ordinal >= world().device_count)
    return CUDA_INVALID_VALUE;
  *device = ordinal;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  SIM_ENTER(cuDeviceGetUuid_v2);
  if (!uuid || device < 0 || device >= world().device_count)
    return CUDA_INVALID_VALUE;
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = 0x51;
  uuid->bytes[15] = static_cast<unsigned char>(device + 1);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}
SIM_EXPORT CUresult cuDeviceGetAttribute(int* value, int, CUdevice) {
  if (!value)
    return CUDA_INVALID_VALUE;
  *value = 1;
  return CUDA_OK;
}

// ---- contexts
namespace {
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
  for (auto i = w.plain.begin(); i != w.plain.end();)  // the context's own allocations end with it
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
uint64_t context_done(Context* c, bool* capturing) {
  uint64_t at = 0;
  const std::lock_guard guard(world().lock);
  for (Stream* s : world().streams) {
    if (s->context->device != c->device)
      continue;
    at = std::max(at, s->done_ns.load());
    if (s->capture) {
      *capturing = true;
      s->invalidated = true;
    }
  }
  return at;
}
}  // namespace
SIM_EXPORT CUresult cuCtxSynchronize() {
  SIM_ENTER(cuCtxSynchronize);
  SIM_NEED_CONTEXT();
  bool capturing = false;
  const uint64_t at = context_done(current(), &capturing);
  if (capturing) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  sleep_until(at);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  SIM_ENTER(cuCtxRecordEvent);
  if (!context || !event)
    return CUDA_INVALID_VALUE;
  bool capturing = false;
  static_cast<Event*>(event)->at_ns = context_done(static_cast<Context*>(context), &capturing);
  if (capturing) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  return CUDA_OK;
}

// ---- streams and events
SIM_EXPORT CUresult cuStreamCreate(CUstream* out, unsigned) {
  SIM_ENTER(cuStreamCreate);
  SIM_NEED_CONTEXT();
  LOCKED();
  if (!out)
    return CUDA_INVALID_VALUE;
  auto* s = new Stream{current()};
  world().streams.push_back(s);
  *out = s;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  SIM_ENTER(cuStreamDestroy_v2);
  LOCKED();
  if (!stream || !std::erase(world().streams, stream))
    return CUDA_INVALID_HANDLE;
  delete static_cast<Stream*>(stream);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  SIM_ENTER(cuStreamSynchronize);
  uint64_t at = 0;
  {
    LOCKED();
    Stream* s = stream_of(stream);
    if (!s)
      return CUDA_INVALID_HANDLE;
    if (s->capture) {
      world().violations++;
      s->invalidated = true;
      return CUDA_CAPTURE_UNSUPPORTED;
    }
    at = s->done_ns;
  }
  sleep_until(at);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  LOCKED();
  Stream* s = stream_of(stream);
  if (!s || !status)
    return CUDA_INVALID_VALUE;
  *status = s->capture ? 1 : 0;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, int* status) {
  return cuStreamIsCapturing(stream, status);
}
SIM_EXPORT CUresult cuEventCreate(CUevent* out, unsigned) {
  SIM_ENTER(cuEventCreate);
  if (!out)
    return CUDA_INVALID_VALUE;
  *out = new Event;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventDestroy_v2(CUevent e) {
  SIM_ENTER(cuEventDestroy_v2);
  if (!e)
    return CUDA_INVALID_HANDLE;
  delete static_cast<Event*>(e);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  SIM_ENTER(cuEventRecord);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!event || !s)
    return CUDA_INVALID_HANDLE;
  static_cast<Event*>(event)->captured = s->capture != nullptr;
  static_cast<Event*>(event)->at_ns = std::max(s->done_ns.load(), now_ns());
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventRecord_ptsz(CUevent e, CUstream s) {
  return cuEventRecord(e, s);
}
SIM_EXPORT CUresult cuEventQuery(CUevent event) {
  SIM_ENTER(cuEventQuery);
  auto* e = static_cast<Event*>(event);
  if (!e)
    return CUDA_INVALID_HANDLE;
  if (e->captured) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  return now_ns() >= e->at_ns ? CUDA_OK : CUDA_NOT_READY;
}
SIM_EXPORT CUresult cuEventSynchronize(CUevent event) {
  SIM_ENTER(cuEventSynchronize);
  auto* e = static_cast<Event*>(event);
  if (!e)
    return CUDA_INVALID_HANDLE;
  if (e->captured) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  sleep_until(e->at_ns);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) {
  if (!ms || !a || !b)
    return CUDA_INVALID_VALUE;
  *ms = static_cast<float>(static_cast<double>(static_cast<int64_t>(
                               static_cast<Event*>(b)->at_ns - static_cast<Event*>(a)->at_ns)) /
                           1e6);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  if (!mode)
    return CUDA_INVALID_VALUE;
  *mode = 0;
  return CUDA_OK;
}

// ---- code and launches
SIM_EXPORT CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  SIM_ENTER(cuModuleLoadData);
  if (!out || !image)
    return CUDA_INVALID_VALUE;
  *out = new Module{};
  return CUDA_OK;
}
SIM_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  SIM_ENTER(cuModuleGetFunction);
  if (!out || !module || !name)
    return CUDA_INVALID_VALUE;
  *out = new Function{name};
  return CUDA_OK;
}
// sim_spin(microseconds) takes time; sim_add(address, count) adds one to each of count 64-bit
// numbers; the vault's hash is computed.
SIM_EXPORT CUresult cuLaunchKernel(CUfunction function,
                                   unsigned gx,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   CUstream stream,
                                   void** parameters,
                                   void**) {
  SIM_ENTER(cuLaunchKernel);
  SIM_NEED_CONTEXT();
  if (!function)
    return CUDA_INVALID_HANDLE;
  LOCKED();
  Node node;
  node.function = function;
  const std::string& name = static_cast<Function*>(function)->name;
  if ((name == "sim_spin" || name == "probe_spin") && parameters)
    node.duration_ns = *static_cast<uint64_t*>(parameters[0]) * 1000;
  if ((name == "sim_add" || name == "billow_hash_pieces") && parameters)
    node.words = {*static_cast<uint64_t*>(parameters[0]), *static_cast<uint64_t*>(parameters[1]),
                  gx};
  if ((name == "probe_fill" || name == "probe_check") && parameters) {
    node.words = {*static_cast<uint64_t*>(parameters[0]), *static_cast<uint64_t*>(parameters[1]),
                  gx, *static_cast<uint64_t*>(parameters[2]), 0};
    if (name == "probe_check")
      node.words[4] = *static_cast<uint64_t*>(parameters[3]);
  }
  return run_on(stream_of(stream), std::move(node));
}
SIM_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f,
                                        unsigned a,
                                        unsigned b,
                                        unsigned c,
                                        unsigned d,
                                        unsigned e,
                                        unsigned g,
                                        unsigned h,
                                        CUstream s,
                                        void** p,
                                        void** x) {
  SIM_ENTER(cuLaunchKernel_ptsz);
  return cuLaunchKernel(f, a, b, c, d, e, g, h, s, p, x);
}
SIM_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config,
                                     CUfunction f,
                                     void** p,
                                     void** x) {
  SIM_ENTER(cuLaunchKernelEx);
  if (!config)
    return CUDA_INVALID_VALUE;
  return cuLaunchKernel(f, config->grid[0], 1, 1, 1, 1, 1, 0, config->hStream, p, x);
}

// ---- capture and graphs
SIM_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  SIM_ENTER(cuStreamBeginCapture_v2);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!s || !stream || s->capture)
    return s && s->capture ? CUDA_ILLEGAL_STATE : CUDA_CAPTURE_UNSUPPORTED;
  s->capture = new Graph;
  s->invalidated = false;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  SIM_ENTER(cuStreamEndCapture);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!s || !out)
    return CUDA_INVALID_VALUE;
  if (!s->capture)
    return CUDA_ILLEGAL_STATE;
  Graph* g = s->capture;
  s->capture = nullptr;
  if (s->invalidated) {
    delete g;
    *out = nullptr;
    return 901;
  }
  *out = g;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphCreate(CUgraph* out, unsigned) {
  SIM_ENTER(cuGraphCreate);
  if (!out)
    return CUDA_INVALID_VALUE;
  *out = new Graph;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphDestroy(CUgraph g) {
  SIM_ENTER(cuGraphDestroy);
  if (!g)
    return CUDA_INVALID_VALUE;
  delete static_cast<Graph*>(g);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphAddMemAllocNode(
    void** node, CUgraph graph, const void*, size_t, CUmemAllocNodeParams* params) {
  SIM_ENTER(cuGraphAddMemAllocNode);
  if (!node || !graph || !params)
    return CUDA_INVALID_VALUE;
  Node n;
  n.memory = params->bytesize;
  n.device = params->poolProps.location.id;
  static_cast<Graph*>(graph)->nodes.push_back(n);
  params->dptr = address_of_new(params->bytesize);
  *node = graph;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphAddNode_v2(
    void** node, CUgraph graph, const void* d, const void*, size_t n, CUgraphNodeParams* params) {
  SIM_ENTER(cuGraphAddNode_v2);
  if (!node || !graph || !params)
    return CUDA_INVALID_VALUE;
  return params->type == GRAPH_NODE_MEM_ALLOC
             ? cuGraphAddMemAllocNode(node, graph, d, n, &params->u.alloc)
             : CUDA_OK;
}
SIM_EXPORT CUresult
cuGraphAddNode(void** node, CUgraph g, const void* d, size_t n, CUgraphNodeParams* p) {
  return cuGraphAddNode_v2(node, g, d, nullptr, n, p);
}
SIM_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out,
                                                CUgraph graph,
                                                unsigned long long) {
  SIM_ENTER(cuGraphInstantiateWithFlags);
  LOCKED();
  if (!out || !graph)
    return CUDA_INVALID_VALUE;
  auto* exec = new GraphExec{static_cast<Graph*>(graph)->nodes};
  for (const Node& n : exec->nodes) {
    exec->memory += round_up(n.memory, 2u << 20);
    if (n.memory)
      exec->device = n.device;
  }
  if (exec->memory && !take(exec->device, exec->memory)) {
    delete exec;
    return CUDA_OUT_OF_MEMORY;
  }
  world().graph_reserved[exec->device] += exec->memory;
  *out = exec;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* o, CUgraph g, void*, char*, size_t) {
  SIM_ENTER(cuGraphInstantiate_v2);
  return cuGraphInstantiateWithFlags(o, g, 0);
}
SIM_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* o, CUgraph g, void*) {
  SIM_ENTER(cuGraphInstantiateWithParams);
  return cuGraphInstantiateWithFlags(o, g, 0);
}
SIM_EXPORT CUresult cuGraphExecDestroy(CUgraphExec e) {
  SIM_ENTER(cuGraphExecDestroy);
  LOCKED();
  if (!e)
    return CUDA_INVALID_VALUE;
  auto* exec = static_cast<GraphExec*>(e);
  if (exec->memory) {
    give(exec->device, exec->memory);
    world().graph_reserved[exec->device] -= exec->memory;
  }
  delete exec;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  SIM_ENTER(cuGraphLaunch);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!exec || !s)
    return CUDA_INVALID_VALUE;
  for (const Node& n : static_cast<GraphExec*>(exec)->nodes)
    run_on(s, n);
  return CUDA_OK;
}

namespace simcuda {
CUresult proc_address(const char* name, void** function, int version, uint64_t flags);
}
SIM_EXPORT CUresult cuGetProcAddress(const char* name, void** f, int version, uint64_t flags) {
  SIM_ENTER(cuGetProcAddress);
  return proc_address(name, f, version, flags);
}
SIM_EXPORT CUresult
cuGetProcAddress_v2(const char* name, void** f, int version, uint64_t flags, void* status) {
  SIM_ENTER(cuGetProcAddress_v2);
  const CUresult r = proc_address(name, f, version, flags);
  if (status)
    *static_cast<int*>(status) = r == CUDA_OK ? 0 : 1;
  return r;
}
