/* The simulated node: shared state, time, devices, and the start of the driver. */
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

bool all_met(const Meeting& meeting) {
  for (uint32_t side = 0; side < meeting.sides; side++)
    if (world().shared->met[side].load() < meeting.number)
      return false;
  return true;
}
bool waits_for_ever(const Meeting& meeting) {
  return world().me && world().me->restored.load() && !all_met(meeting);
}
CUresult wait_until_met(const Meeting& meeting) {
  while (!all_met(meeting)) {
    if (waits_for_ever(meeting))
      return CUDA_LAUNCH_FAILED;
    usleep(50);
  }
  return CUDA_OK;
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
    // A handle that this driver never returned is refused, as by the real one.
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
  } else if (function && function->name == "sim_meet" && node.words.size() >= 2) {
    stream->meeting = {static_cast<uint32_t>(node.words[1]), ++w.shared->met[node.words[0]]};
  }
  const auto scrambled = [](uint64_t i) {  // same as tests/gpu/kernels.cu
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

SIM_EXPORT uint64_t billow_sim_violations() {
  return world().violations;
}
SIM_EXPORT uint64_t billow_sim_used(int device) {
  return world().me ? world().me->used[device].load() : 0;
}

SIM_EXPORT CUresult cuInit(unsigned flags) {
  SIM_ENTER(cuInit);
  World& w = world();
  if (flags)
    return CUDA_INVALID_VALUE;
  // A fork of a process that used CUDA. Without the lock: another thread may have held it when the
  // process was forked.
  if (w.initialized && w.owner_pid != static_cast<uint32_t>(getpid()))
    return CUDA_NOT_INITIALIZED;
  LOCKED();
  if (w.initialized)
    return CUDA_OK;
  w.device_count =
      static_cast<int>(std::min<uint64_t>(number("BILLOW_SIM_CUDA_DEVICES", 1), devices_max));
  w.memory = number("BILLOW_SIM_CUDA_MEMORY", 1ull << 30);
  w.context_bytes = number("BILLOW_SIM_CUDA_CONTEXT", 16u << 20);
  map_shared(w);
  // Like the real driver: exit() makes every later call fail, and waits while the process is
  // checkpointed.
  std::atexit([] {
    World& here = world();
    if (here.owner_pid != static_cast<uint32_t>(getpid()))
      return;
    while (here.me && here.me->state.load() != running)
      usleep(500);
    here.ended = true;
  });
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
