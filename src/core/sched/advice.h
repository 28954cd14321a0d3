// What would have to change for a waiting job to start now. Nothing is guessed: every change is
// tried by a plan in which the changed job stands at the end of the queue in place of the one that
// waits, so reservations, limits and those before it count as they do then.
#pragma once

#include "core/sched/index.h"

namespace billow::sched {

inline constexpr PlanLimits whole_plan{.starts_max = 1 << 20, .tries_max = 1 << 20};

// The smallest changes found, as options of `billow run`; empty: none was found.
std::string what_would_start(const SchedIndex& index, const JobRequest& job, WallTime now);
// The reservation without which the job would start now; null: it is not for one that it waits.
const Reservation* kept_from_it(SchedIndex::Impl& index, const JobRequest& job, WallTime now);

}  // namespace billow::sched
