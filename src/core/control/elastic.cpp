// Elastic gangs and groups: a member whose node is lost, or that fails while retries are left, is
// replaced alone; the others continue. If no replacement is found for too long, the whole gang
// restarts, so that it does not hold its other nodes indefinitely.
#include "core/control/elastic.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"

namespace billow::control {

namespace {

bool failed_itself(const ExitStatus& exit) {
  switch (exit.kind) {
    case ExitKind::exited:
      return exit.code != 0;
    case ExitKind::signaled:
    case ExitKind::oom:
      return true;
    case ExitKind::timed_out:
    case ExitKind::stopped:
    case ExitKind::exec_failed:
    case ExitKind::unpaid:
    case ExitKind::lost:
    case ExitKind::idle:
      return false;
  }
  return false;
}

// A member of a group, by the retries of its role.
bool is_replaceable(const Job& job, const RoleSpec& role, const Task& task) {
  // Unless that is allowed, nothing that may still run is started again.
  if (task.exit.kind == ExitKind::lost)
    return job.spec->rerun_if_lost || task.never_began;
  if (task.restarting)
    return true;
  // A service that ends has failed, whatever its exit code.
  const bool failed = failed_itself(task.exit) || (role.service && task.exit.ok());
  return failed && task.failures < role.retries;
}

}  // namespace

bool is_replaceable(const State& state, const Job& job, const Task& task) {
  if (const RoleSpec* role = member_of(*job.spec, task.rank).role)
    return is_replaceable(job, *role, task);
  if (!job.spec->elastic || job.repairs >= limits::repairs_max)
    return false;
  if (task.exit.kind == ExitKind::lost)
    return true;
  if (!failed_itself(task.exit))
    return false;
  std::uint32_t failures = job.failures;
  for (TaskId id : job.tasks) {
    const Task& other = state.tasks.at(id);
    // Members that failed at the same moment: all of them or none, because their order is not
    // recorded.
    if (other.state == TaskState::ended && failed_itself(other.exit) &&
        other.lease_to <= task.lease_to)
      ++failures;
  }
  return failures <= job.spec->retries;
}

bool awaits_member(const State& state, const Job& job) {
  return !job.spec->roles.empty() && job.stopping == StopCause::none &&
         std::any_of(job.tasks.begin(), job.tasks.end(), [&](TaskId id) {
           const Task& task = state.tasks.at(id);
           return task.state == TaskState::ended && is_replaceable(state, job, task);
         });
}

void Decider::tick_elastic(Events& events) const {
  for (JobId id : state.index.waiting_for_members()) {
    const Job* job = state.find_job(id);
    if (!job || job->stopping != StopCause::none || !job->member_lost_at ||
        context.billed - job->member_lost_at < limits::repair_wait_max)
      continue;
    events.push_back(
        JobStopping{id,
                    fmt::format("a member is missing, and no node was free for it for {}",
                                format_duration(limits::repair_wait_max)),
                    StopCause::rank_failed,
                    false,
                    {}});
  }
}

void Applier::operator()(const MemberReplaced& e) {
  Job& j = job(e.job);
  TaskId& member = j.tasks.at(e.task.rank);
  if (j.spec->roles.empty() && failed_itself(task(member).exit))
    ++j.failures;
  state.tasks.erase(member);
  member = e.task.id;
  state.tasks[e.task.id] = e.task;
  state.tasks_on[e.task.node].insert(e.task.id);
  state.next_task = std::max(state.next_task, e.task.id.value + 1);
  ++j.repairs;
  j.member_lost_at = {};
  for (TaskId id : j.tasks) {
    const Task& t = task(id);
    // Another one still waits for a replacement.
    if (t.state == TaskState::ended && is_replaceable(state, j, t))
      j.member_lost_at = event.billed_at();
  }
  sched::Placement placement{.node = e.task.node,
                             .gpus = {},
                             .cpu_milli = e.task.cpu_milli,
                             .mem_mib = e.task.mem_mib,
                             .disk_mib = e.task.disk_mib};
  for (const GpuGrant& g : e.task.gpus)
    placement.gpus.push_back({g.gpu, g.share, g.mig_start});
  state.index.member_replaced(j.id, static_cast<std::int32_t>(e.task.rank), std::move(placement));
}

}  // namespace billow::control
