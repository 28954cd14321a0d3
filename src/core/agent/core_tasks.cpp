// The core's part in tasks: the head's orders, and what the shell reports about tasks.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/agent/core.h"

namespace billow::agent {
namespace {
namespace v1 = wire::agent_v1;

// At most ten years, so that a number of a head that lies does not become a time in the past.
SteadyTime paid_until(Duration paid_for, Now now) {
  return paid_for.ns > 0 ? now.steady + std::min(paid_for, limits::time_named_max) : SteadyTime{};
}
}  // namespace

bool Core::was_removed(TaskId id) const {
  return id <= tombstone_floor_ || tombstones_.contains(id);
}

void Core::handle(const v1::Start& m, Now now, Effects& out) {
  if (!epoch_accepted(m.epoch, out) || !m.task)
    return;
  if (const auto it = tasks_.find(m.task); it != tasks_.end()) {
    if (it->second.report_number == 0)
      report(it->second, now, out);
    return;
  }
  // Its end was acknowledged and its directory was removed: this is an old message.
  if (was_removed(m.task))
    return;
  if (leaving_ || !reclaimed_.empty())
    return end_without_start(m.task, ExitKind::lost, "this agent is shutting down", now, out);
  seen_now_ = now.steady;
  Held held;
  held.status.task = m.task;
  held.fenced = m.fenced;
  held.paid_until = paid_until(m.paid_for, now);
  held.ends_at = ends_at(held);
  held.idle = m.idle;
  held.watch = std::make_unique<TaskWatch>(m.idle, now.steady);
  live_.insert(m.task);
  out.push_back(effect::StartTask{m, held.paid_until, held.ends_at});
  tasks_.emplace(m.task, std::move(held));
}

// When a task must end without further orders: its paid time or its fence, whichever comes first.
SteadyTime Core::ends_at(const Held& held) const {
  SteadyTime end = held.paid_until;
  const auto sooner = [&](SteadyTime at) {
    end = end.ns > 0 ? std::min(end, at) : at;
  };
  if (held.fenced)
    sooner(head_seen_at_ + limits::agent_self_fence);
  if (tasks_outlive_us_.ns > 0)
    sooner(seen_now_ + tasks_outlive_us_);
  return end;
}

void Core::on_reclaimed(std::string reason, Now now, Effects& out) {
  seen_now_ = now.steady;
  if (reclaimed_.empty())
    reclaimed_ = reason.empty() ? "reclaimed" : std::move(reason);
  if (notice_number_ == 0)
    notice_number_ = next_report_number(out);
  if (!welcomed_)
    return;
  out.push_back(effect::Send{v1::Reclaimed{reclaimed_}});
  send_notice_number(out);
}

// A report about no task: its acknowledgement shows that the head has taken the notice before it.
void Core::send_notice_number(Effects& out) {
  out.push_back(effect::Send{v1::Report{notice_number_, {}}});
}

void Core::on_removed(Now now, Effects& out) {
  leaving_ = true;
  for (const TaskId id : std::vector<TaskId>(live_.begin(), live_.end()))
    if (Held& held = tasks_.at(id); !held.stop_sent)
      stop_task(held, Duration{-1}, StopReason::disowned, now, out);
  if (live_.empty())
    out.push_back(effect::EndSelf{});
}

// Ends a task that never had a process. The end is recorded like any other, so that a restarted
// agent knows that the task must not start.
void Core::end_without_start(TaskId id, ExitKind kind, std::string message, Now now, Effects& out) {
  Held held;
  held.status.task = id;
  held.status.state = TaskState::ended;
  held.status.ended_at = now.wall;
  held.status.never_began = true;
  held.status.exit = {kind, kind == ExitKind::stopped ? 143 : 1, 0, std::move(message)};
  out.push_back(effect::RecordEnd{held.status});
  report(tasks_.emplace(id, std::move(held)).first->second, now, out);
}

void Core::stop_task(Held& held, Duration grace, StopReason reason, Now now, Effects& out) {
  if (held.status.state == TaskState::ended)
    return;
  const bool first = !held.stop_sent;
  held.stop_sent = true;
  out.push_back(effect::StopTask{held.status.task, grace, reason});
  if (!first)
    return;  // a repeated stop may shorten the grace; the state stays
  held.status.state = TaskState::stopping;
  report(held, now, out);
}

void Core::handle(const v1::Stop& m, Now now, Effects& out) {
  if (!epoch_accepted(m.epoch, out) || !m.task)
    return;
  if (const auto it = tasks_.find(m.task); it != tasks_.end()) {
    if (it->second.status.state == TaskState::ended && !it->second.acknowledged &&
        it->second.report_number == 0)
      report(it->second, now, out);
    return stop_task(it->second, m.grace, StopReason::request, now, out);
  }
  if (!was_removed(m.task))
    end_without_start(m.task, ExitKind::stopped, "stopped before it began", now, out);
}

void Core::handle(const v1::Suspend& m, Now now, Effects& out) {
  if (!epoch_accepted(m.epoch, out))
    return;
  Held* held = take_order(m.task, m.order, now, out);
  if (!held || held->status.state == TaskState::stopping)
    return;
  TaskStatus& status = held->status;
  if (status.state != TaskState::running) {
    status.order_error = fmt::format("it is {}", enum_name(status.state));
    return report(*held, now, out);
  }
  status.state = TaskState::suspending;
  out.push_back(effect::SuspendTask{m.task, m.order, m.mode});
  report(*held, now, out);
}

void Core::handle(const v1::Resume& m, Now now, Effects& out) {
  if (!epoch_accepted(m.epoch, out))
    return;
  Held* held = take_order(m.task, m.order, now, out);
  if (!held || held->status.state == TaskState::stopping)
    return;
  if (m.gpus.size() > limits::gpus_per_node_max) {
    held->status.order_error = "the order names more GPUs than a node can have";
    return report(*held, now, out);
  }
  if (held->status.state == TaskState::running)
    return report(*held, now, out);
  TaskStatus& status = held->status;
  status.state = TaskState::resuming;
  out.push_back(effect::ResumeTask{m.task, m.order, m.gpus});
  report(*held, now, out);
}

// The task of an order, if the order is new to it.
Core::Held* Core::take_order(TaskId id, std::uint32_t order, Now now, Effects& out) {
  const auto it = tasks_.find(id);
  if (it == tasks_.end() || it->second.status.state == TaskState::ended)
    return nullptr;
  Held& held = it->second;
  if (order <= held.status.order) {
    if (held.report_number == 0)
      report(held, now, out);
    return nullptr;
  }
  held.status.order = order;
  held.status.order_error.clear();
  held.status.order_at = now.wall;
  return &held;
}

void Core::handle(const v1::LeaseRenew& m, Now now, Effects& out) {
  if (!epoch_accepted(m.epoch, out))
    return;
  // Each once: an effect takes a kilobyte, a number in the message two bytes.
  for (const TaskId id : std::set<TaskId>(m.tasks.begin(), m.tasks.end())) {
    const auto it = tasks_.find(id);
    if (it == tasks_.end() || it->second.stop_sent || it->second.status.state == TaskState::ended)
      continue;
    it->second.paid_until = paid_until(m.paid_for, now);
    it->second.ends_at = ends_at(it->second);
    out.push_back(effect::SetEndsAt{id, it->second.ends_at});
  }
}

void Core::handle(const v1::LogRead& m, Now, Effects& out) {
  const auto it = tasks_.find(m.task);
  if (it != tasks_.end())
    return out.push_back(effect::ReadLog{m});
  v1::LogChunk answer;
  answer.subscription = m.subscription;
  answer.offset = answer.next_offset = m.offset;
  answer.end = true;
  answer.error =
      fmt::format("task {} is not on this node, or its log has been removed", m.task.value);
  out.push_back(effect::Send{std::move(answer)});
}

void Core::handle(const v1::Leave& m, Now now, Effects& out) {
  // A start crossed this message: the head will see the task and decide again.
  if (m.give_back && !live_.empty())
    return;
  leaving_ = true;
  if (m.give_back && !given_back_) {
    given_back_ = true;
    out.push_back(effect::GiveBack{"the head releases this node"});
  }
  if (m.stop_tasks)
    for (const TaskId id : std::vector<TaskId>(live_.begin(), live_.end()))
      stop_task(tasks_.at(id), Duration{-1}, StopReason::request, now, out);
  if (!m.stop_tasks || live_.empty())
    out.push_back(effect::EndSelf{});
}

// Events of tasks that are unknown or have ended are dropped.
void Core::on_task_event(const TaskEvent& event, Now now, Effects& out) {
  const TaskId id = std::visit(Overloaded{[](const task_event::Ended& e) { return e.status.task; },
                                          [](const auto& e) {
                                            return e.task;
                                          }},
                               event);
  const auto it = tasks_.find(id);
  if (it == tasks_.end() || it->second.status.state == TaskState::ended)
    return;
  std::visit([&](const auto& e) { happened(it->second, e, now, out); }, event);
}

void Core::happened(Held& held, const task_event::Started& e, Now now, Effects& out) {
  held.status.started_at = e.at;
  if (held.status.state == TaskState::starting)
    held.status.state = TaskState::running;
  held.status.waits_for.clear();
  report(held, now, out);
}

void Core::happened(Held& held, const task_event::Suspended& e, Now now, Effects& out) {
  if (held.status.state != TaskState::suspending || held.status.order != e.order)
    return;
  held.status.state = e.error.empty() ? TaskState::suspended : TaskState::running;
  if (e.error.empty())
    say_mark(held, now, out);  // before the report, which ends the lease
  held.status.order_error = e.error;
  held.status.order_at = now.wall;
  held.status.ram_mib = e.ram_mib;
  report(held, now, out);
}

void Core::happened(Held& held, const task_event::Resumed& e, Now now, Effects& out) {
  if (held.status.state != TaskState::resuming || held.status.order != e.order)
    return;
  held.status.state = e.error.empty() ? TaskState::running : TaskState::suspended;
  if (e.error.empty() && held.watch)
    held.watch->resumed(now.steady);
  held.status.order_error = e.error;
  held.status.order_at = now.wall;
  report(held, now, out);
}

void Core::happened(Held& held, const task_event::Declared& e, Now now, Effects& out) {
  if (held.status.unsuspendable == e.unsuspendable)
    return;
  held.status.unsuspendable = e.unsuspendable;
  report(held, now, out);
}

void Core::happened(Held& held, const task_event::Checkpointed& e, Now now, Effects& out) {
  held.status.checkpoint = e.checkpoint;
  report(held, now, out);
}

void Core::happened(Held& held, const task_event::Waiting& e, Now now, Effects& out) {
  if (held.status.state != TaskState::starting || held.status.waits_for == e.text)
    return;
  held.status.waits_for = e.text;
  if (connected_)
    report(held, now, out);  // otherwise the next hello contains it
}

void Core::happened(Held& held, const task_event::PortSeen& e, Now now, Effects& out) {
  const bool runs = held.status.state == TaskState::running;
  const bool moved = runs && e.astray && *e.astray != held.status.waits_for;
  if (held.status.port_holder == e.holder && !moved &&
      (e.look == 0 || held.status.port_look == e.look))
    return;
  if (moved)
    held.status.waits_for = *e.astray;
  held.status.port_holder = e.holder;
  if (e.look != 0)
    held.status.port_look = e.look;
  // Another process has the port, so the replica cannot serve: it has failed, and its successor
  // gets another port.
  if (e.holder == PortHolder::other)
    return stop_task(held, Duration{-1}, StopReason::port_taken, now, out);
  if (held.status.state != TaskState::starting)
    report(held, now, out);  // otherwise the report that it runs contains it
}

void Core::happened(Held& held, const task_event::LogAdvanced& e, Now, Effects&) {
  held.status.log_end = std::max(held.status.log_end, e.log_end);
}

void Core::happened(Held& held, const task_event::Ended& e, Now now, Effects& out) {
  const std::uint32_t order = held.status.order;
  const Checkpoint checkpoint = held.status.checkpoint;
  const PortHolder port_holder = held.status.port_holder;
  const TaskId id = e.status.task;
  held.status = e.status;
  held.status.port_holder = port_holder;
  held.status.state = TaskState::ended;
  held.status.order = order;
  held.status.checkpoint = checkpoint;
  if (held.watch) {
    held.watch->sent({held.status.usage.meter.egress_bytes, true});
    held.status.usage.meter = held.watch->meter(now.steady);
  }
  held.watch.reset();
  out.push_back(effect::SaveMeter{id, held.status.usage.meter, now.steady});
  live_.erase(id);
  if (live_.empty())
    empty_since_ = now.steady;
  report(held, now, out);
  if (leaving_ && live_.empty())
    out.push_back(effect::EndSelf{});
}

}  // namespace billow::agent
