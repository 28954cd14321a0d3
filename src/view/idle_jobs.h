// Which jobs do nothing right now: one definition for every page, list, metric and chart. A job
// idles when each of its tasks has shown its node no work for a minute (shorter silences are part
// of the work, in the books as well), or its idle ladder has said so already. The verdict is the
// node's, from all its signals; a node that says nothing about a task counts as work.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/control/state.h"
#include "core/wire/agent_v1.h"

namespace billow::view {

inline constexpr Duration idle_from = minutes(1);

struct IdleJob {
  Duration quiet;  // of the task that worked last
  IdleState state = IdleState::idle;
  std::int64_t nano_usd_per_s = 0;  // what its leases are charged
  std::int64_t gpu_milli = 0;
  std::string text;  // "idle 12m: SM 0 %, 71 W (idle 68 W), CPU 0.1 %, no I/O; suspending in 3m";
                     // empty before the warning
};
using Readings = std::function<const wire::agent_v1::Heartbeat*(NodeId)>;
std::map<JobId, IdleJob> idle_jobs(const control::State& state, const Readings& readings);

// What its node says of a task's idleness at this moment, the countdown included; else what was
// written down when it was warned.
std::string idle_text(const control::State& state,
                      TaskId task,
                      const wire::agent_v1::Heartbeat* beat);

}  // namespace billow::view
