// Machines that wait for something, and those that were rented for nothing: no job ran on them
// although one waited. Some of those in a row stop their pool (limits::pool_unused_max), whatever
// the reason was. Internal to this module, except failed_to_join.
#pragma once

#include "core/control/decide/decider.h"
#include "core/control/renting/offers.h"

namespace billow::control {

// Whether the job that the machine was ordered for still waits, and none has run on it. Not of a
// machine that is a part of a gang: it may wait for the rest.
bool is_unused(const State& state, const Machine& machine);

// Whether some of the machine's nodes are here and the others follow: a gang that waits for all of
// them must not order them again.
bool is_arriving(const State& state, const Machine& machine, const Pool& pool, WallTime now);

// Whether an idle machine counts for gangs whose nodes are ordered one by one and arrive one by
// one. (A single job would have started there.) The machines of a group are always ordered one by
// one. It counts as long as another may take to join, and while another is on its way.
bool may_wait_for_gang(const State& state, const Machine& machine, const Pool& pool, WallTime now);

// Whether the machine came for jobs like this one and could not run it, so another of its kind
// would not help either.
bool came_in_vain(const State& state, const Machine& machine, JobId kind, WallTime now);

// Whether a machine of the pool came for the job alone and did not run it: it is not ordered for
// this job again. The nodes of a gang may have lacked each other, so only the brake counts them.
bool is_spoilt(const Source& source, const Job& job, JobId kind);

// Whether the machine runs, and its agent has had enough time to connect. Orders of some providers
// wait for days before they cost anything.
bool failed_to_join(const State& state, const Machine& machine, const Context& context);

// Whether the machine was rented for nothing if it is released now. Of the nodes of a gang one
// counts, or two if all were here together: `events` are those of this decision.
bool is_wasted(const State& state, const Machine& machine, const Events& events, WallTime now);
// The same if it has ended by itself. One that was given back has been counted then.
bool ended_wasted(const State& state, const Machine& machine, const Events& events, WallTime now);

// After too many of them the pool stops until a person has checked it.
void stop_useless_pools(const State& state, Events& events);

}  // namespace billow::control
