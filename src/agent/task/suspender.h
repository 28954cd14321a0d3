// Suspend and resume on this node. Suspend: run the user's hook, move the GPU memory to the GPU
// memory service (for a program without the shim: by the driver's own checkpoint), freeze the
// processes. Resume: thaw, move the memory back, run the hook. A step that fails leaves the task as
// it was, with the reason.
//
// Two files in the task's directory describe it for a restarted agent: `plan`, written once, and
// `order` (order_record.h). Moving memory takes seconds and runs on workers; results come back on
// the loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/isolate/hook.h"
#include "agent/task/gpumem_host.h"
#include "agent/task/order_record.h"
#include "core/agent/core.h"
#include "net/workers.h"

namespace billow::agent {

// What the agent must know about a task beyond the supervisor's spec.
struct TaskPlan : TaskHooks {
  using FieldsBase = TaskHooks;
  bool has_shim = false;      // registered with the GPU memory service, and the shim is preloaded
  bool enforced = false;      // and it has a slice whose limits are enforced
  bool gpus = false;          // real ones, not simulated
  std::string unsuspendable;  // why it cannot be suspended, if known from the start
  std::string
      checkpoint_local;  // where the job writes its files; they are copied to checkpoint_dir
  std::vector<std::string> env;  // of the job
  std::string cwd = "/";
  bool other_user = false;
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> groups;
  std::vector<std::string> mig_uuids;
  std::int64_t gpu_mem_mib = 0;  // of the slice, summed over its cards; 0: whole cards
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("vaulted", s.has_shim);
    v("enforced", s.enforced);
    v("gpus", s.gpus);
    v("unsuspendable", s.unsuspendable);
    TaskHooks::fields(s, v);
    v("checkpoint_local", s.checkpoint_local);
    v("env", s.env);
    v("cwd", s.cwd);
    v("other_user", s.other_user);
    v("uid", s.uid);
    v("gid", s.gid);
    v("groups", s.groups);
    v("gpu_mem_mib", s.gpu_mem_mib);
    v("mig_uuids", s.mig_uuids);
  }
  std::optional<Identity> identity() const {
    return other_user ? std::optional(Identity{uid, gid, groups}) : std::nullopt;
  }
};

class Suspender {
 public:
  struct Callbacks {
    std::function<void(const TaskEvent&)> event;
    std::function<bool(TaskId, bool frozen)> freeze;  // false: the task has ended
    std::function<void(TaskId, bool holds)> hold;     // its simulated GPUs
    std::function<std::string(TaskId)> directory;
    std::function<std::vector<int>(TaskId)> processes;
    std::function<Result<JobPlace>(TaskId)> place;  // where its hooks run
    std::function<std::map<int, std::int64_t>()>
        gpu_memory;  // MiB by process, from the driver; on a worker. May be empty
    std::function<void(TaskId, const std::string& why)> stop;
  };
  Suspender(net::Loop& loop, GpumemHost::Options gpumem, Callbacks callbacks);

  // Before a start: registers the task with the GPU memory service if it needs to, and adds to its
  // environment.
  TaskPlan prepare(const wire::agent_v1::Start& start,
                   const std::vector<GpuInfo>& cards,
                   bool simulated,
                   Environment& env);
  void began(TaskId task, TaskPlan plan);  // its directory exists
  void adopted(TaskId task);
  void ended(TaskId task);  // or never began
  void carry_out(TaskId task, OrderRecord record);
  const TaskPlan* plan(TaskId task) const;
  // Where a suspended task's GPU memory is, and what resuming it costs; empty: not known.
  std::string asleep_text(TaskId task) const {
    const auto found = asleep_.find(task);
    return found == asleep_.end() ? std::string() : found->second;
  }
  bool frozen(TaskId task) const {
    return frozen_.contains(task);
  }              // suspended, or on its way there or back
  void leave();  // the agent ends, and no task is left
  std::int64_t arena_bytes() const { return gpumem_->arena_bytes(); }

 private:
  struct Outcome {
    std::string error;
    std::int64_t bytes = 0;
    std::vector<int> pids;
    bool moved = false;
  };
  // What a worker needs to take a task's GPU memory away.
  struct Taking {
    std::shared_ptr<GpumemHost> gpumem;
    std::function<std::map<int, std::int64_t>()> gpu_memory;
    TaskId task;
    TaskPlan plan;
    SuspendMode mode;
    std::vector<int> processes;
  };
  static Outcome take_memory(const Taking& taking);
  static Outcome checkpoint_by_driver(const Taking& taking);
  static Outcome give_memory_back(GpumemHost& gpumem,
                                  TaskId task,
                                  const TaskPlan& plan,
                                  const OrderRecord& record);
  void keep(TaskId task, const OrderRecord& record);
  void suspended(TaskId task, OrderRecord record, Outcome outcome);
  void resumed(TaskId task, OrderRecord record, Outcome outcome);
  void look();
  void seen(const std::vector<GpumemHost::Seen>& tasks,
            const std::map<int, std::int64_t>& gpu_memory);

  net::Loop& loop_;
  Callbacks callbacks_;
  std::shared_ptr<GpumemHost> gpumem_;  // also held by workers
  std::map<TaskId, TaskPlan> plans_;
  std::set<TaskId> frozen_;
  std::map<TaskId, std::string> asleep_;
  std::map<TaskId, int> over_;  // consecutive checks that found more memory than the slice
  bool looking_ = false;
  net::Timer timer_;
  net::Workers workers_;  // last: its destructor waits for running work
};

}  // namespace billow::agent
