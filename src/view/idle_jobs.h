// Which jobs are idle right now: one definition for every page, list, metric and chart. A job is
// idle if each of its tasks has shown no activity for a minute (shorter pauses count as active, in
// the books too), or if its idle ladder has already warned. The node decides from all its signals;
// a task without a report counts as active.
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

// The node's current text about a task's idleness, including the countdown; otherwise the text of
// the recorded warning.
// Where a suspended task's GPU memory is, by its node's newest reading; empty: not known.
std::string asleep_text(TaskId task, const wire::agent_v1::Heartbeat* beat);
std::string idle_text(const control::State& state,
                      TaskId task,
                      const wire::agent_v1::Heartbeat* beat);

}  // namespace billow::view
