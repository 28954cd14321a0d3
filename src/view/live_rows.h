// The rows of GET /v1/live. They are written as text, because the whole queue of a fleet is sent at
// once, and building a tree of values for each job would dominate the cost of the stream.
//
// Times are milliseconds since 1970. `cost_nano` is the cost at the moment `at`, `rate_nano` the
// charge per second from then on, both in nano-dollars. `since` is when the lease began, by today's
// wall clock.
#pragma once

#include <string>
#include <string_view>

#include "core/control/state.h"
#include "view/job_document.h"
#include "view/times.h"

namespace billow::view {

// `closed` is how long the job ran and was suspended under leases that have ended; null: not known
// yet.
void put_job(std::string& out,
             const control::State& state,
             const Job& job,
             std::string_view reason,
             const JobTimes* closed,
             Moment at);
void put_array(std::string& out, const control::State& state, const control::ArrayState& array);

}  // namespace billow::view
