// Jobs in the queueing experiment, and how long one round of jobs that share GPUs in turns takes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "simulate/simulate.h"

namespace billow::sched {

struct Live {
  const TraceJob* job = nullptr;
  double left_s = 0;  // remaining service time, running alone
  // On GPUs, including overhead: all that a scheduler without known durations sees.
  double held_s = 0;
  double end_s = 0;    // if nothing changes before
  double round_s = 0;  // per iteration, now
  double overhead_s = 0;
  double own_overhead_s = 0;
  double key = 0;
  bool running = false, begun = false, done = false;
  std::uint32_t profile = 0;
};
using Group = std::vector<Live*>;

// The length of one round of interleaved jobs: the best cyclic order of their storage, CPU and GPU
// phases, times the slow-down measured for two, three and four jobs.
class Rounds {
 public:
  explicit Rounds(const std::vector<TraceJob>& jobs);
  std::uint32_t profile(const TraceJob& job) const;
  double seconds(const Group& group);

 private:
  std::map<std::vector<double>, std::uint32_t> profiles_;
  std::map<std::array<std::uint32_t, 4>, double> memo_;
};

}  // namespace billow::sched
