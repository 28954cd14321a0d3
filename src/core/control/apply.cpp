// Folding events into the state. Nothing here decides: every number that is needed is in the event.
// Derived data (scheduler index, look-ups, counts) is kept up to date, and `restore` verifies it by
// rebuilding.
#include "core/control/applier.h"
#include "core/control/elastic.h"
#include "core/control/money.h"
#include "core/control/quotas.h"

#include <fmt/format.h>

#include "base/limits.h"

namespace billow::control {

void Applier::set_state(Job& j, JobState to) {
  leave_state(j);
  j.state = to;
  ++state.count[to];
  if (j.array && to == JobState::running)
    ++state.arrays.at(j.array).running;
  if (to == JobState::suspended)
    state.index.asleep(sleeper_of(state, j));
}

void Applier::leave_state(const Job& j) {
  if (j.state == JobState::suspended)
    state.index.awake(j.id);
  if (--state.count[j.state] == 0)
    state.count.erase(j.state);
  if (j.array && j.state == JobState::running)
    --state.arrays.at(j.array).running;
}

void Applier::release_environment(const std::string& digest, std::uint64_t uses) {
  const auto found = state.environments.find(digest);
  if (found == state.environments.end())
    return;
  found->second.uses -= uses;
  if (found->second.uses == 0)
    state.environments.erase(found);
}

void Applier::operator()(const EnvironmentStored& e) {
  // Only a new digest creates an entry: a replayed or repeated event must not reset the count of
  // uses.
  auto& stored = state.environments[e.digest];
  if (!stored.env)
    stored.env = std::make_shared<const Environment>(e.env);
}

void Applier::operator()(const JobsSubmitted& e) {
  const bool array = e.spec->array.has_value();
  const std::uint64_t elements = array ? e.count - 1 : 1;
  if (!e.spec->env_digest.empty())
    state.environments[e.spec->env_digest].uses += elements;
  if (array) {
    state.arrays[e.first] = ArrayState{.id = e.first,
                                       .spec = e.spec,
                                       .project = e.project,
                                       .user = e.user,
                                       .submitted_at = event.at,
                                       .count = elements,
                                       .left = elements};
  }
  const auto indices = array ? e.spec->array->indices() : std::vector<std::uint64_t>();
  for (std::uint64_t i = 0; i < elements; ++i) {
    Job j;
    j.id = JobId(e.first.value + i + (array ? 1 : 0));
    j.spec = e.spec;
    j.project = e.project;
    j.user = e.user;
    j.agent = e.agent;
    j.state = e.waiting_for ? JobState::held : JobState::queued;
    if (array) {
      j.array = e.first;
      j.array_index = indices.at(i);
    }
    j.submitted_at = event.at;
    j.expected = e.expected;
    if (const auto of = e.spec->labels.find(label_endpoint); of != e.spec->labels.end())
      state.replicas[of->second].insert(j.id);
    if (e.agent)
      state.agent_jobs[e.agent].insert(j.id);
    j.waiting_for = e.waiting_for;
    if (e.waiting_for) {
      j.reason = e.waiting_for == 1 ? "waits for another job"
                                    : fmt::format("waits for {} other jobs", e.waiting_for);
      for (const Dependency& d : e.spec->after)
        state.dependents.add(d.job, j.id);
    }
    ++state.count[j.state];
    const JobId id = j.id;
    const auto at = state.jobs.emplace_hint(state.jobs.end(), id, std::move(j));
    if (at->second.state == JobState::queued)
      state.index.enqueue(request_of(state, at->second));
  }
  hold(state, {e.user, e.project, elements, e.spec.get()});
  state.next_job = std::max(state.next_job, e.first.value + e.count);
  if (!e.idempotency_key.empty()) {
    state.idempotency.push_back({e.idempotency_key, e.first, event.at});
    state.job_by_key[e.idempotency_key] = e.first;
  }
  while (!state.idempotency.empty() &&
         (state.idempotency.size() > limits::idempotency_keys_max ||
          event.at - state.idempotency.front().at > limits::idempotency_key_life)) {
    state.job_by_key.erase(state.idempotency.front().key);
    state.idempotency.pop_front();
  }
}

void Applier::operator()(const JobReady& e) {
  Job& j = job(e.job);
  if (j.not_before)
    state.backing_off.erase({j.not_before.ns, j.id});
  j.not_before = {};
  j.reason.clear();
  set_state(j, JobState::queued);
  state.index.enqueue(request_of(state, j));
}

void Applier::operator()(const DependencyMet& e) {
  Job& j = job(e.job);
  BILLOW_CHECK(j.waiting_for > 0, "a dependency met twice");
  --j.waiting_for;
  state.dependents.forget(e.on, e.job);
}

void Applier::operator()(const JobPlaced& e) {
  Job& j = job(e.job);
  set_state(j, JobState::running);
  j.reason.clear();
  j.gives_way_to = {};
  ++j.attempt;
  if (!j.started_at)
    j.started_at = event.at;
  j.tasks.clear();
  std::vector<sched::Placement> placements;
  for (const Task& t : e.tasks) {
    j.tasks.push_back(t.id);
    state.tasks[t.id] = t;
    state.tasks_on[t.node].insert(t.id);
    state.next_task = std::max(state.next_task, t.id.value + 1);
    sched::Placement placement{.node = t.node,
                               .gpus = {},
                               .cpu_milli = t.cpu_milli,
                               .mem_mib = t.mem_mib,
                               .disk_mib = t.disk_mib};
    for (const GpuGrant& g : t.gpus)
      placement.gpus.push_back({g.gpu, g.share, g.mig_start});
    placements.push_back(std::move(placement));
  }
  state.index.started(j.id, std::move(placements), event.at);
  for (const Task& t : e.tasks)
    note_work_on(t.node);
}

void Applier::operator()(const TaskStarted& e) {
  Task& t = task(e.task);
  t.started_at = e.at;
  if (t.state == TaskState::starting)
    t.state = TaskState::running;
  if (!e.lease_from)
    return;
  t.lease_from = e.lease_from;
  // The job began with the first of its tasks.
  Job& j = job(t.job);
  if (j.attempt == 1 && std::none_of(j.tasks.begin(), j.tasks.end(), [&](TaskId other) {
        return other != t.id && task(other).started_at;
      }))
    j.started_at = std::max(j.started_at, e.at);
}

void Applier::operator()(const TaskEnded& e) {
  Task& t = task(e.task);
  t.state = TaskState::ended;
  t.exit = e.exit;
  t.usage = e.usage;
  t.lease_to = e.lease_to;
  t.never_began = e.never_began;
  const auto on = state.tasks_on.find(t.node);
  on->second.erase(t.id);
  if (on->second.empty()) {
    state.tasks_on.erase(on);
    note_work_on(t.node);
  }
  Job& j = job(t.job);
  j.cost += e.cost;
  if (!j.spec->roles.empty()) {
    j.role_costs.resize(j.spec->roles.size());
    j.role_costs[member_of(*j.spec, t.rank).number] += e.cost;
  }
  if (const auto r = state.reservations.find(t.reservation); r != state.reservations.end())
    count_used(t, e.lease_to, r->second);
  if (j.state == JobState::suspended) {
    state.index.dequeue(j.id);
    if (j.spec->resources.mem_mib > 0 || t.disk_mib > 0)
      reshape(t.node);
    return;
  }
  const bool replace = is_replaceable(state, j, t);
  for (TaskId sibling : j.tasks) {
    if (task(sibling).state == TaskState::ended)
      continue;
    if (replace && !j.member_lost_at)
      j.member_lost_at = event.billed_at();
    state.index.member_lost(j.id, static_cast<std::int32_t>(t.rank), event.at, replace);
    // A member that failed at the same time may also have exceeded the retries of those before it.
    for (TaskId other : j.tasks)
      if (other != t.id && task(other).state == TaskState::ended &&
          !is_replaceable(state, j, task(other)))
        state.index.member_lost(j.id, static_cast<std::int32_t>(task(other).rank), event.at, false);
    return;
  }
  if (awaits_member(state, j)) {
    if (!j.member_lost_at)
      j.member_lost_at = event.billed_at();
    state.index.member_lost(j.id, static_cast<std::int32_t>(t.rank), event.at, replace);
    return;
  }
  state.index.ended(j.id, event.at);
}

void Applier::operator()(const JobStopping& e) {
  Job& j = job(e.job);
  j.stopping = e.cause;
  j.stop_forced = e.force;
  j.reason = e.reason;
  for (TaskId id : j.tasks) {
    Task& t = task(id);
    if (t.state != TaskState::ended && t.state != TaskState::unreachable)
      t.state = TaskState::stopping;
  }
  if (j.state == JobState::suspended)
    state.index.dequeue(j.id);
  j.gives_way_to = e.for_job;
  state.index.leaving(j.id, e.for_job, e.cause == StopCause::moved);
}

void Applier::drop_tasks(Job& j) {
  for (TaskId id : j.tasks)
    state.tasks.erase(id);
  j.tasks.clear();
}

void Applier::operator()(const JobRequeued& e) {
  Job& j = job(e.job);
  state.index.ended(j.id, event.at);  // a group without live members was still running
  drop_tasks(j);
  j.member_lost_at = {};
  // A job that moves is marked until it has started again: capacity is kept for it.
  if (j.stopping != StopCause::moved)
    j.gives_way_to = {};
  j.stopping = StopCause::none;
  j.stop_forced = false;
  j.suspension = {};
  if (e.failed)
    ++j.failures;
  j.reason = e.reason;
  if (e.not_before > event.at) {
    j.not_before = e.not_before;
    state.backing_off.insert({e.not_before.ns, j.id});
    set_state(j, JobState::held);
  } else {
    set_state(j, JobState::queued);
    state.index.enqueue(request_of(state, j));
  }
}

// Records how long it ran, for similar jobs. The other elements of an array are updated after the
// first, second, fourth … of them: the running ones too, because those that wait wait for them.
void Applier::learn_duration(const Job& j) {
  Duration ran;
  for (TaskId id : j.tasks) {
    const Task& t = task(id);
    ran =
        std::max(ran, t.lease_to - (t.started_at ? t.started_at : t.lease_from) - t.suspended_for);
  }
  state.durations.learn(j.project, *j.spec, ran);
  if (!j.array)
    return;
  state.durations.learn_array(j.array, ran);
  const Expectation e = state.durations.expect_array(j.array);
  const ArrayState& a = state.arrays.at(j.array);
  const std::uint64_t ended = a.succeeded + 1;
  if ((ended & (ended - 1)) != 0)
    return;
  const auto end = state.jobs.upper_bound(JobId(a.id.value + a.count));
  for (auto at = state.jobs.lower_bound(JobId(a.id.value + 1)); at != end; ++at) {
    if (at->first == j.id)
      continue;
    at->second.expected = e;
    if (state.index.queued(at->first))
      state.index.enqueue(request_of(state, at->second));
    else
      state.index.expected(at->first, e.likely, e.at_most);
  }
}

void Applier::operator()(const JobEnded& e) {
  const auto found = state.jobs.find(e.job);
  BILLOW_CHECK(found != state.jobs.end(), "a job ended twice");
  Job& j = found->second;
  if (j.state == JobState::queued)
    state.index.dequeue(j.id);
  state.index.ended(j.id, event.at);  // a group without live members was still running
  if (j.not_before)
    state.backing_off.erase({j.not_before.ns, j.id});
  if (j.waiting_for)
    for (const Dependency& d : j.spec->after)
      state.dependents.forget(d.job, j.id);
  leave_state(j);
  j.state = e.state;
  j.exit = e.exit;
  j.reason = e.reason;
  j.ended_at = event.at;
  FinishedJob finished;
  if (e.state == JobState::succeeded)
    learn_duration(j);
  for (TaskId id : j.tasks) {
    finished.tasks.push_back(std::move(state.tasks.at(id)));
    state.tasks.erase(id);
  }
  release(state, {j.user, j.project, 1, j.array ? nullptr : j.spec.get()});
  if (j.array && state.arrays.at(j.array).left == 1)
    release(state, {j.user, j.project, 0, state.arrays.at(j.array).spec.get()});
  // After the release, which counts its bytes.
  if (!j.spec->env_digest.empty())
    release_environment(j.spec->env_digest, 1);
  if (j.array) {
    ArrayState& a = state.arrays.at(j.array);
    --a.left;
    a.cost += j.cost;
    a.succeeded += e.state == JobState::succeeded;
    a.stopped += e.state == JobState::stopped;
    if (e.state != JobState::succeeded && a.worst_code == 0)
      a.worst_code = e.state == JobState::failed ? e.exit.shell_code() : 125;
    if (a.left == 0) {
      state.finished_arrays.push_back({std::move(a), event.at});
      state.durations.forget_array(j.array);
      state.arrays.erase(j.array);
      state.money.budgets.erase({BudgetScope::job, j.array.value, BudgetPeriod::total});
    }
  }
  replica_ended(j);
  if (const auto mine = state.agent_jobs.find(j.agent); mine != state.agent_jobs.end()) {
    mine->second.erase(j.id);
    if (mine->second.empty())
      state.agent_jobs.erase(mine);
  }
  finished.job = std::move(j);
  state.jobs.erase(found);
  state.finished_jobs.push_back(std::move(finished));
}

void apply(State& state, const Event& event) {
  visit(Applier{state, event}, event.body);
  keep_books(state, event);
  state.seq = event.seq;
  state.at = std::max(state.at, event.at);
  state.billed = std::max(state.billed, event.billed_at());
}

}  // namespace billow::control
