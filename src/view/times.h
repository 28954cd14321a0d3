// How long a job ran and how long it was suspended, computed from its leases: a suspended job holds
// a lease on memory, a running job one on its share of the node, and a waiting job none. The times
// therefore agree with the bill.
#pragma once

#include <vector>

#include "core/control/state.h"
#include "store/rows.h"

namespace billow::view {

struct JobTimes {
  Duration ran, suspended;
};
// The times of closed leases. The nodes of a gang hold theirs at the same time: `nodes` leases
// count as one.
JobTimes times_of(const std::vector<LeaseRow>& closed, std::uint32_t nodes);
// `closed` plus the leases that the job still holds, until `billed`.
JobTimes times_now(const control::State& state, const Job& job, JobTimes closed, WallTime billed);
// Whether the job has held more than one lease per node: only then does the store know more than
// the state.
bool held_before(const control::State& state, const Job& job);

}  // namespace billow::view
