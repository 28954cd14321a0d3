// What can be said about the start of a waiting job beyond its forecast (plan.h).
#pragma once

#include <string>

#include "core/sched/plan.h"

namespace billow::sched {

// By when the job starts even if jobs end early and others take their place, or if a more urgent
// job is submitted: never before forecast(). Zero: not known, or too much to simulate. It costs
// about ten forecasts.
WallTime latest_start(const SchedIndex& index, JobId job, WallTime now);
// Why nobody can tell when it starts: "every node that could run it is closed to new jobs". Empty
// if nothing in particular prevents it.
std::string start_unknown(const SchedIndex& index, JobId job, WallTime now);

}  // namespace billow::sched
