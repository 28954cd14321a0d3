#include "view/cost.h"

#include <algorithm>

#include "core/control/decide/begun.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"

namespace billow::view {

NanoUsd cost_so_far(const control::State& state, const Task& task, WallTime billed) {
  if (task.state == TaskState::ended || !control::has_begun(state, task))
    return {};
  WallTime until = billed;
  if (task.state == TaskState::unreachable)
    until = std::min(until, state.nodes.at(task.node).unreachable_since);
  return ledger::lease_cost(task, until) + control::egress_so_far(state, task.id);
}

NanoUsd cost_so_far(const control::State& state, const Job& job, WallTime billed) {
  NanoUsd cost = job.cost;
  for (const TaskId id : job.tasks)
    if (const Task* task = state.find_task(id))
      cost += cost_so_far(state, *task, billed);
  return cost;
}

std::vector<NanoUsd> role_costs_so_far(const control::State& state,
                                       const Job& job,
                                       WallTime billed) {
  std::vector<NanoUsd> costs = job.role_costs;
  costs.resize(job.spec->roles.size());
  for (const TaskId id : job.spec->roles.empty() ? std::vector<TaskId>{} : job.tasks)
    if (const Task* task = state.find_task(id))
      costs[member_of(*job.spec, task->rank).number] += cost_so_far(state, *task, billed);
  return costs;
}

NanoUsd cost_so_far(const control::State& state, const Endpoint& endpoint, WallTime billed) {
  NanoUsd cost = endpoint.replicas_cost;
  const auto replicas = state.replicas.find(endpoint.name);
  if (replicas == state.replicas.end())
    return cost;
  for (const JobId id : replicas->second)
    cost += cost_so_far(state, state.jobs.at(id), billed);
  return cost;
}

std::int64_t charge_rate_now(const control::State& state, const Task& task) {
  const bool charged = task.state != TaskState::ended && task.state != TaskState::unreachable &&
                       control::has_begun(state, task);
  return charged ? task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000 : 0;
}

std::int64_t charge_rate_now(const control::State& state, const Job& job) {
  std::int64_t rate = 0;
  for (const TaskId id : job.tasks)
    if (const Task* task = state.find_task(id))
      rate += charge_rate_now(state, *task);
  return rate;
}

}  // namespace billow::view
