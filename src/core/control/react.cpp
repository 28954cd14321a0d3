// The events that follow from an event, and the messages that agents get because of it.
#include <fmt/format.h>
#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decide.h"
#include "core/control/decide/notices.h"
#include "core/control/decide/roles.h"
#include "core/control/elastic.h"
#include "core/control/money.h"
#include "core/control/outlive.h"
#include "core/control/quotas.h"
#include "core/control/renting/fabric_variables.h"
#include "core/wire/confined.h"
#include "core/wire/log_record.h"

namespace billow::control {
namespace {

using Events = std::vector<EventBody>;

Duration backoff(const JobSpec& spec, std::uint32_t attempt) {
  Duration wait = spec.retry_backoff;
  for (std::uint32_t i = 1; i < attempt && wait < hours(1); ++i)
    wait = wait * 2;
  return std::min(wait, hours(1));
}

// The exit that represents the whole attempt: the first rank that failed by itself, else the first
// that did not succeed.
const Task* worst_task(const State& state, const Job& job) {
  const Task* worst = nullptr;
  if (only_services_left(state, job))
    return worst;
  for (TaskId id : job.tasks) {
    const Task& task = state.tasks.at(id);
    const RoleSpec* role = member_of(*job.spec, task.rank).role;
    // A service that ends by itself has failed.
    if (task.exit.ok() && !(role && role->service))
      continue;
    const bool own_fault = task.exit.kind != ExitKind::stopped;
    if (!worst || (own_fault && worst->exit.kind == ExitKind::stopped))
      worst = &task;
  }
  return worst;
}

// Of a member that has failed, even if it ended well.
std::string end_text(const ExitStatus& exit) {
  return exit.ok() ? "a service exited, but services must keep running" : exit.text();
}

// All tasks of the attempt have ended: what becomes of the job?
EventBody settle(const State& state, const Job& job, const Context& context) {
  const Task* worst = worst_task(state, job);
  ExitStatus exit = worst ? worst->exit : ExitStatus{};
  if (worst && exit.ok())
    exit = {.kind = ExitKind::exited, .code = 1, .message = "a service ended"};
  switch (job.stopping) {
    case StopCause::request:
      return JobEnded{job.id, JobState::stopped, exit, job.reason};
    case StopCause::preempted:
    case StopCause::moved:
      if (worst)
        return JobRequeued{job.id, context.now, job.reason};
      break;  // it finished before the signal reached it
    case StopCause::none:
    case StopCause::rank_failed:
    case StopCause::served:
      break;
  }
  if (!worst)
    return JobEnded{job.id, JobState::succeeded, exit, ""};
  // A member was asked to restart, and nothing was free for it.
  const bool restarts = std::any_of(job.tasks.begin(), job.tasks.end(),
                                    [&](TaskId id) { return state.tasks.at(id).restarting; });
  if (restarts && exit.kind == ExitKind::stopped)
    return JobRequeued{job.id, context.now, job.reason};
  if (exit.kind == ExitKind::idle)
    return JobEnded{job.id, JobState::stopped, exit, exit.message};
  if (exit.kind == ExitKind::unpaid && job.agent)
    return JobEnded{job.id, JobState::stopped, exit, "budget: " + exit.text()};
  // An elastic gang that ended without its lost member has ended.
  if (job.spec->elastic && exit.kind == ExitKind::lost && is_replaceable(state, job, *worst)) {
    const bool others = std::any_of(job.tasks.begin(), job.tasks.end(),
                                    [&](TaskId id) { return state.tasks.at(id).exit.ok(); });
    const bool no_other_fault = std::all_of(job.tasks.begin(), job.tasks.end(), [&](TaskId id) {
      const ExitStatus& x = state.tasks.at(id).exit;
      return x.ok() || x.kind == ExitKind::lost;
    });
    if (others && no_other_fault)
      return JobEnded{job.id, JobState::succeeded, {}, ""};
  }
  const std::string why =
      job.spec->nodes > 1 || !job.spec->roles.empty()
          ? fmt::format("{}: {}", member_name(*job.spec, worst->rank), end_text(worst->exit))
          : exit.text();
  // "Not seen running" is not enough: a node may have started it and become silent before reporting
  // that.
  const bool never_began = std::all_of(job.tasks.begin(), job.tasks.end(),
                                       [&](TaskId id) { return state.tasks.at(id).never_began; });
  const bool away = exit.kind == ExitKind::lost || exit.kind == ExitKind::unpaid;
  const bool may_run_again = !away || job.spec->rerun_if_lost || never_began;
  // A lost node or head is not the job's failure: if the job may run again, it costs no retry.
  if (away && may_run_again && job.attempt <= limits::retries_max)
    return JobRequeued{job.id, context.now + backoff(*job.spec, job.attempt),
                       fmt::format("starts again: {}", why)};
  if (may_run_again && job.failures < job.spec->retries) {
    const std::uint32_t retry = job.failures + 1;
    const Duration wait = backoff(*job.spec, retry);
    return JobRequeued{job.id, context.now + wait,
                       fmt::format("{}; retry {} of {} in {}", why, retry, job.spec->retries,
                                   format_duration(wait)),
                       true};
  }
  return JobEnded{job.id, exit.kind == ExitKind::lost ? JobState::lost : JobState::failed, exit,
                  why};
}

bool all_ended(const State& state, const Job& job) {
  return std::all_of(job.tasks.begin(), job.tasks.end(),
                     [&](TaskId id) { return state.tasks.at(id).state == TaskState::ended; });
}

void meet_dependents(const State& state, Events& events, JobId on, JobState ended) {
  for (JobId id : state.dependents.of(on)) {
    const Job& waiting = state.jobs.at(id);
    const auto dependency = std::find_if(waiting.spec->after.begin(), waiting.spec->after.end(),
                                         [&](const Dependency& d) { return d.job == on; });
    const bool ok = ended == JobState::succeeded;
    if (dependency->kind == AfterKind::any || (dependency->kind == AfterKind::ok) == ok)
      events.push_back(DependencyMet{id, on});
    else
      events.push_back(JobEnded{id,
                                JobState::stopped,
                                {.kind = ExitKind::stopped},
                                fmt::format("job {} ended {}", on.value, enum_name(ended))});
  }
}

struct Reactor {
  const State& state;
  const Context& context;

  Events operator()(const TaskEnded& e) {
    const Task& task = state.tasks.at(e.task);
    const Job& job = state.jobs.at(task.job);
    if (all_ended(state, job) && !awaits_member(state, job))
      return {settle(state, job, context)};
    if (is_replaceable(state, job, task))
      return {};  // the plan gives it a new place
    if (job.stopping != StopCause::none)
      return {};
    if (only_services_left(state, job))
      return {JobStopping{job.id, "the other roles have ended", StopCause::served, false}};
    const RoleSpec* role = member_of(*job.spec, task.rank).role;
    if (!e.exit.ok() || (role && role->service))
      return {JobStopping{
          job.id, fmt::format("{}: {}", member_name(*job.spec, task.rank), end_text(e.exit)),
          StopCause::rank_failed, false}};
    return {};
  }
  // The last member that was alive may be about to be replaced: then no end of a task follows.
  Events operator()(const JobStopping& e) {
    const Job& job = state.jobs.at(e.job);
    if (job.tasks.empty() || !all_ended(state, job))
      return {};
    return {settle(state, job, context)};
  }
  Events operator()(const JobEnded& e) {
    Events events;
    meet_dependents(state, events, e.job, e.state);
    // When the last element of an array ended, `apply` has just finished the array.
    for (const FinishedArray& done : state.finished_arrays) {
      const auto& array = done.array;
      if (e.job.value > array.id.value && e.job.value <= array.id.value + array.count)
        meet_dependents(state, events, array.id, array.ended_as());
    }
    return events;
  }
  Events operator()(const SuspendFailed& e) {
    // Its capacity is needed: a job that cannot be suspended is stopped and queued again.
    if (e.cause != SuspendCause::preempted)
      return {};
    const Job& job = state.jobs.at(e.job);
    const std::string reason =
        job.gives_way_to ? "preempted by " + other_job(state, job, job.gives_way_to) : "preempted";
    return {JobStopping{job.id, fmt::format("{} ({})", reason, job.reason), StopCause::preempted,
                        false, job.gives_way_to}};
  }
  Events operator()(const ReservationEnded& e) {
    return outlive(state, e.reservation, e.lease.lease_to, context);
  }
  // Jobs that an earlier head left at the price of an ended reservation continue at their own price
  // from now on.
  Events operator()(const HeadStarted&) { return outlive(state, {}, context.now, context); }
  Events operator()(const DependencyMet& e) {
    if (state.jobs.at(e.job).waiting_for == 0)
      return {JobReady{e.job}};
    return {};
  }
  template <class Other>
  Events operator()(const Other&) {
    return {};
  }
};

using Start = wire::agent_v1::Start;

// The variables by which the processes of a gang find each other.
void set_rank_variables(const State& state, const Job& job, const Task& task, Start& start) {
  const JobSpec& spec = *job.spec;
  const auto set = [&](const char* name, auto value) {
    start.env[name] = fmt::format("{}", value);
  };
  std::vector<std::string> names;
  std::vector<std::string> addresses;
  for (std::uint32_t rank = 0; rank < job.tasks.size(); ++rank) {
    MemberHost host = host_of(state, job, rank);
    names.push_back(std::move(host.name));
    addresses.push_back(std::move(host.address));
  }
  // RANK and LOCAL_RANK of the node's first process; `billow ranks` sets those of the others.
  set("RANK", task.rank * spec.procs);
  set("LOCAL_RANK", 0);
  set("WORLD_SIZE", spec.nodes * spec.procs);
  set("LOCAL_WORLD_SIZE", spec.procs);
  set("NODE_RANK", task.rank);
  set("NNODES", spec.nodes);
  set("BILLOW_NODES", join(names, ","));
  set("BILLOW_ADDRESSES", join(addresses, ","));
  set("MASTER_ADDR", spec.nodes > 1 ? addresses.front() : std::string("127.0.0.1"));
  // Below the kernel's ephemeral ports. The start barrier uses the next port.
  set("MASTER_PORT", 20000 + 2 * (job.id.value % 6000));
  if (spec.elastic)
    set("BILLOW_REPAIRS", job.repairs);  // tells a new member that it joins a running gang
  // What the job was submitted with counts more.
  if (spec.nodes > 1)
    for (const auto& [name, value] : fabric_variables(state.nodes.at(task.node).offer.labels))
      start.env.try_emplace(name, value);
}

void set_variables(const State& state, const Job& job, const Task& task, Start& start) {
  const JobSpec& spec = *job.spec;
  const auto set = [&](const char* name, auto value) {
    start.env[name] = fmt::format("{}", value);
  };
  set("BILLOW_JOB_ID", job.id.value);
  set("BILLOW_TASK_ID", task.id.value);
  set("BILLOW_ATTEMPT", task.attempt);
  set("BILLOW_PROJECT", state.projects.at(job.project).name);
  if (!spec.name.empty())
    set("BILLOW_JOB_NAME", spec.name);
  if (const auto port = spec.labels.find(label_port); port != spec.labels.end()) {
    set("PORT", port->second);
    start.port = static_cast<std::uint16_t>(std::stoul(port->second));
    set("BILLOW_ENDPOINT", spec.labels.at(label_endpoint));
  }
  if (job.array) {
    set("BILLOW_ARRAY_ID", job.array.value);
    set("BILLOW_ARRAY_INDEX", job.array_index);
    set("BILLOW_ARRAY_COUNT", spec.array->count());
    set("BILLOW_ARRAY_MIN", spec.array->first);
    set("BILLOW_ARRAY_MAX", spec.array->highest());
  }
  if (!spec.roles.empty())
    set_role(state, job, task, start);
  else if (spec.nodes > 1 || spec.procs > 1)
    set_rank_variables(state, job, task, start);
  if (!job.checkpoint.path.empty())
    set("BILLOW_CHECKPOINT", job.checkpoint.path);
}

// What the agent puts around the job: volumes and the saved environment.
void set_surroundings(const State& state, const Job& job, Start& start) {
  for (const VolumeWish& wish : start.surroundings.volumes)
    if (const auto volume = state.volumes.find(wish.name); volume != state.volumes.end())
      start.volumes.push_back(
          {volume->second.path, wish.path, wish.read_only || volume->second.read_only});
  if (start.surroundings.network == ContainerNetwork::internet)
    for (const std::string& block : state.projects.at(job.project).allow)
      start.surroundings.allow.push_back(block);
  // The same content may be saved elsewhere, with another path: only the name that the job gave
  // counts, and its own project's before others'.
  const std::string& wanted = start.surroundings.environment;
  const std::string name = wanted.substr(wanted.find('/') + 1);
  const Project* of =
      name == wanted ? nullptr : state.project_by_name(wanted.substr(0, wanted.find('/')));
  const ProjectId first = of ? of->id : job.project;
  for (const auto& [key, saved] : state.saved_environments)
    if (saved.digest == start.surroundings.environment_digest && key.second == name &&
        (key.first == first || (saved.shared && start.environment_path.empty())))
      start.environment_path = saved.path;
}

Start start_message(const State& state, const Task& task) {
  const Job& job = state.jobs.at(task.job);
  const JobSpec& spec = *job.spec;
  Start start;
  static_cast<TaskOptions&>(start) = spec;  // the options that the agent carries out
  start.stop_grace = spec.stop_grace;
  start.epoch = state.epoch;
  start.task = task.id;
  start.job = job.id;
  start.rank = task.rank;
  start.env = state.environment(spec.env_digest);
  set_variables(state, job, task, start);
  start.gang = spec.nodes > 1 && spec.roles.empty();
  set_surroundings(state, job, start);
  if (const auto user = state.users.find(job.user); user != state.users.end()) {
    start.unix_user = user->second.unix_name;
    start.owner = user->second.name;
    const bool strict = start.surroundings.isolation == Isolation::strict;
    if (job.agent || strict) {
      start.env[wire::confined_variable] = start.unix_user;
      start.unix_user = strict ? wire::strict_user_name : wire::confined_user_name;
    }
  }
  start.gpus = task.gpus;
  const Resources& resources = resources_of(spec, task.rank);
  start.cpu_milli = resources.cpu_milli;
  start.mem_mib = resources.mem_mib;
  start.disk_mib = resources.disk_mib;
  start.fenced = spec.rerun_if_lost;
  const bool slice =
      !task.gpus.empty() && !task.gpus.front().share.whole() && resources.mig_profile.empty();
  start.suspendable =
      could_be_suspended(spec) && (spec.suspendable == Suspendable::yes || spec.spot || slice);
  start.idle = idle_rules(state, job);
  if (!state.money.budgets.empty())
    start.paid_for = task_paid_for(state, task, budget_uses(state, state.billed));
  start.bare = resources.whole_node;
  start.env.erase(wire::log_limit_variable);
  const QuotaLimit log =
      quota_of(state, QuotaScope::project, job.project.value, QuotaKind::task_log_bytes);
  if (log.set_by_admin)
    start.env[wire::log_limit_variable] = fmt::format("{}", log.limit);
  return start;
}

// The last order for a job's task, if it is still to be carried out.
void push_order(const State& state, const Job& job, std::vector<Effect>& effects) {
  if (job.stopping != StopCause::none || job.tasks.empty())
    return;
  const Task& task = state.tasks.at(job.tasks.front());
  if (job.suspension.phase == SuspendPhase::suspending)
    effects.push_back(
        {task.node,
         wire::agent_v1::Suspend{state.epoch, task.id, job.suspension.order, job.suspension.mode}});
  if (job.suspension.phase == SuspendPhase::resuming)
    effects.push_back(
        {task.node, wire::agent_v1::Resume{state.epoch, task.id, job.suspension.order, task.gpus}});
}

}  // namespace

Events react(const State& state, const EventBody& event, const Context& context) {
  Events events = visit(Reactor{state, context}, event);
  for (EventBody& more : money_reactions(state, event, context))
    events.push_back(std::move(more));
  add_personal_notices(state, event, events);
  return events;
}

std::vector<Effect> effects_of(const State& state, const Event& event) {
  std::vector<Effect> effects;
  if (const auto* placed = get_if<JobPlaced>(&event.body)) {
    for (const Task& task : placed->tasks)
      effects.push_back({task.node, start_message(state, task)});
  } else if (const auto* replaced = get_if<MemberReplaced>(&event.body)) {
    effects.push_back({replaced->task.node, start_message(state, replaced->task)});
  } else if (const auto* stopping = get_if<JobStopping>(&event.body)) {
    const Job& job = state.jobs.at(stopping->job);
    const Duration grace = stopping->force ? Duration{0} : job.spec->stop_grace;
    for (TaskId id : job.tasks) {
      const Task& task = state.tasks.at(id);
      if (task.state != TaskState::ended)
        effects.push_back({task.node, wire::agent_v1::Stop{state.epoch, id, grace}});
    }
  } else if (const auto* restarting = get_if<MembersRestarting>(&event.body)) {
    for (TaskId id : restarting->tasks)
      effects.push_back(
          {state.tasks.at(id).node,
           wire::agent_v1::Stop{state.epoch, id, state.jobs.at(restarting->job).spec->stop_grace}});
  } else if (const auto* suspending = get_if<JobSuspending>(&event.body)) {
    push_order(state, state.jobs.at(suspending->job), effects);
  } else if (const auto* resuming = get_if<JobResuming>(&event.body)) {
    push_order(state, state.jobs.at(resuming->job), effects);
  } else if (const auto* ended = get_if<TaskEnded>(&event.body)) {
    // Called before the reactions, so the task is still there.
    effects.push_back(
        {state.tasks.at(ended->task).node, wire::agent_v1::Settle{state.epoch, {ended->task}, {}}});
  }
  money_effects(state, event, effects);
  return effects;
}

std::vector<Effect> hello_effects(const State& state,
                                  NodeId node,
                                  const std::vector<TaskStatus>& tasks) {
  std::vector<Effect> effects;
  wire::agent_v1::Settle settle{state.epoch, {}, {}};
  for (const TaskStatus& status : tasks) {
    const Task* task = state.find_task(status.task);
    if (task && task->state != TaskState::ended && task->node == node)
      continue;
    if (status.state == TaskState::ended)
      settle.ended.push_back(status.task);
    else
      settle.unknown.push_back(status.task);
  }
  if (!settle.ended.empty() || !settle.unknown.empty())
    effects.push_back({node, std::move(settle)});
  const auto on = state.tasks_on.find(node);
  if (on == state.tasks_on.end())
    return effects;
  for (TaskId id : on->second) {
    const Task& task = state.tasks.at(id);
    const auto status =
        std::find_if(tasks.begin(), tasks.end(), [&](const TaskStatus& s) { return s.task == id; });
    const bool known = status != tasks.end();
    const Job& job = state.jobs.at(task.job);
    if (!known)
      effects.push_back({node, start_message(state, task)});
    else if (status->order != job.suspension.order)
      push_order(state, job, effects);
    // A restarted agent knows only the defaults.
    if (known)
      if (const IdleRules rules = idle_rules(state, job);
          rules != IdleRules{} || state.money.rules_changed)
        effects.push_back({node, wire::agent_v1::SetIdleRules{state.epoch, id, rules}});
    if (job.stopping != StopCause::none || task.restarting)
      effects.push_back(
          {node, wire::agent_v1::Stop{state.epoch, id,
                                      job.stop_forced ? Duration{0} : job.spec->stop_grace}});
  }
  return effects;
}

}  // namespace billow::control
