// Which machines to order and which to give back. Pure, and run about once a second: jobs that wait
// for free capacity are packed, in queue order, into the machines that are on their way; what does
// not fit is ordered from the first pool that could run it. A pool that refused is not asked for a
// while. A pool that is slow is not waited for: the next one is asked as well.
//
// A gang gets whole machines: all its nodes in one order where the provider can do that, else one
// order for each node. Single jobs are added up, and a provider that sizes machines to demand is
// asked for as few GPUs as they need.
#include <fmt/format.h>
#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/node_gone.h"

namespace billow::control {
namespace {

// A task without a GPU takes one of these slots on a machine whose cores are unknown until it
// joins.
constexpr std::int32_t gpuless_tasks_per_node = 64;

// Capacity that is on its way: one node of a machine that is not here yet, or that waits here for
// the rest of a gang.
struct Bin {
  std::string machine;
  std::string gpu_type;
  std::int64_t free_milli = 0;
  std::int32_t tasks_free = gpuless_tasks_per_node;
  const Pool* pool = nullptr;
  bool slow = false;
  bool used = false;
  bool for_gangs_only = false;
};

std::int64_t milli_of(const Resources& r, std::int32_t pool_gpus) {
  if (r.whole_node)
    return std::int64_t{1000} * std::max(1, pool_gpus);
  if (r.gpus == 0)
    return 0;
  if (r.gpus == 1 && !r.share.whole())
    return r.share.milli > 0 ? r.share.milli : 1000;
  return std::int64_t{1000} * r.gpus;
}

bool type_fits(const Resources& r, const std::string& type) {
  if (r.gpus == 0)
    return true;
  return !type.empty() && (r.gpu_types.empty() || std::find(r.gpu_types.begin(), r.gpu_types.end(),
                                                            type) != r.gpu_types.end());
}

// Whether more machines would help: a job held back by a quota or a budget must not rent any.
bool waits_for_capacity(const State& state, const Job& job, WallTime now) {
  const auto explanation = sched::explain(state.index, job.id, now, sched::Advice::none);
  if (explanation.reasons.empty())
    return true;
  switch (explanation.reasons.front().kind) {
    case sched::ReasonKind::held:
    case sched::ReasonKind::budget:
    case sched::ReasonKind::project_limit:
    case sched::ReasonKind::quota:
    case sched::ReasonKind::user_limit:
    case sched::ReasonKind::array_limit:
    case sched::ReasonKind::residency:
    case sched::ReasonKind::preempting:
      return false;
    case sched::ReasonKind::infeasible:
    case sched::ReasonKind::no_capacity:
    case sched::ReasonKind::fragmentation:
    case sched::ReasonKind::topology:
    case sched::ReasonKind::reserved:
    case sched::ReasonKind::waiting_behind:
    case sched::ReasonKind::next:
      return true;
  }
  return true;
}

class Planner {
 public:
  Planner(const State& state, const Context& context)
      : state_(state), now_(context.now), next_machine_(state.next_machine) {
    for (const auto& [id, pool] : state.pools)
      pools_.push_back(&pool);
    std::sort(pools_.begin(), pools_.end(), [](const Pool* a, const Pool* b) {
      const auto price = [](const Pool* p) {
        return p->price.nano_usd_per_s > 0 ? p->price.nano_usd_per_s : INT64_MAX;
      };
      return std::tuple(a->order, price(a), a->id.value) <
             std::tuple(b->order, price(b), b->id.value);
    });
    for (const auto& [name, machine] : state.machines) {
      count_[machine.pool] += machine.nodes;
      const Pool& pool = state.pools.at(machine.pool);
      const bool part_of_gang = may_wait_for_gang(machine, pool);
      if (machine.state != MachineState::wanted && !is_arriving(machine, pool) && !part_of_gang)
        continue;
      const bool slow = !part_of_gang && machine.wanted_at + pool.patience < now_;
      if (slow)
        slow_[machine.pool] = true;
      for (std::uint32_t i = 0; i < machine.nodes; ++i)
        bins_.push_back({.machine = name,
                         .gpu_type = pool.gpu_type,
                         .free_milli = std::int64_t{1000} * machine.gpus,
                         .pool = &pool,
                         .slow = slow,
                         .for_gangs_only = part_of_gang});
    }
  }

  Events plan() {
    jobs();
    for (const Pool* pool : pools_) {
      while (takes_orders(*pool) && count_[pool->id] < pool->machines_min)
        order(*pool, 1, pool->gpus,
              fmt::format("pool {} keeps {}", pool->name, pool->machines_min));
    }
    give_back();
    return std::move(events_);
  }

 private:
  // Some of the machine's nodes are here and the others follow: a gang that waits for all of them
  // must not order them again.
  bool is_arriving(const Machine& machine, const Pool& pool) const {
    if (machine.state != MachineState::here || machine.nodes < 2 ||
        machine.here_at + pool.patience < now_)
      return false;
    return nodes_of(state_, machine).size() < machine.nodes;
  }
  // Nodes of a gang that were ordered one by one arrive one by one: those that are here and idle
  // count for the gang. (A single job would have started there.)
  bool may_wait_for_gang(const Machine& machine, const Pool& pool) const {
    if (machine.state != MachineState::here || !machine.idle_since ||
        (pool.capabilities && pool.capabilities->several_nodes_at_once))
      return false;
    for (NodeId id : nodes_of(state_, machine)) {
      const Node& node = state_.nodes.at(id);
      if (node.reachable && node.drained.empty())
        return true;
    }
    return false;
  }
  bool takes_orders(const Pool& pool) const {
    return pool.state == PoolState::active && pool.denied_until <= now_;
  }

  // Single jobs whose GPUs are added up before a machine is ordered for them.
  struct Singles {
    std::int64_t milli = 0;
    std::int64_t largest_milli = 0;
    JobId first;
  };

  // Elements of an array are alike; every other job is considered separately.
  using Kind = std::pair<ProjectId, JobId>;
  static Kind kind_of(const Job& job) { return {job.project, job.array ? job.array : job.id}; }

  void jobs() {
    std::size_t looked = 0;
    std::map<Kind, bool> waits;
    std::map<PoolId, Singles> singles;
    for (const auto& [id, job] : state_.jobs) {
      if (++looked > limits::pool_jobs_looked_at_max)
        break;
      if (job.state != JobState::queued)
        continue;
      const auto [at, fresh] = waits.try_emplace(kind_of(job), false);
      if (fresh && waits.size() <= limits::pool_kinds_explained_max)
        at->second = waits_for_capacity(state_, job, now_);
      if (!at->second || pack(*job.spec))
        continue;
      if (const Pool* pool = choose(*job.spec))
        order_for(job, *pool, singles[pool->id]);
    }
    for (auto& [id, sum] : singles)
      order_for_singles(state_.pools.at(id), sum);
  }

  void order_for(const Job& job, const Pool& pool, Singles& singles) {
    const JobSpec& spec = *job.spec;
    const PoolCapabilities can = pool.capabilities.value_or(PoolCapabilities{});
    if (spec.nodes > 1) {
      const std::string why = fmt::format("job {} waits for {} nodes", job.id.value, spec.nodes);
      const std::uint32_t orders = can.several_nodes_at_once ? 1 : spec.nodes;
      for (std::uint32_t i = 0; i < orders; ++i)
        order(pool, spec.nodes / orders, pool.gpus, why);
      (void)pack(spec);
      return;
    }
    const std::int64_t milli = milli_of(spec.resources, pool.gpus);
    if (can.sizes_to_demand && milli > 0) {
      singles.milli += milli;
      singles.largest_milli = std::max(singles.largest_milli, milli);
      if (!singles.first)
        singles.first = job.id;
      return;
    }
    order(pool, 1, can.sizes_to_demand ? 0 : pool.gpus,
          fmt::format("job {} waits for free capacity", job.id.value));
    (void)pack(spec);
  }

  void order_for_singles(const Pool& pool, Singles& sum) {
    while (sum.milli > 0 && count_[pool.id] < pool.machines_max) {
      const std::int64_t wanted = std::max(sum.largest_milli, sum.milli);
      const auto gpus =
          static_cast<std::int32_t>(std::min<std::int64_t>(pool.gpus, (wanted + 999) / 1000));
      order(pool, 1, gpus, fmt::format("job {} waits for free capacity", sum.first.value));
      sum.milli -= std::int64_t{1000} * gpus;
    }
  }

  // Into what is on its way; all tasks of a job or none. A machine that is late counts only where
  // no other pool can be asked.
  bool pack(const JobSpec& spec) {
    for (const bool slow : {false, true}) {
      if (slow && choose(spec))
        return false;
      std::vector<Bin*> chosen;
      for (Bin& bin : bins_) {
        if (chosen.size() == spec.nodes)
          break;
        if ((bin.slow && !slow) || (bin.for_gangs_only && spec.nodes < 2))
          continue;
        const std::int64_t milli = milli_of(spec.resources, bin.pool->gpus);
        if (!type_fits(spec.resources, bin.gpu_type) || !labels_fit(spec, *bin.pool) ||
            bin.free_milli < milli || (milli == 0 && bin.tasks_free == 0))
          continue;
        chosen.push_back(&bin);
      }
      if (chosen.size() < spec.nodes)
        continue;
      for (Bin* bin : chosen) {
        bin->free_milli -= milli_of(spec.resources, bin->pool->gpus);
        --bin->tasks_free;
        bin->used = true;
      }
      return true;
    }
    return false;
  }

  const Pool* choose(const JobSpec& spec) {
    for (const Pool* pool : pools_)
      if (takes_orders(*pool) && !slow_[pool->id] && could_run(spec, *pool) &&
          count_[pool->id] + spec.nodes <= pool->machines_max)
        return pool;
    return nullptr;
  }

  void order(const Pool& pool, std::uint32_t nodes, std::int32_t gpus, std::string why) {
    Machine machine;
    machine.name = fmt::format("{}-{}", pool.name, next_machine_++);
    machine.pool = pool.id;
    machine.nodes = nodes;
    machine.gpus = gpus;
    machine.wanted_at = now_;
    count_[pool.id] += nodes;
    for (std::uint32_t i = 0; i < nodes; ++i)
      bins_.push_back({.machine = machine.name,
                       .gpu_type = gpus > 0 ? pool.gpu_type : "",
                       .free_milli = std::int64_t{1000} * gpus,
                       .pool = &pool,
                       .used = true});
    events_.push_back(MachineWanted{std::move(machine), std::move(why)});
  }

  void give_back() {
    std::set<std::string> needed;
    for (const Bin& bin : bins_)
      if (bin.used)
        needed.insert(bin.machine);
    for (const auto& [name, machine] : state_.machines) {
      const Pool& pool = state_.pools.at(machine.pool);
      const auto release = [&](std::string reason) {
        events_.push_back(MachineReleased{name, std::move(reason)});
        count_[machine.pool] -= machine.nodes;
      };
      switch (machine.state) {
        case MachineState::wanted:
          // No job waits for it any more. One that was ordered a moment ago is kept: its job may
          // have started elsewhere only briefly.
          if (!needed.contains(name) && count_[machine.pool] > pool.machines_min &&
              machine.wanted_at + limits::pool_second_thoughts < now_)
            release("no job waits for it any more");
          break;
        case MachineState::here:
          if (machine.ends_at && machine.ends_at - limits::pool_end_margin < now_)
            leave_before_end(state_, machine, now_, events_);
          else if (machine.idle_since && machine.idle_since + pool.idle <= now_ &&
                   !needed.contains(name) && count_[machine.pool] > pool.machines_min)
            release(fmt::format("idle for {}", format_duration(pool.idle)));
          break;
        case MachineState::releasing:
          break;
      }
    }
  }

  const State& state_;
  WallTime now_;
  std::uint64_t next_machine_;
  std::vector<const Pool*> pools_;
  std::map<PoolId, std::uint32_t> count_;
  std::map<PoolId, bool> slow_;
  std::vector<Bin> bins_;
  Events events_;
};

}  // namespace

Decision Decider::operator()(const PlanPools&) {
  if (state.pools.empty())
    return Events{};
  return Planner(state, context).plan();
}

std::vector<std::string> pool_notes(const State& state, const Job& job, WallTime now) {
  std::vector<std::string> notes;
  if (job.state != JobState::queued)
    return notes;
  for (const auto& [id, pool] : state.pools) {
    if (pool.state == PoolState::removing || !could_run(*job.spec, pool))
      continue;
    std::uint32_t machines = 0;
    const Machine* coming = nullptr;
    for (const auto& [name, machine] : state.machines) {
      if (machine.pool != id)
        continue;
      machines += machine.nodes;
      if (machine.state == MachineState::wanted &&
          (!coming || machine.wanted_at < coming->wanted_at))
        coming = &machine;
    }
    if (pool.denied_until > now)
      notes.push_back(fmt::format("Pool {} refused ({}). It is asked again in {}.", pool.name,
                                  pool.denied, format_duration(pool.denied_until - now)));
    else if (coming)
      notes.push_back(fmt::format("Pool {}: {} was ordered {} ago{}.{}", pool.name, coming->name,
                                  format_duration(now - coming->wanted_at),
                                  coming->note.empty() ? "" : ": " + coming->note,
                                  coming->wanted_at + pool.patience < now
                                      ? " It is slow, so the next pool is asked as well."
                                      : ""));
    else if (machines + job.spec->nodes > pool.machines_max)
      notes.push_back(fmt::format("Pool {} is full: {} of at most {} machines exist.", pool.name,
                                  machines, pool.machines_max));
  }
  return notes;
}

}  // namespace billow::control
