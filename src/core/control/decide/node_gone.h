// What happens to jobs when a node, or the machine behind it, goes away: see node_gone.cpp.
#pragma once

#include <set>

#include "core/control/decide/decider.h"

namespace billow::control {

// The nodes that a machine of a pool has brought.
std::vector<NodeId> nodes_of(const State& state, const Machine& machine);

// The nodes are about to go: every job with a task on one of them is stopped and queued again.
// Jobs that are stopping already keep their cause. True if a task is still on one of the nodes.
bool send_jobs_away(const State& state,
                    const std::vector<NodeId>& nodes,
                    const std::string& reason,
                    Events& events,
                    const std::set<JobId>& except = {});

// The provider ends the machine soon: its nodes take no new jobs, and shortly before the end the
// jobs that are left go back into the queue. Those that had the whole allocation and save nothing
// would need longer the next time, too, and are stopped.
void leave_before_end(const State& state, const Machine& machine, WallTime now, Events& events);

// The machine has ended: its tasks end as lost, and its nodes and credentials are removed.
struct Gone {
  std::string reason;
  WallTime billed_to = {};    // by the provider; zero: now
  bool existed = true;        // false: the provider refused to create it
  bool unused = false;        // no job ran on it although one waited
  WallTime billed_from = {};  // by the provider's last list; zero: as the machine has it
  Duration missing_for = {};  // it ended so long ago, if the provider does not say when
};
void machine_gone(const State& state,
                  const Machine& machine,
                  const Gone& gone,
                  const Context& context,
                  Events& events);
// The machines that these events end. One list may show several ends, and the state has the
// machines and their nodes until the events are applied.
std::set<std::string> gone_in(const Events& events);
// The end of a task whose process can no longer be reached.
ExitStatus lost_exit(std::string why);
// Whether a task on the machine may still run, and would be started again if the machine were gone.
// A process can outlive its allocation, whatever the provider lists: nothing starts again before
// the agent's own deadline has passed.
bool may_run_twice(const State& state, const Machine& machine, const Context& context);

}  // namespace billow::control
