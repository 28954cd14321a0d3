// Invariants of the state, checked after every event by tests and the simulator. Too slow for the
// head.
#include <fmt/format.h>

#include <algorithm>
#include "base/limits.h"

#include "core/control/elastic.h"
#include "core/control/quotas.h"
#include "core/control/state.h"
#include "core/ledger/meter.h"

namespace billow::control {
namespace {

Status broken(std::string what) {
  return fail(Code::internal, "invariant broken: " + std::move(what));
}

Status check_running(const State& state, const Job& job) {
  const auto id = job.id.value;
  if (job.tasks.size() != job.spec->nodes)
    return broken(fmt::format("job {} has {} of {} tasks", id, job.tasks.size(), job.spec->nodes));
  bool live = false;
  for (TaskId task_id : job.tasks) {
    const Task* task = state.find_task(task_id);
    if (!task || task->job != job.id || task->attempt != job.attempt)
      return broken(fmt::format("job {} and its task {} disagree", id, task_id.value));
    if (task->price_class == PriceClass::suspended)
      return broken(fmt::format("running job {} has a lease of memory only", id));
    live = live || task->state != TaskState::ended;
  }
  if (!live && !awaits_member(state, job))
    return broken(fmt::format("job {} runs without a live task", id));
  if (job.suspension.phase == SuspendPhase::suspended)
    return broken(fmt::format("running job {} is suspended", id));
  return {};
}

Status check_suspended(const State& state, const Job& job, bool queued) {
  const auto id = job.id.value;
  if (job.tasks.size() != 1 || job.spec->nodes != 1)
    return broken(fmt::format("suspended job {} has {} tasks", id, job.tasks.size()));
  const Task* task = state.find_task(job.tasks.front());
  if (!task || task->job != job.id || task->state == TaskState::ended)
    return broken(fmt::format("suspended job {} has no live task", id));
  if (task->price_class != PriceClass::suspended)
    return broken(fmt::format("suspended job {} holds GPUs", id));
  if (job.suspension.phase != SuspendPhase::suspended)
    return broken(fmt::format("suspended job {} is {}", id, enum_name(job.suspension.phase)));
  if (queued != (job.suspension.resume_wanted && job.stopping == StopCause::none))
    return broken(fmt::format("suspended job {} is wrongly in the queue or missing there", id));
  return {};
}

Status check_job(const State& state, const Job& job) {
  const auto id = job.id.value;
  if (is_final(job.state))
    return broken(fmt::format("finished job {} is still in the state", id));
  if (!job.spec)
    return broken(fmt::format("job {} has no description", id));
  if (!state.projects.contains(job.project) || !state.users.contains(job.user))
    return broken(fmt::format("job {} has no project or user", id));
  if (!job.image_digest.empty() && job.spec->surroundings.image.empty())
    return broken(fmt::format("job {} has no image but the digest of one", id));
  const bool queued = state.index.queued(job.id).has_value();
  const bool running = state.index.running(job.id) != nullptr;
  if (running != (job.state == JobState::running))
    return broken(
        fmt::format("job {} is {} but the scheduler disagrees", id, enum_name(job.state)));
  if (job.state != JobState::suspended && queued != (job.state == JobState::queued))
    return broken(fmt::format("job {} is {} but the queue disagrees", id, enum_name(job.state)));
  if (job.state == JobState::running)
    return check_running(state, job);
  if (job.state == JobState::suspended)
    return check_suspended(state, job, queued);
  if (!job.tasks.empty())
    return broken(fmt::format("job {} is {} and has tasks", id, enum_name(job.state)));
  if (job.state == JobState::held && !job.waiting_for && !job.not_before &&
      !state.money.held.contains(job.id))
    return broken(fmt::format("job {} is held by nothing", id));
  if (job.suspension.phase != SuspendPhase::none)
    return broken(fmt::format("job {} is {} and {}", id, enum_name(job.state),
                              enum_name(job.suspension.phase)));
  return {};
}

Status check_tasks(const State& state) {
  std::size_t live = 0;
  for (const auto& [id, task] : state.tasks) {
    if (id.value >= state.next_task || !state.jobs.contains(task.job))
      return broken(fmt::format("task {} has no job", id.value));
    if (task.state == TaskState::ended) {
      if (!task.lease_to || task.lease_to < task.lease_from)
        return broken(fmt::format("the lease of task {} ends before it begins", id.value));
      continue;
    }
    ++live;
    if (task.lease_to)
      return broken(fmt::format("live task {} has a closed lease", id.value));
    if (!state.money.books.knows(ledger::lease_id(task)))
      return broken(fmt::format("the lease of task {} is not in the books", id.value));
  }
  std::size_t listed = 0;
  for (const auto& [id, tasks] : state.tasks_on)
    listed += tasks.size();
  if (listed != live)
    return broken("live tasks and their nodes disagree");
  return {};
}

Status check_arrays(const State& state) {
  for (const auto& [id, array] : state.arrays) {
    const auto begin = state.jobs.lower_bound(JobId(id.value + 1));
    const auto end = state.jobs.upper_bound(JobId(id.value + array.count));
    if (static_cast<std::uint64_t>(std::distance(begin, end)) != array.left)
      return broken(fmt::format("array {} has a wrong number of elements left", id.value));
    const auto running = std::count_if(
        begin, end, [](const auto& entry) { return entry.second.state == JobState::running; });
    if (static_cast<std::uint64_t>(running) != array.running)
      return broken(fmt::format("array {} has a wrong number of running elements", id.value));
  }
  return {};
}

Status check_endpoints(const State& state) {
  for (const auto& [name, endpoint] : state.endpoints) {
    if (endpoint.name != name)
      return broken(fmt::format("endpoint {} has the wrong key", name));
    for (const std::uint32_t number : {endpoint.serving, endpoint.rolling})
      if (number != 0 && !endpoint.revision(number))
        return broken(fmt::format("endpoint {} has no revision {}", name, number));
    if (endpoint.serving != 0 && endpoint.serving == endpoint.rolling)
      return broken(fmt::format("endpoint {} rolls out the revision that serves", name));
  }
  for (const auto& [name, jobs] : state.replicas)
    for (JobId id : jobs) {
      const Job* job = state.find_job(id);
      if (!job || job->spec->labels.at(label_endpoint) != name)
        return broken(fmt::format("job {} is no replica of endpoint {}", id.value, name));
      if (!state.endpoints.contains(name) && job->stopping == StopCause::none)
        return broken(fmt::format("replica {} of a deleted endpoint is not stopping", id.value));
    }
  for (const auto& [id, call] : state.calls)
    if (call.id != id || (call.state == CallState::waiting) == static_cast<bool>(call.ended_at))
      return broken(fmt::format("call {} neither waits nor has ended", id));
  return {};
}

// Secrets, environments and volumes.
Status check_catalogue(const State& state) {
  for (const auto& [key, secret] : state.secrets)
    if (key != std::pair(secret.project, secret.name) ||
        (secret.project && !state.projects.contains(secret.project)))
      return broken(fmt::format("secret {} has the wrong key", secret.name));
  for (const auto& [key, env] : state.saved_environments)
    if (key != std::pair(env.project, env.name) || !state.projects.contains(env.project) ||
        env.digest.empty())
      return broken(fmt::format("environment {} has the wrong key", env.name));
  for (const auto& [name, volume] : state.volumes)
    if (volume.name != name)
      return broken(fmt::format("volume {} has the wrong key", name));
  for (const auto& [digest, stored] : state.environments)
    if (!stored.env)
      return broken("an environment is used that was never stored");
  return {};
}

Status check_nodes(const State& state) {
  for (const auto& [id, node] : state.nodes)
    for (std::size_t i = 0; i < node.gpu_marks.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        if (node.gpu_marks[i].gpu == node.gpu_marks[k].gpu)
          return broken(fmt::format("GPU {} of node {} is marked twice", node.gpu_marks[i].gpu,
                                    node.offer.name));
  for (const auto& [id, pool] : state.pools)
    if (pool.id != id || !pool.capabilities)
      return broken(fmt::format("pool {} has the wrong key or no capabilities", pool.name));
  for (const auto& [id, pool] : state.pools)
    if (pool.refusals.size() > limits::pool_refusals_max)
      return broken(fmt::format("pool {} remembers too many refusals", pool.name));
  std::map<PoolId, std::uint32_t> rented;
  for (const auto& [name, machine] : state.machines) {
    if (machine.name != name || !state.pools.contains(machine.pool))
      return broken(fmt::format("machine {} has no pool", name));
    const Pool& pool = state.pools.at(machine.pool);
    if (machine.offer.has_value() != pool.capabilities->from_offers)
      return broken(fmt::format("machine {} and its pool disagree about offers", name));
    if (machine.offer && machine.gpus != machine.offer->gpus)
      return broken(fmt::format("machine {} has other GPUs than its offer", name));
    rented[machine.pool] += machine.offer && machine.twin_of.empty() ? machine.nodes : 0;
    if (rented[machine.pool] > pool.machines_max)
      return broken(fmt::format("pool {} has more machines than it may have", pool.name));
    if (machine.idle_since && machine.state == MachineState::wanted)
      return broken(fmt::format("machine {} is idle before it is here", name));
  }
  return {};
}

Status check_money(const State& state) {
  for (const auto& [id, rate] : state.money.held) {
    const Job* job = state.find_job(id);
    if (!job || job->state != JobState::held)
      return broken(fmt::format("job {} waits for money and is not held", id.value));
  }
  for (const auto& [id, idle] : state.money.idling)
    if (const Task* task = state.find_task(id); !task || task->state == TaskState::ended)
      return broken(fmt::format("task {} is idle and has ended", id.value));
  return {};
}

// No GPU is assigned beyond its capacity. Counted from the tasks, not from the scheduler's index.
Status check_capacity(const State& state) {
  for (const auto& [node_id, node] : state.nodes) {
    std::vector<std::int64_t> milli(node.offer.gpus.size()), mem(node.offer.gpus.size());
    const auto on = state.tasks_on.find(node_id);
    if (on == state.tasks_on.end())
      continue;
    for (TaskId id : on->second) {
      const Task& task = state.tasks.at(id);
      if (task.node != node_id || task.state == TaskState::ended)
        return broken(fmt::format("task {} is listed on the wrong node", id.value));
      if (!task.holds_gpus())
        continue;
      for (const GpuGrant& grant : task.gpus) {
        const auto gpu = static_cast<std::size_t>(grant.gpu);
        if (gpu >= milli.size())
          continue;  // the node came back with fewer GPUs; the task keeps its lease until it ends
        milli[gpu] += grant.share.milli;
        mem[gpu] += grant.share.mem_mib;
        if (milli[gpu] > whole_gpu_milli)
          return broken(fmt::format("GPU {} of node {} is given out twice", gpu, node.offer.name));
      }
    }
  }
  return {};
}

// No GPU is promised to two reservations at once; checked at the beginning of each.
Status check_reservations(const State& state) {
  for (const auto& [id, r] : state.reservations) {
    if (r.id != id || id.value >= state.next_reservation || r.until <= r.from ||
        !state.projects.contains(r.project) || !state.reservation_ends.contains({r.until.ns, id}))
      return broken(fmt::format("reservation {} is filed wrongly", id.value));
    std::map<std::pair<NodeId, std::int32_t>, std::int64_t> milli;
    for (const auto& [other_id, other] : state.reservations) {
      if (other.from > r.from || other.until <= r.from)
        continue;
      for (const ReservedPlace& p : other.places)
        for (const GpuGrant& g : p.gpus)
          if ((milli[{p.node, g.gpu}] += g.share.milli) > whole_gpu_milli)
            return broken(fmt::format("reservations {} and others hold one GPU", id.value));
    }
  }
  if (state.reservation_ends.size() != state.reservations.size())
    return broken("reservations and their ends disagree");
  // Only jobs inside a reservation that they have not left pay the reserved price.
  for (const auto& [id, task] : state.tasks) {
    if (task.state == TaskState::ended || task.price_class != PriceClass::reserved)
      continue;
    if (!state.reservations.contains(task.reservation))
      return broken(fmt::format("task {} pays the price of a reservation that is over", id.value));
    if (state.jobs.at(task.job).left_reservation)
      return broken(
          fmt::format("task {} pays the price of a reservation its job has left", id.value));
  }
  return {};
}

}  // namespace

Status check_invariants(const State& state) {
  std::map<JobState, std::uint64_t> count;
  for (const auto& [id, job] : state.jobs) {
    if (job.id != id || id.value >= state.next_job)
      return broken(fmt::format("job {} has the wrong key", id.value));
    BILLOW_TRY_VOID(check_job(state, job));
    ++count[job.state];
    if (job.array && !state.arrays.contains(job.array))
      return broken(fmt::format("job {} has no array", id.value));
  }
  if (count != state.count)
    return broken("the counts by state are wrong");
  if (!holdings_agree(state))
    return broken("what users and projects hold was counted wrong");
  for (const auto& [at, id] : state.backing_off) {
    const Job* job = state.find_job(id);
    if (!job || job->not_before.ns != at)
      return broken(fmt::format("job {} is listed for a time that it does not wait for", id.value));
  }
  std::size_t of_agents = 0;
  for (const auto& [token, jobs] : state.agent_jobs) {
    of_agents += jobs.size();
    for (const JobId id : jobs)
      if (const Job* job = state.find_job(id); !job || job->agent != token)
        return broken(fmt::format("job {} is listed under the wrong agent token", id.value));
  }
  for (const auto& [id, job] : state.jobs)
    of_agents -= job.agent ? 1 : 0;
  if (of_agents != 0)
    return broken("a job of an agent token is not listed under it");
  const auto rotated = std::ranges::count_if(
      state.tokens, [](const auto& each) { return !each.second.previous_hash.empty(); });
  if (state.tokens.size() + static_cast<std::size_t>(rotated) != state.token_by_hash.size())
    return broken("tokens and their hashes disagree");
  for (const auto check : {check_tasks, check_arrays, check_reservations, check_endpoints,
                           check_catalogue, check_nodes, check_money, check_capacity})
    BILLOW_TRY_VOID(check(state));
  return state.index.check_invariants();
}

}  // namespace billow::control
