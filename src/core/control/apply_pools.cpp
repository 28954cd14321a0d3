// Folds the events of pools and their machines. A machine is idle from the moment its last node
// lost its last task. That moment is part of the state, so a head that restarts continues to count.
#include <algorithm>

#include "base/limits.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/renting/caches.h"
#include "core/control/renting/pool_limits.h"

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
    if (busy) {
      m.idle_since = {};
      m.used = true;
      if (const auto pool = state.pools.find(m.pool); pool != state.pools.end())
        pool->second.unused_in_row = 0;
    } else if (!m.idle_since && m.state != MachineState::wanted)
      m.idle_since = event.at;
    return;
  }
}

namespace {

// What a node of this machine has turned out to offer. Machines that are sized to demand differ.
void learn_shape(Pool& pool, const Machine& machine, NodeOffer offer) {
  if (pool.capabilities && pool.capabilities->sizes_to_demand)
    return;
  offer.name = offer.boot_id = offer.version = offer.address = "";
  for (NodeGpu& gpu : offer.gpus) {
    gpu.uuid = "";
    gpu.unhealthy = "";
  }
  LearnedShape learned{machine.offer ? machine.offer->instance : "", std::move(offer)};
  const auto known = std::find_if(pool.learned.begin(), pool.learned.end(), [&](const auto& one) {
    return one.instance == learned.instance;
  });
  if (known != pool.learned.end())
    *known = std::move(learned);
  else if (pool.learned.size() < limits::pool_learned_max)
    pool.learned.push_back(std::move(learned));
}

void count_unused(Pool& pool, const Machine& machine, JobId job) {
  ++pool.unused_in_row;
  const auto never_joined = [](const UnusedMachine& unused) {
    return !unused.joined;
  };
  // Those that never joined say only why the pool stops: as many are kept as stop it.
  if (static_cast<std::size_t>(std::ranges::count_if(pool.unused, never_joined)) >=
      limits::pool_unused_max)
    pool.unused.erase(std::ranges::find_if(pool.unused, never_joined));
  pool.unused.push_back({.job = job,
                         .instance = machine.offer ? machine.offer->instance : "",
                         .machine = machine.name,
                         .joined = job && machine.state != MachineState::wanted});
  if (pool.unused.size() > limits::pool_unused_kept)
    pool.unused.erase(pool.unused.begin());
}

// Their number counts, not their age: a clock that is set forward must not make the pool forget
// what it has billed.
constexpr std::size_t ended_max = 128;

void remember_ended(Pool& pool, const Machine& machine, const MachineGone& gone, WallTime now) {
  if (machine.is_disk() || machine.nodes > 1)
    return;
  if (pool.ended.size() >= ended_max)
    pool.ended.erase(pool.ended.begin());
  pool.ended.push_back({.name = machine.twin_of.empty() ? machine.name : machine.twin_of,
                        .external = machine.external,
                        .offer = machine.offer,
                        .gpus = machine.gpus,
                        .at = now,
                        .billed_to = gone.bill ? gone.bill->to : now});
}

}  // namespace

void Applier::note_node_here(const Node& node) {
  if (!node.pool)
    return;
  for (auto& [name, m] : state.machines) {
    if (m.pool != node.pool || !node_of_machine(node.offer.name, m))
      continue;
    m.booked.push_back(node.id);
    learn_shape(state.pools.at(m.pool), m, node.offer);
    if (m.state != MachineState::wanted)
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
  state.next_node = std::max(state.next_node, e.machine.account.value + 1);
  if (e.machine.is_disk() || !e.machine.twin_of.empty())
    return;
  for (const std::string& cache : caches_of(e.machine))
    if (const auto disk = state.machines.find(cache); disk != state.machines.end())
      disk->second.idle_since = {};
  ++state.next_machine;
  std::vector<WallTime>& recent = state.pools.at(e.machine.pool).recent_orders;
  std::erase_if(recent, [&](WallTime at) { return at + minutes(1) <= event.at; });
  recent.push_back(event.at);
}

void Applier::operator()(const MachineSeen& e) {
  Machine& m = machine(e.machine);
  m.external = e.external;
  m.note = e.note;
  m.ends_at = e.ends_at;
  if (m.is_disk() && m.state == MachineState::wanted) {
    m.state = MachineState::here;
    m.here_at = event.at;
    if (!holder_of(state, m.name))
      m.idle_since = event.at;
  }
  if (e.billed_from)
    m.billed_from = e.billed_from;
}

void Applier::operator()(const MachineReleased& e) {
  Machine& m = machine(e.machine);
  if (const auto pool = state.pools.find(m.pool); e.unused && pool != state.pools.end())
    count_unused(pool->second, m, kind_of_job(state, m.job));
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
  const Machine& m = machine(e.machine);
  if (const auto pool = state.pools.find(m.pool); pool != state.pools.end()) {
    if (e.unused)
      count_unused(pool->second, m, kind_of_job(state, m.job));
    // A refused order brought no machine: it does not count against the limit per minute.
    std::vector<WallTime>& recent = pool->second.recent_orders;
    if (m.external.empty() && m.booked.empty())
      if (const auto at = std::find(recent.begin(), recent.end(), m.wanted_at); at != recent.end())
        recent.erase(at);
    remember_ended(pool->second, m, e, event.at);
  }
  if (e.bill && e.bill->amount.value > 0) {
    state.machine_bills.push_back(*e.bill);
    if (state.machine_bills.size() > limits::machine_bills_kept)
      state.machine_bills.pop_front();
  }
  for (const std::string& cache : caches_of(m)) {
    const auto disk = state.machines.find(cache);
    if (disk != state.machines.end() && disk->second.state == MachineState::here)
      disk->second.idle_since = event.at;
  }
  state.machines.erase(e.machine);
}

void Applier::operator()(const PoolStopped& e) {
  state.pools.at(e.pool).stopped = e.reason;
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
  pool.stopped.clear();
  pool.unused_in_row = 0;
  pool.unused.clear();
}

}  // namespace billow::control
