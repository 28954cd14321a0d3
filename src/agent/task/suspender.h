// Suspend and resume as this node does them. Suspend: the user's hook, then the vault takes the GPU
// memory away (or, for a program without the shim, the driver's own checkpoint does), then the
// processes are frozen. Resume: thawed, then memory back, then the hook. What fails leaves the task
// as it was before, and says why.
//
// What is needed to know a task again after a restart of the agent is in two files of its
// directory: `plan`, written once, and `order` (order_record.h). Moving memory takes seconds, so it
// is done on workers; answers come back on the loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/isolate/hook.h"
#include "agent/task/order_record.h"
#include "agent/task/vault_host.h"
#include "core/agent/core.h"
#include "net/workers.h"

namespace billow::agent {

// What the agent must know about a task beyond its supervisor's spec.
struct TaskPlan {
  bool vaulted = false;       // registered with the vault, and the shim is preloaded
  bool enforced = false;      // …for a slice whose limits hold
  bool gpus = false;          // of real hardware
  std::string unsuspendable;  // known from the start
  std::string suspend_hook, resume_hook;
  Duration checkpoint_every;
  std::string checkpoint_cmd;
  std::string checkpoint_local;  // where the job leaves its files
  std::string checkpoint_dir;    // where they are kept
  std::int32_t checkpoint_signal = 0;
  std::vector<std::string> env;  // of the job
  std::string cwd = "/";
  bool other_user = false;
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> groups;
  std::vector<std::string> mig_uuids;
  std::int64_t gpu_mem_mib = 0;  // of the slice, over its cards; 0: whole cards
  template <class V>
  void fields(V& v) {
    v("vaulted", vaulted);
    v("enforced", enforced);
    v("gpus", gpus);
    v("unsuspendable", unsuspendable);
    v("suspend_hook", suspend_hook);
    v("resume_hook", resume_hook);
    v("checkpoint_every_ns", checkpoint_every);
    v("checkpoint_cmd", checkpoint_cmd);
    v("checkpoint_dir", checkpoint_dir);
    v("checkpoint_local", checkpoint_local);
    v("checkpoint_signal", checkpoint_signal);
    v("env", env);
    v("cwd", cwd);
    v("other_user", other_user);
    v("uid", uid);
    v("gid", gid);
    v("groups", groups);
    v("gpu_mem_mib", gpu_mem_mib);
    v("mig_uuids", mig_uuids);
  }
  Hook hook(const std::string& command) const;
};

class Suspender {
 public:
  struct Callbacks {
    std::function<void(const TaskEvent&)> event;
    std::function<bool(TaskId, bool frozen)> freeze;  // false: nobody to freeze any more
    std::function<void(TaskId, bool holds)> hold;     // its simulated GPUs
    std::function<std::string(TaskId)> directory;
    std::function<std::vector<int>(TaskId)> processes;
    std::function<std::map<int, std::int64_t>()>
        gpu_memory;  // MiB by process, from the driver; on a worker. May be empty
    std::function<void(TaskId, const std::string& why)> stop;
  };
  Suspender(net::Loop& loop, VaultHost::Options vault, Callbacks callbacks);

  // Before a start: registers it with the vault where it needs that, and adds to its environment.
  TaskPlan prepare(const wire::agent_v1::Start& start,
                   const std::vector<GpuInfo>& cards,
                   bool simulated,
                   Environment& env);
  void began(TaskId task, TaskPlan plan);  // its directory is there
  void adopted(TaskId task);
  void ended(TaskId task);  // or never began
  void carry_out(TaskId task, OrderRecord record);
  const TaskPlan* plan(TaskId task) const;
  bool frozen(TaskId task) const {
    return frozen_.contains(task);
  }              // suspended, or on its way there or back
  void leave();  // the agent ends and leaves no task behind
  std::int64_t arena_bytes() const { return vault_->arena_bytes(); }

 private:
  struct Outcome {
    std::string error;
    std::int64_t bytes = 0;
    std::vector<int> pids;
    bool moved = false;
  };
  void keep(TaskId task, const OrderRecord& record);
  void suspended(TaskId task, OrderRecord record, Outcome outcome);
  void resumed(TaskId task, OrderRecord record, Outcome outcome);
  void look();
  void seen(const std::vector<VaultHost::Seen>& tasks,
            const std::map<int, std::int64_t>& gpu_memory);

  net::Loop& loop_;
  Callbacks callbacks_;
  std::shared_ptr<VaultHost> vault_;  // workers may outlive a look at it
  std::map<TaskId, TaskPlan> plans_;
  std::set<TaskId> frozen_;
  std::map<TaskId, int> over_;  // looks in a row that found a slice beyond its memory
  bool looking_ = false;
  net::Timer timer_;
  net::Workers workers_;  // last: waits for what runs
};

}  // namespace billow::agent
