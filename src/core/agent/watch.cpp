#include "core/agent/watch.h"

#include <algorithm>

namespace billow::agent {

// A project that wants to be told sooner gets its verdicts sooner, and the doubts that come with
// them.
void TaskWatch::set_rules(IdleRules rules) {
  rules_ = std::move(rules);
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
    // A counter that went back belongs to a driver that was loaded anew.
    if (counter_mj_[i] && now > *counter_mj_[i])
      energy_uj_ += (now - *counter_mj_[i]) * sample.energy[i]->milli;
    counter_mj_[i] = now;
  }
}

void TaskWatch::sent(const Egress& egress) {
  sent_bytes_ =
      std::max(sent_bytes_, (egress.from_start ? 0 : before_.egress_bytes) + egress.bytes);
}

TaskWatch::Said TaskWatch::add(const TaskSample& sample, const Around& around) {
  count_energy(sample);
  sent(sample.egress);
  for (const GpuSignal& gpu : sample.idle.gpus)
    measured_ = measured_ || gpu.sm_active_pct || gpu.util_pct;
  if (first_sample_.ns == 0)
    first_sample_ = around.now;
  last_sample_ = around.now;
  counted_ = std::max(counted_, active_by(around.now));
  if (around.suspended) {
    // Its head suspended it for idling, would have ended it by now, and is gone: the machine is
    // paid for until somebody does.
    Said out{IdleState::idle, IdleAction::none, "suspended after idling", false};
    out.act_alone = !around.head_here && around.node_bills && ladder_.rung == IdleRung::suspended &&
                    around.now - ladder_.since >= bounded(rules_.policy, rules_.floor).stop_after;
    return out;
  }
  const IdleVerdict& verdict = tracker_.add(sample.idle);
  // Without a GPU nothing expensive is held; the ladder is about GPUs.
  if (sample.idle.gpus.empty())
    return {};

  const bool climbed = ladder_.rung == IdleRung::suspended || ladder_.rung == IdleRung::stopped;
  if (climbed && verdict.state == IdleState::active) {
    // The rung was said and nothing came of it (another rank works), and now it works again itself.
    ladder_ = {};
    due_ = IdleAction::none;
    text_.clear();
    return {IdleState::active, IdleAction::recovered, "working again: " + verdict.reason, false};
  }
  LadderInput in;
  in.verdict = verdict;
  in.policy = rules_.policy;
  in.floor = rules_.floor;
  in.now = around.now;
  in.keepalive_from = kept_from_;
  in.keepalive_for = kept_for_;
  in.can_suspend = rules_.can_suspend && around.head_here;
  in.node_bills = around.node_bills;

  Said out;
  out.state = verdict.state;
  if (!climbed) {
    const LadderStep step = climb(ladder_, in);
    ladder_ = step.state;
    text_ = step.text;
    out.action = step.action;
    out.text = step.text;
    if (step.action == IdleAction::suspend || step.action == IdleAction::stop)
      due_ = step.action, due_at_ = around.now;
    if (step.action == IdleAction::recovered)
      text_.clear();
  }
  const bool due = ladder_.rung == IdleRung::suspended || ladder_.rung == IdleRung::stopped;
  if (due) {
    const Duration waited = around.now - due_at_;
    const bool unheard = !around.head_here || waited >= head_answers_within;
    const bool long_enough =
        verdict.quiet >= std::max(bounded(rules_.policy, rules_.floor).stop_after,
                                  rules_.gang ? gang_alone_after : Duration{});
    const bool gang_waits = rules_.gang && around.head_here;
    out.act_alone = unheard && long_enough && !gang_waits;
  }
  if (out.action != IdleAction::none) {
    said_at_ = around.now;
  } else if (ladder_.rung != IdleRung::none && around.now - said_at_ >= idle_said_again_after) {
    said_at_ = around.now;
    out.action = due ? due_ : IdleAction::warn;
    out.text = text_;
  }
  return out;
}

// A silence that is not a minute old yet is part of the work, until it proves otherwise; so is what
// was before the first sample.
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
  out.sm_peak_pct = std::max(out.sm_peak_pct, static_cast<std::int32_t>(peaks.sm_peak_pct + 0.5));
  out.engine_p95_pct =
      std::max(out.engine_p95_pct, static_cast<std::int32_t>(peaks.engine_p95_pct() + 0.5));
  out.measured = out.measured || measured_;
  out.egress_bytes = sent_bytes_;
  return out;
}

}  // namespace billow::agent
