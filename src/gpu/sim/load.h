// How busy a tree of processes is, by the kernel's own scheduler statistics: the time its threads
// ran plus the time they were ready and waited for a core. Waiting counts, so that a busy loop
// reads as busy on a machine with more loops than cores; a sleeping thread does neither.
//
// A Meter looks at targets (a pid or a cgroup) again and again and reports what happened since its
// last look. A target seen for the first time is judged over its life so far. Time of threads that
// began and ended between two looks is not seen.
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
  std::int64_t busy_ns = 0;  // ran or waited, in the window
};
struct SimTreeLoad {
  double busy = 0;                 // 0–1: cores' worth of the tree, at most one
  std::int64_t declared_mib = -1;  // the largest BILLOW_SIM_GPU_MEM of its processes; -1: none says
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
