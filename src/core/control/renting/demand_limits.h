// Which of the waiting jobs could start if there were machines: quotas and budgets let only some of
// them, and no machine is ordered for the others.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/control/decide/decider.h"
#include "core/control/money.h"
#include "core/control/renting/offers.h"
#include "core/control/state.h"

namespace billow::control {

class DemandLimits {
 public:
  DemandLimits(const State& state, WallTime billed);
  ~DemandLimits();
  // Counts the job as started, if its project's, its user's and its array's limits allow that.
  bool take(const Job& job, std::int64_t gpu_milli);
  // Whether its budgets would let it start at this price. Counts it as started if so.
  bool pays(const Job& job, Rate rate, std::int64_t gpu_milli);

 private:
  struct Load {
    std::int64_t milli = 0;
    std::int64_t jobs = 0;
  };
  Load& of_user(ProjectId project, UserId user);

  const State& state_;
  WallTime billed_;
  std::map<ProjectId, std::int64_t> projects_;  // GPU thousandths, running and planned
  std::map<std::pair<ProjectId, UserId>, Load> users_;
  bool users_known_ = false;
  std::map<JobId, std::uint64_t> arrays_;  // elements planned
  std::unique_ptr<Purse> purse_;
};

// Whether more machines would help: a job held back by a quota or a budget must not rent any.
bool waits_for_capacity(const State& state, const Job& job, WallTime now);
// The same of a job alone: those before it in the queue take nothing of its quotas.
bool could_use_a_machine(const State& state, const Job& job, WallTime now);
// What the job would be charged for a second on a machine of this source, as far as that is known.
Rate rate_on(const State& state,
             const Source& source,
             const JobSpec& spec,
             const ledger::PriceBook* prices);
// Thousandths of GPUs that all its parts need.
std::int64_t all_milli(const JobSpec& spec);

}  // namespace billow::control
