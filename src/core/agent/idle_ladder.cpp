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
    // Switched off by the project: only the floor's own bounds are left.
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

LadderStep climb(const LadderState& before, const LadderInput& in) {
  LadderStep out{before, IdleAction::none, {}};
  const IdlePolicy policy = bounded(in.policy, in.floor);
  const bool resting = in.verdict.state != IdleState::active;

  if (before.rung == IdleRung::suspended) {
    // It cannot work and cannot come back by itself; only what it costs to keep it counts now.
    const Duration idle = in.now - before.since;
    if (in.node_bills && idle >= policy.stop_after) {
      out.state.rung = IdleRung::stopped;
      out.action = IdleAction::stop;
      out.text = fmt::format(
          "suspended after idling, {} since its last work; its node costs money, so it is stopped",
          format_duration(idle));
    }
    return out;
  }
  if (before.rung == IdleRung::stopped)
    return out;
  if (!policy.enabled)
    return out;
  if (!resting) {
    if (before.rung == IdleRung::warned) {
      out.action = IdleAction::recovered;
      out.text = "working again: " + in.verdict.reason;
    }
    out.state = {};
    return out;
  }

  const Duration idle = in.verdict.quiet;
  // A hung card has been found out by its power; that its CPU spins adds no doubt.
  const Duration leash =
      in.verdict.spinning && in.verdict.state == IdleState::idle ? policy.spin_leash : Duration{};
  // A keep-alive holds the project's steps back, not the floor's.
  const SteadyTime kept_until =
      in.keepalive_from + std::min(in.keepalive_for, policy.keepalive_max);
  const bool kept = in.keepalive_from.ns != 0 && in.now < kept_until;
  const auto due_at = [&](Duration own, Duration floor) {
    SteadyTime at = in.verdict.since + own + leash;
    if (kept)
      at = std::max(at, kept_until);
    if (floor.ns > 0)
      at = std::min(at, in.verdict.since + floor);
    return at;
  };
  const Duration last_step = in.can_suspend ? policy.suspend_after : policy.stop_after;
  SteadyTime act_at = due_at(last_step, in.can_suspend ? in.floor.suspend_by : in.floor.stop_by);
  const char* deed = in.can_suspend ? "suspending" : "stopping";

  if (before.rung == IdleRung::none) {
    if (idle < policy.warn_after || (kept && act_at - in.now > idle_notice_min * 2))
      return out;
    act_at = std::max(act_at, in.now + idle_notice_min);
    out.state = {IdleRung::warned, in.verdict.since, in.now};
    out.action = IdleAction::warn;
    out.text =
        fmt::format("{}; {} in {}", in.verdict.reason, deed, format_duration(act_at - in.now));
    return out;
  }
  out.state.since = in.verdict.since;
  act_at = std::max(act_at, before.warned_at + idle_notice_min);
  if (in.now < act_at) {
    out.text =
        fmt::format("{}; {} in {}", in.verdict.reason, deed, format_duration(act_at - in.now));
    return out;
  }
  out.state.rung = in.can_suspend ? IdleRung::suspended : IdleRung::stopped;
  out.action = in.can_suspend ? IdleAction::suspend : IdleAction::stop;
  out.text = fmt::format("{}; {}", in.verdict.reason, in.can_suspend ? "suspended" : "stopped");
  return out;
}

}  // namespace billow::agent
