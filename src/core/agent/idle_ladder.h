// What follows from an idle or hung verdict: warn, then suspend (the work is kept), then stop.
// Pure, so the weekend can be tested in a millisecond. A project sets its own steps; the floor is
// the administrator's and nobody else can raise, switch off or outlast it, a keep-alive included.
//
// Invariants: each rung is taken once per spell of idleness and in order; work that comes back
// clears all; stop is the first rung only where suspending is impossible, and never before a
// warning has stood for `notice_min`.
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
  SteadyTime since;  // of the idleness this rung belongs to
  SteadyTime warned_at;
};

struct LadderInput {
  IdleVerdict verdict;
  IdlePolicy policy;
  IdleFloor floor;
  SteadyTime now;
  SteadyTime keepalive_from;  // when it was last asked for; 0: never
  Duration keepalive_for;
  bool can_suspend = true;  // there is a vault and room in it
  bool node_bills = false;  // keeping a suspended task keeps a machine that is paid for
};

struct LadderStep {
  LadderState state;
  IdleAction action = IdleAction::none;
  std::string text;  // "idle 12m: …; suspending in 3m"
};

inline constexpr Duration idle_notice_min = minutes(2);

// The policy as the floor leaves it.
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
