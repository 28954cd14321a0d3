// The load of a process tree from the kernel's scheduler statistics: the time its threads ran plus
// the time they were ready and waited for a core. Waiting counts, so that a busy loop is busy even
// with more loops than cores; a sleeping thread does neither.
//
// A Meter samples its targets (a pid or a cgroup) repeatedly and reports the activity since the
// last sample. A new target is judged over its life so far. Threads that began and ended between
// two samples are not counted.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpu/sim/sim_holders.h"

namespace billow {

struct SimProcess {
  std::int64_t pid = 0;
  std::int64_t rss_mib = 0;
  std::int64_t busy_ns = 0;  // running or waiting, in the window
};
struct SimTreeLoad {
  double busy = 0;  // 0–1: cores used by the tree, at most one
  // The largest BILLOW_SIM_GPU_MEM of its processes; -1: none is set.
  std::int64_t declared_mib = -1;
  std::vector<SimProcess> processes;
};

class SimMeter {
 public:
  // `now_ns` is CLOCK_BOOTTIME. Every target of this round is passed once, between begin and end.
  void begin(std::int64_t now_ns) {
    now_ns_ = now_ns;
    ++round_;
  }
  SimTreeLoad look(const SimHoldEntry& target);
  void end();

 private:
  struct Thread {
    std::int64_t total_ns = 0;
    std::uint64_t round = 0;
  };
  struct Target {
    std::int64_t looked_ns = 0;
    std::uint64_t round = 0;
  };

  std::vector<std::int64_t> tree_of(std::int64_t root) const;
  static std::vector<std::int64_t> cgroup_processes(const std::string& path);
  bool read_process(std::int64_t pid, bool first_look, SimTreeLoad& load);

  std::int64_t now_ns_ = 0;
  std::uint64_t round_ = 0;
  std::unordered_map<std::int64_t, Thread> threads_;  // by thread id
  std::unordered_map<std::string, Target> targets_;
};

}  // namespace billow
