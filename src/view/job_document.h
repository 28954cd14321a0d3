// The public documents of jobs and arrays, live or finished.
#pragma once

#include "base/json.h"
#include "core/control/core.h"
#include "core/wire/agent_v1.h"
#include "view/idle_jobs.h"
#include "view/stored.h"

namespace billow::view {

// The two clocks of a head (ADR 10): the wall clock, and the clock by which leases are billed.
struct Moment {
  WallTime now;
  WallTime billed;
};

// A job that has not ended, with its cost so far. `readings` adds its agents' reports about an idle
// job.
Json live_job_document(const control::State& state,
                       const Job& job,
                       Moment at,
                       const Readings& readings);
// A job that has ended, with its original spec, so that it can be run again.
Json finished_job_document(const StoredJob& stored);
Json array_document(const StoredArray& stored);
// An array that has not ended.
Json live_array_document(const control::State& state, const control::ArrayState& array);

}  // namespace billow::view
