#include "core/agent/watch.h"

#include <algorithm>
#include <cmath>

namespace billow::agent {

// A project that wants earlier warnings gets earlier, less certain verdicts.
void TaskWatch::set_rules(IdleRules rules) {
  rules_ = rules;
  IdleTuning tuning;
  tuning.confirm_after = std::clamp(rules_.policy.warn_after, seconds(5), tuning.confirm_after);
  tuning.host_window = std::min(tuning.host_window, tuning.confirm_after);
  tracker_.tune(tuning);
}

void TaskWatch::resumed(SteadyTime now) {
  tracker_.restart(now);
  ladder_ = {};
  due_ = IdleAction::none;
}

void TaskWatch::count_energy(const TaskSample& sample) {
  counter_mj_.resize(sample.energy.size());
  for (std::size_t i = 0; i < sample.energy.size(); ++i) {
    if (!sample.energy[i])
      continue;
    const std::int64_t now = sample.energy[i]->counter_mj;
    // A counter that went back belongs to a reloaded driver.
    if (counter_mj_[i] && now > *counter_mj_[i])
      energy_uj_ += (now - *counter_mj_[i]) * sample.energy[i]->milli;
    counter_mj_[i] = now;
  }
}

void TaskWatch::sent(const Egress& egress) {
  sent_bytes_ =
      std::max(sent_bytes_, (egress.from_start ? 0 : before_.egress_bytes) + egress.bytes);
}

void TaskWatch::count(const TaskSample& sample, SteadyTime now) {
  count_energy(sample);
  sent(sample.egress);
  for (const GpuSignal& gpu : sample.idle.gpus)
    measured_ = measured_ || gpu.sm_active_pct || gpu.util_pct;
  if (first_sample_.ns == 0)
    first_sample_ = now;
  last_sample_ = now;
  counted_ = std::max(counted_, active_by(now));
}

bool TaskWatch::due() const {
  return ladder_.rung == IdleRung::suspended || ladder_.rung == IdleRung::stopped;
}

// If the head suspended the task for idling and then disappeared, the node ends it itself:
// otherwise the machine would cost money until the head returns.
TaskWatch::Said TaskWatch::add_suspended(const Around& around) const {
  Said out{IdleState::idle, IdleAction::none, "suspended because it was idle", false};
  out.act_alone = !around.head_here && around.node_bills && ladder_.rung == IdleRung::suspended &&
                  around.now - ladder_.since >= bounded(rules_.policy, rules_.floor).stop_after;
  return out;
}

void TaskWatch::climb_ladder(const Around& around, Said& out) {
  LadderInput in;
  in.verdict = tracker_.verdict();
  in.policy = rules_.policy;
  in.floor = rules_.floor;
  in.now = around.now;
  in.keepalive_from = kept_from_;
  in.keepalive_for = kept_for_;
  in.can_suspend = rules_.can_suspend && around.head_here;
  in.node_bills = around.node_bills;
  const LadderStep step = climb(ladder_, in);
  ladder_ = step.state;
  text_ = step.text;
  out.action = step.action;
  out.text = step.text;
  if (step.action == IdleAction::suspend || step.action == IdleAction::stop) {
    due_ = step.action;
    due_at_ = around.now;
  }
  if (step.action == IdleAction::recovered)
    text_.clear();
}

bool TaskWatch::must_act_alone(const Around& around) const {
  const bool unheard = !around.head_here || around.now - due_at_ >= head_answers_within;
  const bool long_enough =
      tracker_.verdict().quiet >= std::max(bounded(rules_.policy, rules_.floor).stop_after,
                                           rules_.gang ? gang_alone_after : Duration{});
  const bool gang_waits = rules_.gang && around.head_here;
  return unheard && long_enough && !gang_waits;
}

TaskWatch::Said TaskWatch::add(const TaskSample& sample, const Around& around) {
  count(sample, around.now);
  if (around.suspended)
    return add_suspended(around);
  const IdleVerdict& verdict = tracker_.add(sample.idle);
  // The ladder is about GPUs: a task without one holds nothing expensive.
  if (sample.idle.gpus.empty())
    return {};
  if (due() && verdict.state == IdleState::active) {
    // The announced step did not happen (another rank works), and now the task works again.
    ladder_ = {};
    due_ = IdleAction::none;
    text_.clear();
    return {IdleState::active, IdleAction::recovered, "working again: " + verdict.reason, false};
  }
  Said out;
  out.state = verdict.state;
  if (!due())
    climb_ladder(around, out);
  if (due())
    out.act_alone = must_act_alone(around);
  if (out.action != IdleAction::none) {
    said_at_ = around.now;
  } else if (ladder_.rung != IdleRung::none && around.now - said_at_ >= idle_said_again_after) {
    said_at_ = around.now;
    out.action = due() ? due_ : IdleAction::warn;
    out.text = text_;
  }
  return out;
}

// The time before the first sample counts as active, and so does a quiet period until it has lasted
// a minute.
Duration TaskWatch::active_by(SteadyTime now) const {
  if (first_sample_.ns == 0)
    return now - from_;
  const IdleVerdict& verdict = tracker_.verdict();
  Duration active = verdict.active + (first_sample_ - from_);
  if (verdict.quiet < minutes(1))
    active = active + verdict.quiet + std::min(now - last_sample_, minutes(1));
  return std::clamp(active, Duration{}, std::max(Duration{}, now - from_));
}

TaskMeter TaskWatch::meter(SteadyTime now) const {
  const TaskPeaks& peaks = tracker_.peaks();
  TaskMeter out = before_;
  out.active = out.active + std::max(counted_, active_by(now));
  out.energy_mj += energy_uj_ / 1000;
  out.gpu_mem_peak_mib = std::max(out.gpu_mem_peak_mib, peaks.gpu_mem_peak_mib);
  out.sm_peak_pct =
      std::max(out.sm_peak_pct, static_cast<std::int32_t>(std::lround(peaks.sm_peak_pct)));
  out.engine_p95_pct =
      std::max(out.engine_p95_pct, static_cast<std::int32_t>(std::lround(peaks.engine_p95_pct())));
  out.measured = out.measured || measured_;
  out.egress_bytes = sent_bytes_;
  return out;
}

}  // namespace billow::agent
