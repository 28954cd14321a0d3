#include "core/agent/core.h"

#include "base/check.h"

namespace billow::agent {
namespace {
namespace v1 = wire::agent_v1;

constexpr std::uint64_t report_number_block = 4096;
constexpr Duration fence_renewal = seconds(10);  // a supervisor's fence is moved in steps of this

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

SteadyTime paid_until(Duration paid_for, Now now) {
  return paid_for.ns > 0 ? now.steady + paid_for : SteadyTime{};
}
}  // namespace

Core::Core(CoreOptions options, Now now)
    : offer_(std::move(options.offer)),
      memory_(options.memory),
      next_report_number_(options.memory.report_numbers_used_below),
      head_seen_at_(now.steady) {
  seen_now_ = now.steady;
  protocol_ = options.protocol;
  tasks_outlive_us_ = options.tasks_outlive_us;
  for (RecoveredTask& found : options.tasks) {
    Held held;
    held.status = std::move(found.status);
    held.fenced = found.fenced;
    held.paid_until = found.paid_until;
    held.acknowledged = found.acknowledged;
    const TaskId id = held.status.task;
    const bool ended = held.status.state == TaskState::ended;
    if (!ended) {
      live_.insert(id);
      // While no agent watched, it counts as having worked.
      if (found.metered_at.ns > 0 && found.metered_at < now.steady)
        found.meter.active = found.meter.active + (now.steady - found.metered_at);
      held.watch = std::make_unique<TaskWatch>(held.idle, now.steady, found.meter);
    } else {
      held.status.usage.meter = found.meter;
    }
    if (ended && held.acknowledged)
      retained_.emplace_back(now.steady + limits::task_retention, id);
    tasks_.emplace(id, std::move(held));
  }
  empty_since_ = marked_at_ = now.steady;
}

const TaskStatus* Core::find(TaskId id) const {
  const auto it = tasks_.find(id);
  return it == tasks_.end() ? nullptr : &it->second.status;
}

// ---- the connection
// -------------------------------------------------------------------------------------------------

void Core::on_connected(Now now, Effects& out) {
  connected_ = true;
  welcomed_ = false;
  v1::Hello hello;
  hello.version = protocol_;
  hello.version_min = v1::protocol_version_min;
  hello.epoch_seen = memory_.epoch;
  hello.sent_at = now.steady;
  hello.offer = offer_;
  for (auto& [id, held] : tasks_) {
    if (held.acknowledged)
      continue;
    hello.tasks.push_back(held.status);
  }
  // The hello shows every state, but only a report can be acknowledged: each end gets one, if it
  // has none yet.
  for (auto& [id, held] : tasks_)
    if (held.status.state == TaskState::ended && !held.acknowledged && held.report_number == 0)
      report(held, now, out);
  out.push_back(effect::Send{std::move(hello)});
}

void Core::on_disconnected(Now) {
  connected_ = welcomed_ = false;
  for (auto& [number, pending] : pending_)
    pending.sent = false;
}

void Core::on_head_alive(Now now) {
  if (welcomed_)
    head_seen_at_ = std::max(head_seen_at_, now.steady);
}

void Core::on_message(const v1::ToAgent& message, std::string_view blob, Now now, Effects& out) {
  const bool opening =
      std::holds_alternative<v1::Welcome>(message) || std::holds_alternative<v1::Refused>(message);
  if (!connected_ || (!welcomed_ && !opening))
    return;  // of a connection that is gone, or of a head not accepted yet
  on_head_alive(now);
  const auto known = [&](TaskId id) {
    return live_.contains(id);
  };
  std::visit(Overloaded{
                 [&](const v1::Signal& m) {
                   if (known(m.task))
                     out.push_back(effect::SignalTask{m.task, m.number});
                 },
                 [&](const v1::Input& m) {
                   if (known(m.task))
                     out.push_back(effect::InputTask{m.task, m.eof, std::string(blob), m.offset});
                 },
                 [&](const v1::Resize& m) {
                   if (known(m.task))
                     out.push_back(effect::ResizeTask{m.task, m.rows, m.cols});
                 },
                 [&](const v1::LookAtPort& m) {
                   if (known(m.task))
                     out.push_back(effect::LookAtPort{m.task, m.number});
                 },
                 [&](const v1::LogCancel& m) { out.push_back(effect::CancelLog{m.subscription}); },
                 [&](const auto& m) { handle(m, now, out); },
             },
             message);
}

// True where the head that speaks is the newest we know of. One of a lower epoch has been replaced
// without knowing it.
bool Core::epoch_accepted(Epoch epoch, Effects& out) {
  if (epoch < memory_.epoch) {
    out.push_back(effect::Disconnect{fmt::format(
        "this head is of epoch {}, and one of epoch {} has taken over", epoch, memory_.epoch)});
    connected_ = welcomed_ = false;
    return false;
  }
  if (epoch > memory_.epoch) {
    memory_.epoch = epoch;
    out.push_back(effect::Remember{memory_});
  }
  return true;
}

void Core::handle(const v1::Welcome& m, Now now, Effects& out) {
  if (m.version < v1::protocol_version_min || m.version > protocol_) {
    connected_ = welcomed_ = false;
    out.push_back(
        effect::Disconnect{fmt::format("the head wants to speak protocol {}, this agent speaks {} "
                                       "to {}; install the head's version of billow here",
                                       m.version, v1::protocol_version_min, protocol_)});
    return;
  }
  if (!epoch_accepted(m.epoch, out))
    return;
  welcomed_ = true;
  if (m.bills != memory_.bills) {
    memory_.bills = m.bills;
    out.push_back(effect::Remember{memory_});
  }
  on_head_alive(now);
  if (!reclaimed_.empty())
    out.push_back(effect::Send{v1::Reclaimed{reclaimed_}});
  for (auto& [number, pending] : pending_)
    send_report(number, pending, now, out);
}

void Core::handle(const v1::Refused& m, Now, Effects& out) {
  connected_ = welcomed_ = false;
  out.push_back(effect::Disconnect{m.hint.empty() ? m.message : m.message + " (" + m.hint + ")"});
}

// ---- tasks
// ----------------------------------------------------------------------------------------------------------

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
  // Its end was acknowledged and its directory is gone: a message from the past. The head knows its
  // end.
  if (was_removed(m.task))
    return;
  if (leaving_ || !reclaimed_.empty())
    return end_without_start(m.task, ExitKind::lost, "this agent is leaving", now, out);
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

// When a task must end if nothing more is heard: its paid time or its fence, whichever comes first.
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
    reclaimed_ = reason.empty() ? "taken away" : std::move(reason);
  if (welcomed_)
    out.push_back(effect::Send{v1::Reclaimed{reclaimed_}});
}

void Core::on_removed(Now now, Effects& out) {
  leaving_ = true;
  for (const TaskId id : std::vector<TaskId>(live_.begin(), live_.end()))
    if (Held& held = tasks_.at(id); !held.stop_sent)
      stop_task(held, Duration{-1}, StopReason::disowned, now, out);
  if (live_.empty())
    out.push_back(effect::EndSelf{});
}

// A task that ends here without a process ever having been made. Its end is recorded like any
// other, or a crash of this agent would forget that it must not start.
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
  if (held->status.state == TaskState::running)
    return report(*held, now, out);
  TaskStatus& status = held->status;
  status.state = TaskState::resuming;
  out.push_back(effect::ResumeTask{m.task, m.order, m.gpus});
  report(*held, now, out);
}

// The task an order is for, if the order is news to it.
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
  for (const TaskId id : m.tasks) {
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
  answer.error = fmt::format("task {} is not on this node, or its log was removed", m.task.value);
  out.push_back(effect::Send{std::move(answer)});
}

void Core::handle(const v1::Leave& m, Now now, Effects& out) {
  // Given back while a start crossed the word: the head will see it and think again.
  if (m.give_back && !live_.empty())
    return;
  leaving_ = true;
  if (m.give_back && !given_back_) {
    given_back_ = true;
    out.push_back(effect::GiveBack{"the head gives it back"});
  }
  if (m.stop_tasks)
    for (const TaskId id : std::vector<TaskId>(live_.begin(), live_.end()))
      stop_task(tasks_.at(id), Duration{-1}, StopReason::request, now, out);
  if (!m.stop_tasks || live_.empty())
    out.push_back(effect::EndSelf{});
}

void Core::on_task_event(const TaskEvent& event, Now now, Effects& out) {
  const TaskId id = std::visit(Overloaded{[](const task_event::Ended& e) { return e.status.task; },
                                          [](const auto& e) {
                                            return e.task;
                                          }},
                               event);
  const auto it = tasks_.find(id);
  if (it == tasks_.end() || it->second.status.state == TaskState::ended)
    return;
  Held& held = it->second;
  std::visit(Overloaded{
                 [&](const task_event::Started& e) {
                   held.status.started_at = e.at;
                   if (held.status.state == TaskState::starting)
                     held.status.state = TaskState::running;
                   held.status.waits_for.clear();
                   report(held, now, out);
                 },
                 [&](const task_event::Suspended& e) {
                   if (held.status.state != TaskState::suspending || held.status.order != e.order)
                     return;
                   held.status.state = e.error.empty() ? TaskState::suspended : TaskState::running;
                   held.status.order_error = e.error;
                   held.status.order_at = now.wall;
                   held.status.ram_mib = e.ram_mib;
                   report(held, now, out);
                 },
                 [&](const task_event::Resumed& e) {
                   if (held.status.state != TaskState::resuming || held.status.order != e.order)
                     return;
                   held.status.state = e.error.empty() ? TaskState::running : TaskState::suspended;
                   if (e.error.empty() && held.watch)
                     held.watch->resumed(now.steady);
                   held.status.order_error = e.error;
                   held.status.order_at = now.wall;
                   report(held, now, out);
                 },
                 [&](const task_event::Declared& e) {
                   if (held.status.unsuspendable == e.unsuspendable)
                     return;
                   held.status.unsuspendable = e.unsuspendable;
                   report(held, now, out);
                 },
                 [&](const task_event::Checkpointed& e) {
                   held.status.checkpoint = e.checkpoint;
                   report(held, now, out);
                 },
                 [&](const task_event::Waiting& e) {
                   if (held.status.state != TaskState::starting || held.status.waits_for == e.text)
                     return;
                   held.status.waits_for = e.text;
                   if (connected_)
                     report(held, now, out);  // a hello says it by itself
                 },
                 [&](const task_event::PortSeen& e) {
                   if (held.status.port_holder == e.holder &&
                       (e.look == 0 || held.status.port_look == e.look))
                     return;
                   held.status.port_holder = e.holder;
                   if (e.look != 0)
                     held.status.port_look = e.look;
                   // What somebody else answers there is not the replica's, and the replica cannot
                   // have it: it has failed, and its successor gets another port.
                   if (e.holder == PortHolder::other)
                     return stop_task(held, Duration{-1}, StopReason::port_taken, now, out);
                   if (held.status.state != TaskState::starting)
                     report(held, now, out);  // else the report that it runs says so
                 },
                 [&](const task_event::LogAdvanced& e) {
                   held.status.log_end = std::max(held.status.log_end, e.log_end);
                 },
                 [&](const task_event::Ended& e) {
                   const std::uint32_t order = held.status.order;
                   const Checkpoint checkpoint = held.status.checkpoint;
                   const PortHolder port_holder = held.status.port_holder;
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
                 },
             },
             event);
}

// ---- reports
// --------------------------------------------------------------------------------------------------------

std::uint64_t Core::next_report_number(Effects& out) {
  if (next_report_number_ >= memory_.report_numbers_used_below) {
    memory_.report_numbers_used_below = next_report_number_ + report_number_block;
    out.push_back(effect::Remember{memory_});
  }
  return next_report_number_++;
}

void Core::report(Held& held, Now now, Effects& out) {
  if (held.report_number != 0)
    pending_.erase(held.report_number);
  held.report_number = next_report_number(out);
  Pending& pending = pending_[held.report_number];
  pending.task = held.status.task;
  if (welcomed_)
    send_report(held.report_number, pending, now, out);
}

void Core::send_report(std::uint64_t number, Pending& pending, Now now, Effects& out) {
  pending.sent = true;
  pending.sent_at = now.steady;
  out.push_back(effect::Send{v1::Report{number, tasks_.at(pending.task).status}});
}

void Core::acknowledge(Held& held, Now now, Effects& out) {
  if (held.report_number != 0)
    pending_.erase(held.report_number);
  held.report_number = 0;
  if (held.acknowledged)
    return;
  held.acknowledged = true;
  retained_.emplace_back(now.steady + limits::task_retention, held.status.task);
  out.push_back(effect::AcknowledgeTask{held.status.task});
}

void Core::handle(const v1::Ack& m, Now now, Effects& out) {
  while (!pending_.empty() && pending_.begin()->first <= m.number) {
    // What was never sent cannot have been acknowledged: the number is of a head that is confused.
    if (!pending_.begin()->second.sent)
      return;
    Held& held = tasks_.at(pending_.begin()->second.task);
    pending_.erase(pending_.begin());
    held.report_number = 0;
    if (held.status.state == TaskState::ended)
      acknowledge(held, now, out);
  }
}

void Core::handle(const v1::Settle& m, Now now, Effects& out) {
  if (!epoch_accepted(m.epoch, out))
    return;
  auto settle = [&](TaskId id) {
    const auto it = tasks_.find(id);
    if (it == tasks_.end())
      return;
    if (it->second.status.state == TaskState::ended)
      acknowledge(it->second, now, out);
    else if (!it->second.stop_sent)
      stop_task(it->second, Duration{-1}, StopReason::disowned, now,
                out);  // over for the head, alive here
  };
  for (const TaskId id : m.ended)
    settle(id);
  for (const TaskId id : m.unknown)
    settle(id);
}

// ---- time
// -----------------------------------------------------------------------------------------------------------

void Core::tick(Now now, Effects& out) {
  seen_now_ = now.steady;
  if (welcomed_)
    head_seen_at_ =
        std::max(head_seen_at_, now.steady - (limits::ws_ping_interval + limits::ws_pong_timeout));
  const bool fence = now.steady - head_seen_at_ >= limits::agent_self_fence;
  for (const TaskId id : std::vector<TaskId>(live_.begin(), live_.end())) {
    Held& held = tasks_.at(id);
    // The fence cuts every grace short, also of a stop under way: the head counts on the end of
    // this task by then.
    if (fence && held.fenced && !held.fence_sent) {
      held.fence_sent = true;
      stop_task(held, limits::fence_grace, StopReason::fenced, now, out);
    }
    const bool renews =
        (welcomed_ && !fence && held.fenced) || (tasks_outlive_us_.ns > 0 && !held.stop_sent);
    if (renews && ends_at(held) - held.ends_at >= fence_renewal) {
      held.ends_at = ends_at(held);
      out.push_back(effect::SetEndsAt{id, held.ends_at});
    }
    if (held.stop_sent)
      continue;
    if (held.paid_until.ns > 0 && now.steady >= held.paid_until)
      stop_task(held, Duration{-1}, StopReason::unpaid, now, out);
  }
  if (welcomed_)
    for (auto& [number, pending] : pending_)
      if (!pending.sent || now.steady - pending.sent_at >= limits::report_resend_after)
        send_report(number, pending, now, out);
  say_marks(now, out);
  dead_man(now, out);
  while (!retained_.empty() &&
         (retained_.front().first <= now.steady || retained_.size() > limits::tasks_retained_max)) {
    const TaskId id = retained_.front().second;
    retained_.pop_front();
    out.push_back(effect::RemoveTask{id});
    bury(id);
  }
}

void Core::bury(TaskId id) {
  if (const auto it = tasks_.find(id); it != tasks_.end()) {
    if (it->second.report_number != 0)
      pending_.erase(it->second.report_number);
    tasks_.erase(it);
  }
  tombstones_.insert(id);
  if (tombstones_.size() > limits::tombstones_max) {
    tombstone_floor_ = *tombstones_.begin();
    tombstones_.erase(tombstones_.begin());
  }
}

std::optional<SteadyTime> Core::next_wake() const {
  std::optional<SteadyTime> next;
  auto consider = [&](SteadyTime at) {
    if (!next || at < *next)
      next = at;
  };
  for (const TaskId id : live_) {
    const Held& held = tasks_.at(id);
    if (held.fenced && !held.fence_sent)
      consider(head_seen_at_ + limits::agent_self_fence);
    if (!held.stop_sent && held.paid_until.ns > 0)
      consider(held.paid_until);
  }
  if (welcomed_)
    for (const auto& [number, pending] : pending_)
      consider(pending.sent ? pending.sent_at + limits::report_resend_after : SteadyTime{});
  if (!retained_.empty())
    consider(retained_.front().first);
  return next;
}

std::optional<std::string> Core::check_invariants() const {
  for (const auto& [id, held] : tasks_) {
    const bool ended = held.status.state == TaskState::ended;
    if (held.status.task != id)
      return fmt::format("task {} is filed as {}", held.status.task.value, id.value);
    if (live_.contains(id) == ended)
      return fmt::format("task {} is both live and ended, or neither", id.value);
    if (held.acknowledged && !ended)
      return fmt::format("task {} is acknowledged but lives", id.value);
    if (held.report_number != 0 && !pending_.contains(held.report_number))
      return fmt::format("task {} waits for a report that is not there", id.value);
    if (tombstones_.contains(id))
      return fmt::format("task {} is held and buried", id.value);
  }
  for (const auto& [number, pending] : pending_) {
    const auto it = tasks_.find(pending.task);
    if (it == tasks_.end() || it->second.report_number != number)
      return fmt::format("report {} belongs to no task", number);
    if (number >= memory_.report_numbers_used_below)
      return fmt::format("report {} has a number that was not reserved", number);
  }
  return std::nullopt;
}

}  // namespace billow::agent
