#include "core/control/renting/unused.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/control/decide/node_gone.h"
#include "core/control/renting/demand_limits.h"
#include "core/control/renting/lending.h"
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

// How many other nodes of the same gang have been given back, and have counted.
std::size_t others_counted(const State& state, const Machine& machine, const Events& events) {
  const auto is_sibling = [&](const Machine& other) {
    return other.name != machine.name && other.job == machine.job && other.pool == machine.pool &&
           !other.booked.empty();
  };
  const auto earlier = std::ranges::count_if(state.machines, [&](const auto& entry) {
    return entry.second.state == MachineState::releasing && is_sibling(entry.second);
  });
  const auto now = std::ranges::count_if(events, [&](const EventBody& event) {
    const auto found = state.machines.find(counted_by(event));
    return found != state.machines.end() && is_sibling(found->second);
  });
  return static_cast<std::size_t>(earlier + now);
}

// Whether other projects' guarantees keep the job back, and would do so if every machine that was
// ordered for it were here and had all its GPUs.
bool is_kept_back(const State& state, const Machine& machine, const Job& job) {
  std::int64_t joined = 0;
  for (const auto& [name, other] : state.machines)
    if (other.pool == machine.pool && other.job == job.id && other.state != MachineState::releasing)
      joined += joined_milli(state, other);
  const std::int64_t ordered =
      std::int64_t{1000} * machine.gpus * std::max(machine.nodes, job.spec->nodes);
  return !Lending(state).lets(job, all_milli(*job.spec),
                              std::max<std::int64_t>(0, ordered - joined));
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

// The account of a machine begins with its order, on a clock that nobody sets.
bool failed_to_join(const State& state, const Machine& machine, const Context& context) {
  if (machine.state != MachineState::wanted)
    return false;
  const Pool& pool = state.pools.at(machine.pool);
  const bool bills = pool.capabilities && pool.capabilities->bills_from_order;
  if (const WallTime began = state.money.books.began(machine.account); machine.account && began)
    return began + limits::machine_join_max < context.billed;
  // By the engine's clock, which may be behind: nothing runs before it was ordered.
  const WallTime runs_since =
      machine.billed_from ? std::max(machine.wanted_at, machine.billed_from) : WallTime{};
  const WallTime since = machine.offer || bills ? machine.wanted_at : runs_since;
  return since && since + limits::machine_join_max < context.now;
}

bool is_wasted(const State& state, const Machine& machine, const Events& events, WallTime now) {
  if (machine.used || machine.state == MachineState::releasing || machine.is_disk() ||
      !machine.twin_of.empty())
    return false;
  // A minimum of machines waits for each of them.
  if (!machine.job)
    return machine.state == MachineState::wanted;
  const Job* job = state.find_job(machine.job);
  if (!job || job->state != JobState::queued)
    return false;
  if (machine.state != MachineState::here)
    return true;
  // What a quota, a budget or a guarantee holds back would not have started on any machine.
  if (!could_use_a_machine(state, *job, now) || is_kept_back(state, machine, *job))
    return false;
  // One bad node of a large gang must not stop the pool.
  const std::size_t counted_max = gang_came(state, machine, *job) ? 2 : 1;
  return !is_part_of_gang(machine, job) || others_counted(state, machine, events) < counted_max;
}

bool ended_wasted(const State& state, const Machine& machine, const Events& events, WallTime now) {
  if (!is_wasted(state, machine, events, now))
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

namespace {

// The newest job for which the machines came that stop the pool now, if one still waits.
const Job* waiting_job(const State& state, const Pool& pool) {
  std::uint32_t left = pool.unused_in_row;
  for (auto at = pool.unused.rbegin(); at != pool.unused.rend() && left > 0; ++at, --left)
    if (const Job* job = state.find_job(at->job); job && job->state == JobState::queued)
      return job;
  return nullptr;
}

// What the last machine lacked, if that is known.
std::string shortage(const Pool& pool) {
  if (pool.unused.empty() || !pool.unused.back().joined)
    return {};
  for (const Source& source : sources_of(pool)) {
    const LearnedShape* came = learned_of(source);
    const auto ordered = static_cast<std::size_t>(source.gpus());
    if (came && came->instance == pool.unused.back().instance && came->node.gpus.size() < ordered)
      return fmt::format(", and the last one had {} of {} GPUs", came->node.gpus.size(), ordered);
  }
  return {};
}

}  // namespace

void stop_useless_pools(const State& state, Events& events) {
  for (const auto& [id, pool] : state.pools) {
    if (pool.state != PoolState::active || !pool.stopped.empty() ||
        pool.unused_in_row < limits::pool_unused_max)
      continue;
    const Job* job = waiting_job(state, pool);
    const std::string number = job ? std::to_string(job->id.value) : "";
    events.push_back(PoolStopped{
        id, fmt::format("its last {} machines {}ran no job although {} waited{}; find out why "
                        "(billow explain {}), then: billow pool retry {}",
                        pool.unused_in_row, pool.machines_min > 0 ? "did not connect, or " : "",
                        job ? "job " + number : "one", shortage(pool), job ? number : "JOB",
                        pool.name)});
  }
}

}  // namespace billow::control
