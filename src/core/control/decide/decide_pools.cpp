// Pools and their machines: added, removed, listed, refused, released. Which machines to order is
// decided in pool_demand.cpp. The head (head/pools) carries the orders out: it asks the provider
// again until the provider's list agrees with the state.
//
// Guarantees: a machine is journaled before its provider is asked, so a machine that the provider
// lists and the state does not know is a stray. A machine's nodes leave the state only when the
// provider no longer lists the machine.
#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/node_gone.h"

namespace billow::control {
namespace {

const Pool* pool_by_name(const State& state, std::string_view name) {
  for (const auto& [id, pool] : state.pools)
    if (pool.name == name)
      return &pool;
  return nullptr;
}

// Whether the provider's list, which lacks this machine, shows that it has ended. A machine that
// was never listed may still be created. Most providers list a new machine late, so its absence
// counts only after a while; some lists are final.
bool has_ended(const Machine& machine, const Pool& pool, WallTime listed_at) {
  const bool was_seen = !machine.external.empty();
  if (!was_seen && machine.state == MachineState::wanted)
    return false;
  if (was_seen && pool.capabilities && pool.capabilities->list_is_final)
    return true;
  return machine.wanted_at + limits::pool_list_lag < listed_at;
}

// The provider is left alone for a while; a pool that is being removed is not asked anyway.
void pause_orders(const Pool& pool, std::string reason, WallTime now, Events& events) {
  if (pool.state == PoolState::active)
    events.push_back(
        PoolDenied{pool.id, std::move(reason), now + limits::pool_denied_pause, false});
}

void release(const State& state, const Machine& machine, std::string reason, Events& events) {
  send_jobs_away(state, nodes_of(state, machine), reason, events);
  events.push_back(MachineReleased{machine.name, std::move(reason)});
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

// The options of its kind were checked by src/pool before this command was made.
Decision Decider::operator()(const AddPool& c) {
  Pool pool = c.pool;
  const auto bad = [](std::string message, std::string hint = {}) {
    return fail(Code::invalid, std::move(message), std::move(hint));
  };
  BILLOW_TRY_VOID(check_name("pool", pool.name));
  if (pool.name.size() > 32)
    return bad(fmt::format("the pool name \"{}\" has more than 32 characters", pool.name),
               "choose a shorter one: machines are named after their pool");
  if (pool_by_name(state, pool.name))
    return fail(Code::conflict, fmt::format("pool \"{}\" already exists", pool.name),
                "remove it first: billow pool rm " + pool.name);
  if (pool.machines_max < 1 || pool.machines_max > limits::pool_machines_max)
    return bad(fmt::format("--max must be between 1 and {}", limits::pool_machines_max));
  if (pool.machines_min > pool.machines_max)
    return bad(fmt::format("--min {} is more than --max {}", pool.machines_min, pool.machines_max));
  if (pool.gpus < 0 || pool.gpus > static_cast<std::int32_t>(limits::gpus_per_node_max))
    return bad(fmt::format("a machine must have between 0 and {} GPUs", limits::gpus_per_node_max));
  if ((pool.gpus > 0) != !pool.gpu_type.empty())
    return bad("GPUs need both a type and a number", "write them like 8xH100");
  if (pool.idle < seconds(1) || pool.idle > hours(24 * 30))
    return bad("--idle must be between 1 s and 30 d");
  if (pool.patience < seconds(1) || pool.patience > hours(24 * 30))
    return bad("--patience must be between 1 s and 30 d");
  if (pool.price.nano_usd_per_s < 0)
    return bad("a price must not be negative");
  pool.id = PoolId(state.next_pool);
  pool.state = PoolState::active;
  pool.denied.clear();
  pool.denied_until = {};
  return Events{PoolAdded{std::move(pool)}};
}

Decision Decider::operator()(const RemovePool& c) {
  const Pool* pool = pool_by_name(state, c.name);
  if (!pool)
    return fail(Code::not_found, fmt::format("no pool is named \"{}\"", c.name),
                "see `billow pool list`");
  Events events;
  bool has_machines = false;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != pool->id)
      continue;
    has_machines = true;
    if (machine.state != MachineState::releasing)
      release(state, machine, fmt::format("pool {} is being removed", pool->name), events);
  }
  // With machines left, the pool stays until they have ended, and orders no more. Version 0.1 reads
  // the far future as the same.
  if (has_machines)
    events.push_back(PoolDenied{pool->id, "is being removed", WallTime{INT64_MAX}, true});
  else
    events.push_back(PoolRemoved{pool->id});
  return events;
}

Decision Decider::operator()(const PoolSeen& c) {
  Events events;
  const auto found = state.pools.find(c.pool);
  if (found == state.pools.end())
    return events;
  const Pool& pool = found->second;
  bool has_machines = false;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != c.pool)
      continue;
    const auto seen = std::find_if(c.machines.begin(), c.machines.end(),
                                   [&](const MachineSighting& s) { return s.name == name; });
    if (seen != c.machines.end()) {
      has_machines = true;
      if (seen->external != machine.external || seen->note != machine.note ||
          seen->ends_at != machine.ends_at)
        events.push_back(MachineSeen{name, seen->external, seen->note, seen->ends_at});
      continue;
    }
    if (!has_ended(machine, pool, c.looked_at)) {
      has_machines = true;
      continue;
    }
    const std::string reason =
        machine.state == MachineState::releasing ? machine.reason : "it disappeared from its pool";
    machine_gone(state, machine, reason, context, events);
    // It ended before its agent connected: the next one would end the same way at once.
    if (machine.state == MachineState::wanted)
      pause_orders(pool, fmt::format("{} ended before its agent reached this head", name),
                   context.now, events);
  }
  if (!has_machines && pool.state == PoolState::removing)
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
  if (pool != state.pools.end())
    pause_orders(pool->second, std::string(utf8_prefix(c.reason, limits::words_bytes_max)),
                 context.now, events);
  return events;
}

Decision Decider::operator()(const ReleaseMachine& c) {
  const auto found = state.machines.find(c.machine);
  if (found == state.machines.end())
    return fail(Code::not_found, fmt::format("no machine is named \"{}\"", c.machine),
                "see `billow pool list`");
  Events events;
  if (found->second.state != MachineState::releasing)
    release(state, found->second, c.reason, events);
  return events;
}

bool could_run(const JobSpec& spec, const Pool& pool) {
  const Resources& r = spec.resources;
  if (!r.mig_profile.empty() || r.gpus > pool.gpus || spec.nodes > pool.machines_max)
    return false;
  if (r.gpus > 0 && !r.gpu_types.empty() &&
      std::find(r.gpu_types.begin(), r.gpu_types.end(), pool.gpu_type) == r.gpu_types.end())
    return false;
  return labels_fit(spec, pool);
}

bool labels_fit(const JobSpec& spec, const Pool& pool) {
  for (const auto& [key, value] : spec.node_labels) {
    const auto has = pool.labels.find(key);
    if (has == pool.labels.end() || has->second != value)
      return false;
  }
  return true;
}

bool some_pool_could_run(const State& state, const JobSpec& spec) {
  return std::any_of(state.pools.begin(), state.pools.end(), [&](const auto& entry) {
    return entry.second.state == PoolState::active && could_run(spec, entry.second);
  });
}

}  // namespace billow::control
