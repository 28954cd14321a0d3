#include "core/agent/idle_ladder.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::agent {

namespace {

Duration at_most(Duration value, Duration bound) {
  return bound.ns > 0 && bound < value ? bound : value;
}

}  // namespace

IdlePolicy bounded(IdlePolicy policy, const IdleFloor& floor) {
  if (!policy.enabled) {
    // The project switched it off: only the administrator's bounds remain.
    if (floor.suspend_by.ns == 0 && floor.stop_by.ns == 0)
      return policy;
    const Duration never = hours(24 * 365);
    policy.enabled = true;
    policy.suspend_after = policy.stop_after = never;
    policy.warn_after =
        at_most(at_most(never, floor.suspend_by), floor.stop_by) - idle_notice_min * 5;
  }
  policy.suspend_after = at_most(policy.suspend_after, floor.suspend_by);
  policy.stop_after = at_most(std::max(policy.stop_after, policy.suspend_after), floor.stop_by);
  policy.warn_after = std::max(
      Duration{}, std::min(policy.warn_after,
                           std::min(policy.suspend_after, policy.stop_after) - idle_notice_min));
  return policy;
}

namespace {

// A suspended task cannot work and cannot resume by itself; only the cost of keeping it counts.
LadderStep climb_suspended(const LadderState& before,
                           const LadderInput& in,
                           const IdlePolicy& policy) {
  LadderStep out{before, IdleAction::none, {}};
  const Duration idle = in.now - before.since;
  if (!in.node_bills || idle < policy.stop_after)
    return out;
  out.state.rung = IdleRung::stopped;
  out.action = IdleAction::stop;
  out.text = fmt::format(
      "suspended because it was idle, {} since its last work; its node costs money, so it is "
      "stopped",
      format_duration(idle));
  return out;
}

// When the next step after the warning is due.
struct Due {
  SteadyTime at;
  bool kept = false;  // a keep-alive is in force
};
Due next_due(const LadderInput& in, const IdlePolicy& policy) {
  // A hung GPU is recognised by its power draw, so a spinning CPU is no reason to wait longer.
  const Duration leash =
      in.verdict.spinning && in.verdict.state == IdleState::idle ? policy.spin_leash : Duration{};
  // A keep-alive delays the project's steps, not the administrator's floor.
  const SteadyTime kept_until =
      in.keepalive_from + std::min(in.keepalive_for, policy.keepalive_max);
  const bool kept = in.keepalive_from.ns != 0 && in.now < kept_until;
  const Duration own = in.can_suspend ? policy.suspend_after : policy.stop_after;
  const Duration floor = in.can_suspend ? in.floor.suspend_by : in.floor.stop_by;
  SteadyTime at = in.verdict.since + own + leash;
  if (kept)
    at = std::max(at, kept_until);
  if (floor.ns > 0)
    at = std::min(at, in.verdict.since + floor);
  return {at, kept};
}

std::string announce(const LadderInput& in, SteadyTime act_at) {
  return fmt::format("{}; {} in {}", in.verdict.reason, in.can_suspend ? "suspending" : "stopping",
                     format_duration(act_at - in.now));
}

}  // namespace

LadderStep climb(const LadderState& before, const LadderInput& in) {
  LadderStep out{before, IdleAction::none, {}};
  const IdlePolicy policy = bounded(in.policy, in.floor);
  if (before.rung == IdleRung::suspended)
    return climb_suspended(before, in, policy);
  if (before.rung == IdleRung::stopped || !policy.enabled)
    return out;
  if (in.verdict.state == IdleState::active) {
    if (before.rung == IdleRung::warned) {
      out.action = IdleAction::recovered;
      out.text = "working again: " + in.verdict.reason;
    }
    out.state = {};
    return out;
  }
  const Due due = next_due(in, policy);
  if (before.rung == IdleRung::none) {
    if (in.verdict.quiet < policy.warn_after || (due.kept && due.at - in.now > idle_notice_min * 2))
      return out;
    out.state = {IdleRung::warned, in.verdict.since, in.now};
    out.action = IdleAction::warn;
    out.text = announce(in, std::max(due.at, in.now + idle_notice_min));
    return out;
  }
  out.state.since = in.verdict.since;
  const SteadyTime act_at = std::max(due.at, before.warned_at + idle_notice_min);
  if (in.now < act_at) {
    out.text = announce(in, act_at);
    return out;
  }
  out.state.rung = in.can_suspend ? IdleRung::suspended : IdleRung::stopped;
  out.action = in.can_suspend ? IdleAction::suspend : IdleAction::stop;
  out.text = fmt::format("{}; {}", in.verdict.reason, in.can_suspend ? "suspended" : "stopped");
  return out;
}

}  // namespace billow::agent
