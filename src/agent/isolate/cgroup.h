// Limits for CPU and memory by control groups, in whichever form this machine has them: v2, v1, or
// v1 beside an empty v2
// ("hybrid"). Each task gets a group of its own under a `billow` group; the supervisor stays
// outside.
//
// What is not available is said in words (`report`), not passed over: a job that asks for a memory
// limit on a machine that cannot keep one runs without it, and `billow doctor` tells why and what
// to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"
#include "base/ids.h"
#include "base/result.h"

namespace billow::agent {

enum class CgroupKind { none, v1, v2 };

struct CgroupLimits {
  std::int64_t cpu_milli = 0;  // 0: none
  std::int64_t mem_mib = 0;    // 0: none; swap is not allowed on top
  std::int64_t pids_max = 0;   // 0: none
  bool wants_anything() const { return cpu_milli > 0 || mem_mib > 0 || pids_max > 0; }
};
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
    std::string name = "billow";  // the group under which all tasks' groups lie
    std::string owner =
        "";  // tells the tasks of several agents on one machine apart; their numbers do not
  };
  // Looks what there is and what is permitted, making the parent group. Never fails: what is
  // missing is in report().
  static Cgroups detect(Options options);

  CgroupKind cpu() const { return cpu_; }
  CgroupKind memory() const { return memory_; }
  CgroupKind pids() const { return pids_; }
  bool tracks() const {
    return !v2_parent_.empty();
  }  // a v2 group to be born in, limits or not: exact kill and freeze

  // The groups for a task. A v1 group is made only for a limit that was asked for: entering one
  // costs the kernel a pause.
  Result<TaskCgroup> create(TaskId id, const CgroupLimits& limits) const;
  // The groups a task of that id has, if any: for adoption and cleaning up.
  TaskCgroup find(TaskId id) const;
  CgroupUsage usage(const TaskCgroup& group) const;
  // Ends whatever is left inside and removes the groups. unavailable while something inside will
  // not die yet.
  Status remove(const TaskCgroup& group) const;
  // Lines for `billow doctor`: "memory limits: cgroup v1", "CPU limits: not available: … ; do …".
  std::vector<std::string> report() const;

 private:
  struct Missing {
    std::string why, hint;
  };
  std::string v1_parent(const char* controller) const;
  void probe_v1(const char* controller,
                const std::string& mount,
                CgroupKind* kind,
                Missing* missing);
  void probe_v2(const std::string& mount);

  CgroupKind cpu_ = CgroupKind::none, memory_ = CgroupKind::none, pids_ = CgroupKind::none,
             freezer_ = CgroupKind::none;
  std::string v2_parent_;                                        // ".../billow", writable
  std::vector<std::pair<std::string, std::string>> v1_parents_;  // controller → ".../billow"
  Missing cpu_missing_, memory_missing_, pids_missing_;
  std::string name_, leaf_;
};

}  // namespace billow::agent
