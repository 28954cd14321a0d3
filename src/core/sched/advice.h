// Which changes to a waiting job would let it start now. Nothing is guessed: each change is tried
// by a plan in which the changed job stands at the end of the queue instead of the waiting one, so
// reservations, limits and earlier jobs all count.
#pragma once

#include "core/sched/index.h"

namespace billow::sched {

inline constexpr PlanLimits whole_plan{.starts_max = 1 << 20, .tries_max = 1 << 20};

// The smallest changes found, as options of `billow run`; empty if none was found.
std::string what_would_start(const SchedIndex& index, const JobRequest& job, WallTime now);
// The reservation without which the job would start now; null if it waits for another reason.
const Reservation* kept_from_it(SchedIndex::Impl& index, const JobRequest& job, WallTime now);

}  // namespace billow::sched
