// What running work has cost so far. Every reader of money that is still being spent (lists, job
// and endpoint documents, the dashboard's stream) asks here, so that all of them agree with each
// other and with the bill.
//
// `billed` is the moment on the billing clock (ADR 10), by which leases begin and end: a change of
// the wall clock changes no cost. Closing a lease at `billed` charges exactly the amount shown
// here, including traffic. A task on an unreachable node costs what it had cost when its node was
// last heard from. A task whose process has not begun (its image is being pulled) costs nothing.
#pragma once

#include "base/money.h"
#include "core/control/state.h"

namespace billow::view {

// The cost of the lease that the task holds; zero once the task has ended.
NanoUsd cost_so_far(const control::State& state, const Task& task, WallTime billed);
// The closed leases of a job and those that its tasks hold.
NanoUsd cost_so_far(const control::State& state, const Job& job, WallTime billed);
// The same for each role of a group; empty for other jobs.
std::vector<NanoUsd> role_costs_so_far(const control::State& state,
                                       const Job& job,
                                       WallTime billed);
// All replicas of an endpoint, including ended ones.
NanoUsd cost_so_far(const control::State& state, const Endpoint& endpoint, WallTime billed);

// The current charge of a task or job per second, in nano-dollars. Tasks on unreachable nodes are
// not charged, nor are those that have not begun. Sums of charge rates are made of these.
std::int64_t charge_rate_now(const control::State& state, const Task& task);
std::int64_t charge_rate_now(const control::State& state, const Job& job);

}  // namespace billow::view
