// Folds the events of pools and their machines. A machine is idle from the moment its last node
// lost its last task. That moment is part of the state, so a head that restarts continues to count.
#include <algorithm>

#include "base/limits.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"

namespace billow::control {

Machine& Applier::machine(const std::string& name) {
  const auto found = state.machines.find(name);
  BILLOW_CHECK(found != state.machines.end(), "an event names an unknown machine");
  return found->second;
}

void Applier::note_work_on(NodeId node_id) {
  const auto found = state.nodes.find(node_id);
  if (found == state.nodes.end() || !found->second.pool)
    return;
  for (auto& [name, m] : state.machines) {
    if (m.pool != found->second.pool || !node_of_machine(found->second.offer.name, m))
      continue;
    bool busy = false;
    for (const auto& [id, other] : state.nodes)
      busy = busy || (other.pool == m.pool && state.tasks_on.contains(id) &&
                      node_of_machine(other.offer.name, m));
    if (busy)
      m.idle_since = {};
    else if (!m.idle_since && m.state != MachineState::wanted)
      m.idle_since = event.at;
    return;
  }
}

void Applier::note_node_here(const Node& node) {
  if (!node.pool)
    return;
  for (auto& [name, m] : state.machines) {
    if (m.pool != node.pool || m.state != MachineState::wanted ||
        !node_of_machine(node.offer.name, m))
      continue;
    m.state = MachineState::here;
    m.here_at = event.at;
    m.idle_since = event.at;
  }
}

void complete(Pool& pool) {
  if (!pool.capabilities) {
    const bool slurm = pool.kind == "slurm";
    pool.capabilities = PoolCapabilities{
        .sizes_to_demand = slurm, .several_nodes_at_once = true, .list_is_final = slurm};
  }
  if (pool.denied_until.ns == INT64_MAX)
    pool.state = PoolState::removing;
}

void Applier::operator()(const PoolAdded& e) {
  Pool& pool = state.pools[e.pool.id];
  pool = e.pool;
  complete(pool);
  state.next_pool = std::max(state.next_pool, e.pool.id.value + 1);
}

void Applier::operator()(const PoolRemoved& e) {
  state.pools.erase(e.pool);
}

void Applier::operator()(const PoolDenied& e) {
  Pool& pool = state.pools.at(e.pool);
  pool.denied = e.reason;
  pool.denied_until = e.until;
  if (e.removing)
    pool.state = PoolState::removing;
  complete(pool);
}

void Applier::operator()(const MachineWanted& e) {
  state.machines[e.machine.name] = e.machine;
  ++state.next_machine;
}

void Applier::operator()(const MachineSeen& e) {
  Machine& m = machine(e.machine);
  m.external = e.external;
  m.note = e.note;
  m.ends_at = e.ends_at;
}

void Applier::operator()(const MachineReleased& e) {
  Machine& m = machine(e.machine);
  m.state = MachineState::releasing;
  m.reason = e.reason;
  // Nothing new starts there; the provider is asked to take it back once it is empty.
  for (auto& [id, n] : state.nodes) {
    if (n.pool != m.pool || !node_of_machine(n.offer.name, m))
      continue;
    n.drained = "is given back: " + e.reason;
    state.index.upsert_node(shape_of(state, n));
  }
}

void Applier::operator()(const MachineGone& e) {
  state.machines.erase(e.machine);
}

void Applier::operator()(const OfferRefused& e) {
  std::vector<OfferRefusal>& refusals = state.pools.at(e.pool).refusals;
  refusals.push_back(e.refusal);
  std::erase_if(refusals, [&](const OfferRefusal& r) {
    return r.until <= event.at && r.at + limits::pool_refusal_kept < event.at;
  });
  while (refusals.size() > limits::pool_refusals_max) {
    // One that has expired, or else the oldest.
    const auto expired = std::find_if(refusals.begin(), refusals.end(),
                                      [&](const OfferRefusal& r) { return r.until <= event.at; });
    refusals.erase(expired == refusals.end() ? refusals.begin() : expired);
  }
}

void Applier::operator()(const PoolOffersSet& e) {
  state.pools.at(e.pool).offers = e.offers;
}

void Applier::operator()(const PoolRetried& e) {
  Pool& pool = state.pools.at(e.pool);
  pool.refusals.clear();
  pool.denied.clear();
  pool.denied_until = {};
}

}  // namespace billow::control
