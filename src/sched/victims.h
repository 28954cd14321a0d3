// Who gives way to whom, and which running jobs it costs least to ask.
//
// Work stands in three tiers: within its project's guarantee, borrowed, spot. A job may take the room of a lower tier, or of its
// own tier at lower priority (inside a guarantee: only of its own project). Tier and priority are a strict order, so a victim
// can never take back from the one it gave way to: there is no cycle.
#pragma once

#include "sched/reserved.h"

namespace billow::sched {

enum class Tier { spot = 0, borrowed = 1, guaranteed = 2 };
Tier tier_of_queued(const SchedIndex::Impl& index, const JobRequest& job, std::int64_t project_milli);

struct VictimPlan {
  std::vector<Placement> placements;       // where the job goes once they have left
  std::vector<Preempt> victims;
  std::vector<std::pair<JobId, Placement>> moves;   // of those that go on elsewhere: where there is room for them
  bool found() const { return !placements.empty(); }
};
// What a search goes by. The index shows what is held for jobs; what is reserved is asked for apart, because a victim may stand there.
struct VictimSearch {
  SchedIndex::Impl& index;
  const Reserved& reserved;
  WallTime now;
  const std::set<JobId>& spoken_for;       // jobs already asked in this pass
};
// Cheapest victims that make room for all tasks of the job, which would stay so long.
VictimPlan find_victims(const VictimSearch& search, const PlacementClass& c, const JobRequest& job, const Stay& stay);
// Jobs that can go on elsewhere, for which there is room there now, and whose moving makes room here.
VictimPlan find_moves(const VictimSearch& search, const PlacementClass& c, const JobRequest& job, const Stay& stay);
// What asking a job costs: work thrown away (nearly nothing when it is suspended), and a little for each job disturbed.
double cost_of(const RunningJob& job, WallTime now, Yields mode);
// How a job is asked; one that is merely spot starts again.
inline Yields mode_of(const JobRequest& job) { return job.yields == Yields::never ? Yields::by_requeue : job.yields; }

}  // namespace billow::sched
