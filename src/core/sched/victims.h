// Who gives way to whom, and which running jobs it costs least to ask.
//
// Work stands in three tiers: within its project's guarantee, borrowed, spot. A job may take the
// room of a lower tier, or of its own tier at lower priority (inside a guarantee: only of its own
// project). Tier and priority are a strict order, so a victim can never take back from the one it
// gave way to: there is no cycle.
#pragma once

#include "core/sched/reserved.h"

namespace billow::sched {

enum class Tier { spot = 0, borrowed = 1, guaranteed = 2 };
Tier tier_of_queued(const SchedIndex::Impl& index,
                    const JobRequest& job,
                    std::int64_t project_milli);

struct VictimPlan {
  std::vector<Placement> placements;  // where the job goes once they have left
  std::vector<Preempt> victims;
  std::vector<std::pair<JobId, Placement>>
      moves;  // of those that go on elsewhere: where there is room for them
  bool found() const { return !placements.empty(); }
};
// What a search goes by. The index shows what is held for jobs; what is reserved is asked for
// apart, because a victim may stand there.
struct VictimSearch {
  SchedIndex::Impl& index;
  const Reserved& reserved;
  WallTime now;
  const std::set<JobId>& spoken_for;  // jobs already asked in this pass
};
// Cheapest victims that make room for all tasks of the job, which would stay so long.
VictimPlan find_victims(const VictimSearch& search,
                        const PlacementClass& c,
                        const JobRequest& job,
                        const Stay& stay);
// Jobs that can go on elsewhere, for which there is room there now, and whose moving makes room
// here.
VictimPlan find_moves(const VictimSearch& search,
                      const PlacementClass& c,
                      const JobRequest& job,
                      const Stay& stay);
// What asking a job costs: work thrown away (nearly nothing when it is suspended), and a little for
// each job disturbed.
double cost_of(const RunningJob& job, WallTime now, Yields mode);
// The fewest and cheapest of `asked` (in which order they come) whose leaving lets something in:
// one after the other until it fits, then whoever turns out not to be needed stays, dearest first.
// `asked` keeps those who must leave; `shift` gives or takes their room.
template <class Shift, class Fits>
std::optional<Placement> least_asked(std::vector<JobId>& asked, Shift shift, Fits fits) {
  std::size_t taken = 0;
  std::optional<Placement> placement;
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
// How a job is asked; one that is merely spot starts again.
inline Yields mode_of(const JobRequest& job) {
  return job.yields == Yields::never ? Yields::by_requeue : job.yields;
}

}  // namespace billow::sched
