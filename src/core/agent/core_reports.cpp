// The core's reports: each change of a task is reported until the head acknowledges it.
#include <fmt/format.h>

#include "core/agent/core.h"

namespace billow::agent {
namespace {
namespace v1 = wire::agent_v1;

// Numbers are reserved in blocks, so that not every report costs a write.
constexpr std::uint64_t report_number_block = 4096;
}  // namespace

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
  if (welcomed_ && notice_number_ != 0 && m.number >= notice_number_)
    notice_known_ = true;
  while (!pending_.empty() && pending_.begin()->first <= m.number) {
    // A report that was never sent cannot be acknowledged: ignore the number.
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
      stop_task(it->second, Duration{-1}, StopReason::disowned, now, out);  // ended at the head
  };
  for (const TaskId id : m.ended)
    settle(id);
  for (const TaskId id : m.unknown)
    settle(id);
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
      return fmt::format("task {} waits for a report that does not exist", id.value);
    if (tombstones_.contains(id))
      return fmt::format("task {} is both known and removed", id.value);
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
