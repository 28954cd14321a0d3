#include "core/control/renting/unused.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/control/decide/node_gone.h"
#include "core/control/renting/pool_limits.h"

namespace billow::control {
namespace {

// A job that fits starts on a new machine at once; one that waits this long does not fit.
constexpr Duration starts_within = seconds(5);

bool is_part_of_gang(const Machine& machine, const Job* job) {
  return job && machine.nodes < job->spec->nodes;
}

// Whether the pool's other machines for this job have all come, too.
bool gang_came(const State& state, const Machine& machine, const Job& job) {
  std::size_t came = 0;
  for (const auto& [name, other] : state.machines)
    if (other.pool == machine.pool && other.job == machine.job)
      came += other.booked.size();
  return came >= job.spec->nodes;
}

// The machine that one of these events counts as unused; empty: none.
std::string counted_by(const EventBody& event) {
  if (const auto* released = get_if<MachineReleased>(&event))
    return released->unused ? released->machine : std::string();
  if (const auto* gone = get_if<MachineGone>(&event))
    return gone->unused ? gone->machine : std::string();
  return {};
}

// Whether another node of the same gang has been given back, and has counted.
bool another_counted(const State& state, const Machine& machine, const Events& events) {
  const auto is_sibling = [&](const Machine& other) {
    return other.name != machine.name && other.job == machine.job && other.pool == machine.pool &&
           !other.booked.empty();
  };
  return std::ranges::any_of(state.machines,
                             [&](const auto& entry) {
                               return entry.second.state == MachineState::releasing &&
                                      is_sibling(entry.second);
                             }) ||
         std::ranges::any_of(events, [&](const EventBody& event) {
           const auto found = state.machines.find(counted_by(event));
           return found != state.machines.end() && is_sibling(found->second);
         });
}

// Whether another machine for the same job is on its way and not late.
bool rest_is_coming(const State& state, const Machine& machine, WallTime now) {
  return machine.job && std::ranges::any_of(state.machines, [&](const auto& entry) {
           const Machine& other = entry.second;
           return other.state == MachineState::wanted && other.job == machine.job &&
                  other.pool == machine.pool && other.wanted_at + limits::machine_join_max >= now;
         });
}

}  // namespace

bool is_unused(const State& state, const Machine& machine) {
  const Job* job = state.find_job(machine.job);
  return !machine.used && job && job->state == JobState::queued && !is_part_of_gang(machine, job);
}

bool is_arriving(const State& state, const Machine& machine, const Pool& pool, WallTime now) {
  if (machine.state != MachineState::here || machine.nodes < 2 ||
      machine.here_at + pool.patience < now)
    return false;
  return nodes_of(state, machine).size() < machine.nodes;
}

bool may_wait_for_gang(const State& state, const Machine& machine, const Pool& pool, WallTime now) {
  if (machine.state != MachineState::here || !machine.idle_since)
    return false;
  const Job* job = state.find_job(machine.job);
  const bool of_group = job && !job->spec->roles.empty();
  if (!of_group && pool.capabilities && pool.capabilities->several_nodes_at_once)
    return false;
  // Until then the machine would stay anyway.
  const Duration waits = std::max(limits::machine_join_max, pool.idle);
  if (machine.idle_since + waits < now && !rest_is_coming(state, machine, now))
    return false;
  return std::ranges::any_of(nodes_of(state, machine), [&](NodeId id) {
    const Node& node = state.nodes.at(id);
    return node.reachable && node.drained.empty();
  });
}

bool came_in_vain(const State& state, const Machine& machine, JobId kind, WallTime now) {
  if (machine.state != MachineState::here || !machine.idle_since ||
      kind_of_job(state, machine.job) != kind)
    return false;
  if (is_unused(state, machine))
    return all_nodes_came(state, machine, now);
  const Job* job = state.find_job(machine.job);
  return !machine.used && is_part_of_gang(machine, job) && job->state == JobState::queued &&
         gang_came(state, machine, *job) &&
         !may_wait_for_gang(state, machine, state.pools.at(machine.pool), now);
}

namespace {

// Since when an allocation runs, of which a list says when it ends; zero: not known.
WallTime runs_since(const Machine& machine, const Pool& pool) {
  const bool other_length = std::ranges::any_of(
      pool.sbatch_args, [](const std::string& word) { return word.starts_with("--time"); });
  if (!machine.ends_at || pool.time.ns == 0 || other_length)
    return {};
  return std::max(machine.wanted_at, machine.ends_at - pool.time);
}

}  // namespace

// The account of a machine begins with its order, on a clock that nobody sets.
bool failed_to_join(const State& state, const Machine& machine, const Context& context) {
  if (machine.state != MachineState::wanted)
    return false;
  const Pool& pool = state.pools.at(machine.pool);
  const bool bills = pool.capabilities && pool.capabilities->bills_from_order;
  if (const WallTime began = state.money.books.began(machine.account); machine.account && began)
    return began + limits::machine_join_max < context.billed;
  const WallTime since = machine.offer || bills ? machine.wanted_at : runs_since(machine, pool);
  return since && since + limits::machine_join_max < context.now;
}

bool is_wasted(const State& state, const Machine& machine, const Events& events) {
  if (machine.used || machine.state == MachineState::releasing || machine.is_disk() ||
      !machine.twin_of.empty())
    return false;
  // A minimum of machines waits for each of them.
  if (!machine.job)
    return machine.state == MachineState::wanted;
  const Job* job = state.find_job(machine.job);
  if (!job || job->state != JobState::queued)
    return false;
  return machine.state != MachineState::here || !is_part_of_gang(machine, job) ||
         gang_came(state, machine, *job) || !another_counted(state, machine, events);
}

bool ended_wasted(const State& state, const Machine& machine, const Events& events, WallTime now) {
  if (!is_wasted(state, machine, events))
    return false;
  // One whose end was announced would have run the job, as far as is known.
  const bool may_have_run_it =
      std::ranges::any_of(nodes_of(state, machine),
                          [&](NodeId id) { return !state.nodes.at(id).drained.empty(); }) ||
      machine.booked.size() < machine.nodes || now <= machine.here_at + starts_within;
  return machine.state != MachineState::here || !may_have_run_it;
}

bool is_spoilt(const Source& source, const Job& job, JobId kind) {
  const auto& can = source.pool->capabilities;
  const bool one_by_one = job.spec->nodes > 1 && !(can && can->several_nodes_at_once);
  return !one_by_one && unused_for(source, kind);
}

void stop_useless_pools(const State& state, Events& events) {
  for (const auto& [id, pool] : state.pools) {
    if (pool.state != PoolState::active || !pool.stopped.empty() ||
        pool.unused_in_row < limits::pool_unused_max)
      continue;
    const char* what = pool.machines_min > 0 ? "did not connect, or ran no job although one waited"
                                             : "ran no job although one waited";
    events.push_back(PoolStopped{
        id, fmt::format("its last {} machines {}; find out why (billow explain JOB), then: billow "
                        "pool retry {}",
                        pool.unused_in_row, what, pool.name)});
  }
}

}  // namespace billow::control
