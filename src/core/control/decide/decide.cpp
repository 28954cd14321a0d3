// From a command to its decision, and from the scheduler's plan to events. carry_out is where a
// preemption that the scheduler has planned (sched/preempt.h) becomes an order: a victim that can
// be suspended is suspended, any other is stopped and queued again.
#include "core/control/decide/decider.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/money.h"

namespace billow::control {

Decision decide(const State& state, const Command& command, const Context& context) {
  return visit(Decider{state, context}, command);
}

Task make_task(const State& state,
               const Job& job,
               TaskId id,
               std::uint32_t rank,
               std::uint32_t attempt,
               const sched::Placement& placement,
               const Context& context) {
  const Node& node = state.nodes.at(placement.node);
  Task task;
  task.id = id;
  task.job = job.id;
  task.rank = rank;
  task.attempt = attempt;
  task.node = placement.node;
  task.boot_id = node.offer.boot_id;
  for (const sched::GpuShare& share : placement.gpus)
    task.gpus.push_back({share.gpu, share.share, share.mig_start});
  task.cpu_milli = placement.cpu_milli;
  task.mem_mib = placement.mem_mib;
  task.disk_mib = placement.disk_mib;
  task.lease_from = context.billed;
  task.price_class = job.spec->spot ? PriceClass::spot : PriceClass::on_demand;
  if (const Reservation* r = reservation_of(state, job)) {
    task.reservation = r->id;
    task.price_class = PriceClass::reserved;
    task.rate = r->rate;
  } else if (!task.gpus.empty() && context.prices) {
    task.rate = charge_rate(
        state, node, node.offer.gpus.at(static_cast<std::size_t>(task.gpus.front().gpu)).type,
        task.price_class, context.prices);
  }
  return task;
}

namespace {

// A suspended job resumes, or waits for money.
EventBody resume(const State& state,
                 const Job& job,
                 const sched::Placement& placement,
                 Purse& purse,
                 const Context& context) {
  JobResuming resuming = resume_event(state, job, placement, context);
  std::int64_t milli = 0;
  for (const GpuGrant& grant : resuming.gpus)
    milli += grant.share.milli;
  const Rate rate{resuming.rate.nano_usd_per_s * milli / 1000};
  if (const Status paid = purse.take(job, rate, milli); !paid)
    return SuspensionChanged{job.id, SuspendCause::budget, held_text(paid.error()), false};
  return resuming;
}

}  // namespace

std::vector<EventBody> carry_out(const State& state,
                                 const sched::Plan& plan,
                                 const Context& context) {
  Events events;
  std::uint64_t next_task = state.next_task;
  Purse purse(state, context.billed);
  for (const sched::Start& start : plan.starts) {
    const Job& job = state.jobs.at(start.job);
    if (job.state == JobState::suspended) {
      events.push_back(resume(state, job, start.placements.front(), purse, context));
      continue;
    }
    JobPlaced placed{.job = job.id, .tasks = {}};
    for (std::size_t rank = 0; rank < start.placements.size(); ++rank)
      placed.tasks.push_back(make_task(state, job, TaskId(next_task++),
                                       static_cast<std::uint32_t>(rank), job.attempt + 1,
                                       start.placements[rank], context));
    const Rate rate = rate_of(placed.tasks);
    if (purse.used_up(job, rate)) {
      events.push_back(JobEnded{
          job.id, JobState::stopped, {.kind = ExitKind::stopped}, used_up_text(state, job, rate)});
      continue;
    }
    if (const Status paid = purse.take(job, rate, milli_of(placed.tasks)); !paid) {
      events.push_back(JobHeld{job.id, held_text(paid.error()), rate});
      continue;
    }
    events.push_back(std::move(placed));
  }
  for (const sched::Repair& repair : plan.repairs) {
    const Job& job = state.jobs.at(repair.job);
    const auto rank = static_cast<std::uint32_t>(repair.task_index);
    const Task& before = state.tasks.at(job.tasks.at(rank));
    Task task =
        make_task(state, job, TaskId(next_task++), rank, job.attempt, repair.placement, context);
    // A restart that somebody asked for, or a lost node, costs the member no retry.
    if (!job.spec->roles.empty())
      task.failures =
          before.failures + (before.restarting || before.exit.kind == ExitKind::lost ? 0 : 1);
    events.push_back(MemberReplaced{job.id, std::move(task)});
  }
  for (const sched::Preempt& preempt : plan.preempts) {
    const Job& victim = state.jobs.at(preempt.victim);
    // A job between two states is asked when it has reached the next one.
    if (victim.stopping != StopCause::none || victim.suspension.phase != SuspendPhase::none)
      continue;
    if (preempt.cause == sched::PreemptCause::consolidation &&
        (!victim.checkpoint.path.empty() || !victim.spec->spot)) {
      if (victim.checkpoint.path.empty())
        continue;  // it has no checkpoint to continue from yet
      events.push_back(JobStopping{
          preempt.victim,
          fmt::format("moved to make space for {}; continues from its newest checkpoint",
                      other_job(state, victim, preempt.for_job)),
          StopCause::moved, false, preempt.for_job});
      continue;
    }
    const std::string reason = preempt.for_job
                                   ? "preempted by " + other_job(state, victim, preempt.for_job)
                                   : "preempted by a reservation";
    if (suspendable(state, victim))
      events.push_back(suspend_event(victim, reason, SuspendCause::preempted, SuspendMode::warm,
                                     preempt.for_job));
    else
      events.push_back(
          JobStopping{preempt.victim, reason, StopCause::preempted, false, preempt.for_job});
  }
  return events;
}

std::string other_job(const State& state, const Job& job, JobId other) {
  const Job* found = state.find_job(other);
  return found && found->project == job.project ? fmt::format("job {}", other.value)
                                                : "another project's job";
}

}  // namespace billow::control
