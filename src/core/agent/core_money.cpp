// The core's part in money: idleness, metering, keep-alives, and giving an abandoned node back.
#include <fmt/format.h>

#include "base/text.h"
#include "core/agent/core.h"

namespace billow::agent {

namespace v1 = wire::agent_v1;

bool Core::bills() const {
  if (memory_.bills)
    return true;
  const auto label = offer_.labels.find("bills");
  return label != offer_.labels.end() && label->second == "yes";
}

const TaskWatch* Core::watch(TaskId id) const {
  const auto it = tasks_.find(id);
  return it == tasks_.end() ? nullptr : it->second.watch.get();
}

void Core::handle(const v1::SetIdleRules& m, Now, Effects& out) {
  if (!epoch_accepted(m.epoch, out))
    return;
  const auto it = tasks_.find(m.task);
  if (it == tasks_.end() || !it->second.watch)
    return;
  it->second.idle = m.rules;
  it->second.watch->set_rules(m.rules);
}

void Core::handle(const v1::KeepTask& m, Now now, Effects& out) {
  if (!epoch_accepted(m.epoch, out))
    return;
  const auto it = tasks_.find(m.task);
  if (it != tasks_.end() && it->second.watch)
    it->second.watch->keep(m.lasts, now.steady);
}

Result<Duration> Core::keep_alive(
    TaskId task, Duration lasts, std::string reason, Now now, Effects& out) {
  const auto it = tasks_.find(task);
  if (it == tasks_.end() || !it->second.watch)
    return fail(Code::not_found, "this process does not belong to a running task");
  if (lasts.ns <= 0)
    return fail(Code::invalid, "the duration must be positive, such as 30m or 2h");
  lasts = std::min(lasts, it->second.idle.policy.keepalive_max);
  it->second.watch->keep(lasts, now.steady);
  out.push_back(effect::Send{v1::KeepAliveAsked{task, lasts, std::move(reason)}});
  return lasts;
}

void Core::on_sample(TaskId task, const TaskSample& sample, Now now, Effects& out) {
  const auto it = tasks_.find(task);
  if (it == tasks_.end() || !it->second.watch)
    return;
  Held& held = it->second;
  const TaskState state = held.status.state;
  if (state != TaskState::running && state != TaskState::suspended)
    return;
  const TaskWatch::Said said =
      held.watch->add(sample, {now.steady, welcomed_, bills(), state == TaskState::suspended});
  if (said.action != IdleAction::none && welcomed_)
    out.push_back(effect::Send{v1::IdleNote{task, said.state, said.action, said.text}});
  if (said.act_alone && !held.stop_sent)
    stop_task(held, Duration{-1}, StopReason::idle, now, out);
}

void Core::say_marks(Now now, Effects& out) {
  if (live_.empty() || now.steady - marked_at_ < limits::meter_say_every)
    return;
  marked_at_ = now.steady;
  v1::MeterMark message;
  for (const TaskId id : live_) {
    const Held& held = tasks_.at(id);
    if (!held.watch || held.status.state == TaskState::starting)
      continue;
    const TaskMeter meter = held.watch->meter(now.steady);
    out.push_back(effect::SaveMeter{id, meter, now.steady});
    if (meter.measured || meter.egress_bytes > 0)
      message.marks.push_back({id, meter});
  }
  if (welcomed_ && !message.marks.empty())
    out.push_back(effect::Send{std::move(message)});
}

// Of one task whose lease ends: what was measured since the last mark would count as active.
void Core::say_mark(const Held& held, Now now, Effects& out) {
  if (!held.watch || !welcomed_)
    return;
  const TaskMeter meter = held.watch->meter(now.steady);
  if (meter.measured || meter.egress_bytes > 0)
    out.push_back(effect::Send{v1::MeterMark{{{held.status.task, meter}}}});
}

// No head can give this machine back, and nothing runs on it that is worth its price.
void Core::give_back_if_abandoned(Now now, Effects& out) {
  if (!bills() || given_back_ || !live_.empty())
    return;
  const Duration alone = now.steady - head_seen_at_, empty = now.steady - empty_since_;
  if (alone < limits::head_gone_after || empty < limits::node_give_back_after)
    return;
  given_back_ = leaving_ = true;
  out.push_back(effect::GiveBack{fmt::format("no contact with the head for {} and no job for {}",
                                             format_duration(alone), format_duration(empty))});
  out.push_back(effect::EndSelf{});
}

}  // namespace billow::agent
