// What follows from an idle or hung verdict: warn, then suspend (the work is kept), then stop. Pure, so the weekend can be
// tested in a millisecond. A project sets its own steps; the floor is the administrator's and nobody else can raise, switch
// off or outlast it, a keep-alive included.
//
// Invariants: each rung is taken once per spell of idleness and in order; work that comes back clears all; stop is the first
// rung only where suspending is impossible, and never before a warning has stood for `notice_min`.
#pragma once

#include <string>

#include "agent/idle.h"
#include "base/clock.h"

namespace billow::agent {

// Times of idleness, counted from the last work.
struct IdlePolicy {
  bool enabled = true;
  Duration warn_after = seconds(9 * 60 + 30);
  Duration suspend_after = minutes(15);
  Duration stop_after = minutes(22);       // on nodes that bill; with the node's own return, half an hour is not exceeded
  Duration spin_leash = minutes(4);        // more for a task whose CPU is busy without progress: the verdict's one doubt
  Duration keepalive_max = hours(4);       // a keep-alive lasts at most this long
  bool operator==(const IdlePolicy&) const = default;
  template <class V>
  void fields(V& v) {
    v("enabled", enabled); v("warn_after_ns", warn_after); v("suspend_after_ns", suspend_after); v("stop_after_ns", stop_after);
    v("spin_leash_ns", spin_leash); v("keepalive_max_ns", keepalive_max);
  }
};

// The administrator's. Zero: no bound.
struct IdleFloor {
  Duration suspend_by = hours(12);         // no idleness lasts longer, whatever a project or a keep-alive says
  Duration stop_by;                        // on nodes that bill
  bool operator==(const IdleFloor&) const = default;
  template <class V>
  void fields(V& v) { v("suspend_by_ns", suspend_by); v("stop_by_ns", stop_by); }
};

enum class IdleRung { none, warned, suspended, stopped };
enum class IdleAction { none, warn, suspend, stop, recovered };

struct LadderState {
  IdleRung rung = IdleRung::none;
  SteadyTime since;                        // of the idleness this rung belongs to
  SteadyTime warned_at;
};

struct LadderInput {
  IdleVerdict verdict;
  IdlePolicy policy;
  IdleFloor floor;
  SteadyTime now;
  SteadyTime keepalive_from;               // when it was last asked for; 0: never
  Duration keepalive_for;
  bool can_suspend = true;                 // there is a vault and room in it
  bool node_bills = false;                 // keeping a suspended task keeps a machine that is paid for
};

struct LadderStep {
  LadderState state;
  IdleAction action = IdleAction::none;
  std::string text;                        // "idle 12m: …; suspending in 3m"
};

inline constexpr Duration idle_notice_min = minutes(2);

// The policy as the floor leaves it.
IdlePolicy bounded(IdlePolicy policy, const IdleFloor& floor);
LadderStep climb(const LadderState& state, const LadderInput& input);

}  // namespace billow::agent

namespace billow {
BILLOW_ENUM_NAMES(agent::IdleRung, {agent::IdleRung::none, "none"}, {agent::IdleRung::warned, "warned"},
                  {agent::IdleRung::suspended, "suspended"}, {agent::IdleRung::stopped, "stopped"});
BILLOW_ENUM_NAMES(agent::IdleAction, {agent::IdleAction::none, "none"}, {agent::IdleAction::warn, "warn"},
                  {agent::IdleAction::suspend, "suspend"}, {agent::IdleAction::stop, "stop"},
                  {agent::IdleAction::recovered, "recovered"});
}
