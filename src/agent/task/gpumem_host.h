// The agent's side of the GPU memory service (billow-gpumem). The agent starts the service when the
// first task needs it, finds it again by its socket after a restart, registers tasks with their
// limits, and asks it to suspend and resume their GPU memory.
//
// The service survives the agent, because suspended memory lives in it. Its sockets lie outside the
// agent's data directory, which only the agent may enter: jobs of other users must reach the job
// socket; the admin socket is for the agent alone. Everything here blocks: `add` and `remove` for
// well under a millisecond once the service runs, the others much longer, so they run on a worker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/model/job.h"
#include "gpu/backend.h"

namespace billow::agent {

class GpumemHost {
 public:
  struct Options {
    std::string data_dir;
    std::string owner;       // distinguishes the services of several agents on one machine
    bool simulated = false;  // simulated GPUs; BILLOW_CUDA names their driver, if there is one
    std::int64_t arena_bytes = 0;  // 0: limits are enforced, but no task can be suspended
    std::string temporary = {};    // the agent's own directory in /tmp
    // Memory for suspended tasks in all, the arena included, and disk space below it in data_dir.
    std::int64_t sleep_memory_bytes = 0, sleep_disk_bytes = 0;
  };
  explicit GpumemHost(Options options);

  // Empty, or why tasks on this node can have neither limits nor fast suspend.
  const std::string& unavailable() const { return unavailable_; }
  std::int64_t arena_bytes() const { return options_.arena_bytes; }

  struct Limit {
    GpuInfo gpu;
    Share share;
  };
  struct Job {
    TaskId task;
    std::vector<Limit> limits;
    bool strict = false;
    bool suspendable = false;
  };
  // Registers a task and starts the service if it does not run. Returns the variables for the
  // task's
  // environment.
  Result<std::map<std::string, std::string>> add(const Job& job);
  void remove(TaskId task);

  struct Moved {
    std::int64_t bytes = 0;
    double seconds = 0;
    std::string note;
  };
  Result<Moved> suspend(TaskId task, SuspendMode mode);
  Result<Moved> resume(TaskId task);
  // The driver's own checkpoint, for processes without the shim.
  Status checkpoint(const std::vector<int>& pids);
  Status restore(const std::vector<int>& pids);

  struct Seen {
    TaskId task;
    std::vector<int> pids;       // processes that use CUDA, in the service's pid namespace
    std::uint64_t features = 0;  // BILLOW_USES_…
    std::int64_t used_bytes = 0;
    std::int64_t refused = 0;  // refused allocations
    std::string asleep;        // of a suspended one: where its memory is, and what waking costs
  };
  Result<std::vector<Seen>> look();
  // Ends the service if it holds no job; called when the agent leaves the node for good.
  void end_if_idle();

 private:
  Status ensure();

  Options options_;
  std::string program_, shim_, dir_, unavailable_;
};

// Why a program with these features cannot be suspended; empty: it can be.
std::string blocks_suspend(std::uint64_t features);
// An eighth of the node's memory more than the arena.
std::int64_t default_sleep_memory_bytes(std::int64_t host_bytes, std::int64_t arena_bytes);
// Half of what the filesystem of `directory` has free.
std::int64_t default_sleep_disk_bytes(const std::string& directory);
// Half the node's memory, at most the memory of all its GPUs. The arena is pinned; jobs use the
// rest.
std::int64_t default_arena_bytes(std::int64_t host_bytes, std::int64_t gpu_bytes, bool simulated);

}  // namespace billow::agent
