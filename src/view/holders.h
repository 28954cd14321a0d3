// What a waiting job waits for, by name: the jobs it depends on, the jobs that hold the GPUs it
// could use and until when, and how many waiting jobs are ahead of it. Jobs of projects that the
// job's owner may not see are counted, not named.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "core/control/state.h"

namespace billow::view {

// "waits for job 12 (train), which is running, and job 13, which is queued"; empty: it waits for no
// job.
std::string dependencies_text(const control::State& state, const Job& job);

// {"job", "name", "user", "gpus", "ends_at", "certain", "text"} of each job that holds GPUs which
// this one could use, the soonest end first; those of other projects together.
Json holders_document(const control::State& state, const Job& job, WallTime now);

// Waiting jobs of the same or a higher priority that were submitted earlier.
std::size_t jobs_ahead(const control::State& state, const Job& job);

}  // namespace billow::view
