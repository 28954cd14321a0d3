// Who gives way to whom, and which running jobs it costs least to ask.
//
// Work stands in three tiers: within its project's guarantee, borrowed, spot. A job may take the room of a lower tier, or of its
// own tier at lower priority (inside a guarantee: only of its own project). Tier and priority are a strict order, so a victim
// can never take back from the one it gave way to: there is no cycle.
#pragma once

#include "sched/index.h"

namespace billow::sched {

enum class Tier { spot = 0, borrowed = 1, guaranteed = 2 };
Tier tier_of_queued(const SchedIndex::Impl& index, const JobRequest& job, std::int64_t project_milli);

struct VictimPlan {
  std::vector<Placement> placements;       // where the job goes once they have left
  std::vector<Preempt> victims;
  bool found() const { return !placements.empty(); }
};
// Cheapest victims that make room for all tasks of the job. `spoken_for`: jobs already asked in this pass.
VictimPlan find_victims(SchedIndex::Impl& index, const PlacementClass& c, const JobRequest& job, WallTime now, const std::set<JobId>& spoken_for);
// Jobs that can go on elsewhere, for which there is room there now, and whose moving makes room here.
VictimPlan find_moves(SchedIndex::Impl& index, const PlacementClass& c, const JobRequest& job, WallTime now, const std::set<JobId>& spoken_for);

}  // namespace billow::sched
