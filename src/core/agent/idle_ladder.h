// The consequences of an idle or hung verdict: warn, then suspend (the work is kept), then stop.
// Pure, so a weekend can be tested in a millisecond. A project sets its own steps; the
// administrator sets the floor, which nothing else can raise, switch off or delay, not even a
// keep-alive.
//
// Invariants: each rung is taken once per idle period and in order; new work clears them all; a
// task is stopped without being suspended first only if it cannot be suspended, and never before a
// warning has been out for `idle_notice_min`.
#pragma once

#include <string>

#include "base/clock.h"
#include "core/agent/idle.h"
#include "core/model/money.h"

namespace billow::agent {

using billow::IdleAction;
using billow::IdleFloor;
using billow::IdlePolicy;

enum class IdleRung { none, warned, suspended, stopped };

struct LadderState {
  IdleRung rung = IdleRung::none;
  SteadyTime since;  // start of the idle period
  SteadyTime warned_at;
};

struct LadderInput {
  IdleVerdict verdict;
  IdlePolicy policy;
  IdleFloor floor;
  SteadyTime now;
  SteadyTime keepalive_from;  // time of the last request; 0: never
  Duration keepalive_for;
  bool can_suspend = true;  // this node has a GPU memory service with free space
  bool node_bills = false;  // a suspended task keeps a machine that costs money
};

struct LadderStep {
  LadderState state;
  IdleAction action = IdleAction::none;
  std::string text;  // "idle 12m: …; suspending in 3m"
};

inline constexpr Duration idle_notice_min = minutes(2);

// The policy within the bounds of the floor.
IdlePolicy bounded(IdlePolicy policy, const IdleFloor& floor);
LadderStep climb(const LadderState& state, const LadderInput& input);

}  // namespace billow::agent

namespace billow {
BILLOW_ENUM_NAMES(agent::IdleRung,
                  {agent::IdleRung::none, "none"},
                  {agent::IdleRung::warned, "warned"},
                  {agent::IdleRung::suspended, "suspended"},
                  {agent::IdleRung::stopped, "stopped"});
}
