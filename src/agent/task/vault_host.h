// The node's billow-vault as the agent uses it: started when the first task needs it, found again
// by its socket after a restart of the agent, told which tasks hold what, and asked to take their
// GPU memory away and bring it back.
//
// It survives the agent, because suspended memory lives in it. Its sockets lie outside the agent's
// data directory, which only the agent may enter, while jobs of other users must reach the one they
// greet at; the admin socket is the agent's alone. Everything here blocks: `add` and `remove` for
// well under a millisecond once the vault runs, the others for as long as it takes, so they are
// called on a worker.
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

class VaultHost {
 public:
  struct Options {
    std::string data_dir;
    std::string owner;  // tells the vaults of several agents on one machine apart
    bool simulated =
        false;  // the node's GPUs are; the driver is then named by BILLOW_CUDA, or there is none
    std::int64_t arena_bytes = 0;  // 0: nothing can be suspended, limits hold
  };
  explicit VaultHost(Options options);

  // Empty, or why no task of this node can have limits or be suspended fast.
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
  // Registers a task, starting the vault where none answers. What its processes need in their
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
    std::vector<int> pids;       // that use CUDA, as the vault's kernel numbers them
    std::uint64_t features = 0;  // BILLOW_USES_…
    std::int64_t used_bytes = 0;
    std::int64_t refused = 0;  // allocations
  };
  Result<std::vector<Seen>> look();
  // Ends it where it holds no job: the last agent of the node leaves.
  void end_if_idle();

 private:
  Status ensure();
  Result<std::string> call_text(const std::string& command, int timeout_ms);

  Options options_;
  std::string program_, shim_, dir_, unavailable_;
};

// Why a program with these features cannot be suspended; empty: it can.
std::string blocks_suspend(std::uint64_t features);
// Half the memory, at most what all GPUs have: the arena is pinned, so the rest stays the jobs'.
std::int64_t default_arena_bytes(std::int64_t host_bytes, std::int64_t gpu_bytes, bool simulated);

}  // namespace billow::agent
