// Members of gangs and groups that are replaced while the others continue.
#include "audit.h"
#include "provider.h"

#include <fmt/format.h>

namespace billow::sim {

void Audit::add_task(const Task& task) {
  if (!tasks_.try_emplace(task.id, TaskStory{task, {}, {}, nullptr}).second)
    broken(fmt::format("task number {} was given out twice", task.id.value));
  open_tasks_.insert(task.id);
}

// A member of a gang is replaced if it was lost, or failed while the job has retries left, and the
// job allows it; nobody else is touched.
void Audit::replaced(const MemberReplaced& e, WallTime billed) {
  JobStory& job = jobs_.at(e.job);
  world_.trace("journal: job {}: task {} on {} takes the place of rank {}", e.job.value,
               e.task.id.value, node_names_[e.task.node], e.task.rank);
  const RoleSpec* role = member_of(*job.spec, e.task.rank).role;
  if ((!job.spec->elastic && !role) || !job.running || job.stopping != StopCause::none)
    broken(fmt::format("job {} gets a new member and should not", e.job.value));
  TaskId& member = job.tasks.at(e.task.rank);
  const auto& end = tasks_.at(member).end;
  const bool failed =
      end && ((end->exit.kind == ExitKind::exited && end->exit.code != 0) ||
              end->exit.kind == ExitKind::signaled || end->exit.kind == ExitKind::oom);
  const bool asked = restarting_.erase(member) > 0;
  const bool served = role && role->service && end && end->exit.ok();
  if (!end || (end->exit.kind != ExitKind::lost && !failed && !asked && !served))
    broken(fmt::format("rank {} of job {} is replaced and was neither lost nor failed", e.task.rank,
                       e.job.value));
  if (role && end->exit.kind == ExitKind::lost && !job.spec->rerun_if_lost && !end->never_began)
    broken(fmt::format("rank {} of job {} may run twice", e.task.rank, e.job.value));
  if (role && (failed || served) && !asked && tasks_.at(member).task.failures >= role->retries)
    broken(fmt::format("role {} of job {} is restarted more often than it has retries", role->name,
                       e.job.value));
  if (!role && failed && ++job.failures > job.spec->retries)
    broken(
        fmt::format("job {} replaces more members that failed than it has retries", e.job.value));
  if (e.task.attempt != job.attempts || e.task.lease_from != billed)
    broken(fmt::format("the new member of job {} is of another attempt or time", e.job.value));
  add_task(e.task);
  member = e.task.id;
  check_inside(job, e.task);
  check_heard(e.task);
}

// Every member of a group that is not a service ended well.
bool Audit::served_to_the_end(const JobStory& job) const {
  for (std::size_t rank = 0; rank < job.tasks.size(); ++rank) {
    const RoleSpec* role = member_of(*job.spec, static_cast<std::uint32_t>(rank)).role;
    const auto& end = tasks_.at(job.tasks[rank]).end;
    if (!role ||
        (!role->service && (!end || !end->exit.ok() || restarting_.contains(job.tasks[rank]))))
      return false;
  }
  return true;
}

// Its machine may be given back under it.
bool Audit::on_rented(const JobStory& job) const {
  return world_.provider && std::any_of(job.tasks.begin(), job.tasks.end(), [&](TaskId id) {
           return node_names_.at(tasks_.at(id).task.node).starts_with("cloud-");
         });
}

// Every rented machine has ended, and costs what its provider bills.
void Audit::check_rented(const control::State& state) const {
  if (!world_.provider)
    return;
  if (!state.machines.empty() || world_.provider->running() > 0)
    broken("a machine is left");
  if (machine_bills_ != world_.provider->meter())
    broken(fmt::format("the machines are booked at {} nano-dollars, the provider's meter has {}",
                       machine_bills_.value, world_.provider->meter().value));
}

}  // namespace billow::sim
