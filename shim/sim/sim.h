/* A simulated libcuda.so.1: the CUDA driver API over host memory, so that the shim and the GPU
 * memory service run without a GPU.
 *
 * Device memory is memfds and anonymous memory; addresses are real addresses of the process, so
 * tests can look at "device" memory directly. All processes share one queue per device (through
 * BILLOW_SIM_CUDA_STATE): a kernel occupies the device for its duration, after all earlier work.
 * Its results are written at launch; only its time passes later. Every export of cuda_api.def
 * exists; those without a model record their arguments and succeed.
 *
 * It tests logic, never performance.
 *
 * Environment: BILLOW_SIM_CUDA_STATE (file shared by the processes of one "node"),
 * BILLOW_SIM_CUDA_DEVICES (1), BILLOW_SIM_CUDA_MEMORY (bytes per device, 1 GiB),
 * BILLOW_SIM_CUDA_CONTEXT (bytes per context, 16 MiB). */
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "shim/cuda_types.h"

// Holds the simulated node's lock until the end of the scope.
#define LOCKED() const std::lock_guard sim_guard(simcuda::world().lock)
#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace simcuda {

enum Api : int {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) api_##symbol,
#include "shim/cuda_api.def"
#undef BILLOW_API
  api_count
};

// ---- shared by all processes of the simulated node
constexpr int devices_max = 8, processes_max = 256, sides_max = 8;
struct Process {
  std::atomic<uint32_t> pid;
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> restored;  // by the driver's checkpoint
  std::atomic<uint64_t> used[devices_max];
};
struct Shared {
  std::atomic<uint64_t> busy_until_ns[devices_max];
  std::atomic<uint64_t> met[sides_max];  // sim_meet kernels that each side has launched
  Process processes[processes_max];
};
enum ProcessState : uint32_t { running = 0, locked = 1, checkpointed = 2, failed = 3 };

struct Context {
  int device;
  bool primary;
  int references;
};
struct Node {
  uint64_t duration_ns = 0;
  void* function = nullptr;
  std::vector<uint64_t> words;
  uint64_t memory = 0;
  int device = 0;
};
struct Graph {
  std::vector<Node> nodes;
};
struct GraphExec {
  std::vector<Node> nodes;
  uint64_t memory = 0;
  int device = 0;
};
// Work that ends when every side has launched as many sim_meet kernels; 0 sides: nothing to wait
// for.
struct Meeting {
  uint32_t sides = 0;
  uint64_t number = 0;
};
struct Stream {
  Context* context;
  Meeting meeting{};  // of the newest sim_meet kernel
  std::atomic<uint64_t> done_ns{0};
  Graph* capture = nullptr;
  bool invalidated = false;
};
struct Event {
  Meeting meeting{};
  std::atomic<uint64_t> at_ns{0};
  bool captured = false;
};
struct Pool {
  int device;
  bool on_host;
  uint64_t used = 0, reserved = 0;
};
struct Physical {
  int fd;
  uint64_t bytes;
  CUmemAllocationProp prop;
  int references;
  bool imported;
};
struct Module {
  std::string text;
};
struct Function {
  std::string name;
};

struct World {  // this process's driver
  std::recursive_mutex lock;
  bool initialized = false;
  std::atomic<bool> ended{false};  // exit() has run the driver's handler: every call fails
  int device_count = 1;
  uint64_t memory = 1ull << 30, context_bytes = 16u << 20;
  Shared* shared = nullptr;
  Process* me = nullptr;
  uint32_t owner_pid = 0;
  Context* primary[devices_max] = {};
  Pool* default_pool[devices_max] = {};
  uint64_t graph_reserved[devices_max] = {};
  std::vector<Context*> contexts;
  std::vector<Stream*> streams;
  Stream* default_stream[devices_max] = {};
  std::map<uint64_t, std::pair<uint64_t, int>> plain;  // address -> bytes, device
  std::map<uint64_t, std::pair<uint64_t, Pool*>> pooled;
  std::map<uint64_t, Physical*> physical;                    // handle -> memory
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> mapped;  // address -> bytes, handle
  std::map<uint64_t, uint64_t> reserved;                     // address -> bytes
  std::map<void*, std::pair<uint64_t, int>> arrays;
  uint64_t next_handle = 0x1000;
  uint64_t violations = 0;  // synchronised or recorded although a capture forbids it
};
World& world();
Context*& current();

// Counts the call, waits while the process is checkpointed, and returns the injected error, if one
// is due.
CUresult enter(Api api);
#define SIM_ENTER(symbol)                                                                       \
  if (const CUresult injected = ::simcuda::enter(::simcuda::api_##symbol); injected != CUDA_OK) \
  return injected
// Like the real driver: what is asked about completion is read without the lock that a checkpoint
// takes, from memory that is not there meanwhile.
#define SIM_READ_DONE()                                                                        \
  if (::simcuda::world().me && ::simcuda::world().me->state.load() == ::simcuda::checkpointed) \
  std::abort()
#define SIM_NEED_CONTEXT()   \
  if (!::simcuda::current()) \
  return CUDA_INVALID_CONTEXT

uint64_t now_ns();
void sleep_until(uint64_t at_ns);
bool all_met(const Meeting& meeting);
// As with driver 580: the GPU cannot leave a kernel of a process that was restored before it ends,
// so one that waits for a kernel of another process is ended by the driver.
bool waits_for_ever(const Meeting& meeting);
CUresult wait_until_met(const Meeting& meeting);
bool take(int device, uint64_t bytes);  // false: the device is full
void give(int device, uint64_t bytes);
Stream* stream_of(CUstream handle);
CUresult run_on(Stream* stream, Node node);  // now, or into the capture
void execute(const Node& node, Stream* stream);
uint64_t address_of_new(uint64_t bytes);
inline uint64_t round_up(uint64_t v, uint64_t to) {
  return (v + to - 1) / to * to;
}

}  // namespace simcuda
