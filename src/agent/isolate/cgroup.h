// Limits for CPU, memory and processes by control groups, in the form this machine has: v2, v1, or
// v1 beside an empty v2 ("hybrid"). Each task gets its own group below a `billow` group; the
// supervisor stays outside.
//
// `report` says what is not available. A job that asks for a memory limit on a machine that cannot
// enforce one runs without it, and `billow doctor` says why and what to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/isolate/device_guard.h"
#include "agent/isolate/task_spec.h"
#include "base/ids.h"
#include "base/result.h"

namespace billow::agent {

enum class CgroupKind { none, v1, v2 };

struct CgroupLimits {
  std::int64_t cpu_milli = 0;  // 0: none
  std::int64_t mem_mib = 0;    // 0: none; swap is not allowed on top
  std::int64_t pids_max = 0;   // 0: none
};
// The memory limit of a task that asks for none: the part of the node's memory that its GPUs, or
// its cores, are of the node's; at least 4 GiB or an eighth of the node, whichever is less. 0:
// unknown.
struct FairMemory {
  std::int64_t node_mib = 0;
  std::int64_t gpu_milli = 0, node_gpu_milli = 0;
  std::int64_t cpu_milli = 0, node_cpu_milli = 0;
};
std::int64_t fair_memory_mib(const FairMemory& of);
// The process limit of a task that asks for none.
std::int64_t default_processes_max();

struct CgroupUsage {
  std::int64_t cpu_ns = 0;
  std::int64_t mem_bytes = 0, mem_peak_bytes = 0;
  std::uint64_t oom_kills = 0;
};

// The groups of one task.
struct TaskCgroup {
  std::string v2;  // empty: none
  std::vector<std::string> v1;
  std::string memory;  // the directory whose OOM counter is this task's
  std::string freezer_v1;
  bool empty() const { return v2.empty() && v1.empty(); }
  void apply_to(TaskSpec& spec) const;
};

class Cgroups {
 public:
  struct Options {
    std::string mounts_file = "/proc/self/mounts";
    std::string name = "billow";  // the parent of all tasks' groups
    // Part of the group names: several agents on one machine may have tasks of the same number.
    std::string owner = "";
    // The groups of the node's root helper: this process reads them and makes none.
    bool of_helper = false;
  };
  // Finds what exists and is permitted, and creates the parent group. Never fails: report() says
  // what is missing.
  static Cgroups detect(Options options);

  CgroupKind cpu() const { return cpu_; }
  CgroupKind memory() const { return memory_; }
  CgroupKind pids() const { return pids_; }
  // Tasks start in a v2 group, with or without limits: killing and freezing are exact.
  bool tracks() const { return !v2_parent_.empty(); }

  // Creates the groups of a task. A v1 group is created only for a limit that was asked for,
  // because entering one pauses the kernel.
  Result<TaskCgroup> create(TaskId id, const CgroupLimits& limits) const;
  // Adds a v1 group in which these devices cannot be opened, for machines whose v2 takes no program
  // for that (device_guard.h).
  Status deny_devices(TaskId id, const std::vector<DeviceNumber>& denied, TaskCgroup& group) const;
  bool denies_devices() const { return devices_ != CgroupKind::none; }
  // The groups of the programs that fetch what a task needs, before it starts: with limits of their
  // own, because the task's may be too low for them.
  Result<TaskCgroup> create_for_fetch(TaskId id) const;
  // The groups of the process that carries a task's connections to the Internet: what the task
  // makes it do is limited, too. The task's own limits do not count for it.
  Result<TaskCgroup> create_for_uplink(TaskId id, std::int64_t cpu_milli) const;
  // The existing groups of a task: for adoption and cleaning up.
  TaskCgroup find(TaskId id) const { return find_leaf(leaf_ + std::to_string(id.value)); }
  TaskCgroup find_uplink(TaskId id) const {
    return find_leaf(uplink_leaf_ + std::to_string(id.value));
  }
  // The task whose v2 group has this path, or contains it, as /proc/PID/cgroup shows it.
  std::optional<TaskId> task_at(std::string_view path) const;
  CgroupUsage usage(const TaskCgroup& group) const;
  // Without groups of their own, tasks share the OOM counter of the container that the agent is
  // in. Empty: there is none.
  const std::string& shared_oom_counter() const { return shared_oom_counter_; }
  // Kills the processes inside and removes the groups. unavailable while a process has not ended
  // yet.
  Status remove(const TaskCgroup& group) const;
  // Lines for `billow doctor`: "memory limits: cgroup v1", "CPU limits: not available: … ; do …".
  std::vector<std::string> report() const;

 private:
  struct Missing {
    std::string why, hint;
  };
  Result<TaskCgroup> create_leaf(const std::string& leaf, const CgroupLimits& limits) const;
  TaskCgroup find_leaf(const std::string& leaf) const;
  void remove_leftovers() const;
  std::string v1_parent(const char* controller) const;
  void probe_v1(const char* controller,
                const std::string& mount,
                CgroupKind* kind,
                Missing* missing);
  void probe_v2(const std::string& mount);
  void read_v2(const std::string& parent);

  CgroupKind cpu_ = CgroupKind::none, memory_ = CgroupKind::none, pids_ = CgroupKind::none,
             freezer_ = CgroupKind::none, devices_ = CgroupKind::none;
  std::string v2_parent_;  // ".../billow", writable
  std::string shared_oom_counter_;
  std::vector<std::pair<std::string, std::string>> v1_parents_;  // controller → ".../billow"
  Missing cpu_missing_, memory_missing_, pids_missing_;
  std::string name_, leaf_, fetch_leaf_, uplink_leaf_;
  bool of_helper_ = false;
};

}  // namespace billow::agent
