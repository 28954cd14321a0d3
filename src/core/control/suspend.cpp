// Suspend and resume: the decisions, their folding, and the updates of the scheduler.
//
// A job runs; gets the order to suspend (it keeps its GPUs until its agent has saved their memory);
// is suspended (it holds memory of its node and a lease of class `suspended`, but no GPU); gets the
// same GPUs again from the scheduler like any queued job; resumes; runs. In doubt it continues to
// run: an agent that cannot suspend reports that, and the job keeps its place. Only a preempted job
// is then stopped and queued again, because its capacity is needed.
//
// Guarantees: orders to a task are numbered and a report counts only for the order it names, so a
// late or duplicated frame changes nothing; a suspended job waits in the scheduler's queue exactly
// while `resume_wanted` is set; its image is pinned to its node and cards. Only jobs with one task
// can be suspended: the ranks of a gang would time out on each other.
#include <fmt/format.h>
#include <algorithm>

#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/money.h"

namespace billow::control {
namespace {

// The lease that ends, at a time that both clocks allow.
std::pair<WallTime, NanoUsd> close_lease(const Task& task, WallTime at, const Context& context) {
  const WallTime to =
      std::max(at ? std::min(at - (context.now - context.billed), context.billed) : context.billed,
               task.lease_from);
  return {to, ledger::lease_cost(task, to)};
}

const Task& only_task(const State& state, const Job& job) {
  return state.tasks.at(job.tasks.front());
}

}  // namespace

bool could_be_suspended(const JobSpec& spec) {
  return spec.nodes == 1 && spec.roles.empty() && spec.resources.mig_profile.empty() &&
         spec.suspendable != Suspendable::no && spec.surroundings.isolation != Isolation::strict;
}

Status suspendable(const State& state, const Job& job) {
  const auto cannot = [&](std::string why, std::string hint = {}) {
    return fail(Code::conflict, fmt::format("job {} cannot be suspended: {}", job.id.value, why),
                std::move(hint));
  };
  // First the permanent reasons, which also apply to a waiting job.
  const JobSpec& spec = *job.spec;
  if (spec.suspendable == Suspendable::no)
    return cannot("it was submitted with --suspendable no");
  if (spec.surroundings.isolation == Isolation::strict)
    return cannot("its memory would leave its isolation (--isolation strict)",
                  "let it write checkpoints: --checkpoint-every 20m");
  if (!spec.roles.empty())
    return cannot("it is a group, and its members would time out waiting for each other",
                  fmt::format("stop it, and run it again later: billow rerun {}", job.id.value));
  if (spec.nodes > 1)
    return cannot(
        "it runs on several nodes, and its processes would time out waiting for each other",
        "let it write checkpoints: --checkpoint-every 20m");
  if (!spec.resources.mig_profile.empty())
    return cannot("it runs in a MIG instance", "let it write checkpoints: --checkpoint-every 20m");
  if (job.state != JobState::running && job.state != JobState::suspended)
    return cannot(fmt::format("it is {}", enum_name(job.state)));
  const Task& task = only_task(state, job);
  if (!task.unsuspendable.empty())
    return cannot(task.unsuspendable, "let it write checkpoints: --checkpoint-every 20m");
  if (job.state != JobState::running)
    return cannot(fmt::format("it is {}", enum_name(job.state)));
  if (job.stopping != StopCause::none)
    return cannot("it is being stopped");
  if (task.state == TaskState::unreachable)
    return cannot("its node does not answer");
  if (job.suspension.phase == SuspendPhase::resuming)
    return cannot("it is just resuming", "try again in a moment");
  if (task.state != TaskState::running)
    return cannot(fmt::format("it is {}", enum_name(task.state)), "try again in a moment");
  return {};
}

JobSuspending suspend_event(
    const Job& job, std::string reason, SuspendCause cause, SuspendMode mode, JobId for_job) {
  return {.job = job.id,
          .reason = std::move(reason),
          .cause = cause,
          .mode = mode,
          .resume_wanted = cause == SuspendCause::preempted,
          .for_job = for_job,
          .order = job.suspension.order + 1};
}

JobResuming resume_event(const State& state,
                         const Job& job,
                         const sched::Placement& placement,
                         const Context& context) {
  const Task& task = only_task(state, job);
  const auto [to, cost] = close_lease(task, {}, context);
  JobResuming e{.job = job.id,
                .task = task.id,
                .gpus = {},
                .cpu_milli = placement.cpu_milli,
                .mem_mib = task.mem_mib,
                .lease_to = to,
                .cost = cost,
                .rate = {},
                .price_class = job.spec->spot ? PriceClass::spot : PriceClass::on_demand,
                .order = job.suspension.order + 1};
  // In the order in which the process knows its cards.
  for (const GpuGrant& old : task.gpus)
    for (const sched::GpuShare& share : placement.gpus)
      if (share.gpu == old.gpu)
        e.gpus.push_back({share.gpu, share.share, share.mig_start});
  const Node& node = state.nodes.at(task.node);
  if (const Reservation* r = reservation_of(state, job)) {
    e.price_class = PriceClass::reserved;
    e.rate = r->rate;
  } else if (!e.gpus.empty() && context.prices)
    e.rate = charge_rate(state, node,
                         node.offer.gpus.at(static_cast<std::size_t>(e.gpus.front().gpu)).type,
                         e.price_class, context.prices);
  return e;
}

// ---- decisions

namespace {

// A running job already has its price.
bool may_leave_reservation(const Job& job) {
  const bool waits = job.state == JobState::queued || job.state == JobState::held ||
                     job.state == JobState::suspended;
  return waits && job.spec->reservation && !job.left_reservation && job.stopping == StopCause::none;
}

}  // namespace

void Decider::suspend_one(Events& events, const Job& job, const SuspendJob& c) {
  events.push_back(suspend_event(job, c.reason.empty() ? "suspended by request" : c.reason, c.cause,
                                 c.mode, {}));
}

Decision Decider::operator()(const SuspendJob& c) {
  Events events;
  if (const Job* job = state.find_job(c.job)) {
    const Suspension& s = job->suspension;
    const bool there = s.phase == SuspendPhase::suspended || s.phase == SuspendPhase::suspending;
    if (there && job->stopping == StopCause::none) {
      // It is already suspended, but must no longer resume by itself.
      if (!s.resume_wanted)
        return events;
      events.push_back(SuspensionChanged{
          job->id, c.cause, c.reason.empty() ? "suspended by request" : c.reason, false});
      return events;
    }
    BILLOW_TRY_VOID(suspendable(state, *job));
    suspend_one(events, *job, c);
    return events;
  }
  const auto array = state.arrays.find(c.job);
  if (array == state.arrays.end())
    return fail(Code::not_found, fmt::format("job {} has ended, or does not exist", c.job.value),
                "see `billow ps -a`");
  const auto end = state.jobs.upper_bound(JobId(c.job.value + array->second.count));
  for (auto at = state.jobs.lower_bound(JobId(c.job.value + 1)); at != end; ++at)
    if (suspendable(state, at->second))
      suspend_one(events, at->second, c);
  if (events.empty())
    return fail(Code::conflict,
                fmt::format("no element of array {} is running and can be suspended", c.job.value));
  return events;
}

Decision Decider::operator()(const ResumeJob& c) {
  Events events;
  const auto resume_one = [&](const Job& job) {
    const Suspension& s = job.suspension;
    if (c.on_demand && may_leave_reservation(job))
      events.push_back(ReservationLeft{job.id});
    const bool there = s.phase == SuspendPhase::suspended || s.phase == SuspendPhase::suspending;
    if (there && !s.resume_wanted && job.stopping == StopCause::none)
      events.push_back(SuspensionChanged{job.id, s.cause, "", true});
    return there;
  };
  if (const Job* job = state.find_job(c.job)) {
    const bool waits_inside = may_leave_reservation(*job);
    if (waits_inside && !c.on_demand && !reservation_of(state, *job))
      return fail(
          Code::conflict,
          fmt::format("reservation {} of job {} has ended", job->spec->reservation.value,
                      c.job.value),
          fmt::format("run it at the on-demand price: billow resume {} --on-demand", c.job.value));
    if (c.on_demand && !waits_inside)
      return fail(Code::conflict,
                  fmt::format("job {} does not wait inside a reservation", c.job.value),
                  fmt::format("see `billow explain {}`", c.job.value));
    if (!resume_one(*job) && !waits_inside && job->state != JobState::running)
      return fail(Code::conflict,
                  fmt::format("job {} is {}, not suspended", c.job.value, enum_name(job->state)));
    return events;
  }
  const auto array = state.arrays.find(c.job);
  if (array == state.arrays.end())
    return fail(Code::not_found, fmt::format("job {} has ended, or does not exist", c.job.value),
                "see `billow ps -a`");
  const auto end = state.jobs.upper_bound(JobId(c.job.value + array->second.count));
  for (auto at = state.jobs.lower_bound(JobId(c.job.value + 1)); at != end; ++at) {
    if (may_leave_reservation(at->second) && !c.on_demand && !reservation_of(state, at->second))
      return fail(
          Code::conflict,
          fmt::format("reservation {} of array {} has ended", at->second.spec->reservation.value,
                      c.job.value),
          fmt::format("run it at the on-demand price: billow resume {} --on-demand", c.job.value));
    resume_one(at->second);
  }
  if (c.on_demand && events.empty())
    return fail(Code::conflict,
                fmt::format("no element of array {} waits inside a reservation", c.job.value));
  return events;
}

// The events of a report about the last order. A report about an earlier order is late and is
// ignored.
void Decider::order_events(Events& events, const Task& task, const TaskStatus& status) {
  if (status.unsuspendable != task.unsuspendable)
    events.push_back(TaskDeclared{task.id, status.unsuspendable});
  const Job& job = state.jobs.at(task.job);
  const Suspension& s = job.suspension;
  if (s.phase == SuspendPhase::none || status.order != s.order || job.stopping != StopCause::none)
    return;
  const bool suspended = status.state == TaskState::suspended,
             running = status.state == TaskState::running;
  const auto now_suspended = [&](std::string resume_failed) {
    const auto [to, cost] = close_lease(task, status.order_at, context);
    events.push_back(
        TaskSuspended{task.id, to, cost, context.prices ? context.prices->memory_rate() : Rate{},
                      std::max<std::int64_t>(status.ram_mib, 0), std::move(resume_failed)});
  };
  if (s.phase == SuspendPhase::suspending && suspended)
    now_suspended("");
  if (s.phase == SuspendPhase::suspending && running && !status.order_error.empty())
    events.push_back(SuspendFailed{job.id, s.cause, status.order_error});
  if (s.phase == SuspendPhase::resuming && running)
    events.push_back(TaskResumed{task.id});
  if (s.phase == SuspendPhase::resuming && suspended && !status.order_error.empty())
    now_suspended(status.order_error);
}

// ---- folding

void Applier::reshape(NodeId id) {
  state.index.upsert_node(shape_of(state, node(id)));
}

void Applier::set_phase(Job& j, SuspendPhase phase) {
  j.suspension.phase = phase;
  j.suspension.since = event.at;
}

void Applier::operator()(const JobSuspending& e) {
  Job& j = job(e.job);
  set_phase(j, SuspendPhase::suspending);
  j.suspension.cause = e.cause;
  j.suspension.mode = e.mode;
  j.suspension.order = e.order;
  j.suspension.resume_wanted = e.resume_wanted;
  j.reason = e.reason;
  j.gives_way_to = e.for_job;
  task(j.tasks.front()).state = TaskState::suspending;
  state.index.leaving(j.id, e.for_job);
}

void Applier::operator()(const TaskSuspended& e) {
  Task& t = task(e.task);
  Job& j = job(t.job);
  if (t.state != TaskState::unreachable)
    t.state = TaskState::suspended;
  // While suspended it holds nothing of its reservation: its payment so far is counted now.
  if (const auto r = state.reservations.find(t.reservation); r != state.reservations.end())
    count_used(t, e.lease_to, r->second);
  t.price_class = PriceClass::suspended;
  t.rate = e.rate;
  t.ram_mib = e.ram_mib;
  t.lease_from = e.lease_to;
  ++t.lease_number;
  j.cost += e.cost;
  j.gives_way_to = {};
  if (!e.resume_failed.empty()) {
    j.suspension.cause = SuspendCause::request;
    j.suspension.resume_wanted = false;
    j.reason = "could not resume: " + e.resume_failed;
  }
  set_phase(j, SuspendPhase::suspended);
  state.index.ended(j.id, event.at);
  set_state(j, JobState::suspended);
  if (j.spec->resources.mem_mib > 0 || t.disk_mib > 0)
    reshape(t.node);
  if (j.suspension.resume_wanted)
    state.index.enqueue(request_of(state, j));
}

void Applier::operator()(const SuspendFailed& e) {
  Job& j = job(e.job);
  set_phase(j, SuspendPhase::none);
  j.suspension.cause = SuspendCause::none;
  j.suspension.resume_wanted = false;
  j.reason = "could not be suspended: " + e.reason;
  Task& t = task(j.tasks.front());
  if (t.state == TaskState::suspending)
    t.state = TaskState::running;
  // It stays and keeps its capacity, unless it was preempted: then it is stopped next.
  if (e.cause != SuspendCause::preempted)
    j.gives_way_to = {};
  state.index.stays(j.id);
}

void Applier::operator()(const SuspensionChanged& e) {
  Job& j = job(e.job);
  j.suspension.cause = e.cause;
  j.suspension.resume_wanted = e.resume_wanted;
  j.reason = e.reason;
  if (j.state != JobState::suspended)
    return;
  if (e.resume_wanted)
    state.index.enqueue(request_of(state, j));
  else
    state.index.dequeue(j.id);
}

void Applier::operator()(const JobResuming& e) {
  Job& j = job(e.job);
  Task& t = task(e.task);
  t.state = TaskState::resuming;
  t.suspended_for = t.suspended_for + std::max(Duration{}, e.lease_to - t.lease_from);
  t.gpus = e.gpus;
  t.cpu_milli = e.cpu_milli;
  t.mem_mib = e.mem_mib;
  t.lease_from = e.lease_to;
  ++t.lease_number;
  t.rate = e.rate;
  t.price_class = e.price_class;
  t.ram_mib = 0;
  j.cost += e.cost;
  j.suspension.order = e.order;
  j.suspension.resume_wanted = false;
  j.reason.clear();
  set_phase(j, SuspendPhase::resuming);
  set_state(j, JobState::running);
  if (j.spec->resources.mem_mib > 0 || t.disk_mib > 0)
    reshape(t.node);
  // It was queued as pinned to its place; from now on its original request counts.
  state.index.enqueue(request_of(state, j));
  sched::Placement placement{.node = t.node,
                             .gpus = {},
                             .cpu_milli = t.cpu_milli,
                             .mem_mib = t.mem_mib,
                             .disk_mib = t.disk_mib};
  for (const GpuGrant& g : t.gpus)
    placement.gpus.push_back({g.gpu, g.share, g.mig_start});
  state.index.started(j.id, {std::move(placement)}, event.at);
}

void Applier::operator()(const TaskResumed& e) {
  Task& t = task(e.task);
  Job& j = job(t.job);
  if (t.state == TaskState::resuming)
    t.state = TaskState::running;
  set_phase(j, SuspendPhase::none);
  j.suspension.cause = SuspendCause::none;
  state.index.stays(j.id);  // it could not be preempted while resuming; now it can be asked again
}

void Applier::operator()(const JobCheckpointed& e) {
  job(e.job).checkpoint = e.checkpoint;
}
void Applier::operator()(const TaskDeclared& e) {
  task(e.task).unsuspendable = e.unsuspendable;
}

}  // namespace billow::control
