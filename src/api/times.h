// How long a job ran and how long it was suspended, told apart by its leases: a suspended job holds
// one of memory, a running one of its share of the node, and one that waits again holds none. What
// the times say and what the bill says is therefore the same.
#pragma once

#include <functional>
#include <vector>

#include "api/call.h"
#include "base/json.h"
#include "store/rows.h"

namespace billow::api {

struct JobTimes {
  Duration ran, suspended;
};
// Of leases that have ended. The nodes of a gang hold theirs at the same time: `nodes` of them
// count as one.
JobTimes times_of(const std::vector<LeaseRow>& closed, std::uint32_t nodes);
// What has been added since by leases that are still held.
JobTimes times_now(const control::State& state, const Job& job, JobTimes closed, WallTime now);
// Whether it has held more than one lease a node: only then does the store know more than the
// state.
bool held_before(const control::State& state, const Job& job);

// Adds `ran_s` and `suspended_s` to the documents that do not say them yet, by way of a worker
// where the store must be asked.
void with_times(CallPtr call,
                std::vector<Json> documents,
                std::function<void(std::vector<Json>)> fn);

}  // namespace billow::api
