#include "core/agent/core.h"

#include <fmt/format.h>

#include "base/check.h"

namespace billow::agent {
namespace {
namespace v1 = wire::agent_v1;

constexpr Duration fence_renewal = seconds(10);  // supervisors' deadlines move in these steps

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
      // The time without an agent counts as active.
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
  // The hello contains every state, but only a report can be acknowledged: each end gets one.
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
      holds_alternative<v1::Welcome>(message) || holds_alternative<v1::Refused>(message);
  if (!connected_ || (!welcomed_ && !opening))
    return;  // from a closed connection, or from a head that is not accepted yet
  on_head_alive(now);
  const auto known = [&](TaskId id) {
    return live_.contains(id);
  };
  visit(Overloaded{
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

// True if the head is the newest known. A head with a lower epoch has been replaced without knowing
// it.
bool Core::epoch_accepted(Epoch epoch, Effects& out) {
  if (epoch < memory_.epoch) {
    out.push_back(effect::Disconnect{fmt::format(
        "this head has epoch {}, but a head with epoch {} has taken over", epoch, memory_.epoch)});
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
        effect::Disconnect{fmt::format("the head uses protocol {}, but this agent supports {} "
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
  // The notice explains the ends that are reported; its own number acknowledges earlier ones.
  if (!reclaimed_.empty())
    out.push_back(effect::Send{v1::Reclaimed{reclaimed_}});
  for (auto& [number, pending] : pending_)
    send_report(number, pending, now, out);
  if (!reclaimed_.empty())
    send_notice_number(out);
}

void Core::handle(const v1::Refused& m, Now, Effects& out) {
  connected_ = welcomed_ = false;
  notice_known_ = notice_number_ != 0;  // such a head starts nothing here
  out.push_back(effect::Disconnect{m.hint.empty() ? m.message : m.message + " (" + m.hint + ")"});
}

// ---- time

void Core::tick(Now now, Effects& out) {
  seen_now_ = now.steady;
  if (welcomed_)
    head_seen_at_ =
        std::max(head_seen_at_, now.steady - (limits::ws_ping_interval + limits::ws_pong_timeout));
  const bool fence = now.steady - head_seen_at_ >= limits::agent_self_fence;
  for (const TaskId id : std::vector<TaskId>(live_.begin(), live_.end())) {
    Held& held = tasks_.at(id);
    // The fence shortens every grace period, even of a stop that is under way: the head relies on
    // the task's end by then.
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
  give_back_if_abandoned(now, out);
  while (!retained_.empty() &&
         (retained_.front().first <= now.steady || retained_.size() > limits::tasks_retained_max))
    remove_oldest(out);
}

void Core::on_disk_low(Effects& out) {
  constexpr int removed_at_once_max = 8;
  constexpr std::size_t kept_min = 4;  // somebody is probably looking at the newest
  for (int i = 0; i < removed_at_once_max && retained_.size() > kept_min; ++i)
    remove_oldest(out);
}

void Core::remove_oldest(Effects& out) {
  const TaskId id = retained_.front().second;
  retained_.pop_front();
  out.push_back(effect::RemoveTask{id});
  bury(id);
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

}  // namespace billow::agent
