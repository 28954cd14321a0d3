// What running work has cost so far. Every reader of money that is still being spent (lists, job
// and endpoint documents, the dashboard's stream) asks here, so that all of them agree with each
// other and with the bill.
//
// `billed` is the moment by the clock of bills (ADR 10), on which leases begin and end: a step of
// the wall clock changes no cost. Closing a lease at `billed` charges exactly the amount shown
// here, traffic included. A task on a node that does not answer has cost what it had cost when its
// node was last heard of.
#pragma once

#include "base/money.h"
#include "core/control/state.h"

namespace billow::view {

// What the lease that the task holds comes to; nothing once the task has ended.
NanoUsd cost_so_far(const control::State& state, const Task& task, WallTime billed);
// The closed leases of a job and the ones that its tasks hold.
NanoUsd cost_so_far(const control::State& state, const Job& job, WallTime billed);
// All replicas of an endpoint, those that have ended included.
NanoUsd cost_so_far(const control::State& state, const Endpoint& endpoint, WallTime billed);

// What a job is charged per second at this moment, in nano-dollars. Tasks on nodes that do not
// answer are not charged.
std::int64_t charge_rate_now(const control::State& state, const Job& job);

}  // namespace billow::view
