// What the queue needs that is not there, and what is there that nobody needs. Pure, and run about
// once a second: jobs that wait for room are packed, in the order of the queue, into the machines
// that are on their way; what does not fit is asked of the first pool that could bring it. A pool
// that said no rests for a while, and one that is slow is not waited for: the next is asked as
// well.
//
// A gang gets its nodes as one order (whole machines of the pool); single jobs are added up, and a
// Slurm pool is asked for as few GPUs as they need.
#include <fmt/format.h>
#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"

namespace billow::control {
namespace {

// Room that is on its way: one node of a machine not here yet.
struct Bin {
  std::string machine;
  std::string gpu_type;
  std::int64_t free_milli = 0;
  std::int32_t tasks_free =
      64;  // of tasks without GPUs; their cores are not known before the machine is here
  const Pool* pool = nullptr;
  bool slow = false;
  bool used = false;
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

bool labels_fit(const JobSpec& spec, const Pool& pool) {
  for (const auto& [key, value] : spec.node_labels) {
    const auto has = pool.labels.find(key);
    if (has == pool.labels.end() || has->second != value)
      return false;
  }
  return true;
}

bool could_run(const JobSpec& spec, const Pool& pool) {
  return spec.resources.mig_profile.empty() && type_fits(spec.resources, pool.gpu_type) &&
         spec.resources.gpus <= pool.gpus && spec.nodes <= pool.machines_max &&
         labels_fit(spec, pool);
}

// Whether more machines would help: a job held back by a quota or a budget must not rent any.
bool waits_for_room(const State& state, const Job& job, WallTime now) {
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
      if (machine.state != MachineState::wanted && !is_arriving(machine, pool))
        continue;
      const bool slow = machine.wanted_at + pool.patience < now_;
      if (slow)
        slow_[machine.pool] = true;
      for (std::uint32_t i = 0; i < machine.nodes; ++i)
        bins_.push_back({.machine = name,
                         .gpu_type = pool.gpu_type,
                         .free_milli = std::int64_t{1000} * machine.gpus,
                         .pool = &pool,
                         .slow = slow});
    }
  }

  Events plan() {
    jobs();
    for (const Pool* pool : pools_) {
      while (!removed(*pool) && count_[pool->id] < pool->machines_min && allowed(*pool))
        order(*pool, 1, pool->gpus,
              fmt::format("pool {} keeps {}", pool->name, pool->machines_min));
    }
    give_back();
    return std::move(events_);
  }

 private:
  // One node of several is here, and the others follow: a gang that waits for all of them must not
  // order them again.
  bool is_arriving(const Machine& machine, const Pool& pool) const {
    if (machine.state != MachineState::here || machine.nodes < 2 ||
        machine.here_at + pool.patience < now_)
      return false;
    std::uint32_t joined = 0;
    for (const auto& [id, node] : state_.nodes)
      joined += node.pool == machine.pool && node_of_machine(node.offer.name, machine);
    return joined < machine.nodes;
  }
  static bool removed(const Pool& pool) { return pool.denied_until.ns == INT64_MAX; }
  bool allowed(const Pool& pool) const { return pool.denied_until <= now_; }

  void jobs() {
    std::size_t looked = 0;
    std::map<std::string, bool> waits;  // by what the scheduler tells apart
    std::map<PoolId, std::int64_t> singles_milli;
    std::map<PoolId, std::int64_t> singles_largest;
    std::map<PoolId, JobId> singles_first;
    for (const auto& [id, job] : state_.jobs) {
      if (++looked > limits::pool_jobs_looked_at_max)
        break;
      if (job.state != JobState::queued)
        continue;
      const JobSpec& spec = *job.spec;
      const std::string kind =
          fmt::format("{}/{}/{}/{}/{}/{}", job.project.value, job.user.value, job.array.value,
                      spec.nodes, spec.resources.gpus, fmt::ptr(&spec));
      const auto [at, fresh] = waits.try_emplace(kind, false);
      if (fresh)
        at->second =
            waits.size() <= limits::pool_kinds_explained_max && waits_for_room(state_, job, now_);
      if (!at->second || pack(spec))
        continue;
      const Pool* pool = choose(spec);
      if (!pool)
        continue;
      if (spec.nodes > 1) {
        order(
            *pool, spec.nodes,
            pool->kind == PoolKind::slurm ? std::max(spec.resources.gpus, pool->gpus) : pool->gpus,
            fmt::format("job {} waits for {} nodes", id.value, spec.nodes));
        (void)pack(spec);
        continue;
      }
      const std::int64_t milli = milli_of(spec.resources, pool->gpus);
      if (pool->kind == PoolKind::command || milli == 0) {
        order(*pool, 1, pool->kind == PoolKind::command ? pool->gpus : 0,
              fmt::format("job {} waits for room", id.value));
        (void)pack(spec);
        continue;
      }
      singles_milli[pool->id] += milli;
      singles_largest[pool->id] = std::max(singles_largest[pool->id], milli);
      singles_first.try_emplace(pool->id, id);
    }
    for (auto& [id, milli] : singles_milli) {
      const Pool& pool = state_.pools.at(id);
      while (milli > 0 && count_[id] < pool.machines_max) {
        const std::int64_t wanted = std::max(singles_largest[id], milli);
        const auto gpus =
            static_cast<std::int32_t>(std::min<std::int64_t>(pool.gpus, (wanted + 999) / 1000));
        order(pool, 1, gpus, fmt::format("job {} waits for room", singles_first[id].value));
        milli -= std::int64_t{1000} * gpus;
      }
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
        if (bin.slow && !slow)
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
      if (!removed(*pool) && allowed(*pool) && !slow_[pool->id] && could_run(spec, *pool) &&
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
          // Not here yet, and nobody waits for it any more. One just asked for is left alone: its
          // job may have started elsewhere for a moment.
          if (!needed.contains(name) && count_[machine.pool] > pool.machines_min &&
              machine.wanted_at + limits::pool_second_thoughts < now_)
            release("nobody waits for it any more");
          break;
        case MachineState::here:
          if (machine.ends_at && machine.ends_at - limits::pool_end_margin < now_)
            drain_before_end(machine);
          else if (machine.idle_since && machine.idle_since + pool.idle <= now_ &&
                   count_[machine.pool] > pool.machines_min)
            release(fmt::format("idle for {}", format_duration(pool.idle)));
          break;
        case MachineState::releasing:
          break;
      }
    }
  }

  // Its engine ends it soon: nothing new starts there, and what cannot finish goes back into the
  // queue in time.
  void drain_before_end(const Machine& machine) {
    const bool last_call = machine.ends_at - limits::pool_end_grace < now_;
    std::set<JobId> leaving;
    bool busy = false;
    for (const auto& [id, node] : state_.nodes) {
      if (node.pool != machine.pool || !node_of_machine(node.offer.name, machine))
        continue;
      if (node.drained.empty())
        events_.push_back(
            NodeDrained{id, fmt::format("its allocation ends at {}", format_utc(machine.ends_at))});
      const auto on = state_.tasks_on.find(id);
      if (on == state_.tasks_on.end())
        continue;
      busy = true;
      if (last_call)
        for (TaskId task : on->second)
          leaving.insert(state_.tasks.at(task).job);
    }
    for (JobId id : leaving)
      if (state_.jobs.at(id).stopping == StopCause::none)
        events_.push_back(JobStopping{id,
                                      fmt::format("the allocation {} ends", machine.name),
                                      StopCause::preempted,
                                      false,
                                      {}});
    if (!busy)
      events_.push_back(MachineReleased{machine.name, "its allocation ends"});
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
    if (pool.denied_until.ns == INT64_MAX)
      continue;
    if (!could_run(*job.spec, pool))
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
      notes.push_back(fmt::format("pool {} said no and is asked again at {}: {}", pool.name,
                                  format_utc(pool.denied_until), pool.denied));
    else if (coming)
      notes.push_back(fmt::format("pool {}: {} was asked for {} ago{}{}", pool.name, coming->name,
                                  format_duration(now - coming->wanted_at),
                                  coming->note.empty() ? "" : ": " + coming->note,
                                  coming->wanted_at + pool.patience < now
                                      ? "; it is slow, so the next pool is asked as well"
                                      : ""));
    else if (machines + job.spec->nodes > pool.machines_max)
      notes.push_back(fmt::format("pool {} has {} of at most {} machines", pool.name, machines,
                                  pool.machines_max));
  }
  return notes;
}

}  // namespace billow::control
