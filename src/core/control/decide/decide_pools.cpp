// Pools and their machines as the core keeps them: added, removed, seen, refused, given back. What
// to ask for is decided in pool_demand.cpp; asking is the shell's (head/pools), which does what the
// state says until the engine agrees with it.
//
// What holds: a machine is written down before its engine is asked, so what the engine lists under
// our name and the state does not know is a stray. A machine's nodes leave the state only when the
// machine is gone.
#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"

namespace billow::control {
namespace {

const Pool* pool_by_name(const State& state, std::string_view name) {
  for (const auto& [id, pool] : state.pools)
    if (pool.name == name)
      return &pool;
  return nullptr;
}

// The machine is gone: whatever ran on its nodes is lost with them, and their credential is
// worthless.
void machine_gone(const State& state,
                  const Machine& machine,
                  const std::string& reason,
                  const Context& context,
                  Events& events) {
  for (const auto& [id, node] : state.nodes) {
    if (node.pool != machine.pool || !node_of_machine(node.offer.name, machine))
      continue;
    if (const auto on = state.tasks_on.find(id); on != state.tasks_on.end()) {
      for (TaskId task_id : on->second) {
        const Task& task = state.tasks.at(task_id);
        events.push_back(end_task(state, task,
                                  {.kind = ExitKind::lost,
                                   .code = 0,
                                   .signal = 0,
                                   .message = "its machine is gone: " + reason},
                                  {}, {}, context));
      }
    }
    events.push_back(NodeRemoved{id});
  }
  revoke_credentials(state, machine.name, events);
  events.push_back(MachineGone{machine.name, reason});
}

// What runs on a machine that is given back goes into the queue again.
void vacate(const State& state, const Machine& machine, const std::string& reason, Events& events) {
  std::set<JobId> leaving;
  for (const auto& [id, node] : state.nodes) {
    if (node.pool != machine.pool || !node_of_machine(node.offer.name, machine))
      continue;
    const auto on = state.tasks_on.find(id);
    if (on == state.tasks_on.end())
      continue;
    for (TaskId task : on->second)
      leaving.insert(state.tasks.at(task).job);
  }
  for (JobId id : leaving)
    if (state.jobs.at(id).stopping == StopCause::none)
      events.push_back(JobStopping{id, reason, StopCause::preempted, false, {}});
}

}  // namespace

bool node_of_machine(std::string_view node, const Machine& machine) {
  if (machine.nodes <= 1)
    return node == machine.name;
  if (!node.starts_with(machine.name) || node.size() < machine.name.size() + 2 ||
      node[machine.name.size()] != '.')
    return false;
  const auto rank = parse_int(node.substr(machine.name.size() + 1), 0,
                              static_cast<std::int64_t>(machine.nodes) - 1);
  return rank.has_value() && std::to_string(*rank) == node.substr(machine.name.size() + 1);
}

Decision Decider::operator()(const AddPool& c) {
  Pool pool = c.pool;
  const auto bad = [](std::string message, std::string hint = {}) {
    return fail(Code::invalid, std::move(message), std::move(hint));
  };
  BILLOW_TRY_VOID(check_name("pool", pool.name));
  if (pool.name.size() > 32)
    return bad("a pool's name has at most 32 letters", "its machines are named after it");
  if (pool_by_name(state, pool.name))
    return fail(Code::conflict, fmt::format("there is a pool \"{}\" already", pool.name),
                "remove it first: billow pool rm " + pool.name);
  if (pool.machines_max < 1 || pool.machines_max > limits::pool_machines_max)
    return bad(fmt::format("--max is between 1 and {}", limits::pool_machines_max));
  if (pool.machines_min > pool.machines_max)
    return bad(fmt::format("--min {} is more than --max {}", pool.machines_min, pool.machines_max));
  if (pool.gpus < 0 || pool.gpus > static_cast<std::int32_t>(limits::gpus_per_node_max))
    return bad(fmt::format("a machine has between 0 and {} GPUs", limits::gpus_per_node_max));
  if ((pool.gpus > 0) != !pool.gpu_type.empty())
    return bad("GPUs need a type and a number", "write them like 8xH100");
  if (pool.idle < seconds(1) || pool.idle > hours(24 * 30))
    return bad("--idle is between 1 s and 30 d");
  if (pool.patience < seconds(1) || pool.patience > hours(24 * 30))
    return bad("--patience is between 1 s and 30 d");
  if (pool.price.nano_usd_per_s < 0)
    return bad("a price cannot be negative");
  switch (pool.kind) {
    case PoolKind::slurm:
      if (pool.partition.empty())
        return bad("a Slurm pool needs a partition", "name it: --partition gpu");
      BILLOW_TRY_VOID(check_name("partition", pool.partition));
      if (pool.time.ns != 0 && pool.time < minutes(1))
        return bad("--time is at least a minute: Slurm counts in minutes");
      for (const std::string& word : pool.sbatch_args)
        if (!word.starts_with("--"))
          return bad(fmt::format("\"{}\" is no long option of sbatch", word),
                     "write it like --sbatch=--account=physics");
      break;
    case PoolKind::command:
      if (pool.create_command.empty() || pool.list_command.empty() || pool.delete_command.empty())
        return bad("a command pool needs three commands", "--create CMD --list CMD --delete CMD");
      break;
  }
  pool.id = PoolId(state.next_pool);
  pool.denied.clear();
  pool.denied_until = {};
  return Events{PoolAdded{std::move(pool)}};
}

Decision Decider::operator()(const RemovePool& c) {
  const Pool* pool = pool_by_name(state, c.name);
  if (!pool)
    return fail(Code::not_found, fmt::format("there is no pool \"{}\"", c.name),
                "see `billow pool list`");
  Events events;
  std::size_t left = 0;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != pool->id)
      continue;
    ++left;
    if (machine.state == MachineState::releasing)
      continue;
    vacate(state, machine, fmt::format("pool {} is removed", pool->name), events);
    events.push_back(MachineReleased{name, fmt::format("pool {} is removed", pool->name)});
  }
  if (left == 0)
    events.push_back(PoolRemoved{pool->id});
  // With machines left, the pool stays until they are gone, and asks for no more.
  else
    events.push_back(PoolDenied{pool->id, "is being removed", WallTime{INT64_MAX}});
  return events;
}

Decision Decider::operator()(const PoolSeen& c) {
  Events events;
  const auto pool = state.pools.find(c.pool);
  if (pool == state.pools.end())
    return events;
  std::size_t left = 0;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != c.pool)
      continue;
    const auto seen = std::find_if(c.machines.begin(), c.machines.end(),
                                   [&](const MachineSighting& s) { return s.name == name; });
    if (seen != c.machines.end()) {
      ++left;
      if (seen->external != machine.external || seen->note != machine.note ||
          seen->ends_at != machine.ends_at)
        events.push_back(MachineSeen{name, seen->external, seen->note, seen->ends_at});
      continue;
    }
    // Not listed: never made yet, or gone. One that is only wanted is the shell's to make, until it
    // was seen once. A cloud may list late what it made; Slurm's list is its state, and what was in
    // it once and is not any more is over.
    const bool was_there = !machine.external.empty() || machine.state != MachineState::wanted;
    const bool is_final = pool->second.kind == PoolKind::slurm && !machine.external.empty();
    if (was_there && (is_final || machine.wanted_at + limits::pool_list_lag < c.looked_at)) {
      const std::string reason = machine.state == MachineState::releasing
                                     ? machine.reason
                                     : "it disappeared from its pool";
      machine_gone(state, machine, reason, context, events);
      // Made and gone before its agent said a word: another one would do the same at once.
      if (machine.state == MachineState::wanted && pool->second.denied_until.ns != INT64_MAX)
        events.push_back(
            PoolDenied{c.pool, fmt::format("{} ended before its agent reached this head", name),
                       context.now + limits::pool_denied_pause});
    } else {
      ++left;
    }
  }
  if (left == 0 && pool->second.denied_until.ns == INT64_MAX)
    events.push_back(PoolRemoved{c.pool});
  return events;
}

Decision Decider::operator()(const OrderFailed& c) {
  Events events;
  const auto found = state.machines.find(c.machine);
  if (found == state.machines.end() || found->second.state == MachineState::here)
    return events;
  const auto pool = state.pools.find(found->second.pool);
  machine_gone(state, found->second, c.reason, context, events);
  if (pool != state.pools.end() && pool->second.denied_until.ns != INT64_MAX)
    events.push_back(PoolDenied{pool->first,
                                std::string(utf8_prefix(c.reason, limits::words_bytes_max)),
                                context.now + limits::pool_denied_pause});
  return events;
}

Decision Decider::operator()(const ReleaseMachine& c) {
  const auto found = state.machines.find(c.machine);
  if (found == state.machines.end())
    return fail(Code::not_found, fmt::format("there is no machine \"{}\"", c.machine),
                "see `billow pool list`");
  Events events;
  if (found->second.state == MachineState::releasing)
    return events;
  vacate(state, found->second, c.reason, events);
  events.push_back(MachineReleased{c.machine, c.reason});
  return events;
}

Status pools_could_run(const State& state, const JobSpec& spec) {
  const Resources& r = spec.resources;
  std::string why = "there is no pool that could bring a machine for it";
  for (const auto& [id, pool] : state.pools) {
    if (pool.denied_until.ns == INT64_MAX)
      continue;
    if (r.gpus > pool.gpus || !r.mig_profile.empty())
      continue;
    if (!r.gpu_types.empty() &&
        std::find(r.gpu_types.begin(), r.gpu_types.end(), pool.gpu_type) == r.gpu_types.end())
      continue;
    if (spec.nodes > pool.machines_max)
      continue;
    bool labels = true;
    for (const auto& [key, value] : spec.node_labels) {
      const auto has = pool.labels.find(key);
      labels = labels && has != pool.labels.end() && has->second == value;
    }
    if (labels)
      return {};
  }
  return fail(Code::infeasible, why);
}

}  // namespace billow::control
