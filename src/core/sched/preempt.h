// Preemption: which running jobs are asked to leave for a job that finds no free capacity.
//
// Jobs stand in three tiers: within their project's guarantee, borrowed, spot. A job may take the
// capacity of a lower tier, or of its own tier at lower priority (inside a guarantee: only of its
// own project). Tier and priority are a strict order, so a victim can never take back from the job
// it left for: there is no cycle.
//
// Only jobs that yield are asked, and today these are spot jobs. A reservation that begins clears
// its GPUs by Pass::clear_for (promises.cpp).
//
// The path of a preemption: Pass::no_capacity (no_capacity.cpp) calls Pass::ask_to_leave
// (preempt.cpp), which puts the victims into the plan and holds their capacity for the job;
// control::carry_out (control/decide/decide.cpp) turns each into a suspend or stop order.
#pragma once

#include "core/sched/reserved.h"

namespace billow::sched {

enum class Tier { spot = 0, borrowed = 1, guaranteed = 2 };
Tier tier_of_queued(const SchedIndex::Impl& index,
                    const JobRequest& job,
                    std::int64_t project_milli);

struct VictimPlan {
  std::vector<Placement> placements;  // where the job goes once the victims have left
  std::vector<Preempt> victims;
  std::vector<std::pair<JobId, Placement>> moves;  // victims that continue elsewhere, and where
  bool found() const { return !placements.empty(); }
};
// The input of a search. The index has already subtracted what is held for jobs. Reservations are
// looked up separately, because a victim may run inside one.
struct VictimSearch {
  SchedIndex::Impl& index;
  const Reserved& reserved;
  WallTime now;
  const std::set<JobId>& spoken_for;  // jobs already asked in this pass
};
// The cheapest victims that free capacity for all tasks of the job, which would run for `stay`.
VictimPlan find_victims(const VictimSearch& search,
                        const PlacementClass& c,
                        const JobRequest& job,
                        const Stay& stay);
// Jobs that can continue elsewhere, where capacity is free now, and whose move frees capacity here.
VictimPlan find_moves(const VictimSearch& search,
                      const PlacementClass& c,
                      const JobRequest& job,
                      const Stay& stay);
// The cost of preempting a job in GPU-seconds: the lost work (nearly nothing if it is suspended),
// plus a little for each disturbed job.
double cost_of(const RunningJob& job, WallTime now, Yields mode);
// Finds the fewest and cheapest of `asked` (cheapest first) that must leave before something fits:
// they leave one after the other until it fits, then those that are not needed stay, most expensive
// first. Afterwards `asked` holds those that must leave. `shift` gives or takes their capacity.
template <class Shift, class Fits>
auto least_asked(std::vector<JobId>& asked, Shift shift, Fits fits) -> decltype(fits()) {
  std::size_t taken = 0;
  decltype(fits()) placement;
  while (taken < asked.size() && !placement) {
    shift(asked[taken++], +1);
    placement = fits();
  }
  if (!placement)
    return std::nullopt;
  asked.resize(taken);
  for (std::size_t i = asked.size(); i-- > 0 && asked.size() > 1;) {
    shift(asked[i], -1);
    if (auto still = fits()) {
      placement = std::move(still);
      asked.erase(asked.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      shift(asked[i], +1);
    }
  }
  return placement;
}
// How a job leaves; a spot job that cannot be suspended is restarted later.
inline Yields mode_of(const JobRequest& job) {
  return job.yields == Yields::never ? Yields::by_requeue : job.yields;
}

}  // namespace billow::sched
