// What the guarantees of projects leave to others once machines have come. Jobs that cannot be
// preempted borrow only GPUs that are not guaranteed (sched/tally.cpp), so a machine that adds only
// guaranteed GPUs would be rented for nothing, and once it is released, the next one would be
// ordered.
//
// Only what a job needs itself is counted as coming. A machine ordered for another job may join
// later or never; until then the guarantee would keep this job from starting on a machine that was
// ordered for it. So a job that needs GPUs beside a guarantee is rented for when the machines of
// the guaranteed project have joined.
#pragma once

#include <cstdint>
#include <map>

#include "core/control/state.h"

namespace billow::control {

class Lending {
 public:
  explicit Lending(const State& state);
  // Whether the guarantees would let the job start if so many thousandths of GPUs came for it.
  bool lets(const Job& job, std::int64_t asked_milli, std::int64_t more_milli) const;
  // How much of it would be beyond the guarantee of its own project.
  std::int64_t borrowed(const Job& job, std::int64_t asked_milli) const;
  // It will start on what is on its way: later jobs of its project find less of their guarantee.
  void will_start(const Job& job, std::int64_t asked_milli);

 private:
  const sched::JobRequest& request(const Job& job) const;
  std::int64_t planned(const Job& job) const;

  const State& state_;
  bool any_ = false;                              // a project has a guarantee
  std::int64_t leaving_milli_ = 0;                // GPUs of nodes that are about to go
  std::map<ProjectId, std::int64_t> firm_milli_;  // of planned starts
  mutable sched::JobRequest request_;             // of the job that was asked about last
};

// Of GPUs that work, on nodes of the machine that have joined.
std::int64_t joined_milli(const State& state, const Machine& machine);

}  // namespace billow::control
