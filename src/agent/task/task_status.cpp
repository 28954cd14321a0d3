#include "agent/task/task_status.h"

#include "base/file.h"

namespace billow::agent {
namespace {

namespace sv = supervise;

ExitKind by_process(const sv::ExitRecord& r) {
  const bool bad = static_cast<sv::ExitKind>(r.kind) == sv::ExitKind::signaled || r.code != 0;
  // A job that lost a child to the OOM killer but succeeded was not ended by it.
  if ((r.flags & sv::exit_oom) != 0 && bad)
    return ExitKind::oom;
  return static_cast<sv::ExitKind>(r.kind) == sv::ExitKind::signaled ? ExitKind::signaled
                                                                     : ExitKind::exited;
}

ExitKind by_stop_reason(std::uint32_t reason) {
  switch (static_cast<StopReason>(reason)) {
    case StopReason::unpaid:
      return ExitKind::unpaid;
    case StopReason::fenced:
      return ExitKind::lost;  // the node was cut off: a restart elsewhere is not a retry
    case StopReason::idle:
      return ExitKind::idle;
    case StopReason::port_taken:
      return ExitKind::exec_failed;  // it never started to serve
    case StopReason::request:
    case StopReason::greedy:
    case StopReason::disk:
    case StopReason::disowned:
      return ExitKind::stopped;
  }
  return ExitKind::stopped;
}

// Jobs of other users are entered by a program of Billow's, so they must be able to reach it.
std::string why_not_started(const sv::ExitRecord& r) {
  std::string why = r.detail;
  if (r.code == 126 && why.starts_with("exec " + executable_dir() + "/"))
    why +=
        "; jobs of other users need Billow in a directory that everybody may enter, for example "
        "/opt/billow";
  return why;
}

}  // namespace

TaskStatus status_of(TaskId task, const sv::ExitRecord& r) {
  TaskStatus status;
  status.task = task;
  status.state = TaskState::ended;
  status.started_at = WallTime{r.started_wall_ns};
  status.ended_at = WallTime{r.ended_wall_ns};
  status.usage = {r.user_us * 1000,
                  r.system_us * 1000,
                  r.rss_max_kib,
                  static_cast<std::int64_t>(r.log_dropped_bytes),
                  {}};
  status.log_end = r.log_end;
  status.exit.code = r.code;
  status.exit.signal = r.signal;
  status.exit.message = r.detail;
  if (static_cast<sv::ExitKind>(r.kind) == sv::ExitKind::not_started) {
    status.exit.message = why_not_started(r);
    status.exit.kind = static_cast<sv::EndCause>(r.cause) == sv::EndCause::stop_request
                           ? ExitKind::stopped
                           : ExitKind::exec_failed;
    return status;
  }
  switch (static_cast<sv::EndCause>(r.cause)) {
    case sv::EndCause::itself:
      status.exit.kind = by_process(r);
      break;
    case sv::EndCause::stop_request:
      status.exit.kind = by_stop_reason(r.stop_reason);
      break;
    case sv::EndCause::time_limit:
      status.exit.kind = ExitKind::timed_out;
      break;
    case sv::EndCause::paid_until:
      status.exit.kind = ExitKind::unpaid;
      break;
    case sv::EndCause::parent_ended:
      status.exit.kind = ExitKind::lost;
      status.exit.message = "the allocation it ran in ended";
      break;
    case sv::EndCause::supervisor_signal:
      status.exit.kind = ExitKind::lost;
      status.exit.message = "its supervisor was terminated: the machine is shutting down";
      break;
  }
  if (static_cast<StopReason>(r.stop_reason) == StopReason::fenced)
    status.exit.message = "no head was reachable for the self-fence time";
  if (static_cast<StopReason>(r.stop_reason) == StopReason::idle)
    status.exit.message = "it was idle while no head was reachable";
  if (static_cast<StopReason>(r.stop_reason) == StopReason::greedy)
    status.exit.message = "it held more GPU memory than its slice, allocated past the limit";
  if (static_cast<StopReason>(r.stop_reason) == StopReason::disk)
    status.exit.message = "its files took more of the node's disk than its limit";
  if (static_cast<StopReason>(r.stop_reason) == StopReason::port_taken) {
    status.exit.port_taken = true;
    status.exit.message = "another process uses its port";
  }
  if (static_cast<StopReason>(r.stop_reason) == StopReason::disowned)
    status.exit.message = "the head does not know this task";
  return status;
}

sv::ExitRecord record_of(const TaskStatus& status) {
  sv::ExitRecord r{};
  r.magic = sv::exit_magic;
  r.bytes = sizeof(r);
  r.kind = static_cast<std::uint32_t>(sv::ExitKind::not_started);
  r.cause = static_cast<std::uint32_t>(
      status.exit.kind == ExitKind::stopped ? sv::EndCause::stop_request : sv::EndCause::itself);
  r.code = status.exit.code;
  r.signal = status.exit.signal;
  r.ended_wall_ns = status.ended_at.ns;
  std::strncpy(r.detail, status.exit.message.c_str(), sizeof(r.detail) - 1);
  return r;
}

TaskStatus lost_status(TaskId task, WallTime now, std::string message) {
  TaskStatus status;
  status.task = task;
  status.state = TaskState::ended;
  status.ended_at = now;
  status.exit = {ExitKind::lost, 1, 0, std::move(message)};
  return status;
}

bool may_be_engines_doing(const ExitStatus& exit) {
  switch (exit.kind) {
    case ExitKind::exited:
      return exit.code != 0;
    case ExitKind::signaled:
    case ExitKind::lost:
      return true;
    case ExitKind::exec_failed:
    case ExitKind::oom:
    case ExitKind::timed_out:
    case ExitKind::unpaid:
    case ExitKind::idle:
    case ExitKind::stopped:
      return false;
  }
  return false;
}

}  // namespace billow::agent
