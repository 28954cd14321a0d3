// Which machines to order and which to give back. Pure, and run about once a second: jobs that wait
// for free capacity are packed, in queue order, into the machines that are on their way; what does
// not fit is ordered from the first pool that could run it, or from the cheapest offer of all pools
// with offers (offers.h). A pool or offer that was refused is not asked for a while. One
// that is slow is not waited for: the next one is asked as well.
//
// A gang gets whole machines: all its nodes in one order where the provider can do that, else one
// order for each node, all at one place. Single jobs are added up, and a provider that sizes
// machines to demand is asked for as few GPUs as they need.
#include <fmt/format.h>
#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/node_gone.h"
#include "core/control/renting/caches.h"
#include "core/control/renting/coming.h"
#include "core/control/renting/demand_limits.h"
#include "core/control/renting/lending.h"
#include "core/control/renting/offers.h"
#include "core/control/renting/pool_limits.h"
#include "core/control/renting/unused.h"

namespace billow::control {
namespace {

class Planner {
 public:
  Planner(const State& state, const Context& context)
      : state_(state),
        context_(context),
        now_(context.now),
        draft_{.next_machine = state.next_machine, .next_account = state.next_node},
        limits_(state, context.billed),
        lending_(state) {
    for (const auto& [id, pool] : state.pools)
      for (const Source& source : sources_of(pool))
        sources_.push_back(source);
    for (const auto& [name, machine] : state.machines) {
      if (machine.is_disk()) {
        draft_.spends[machine.pool] += machine.offer->price.nano_usd_per_s;
        continue;
      }
      draft_.spends[machine.pool] +=
          source_of(machine, state.pools.at(machine.pool)).price().nano_usd_per_s * machine.nodes;
      if (!machine.twin_of.empty())
        continue;  // it is being ended
      draft_.count[machine.pool] += machine.nodes;
      const Pool& pool = state.pools.at(machine.pool);
      const bool part_of_gang = may_wait_for_gang(state, machine, pool, now_);
      if (machine.state != MachineState::wanted && !is_arriving(state, machine, pool, now_) &&
          !part_of_gang)
        continue;
      const bool slow = !part_of_gang && machine.wanted_at + pool.patience < now_;
      const Source source = source_of(machine, pool);
      if (slow)
        slow_.push_back(source);
      for (Bin& bin : bins_of(state, machine, source)) {
        bin.slow = slow;
        bin.for_gangs_only = part_of_gang;
        draft_.bins.push_back(std::move(bin));
      }
    }
  }

  Events plan() {
    stop_useless_pools(state_, events_);
    jobs();
    keep_minimum();
    give_back();
    plan_caches(state_, now_, draft_.next_account, events_);
    return std::move(events_);
  }

 private:
  bool takes_orders(const Source& source) const {
    const Pool& pool = *source.pool;
    return pool.state == PoolState::active && pool.denied_until <= now_ && pool.stopped.empty() &&
           pool.unused_in_row < limits::pool_unused_max &&
           !(source.offer && refusal_of(pool, *source.offer, now_));
  }
  // Whether the pool's limits allow so many more machines of this source.
  bool may_order(const Source& source, std::uint32_t nodes) {
    const Pool& pool = *source.pool;
    if (draft_.count[pool.id] + nodes > pool.machines_max)
      return false;
    if (pool.spend_max_h.value > 0 &&
        static_cast<__int128>(draft_.spends[pool.id] + source.price().nano_usd_per_s * nodes) *
                3600 >
            pool.spend_max_h.value)
      return false;
    return orders_left(pool, now_) >= draft_.ordered[pool.id] + nodes;
  }
  // Whether the scheduler would start the job on a machine of this source. The answer is the same
  // for all jobs of a kind.
  bool suits(const Job& job, const Source& source) {
    if (source.offer && source.offer->spot &&
        time_is_short(job, now_,
                      job.spec->time_limit.ns > 0 ? job.spec->time_limit : job.expected.at_most))
      return false;
    const MachineOffer* offer = source.offer;
    auto [at, fresh] = suits_[{kind_of(job), job.array ? 0 : job.array_index}].try_emplace(
        offer ? std::tuple(source.pool->id, offer->instance, offer->region, offer->zone,
                           offer->spot, offer->reservation)
              : std::tuple(source.pool->id, std::string(), std::string(), std::string(), false,
                           std::string()),
        false);
    if (fresh)
      at->second = fits(state_, job, source);
    return at->second;
  }
  bool one_came_in_vain(const Source& source, JobId kind) const {
    return std::any_of(state_.machines.begin(), state_.machines.end(), [&](const auto& entry) {
      const Machine& m = entry.second;
      return m.pool == source.pool->id && came_in_vain(state_, m, kind, now_) &&
             (m.offer ? m.offer->instance : "") == (source.offer ? source.offer->instance : "");
    });
  }
  // A machine of the same kind at the same place is late: another would be as late.
  bool is_slow(const Source& source) const {
    return std::any_of(slow_.begin(), slow_.end(), [&](const Source& late) {
      return late.pool == source.pool &&
             (!late.offer || !source.offer ||
              (same_place(late, source) && late.offer->instance == source.offer->instance &&
               late.offer->spot == source.offer->spot));
    });
  }

  // Elements of an array are alike; every other job is considered separately.
  using Kind = std::pair<ProjectId, JobId>;
  static Kind kind_of(const Job& job) { return {job.project, job.array ? job.array : job.id}; }

  void jobs() {
    std::size_t looked = 0;
    std::map<Kind, bool> waits;
    std::map<ProjectId, std::size_t> explained;
    SizedMachines sized;
    add_up_waiting();
    for (const auto& [id, job] : state_.jobs) {
      if (++looked > limits::pool_jobs_looked_at_max)
        break;
      if (job.state != JobState::queued)
        continue;
      if (unserved_.contains(kind_of(job)))
        continue;
      // What its quotas hold back needs no machine, and takes nothing from other projects' turn.
      const std::int64_t milli = all_milli(*job.spec);
      if (!limits_.take(job, milli))
        continue;
      const auto [at, fresh] = waits.try_emplace(kind_of(job), false);
      if (fresh && ++explained[job.project] <= limits::pool_kinds_explained_max)
        at->second = waits_for_capacity(state_, job, now_);
      if (!at->second)
        continue;
      if (!job.spec->roles.empty())
        order_for_group(job, sized);
      else if (!pack(job))
        order_for_single(job, milli, sized);
    }
    for (const auto& [id, machines] : sized)
      order_sized(state_.pools.at(id), machines);
  }

  // Jobs alone and gangs.
  void order_for_single(const Job& job, std::int64_t milli, SizedMachines& sized) {
    const auto source = choose(job);
    if (!source || !is_lent_to(job, *source) ||
        !limits_.pays(job, charged_on(*source, *job.spec), milli)) {
      unserved_.insert(kind_of(job));
      return;
    }
    if (!order_for(job, *source, sized[source->pool->id]))
      lending_.will_start(job, milli);
  }

  // The members of a group may share machines, so each is looked at like a job of its own; like the
  // nodes of a gang they are all at one place, where they reach each other. Nothing is ordered
  // unless every member can be served: machines for a part of a group would run for nothing.
  void order_for_group(const Job& job, SizedMachines& sized) {
    const std::vector<Job> members = members_alone(job);
    std::vector<Source> places;
    const auto add = [&](const Source& at) {
      if (std::ranges::none_of(places, [&](const Source& p) { return same_place(p, at); }))
        places.push_back(at);
    };
    for (const Bin& bin : draft_.bins)  // where machines for it are already on their way
      if (const auto m = state_.machines.find(bin.machine);
          m != state_.machines.end() && m->second.job == job.id)
        add(bin.source);
    for (const Job& member : members)
      if (const auto best = choose(member))
        add(*best);
    for (const Source& source : sources_)
      add(source);
    if (std::ranges::none_of(places, [&](const Source& at) {
          place_ = at;
          return group_at_place(job, members, sized);
        }))
      unserved_.insert(kind_of(job));
    place_.reset();
  }
  // Orders what all members need at `place_`, or changes nothing.
  bool group_at_place(const Job& job, const std::vector<Job>& members, SizedMachines& sized) {
    const Draft before = draft_;
    const std::size_t events = events_.size();
    SizedMachines with = sized;
    Rate rate;
    std::int64_t milli = 0;
    bool asks = false;
    const auto serve = [&](const Job& member) {
      if (pack(member))
        return true;
      const auto source = choose(member);
      if (!source)
        return false;
      rate.nano_usd_per_s += charged_on(*source, *member.spec).nano_usd_per_s;
      milli += wanted_milli(member.spec->resources, 1);
      asks = true;
      (void)order_for(member, *source, with[source->pool->id]);
      return true;
    };
    bool all = true;
    for (std::size_t role = 0; role < members.size() && all; ++role)
      for (std::uint32_t i = 0; i < job.spec->roles[role].count && all; ++i)
        all = serve(members[role]);
    for (const auto& [id, machines] : with)
      all = all && (machines.size() == sized[id].size() ||
                    may_order({.pool = &state_.pools.at(id)},
                              static_cast<std::uint32_t>(machines.size())));
    const GroupNeed need = group_need(before.bins, draft_.bins) + group_need(sized, with);
    if (all && lending_.lets(job, need.taken_milli, need.more_milli) &&
        (!asks || limits_.pays(job, rate, milli))) {
      lend(draft_.bins, before.bins, lending_.borrowed(job, need.taken_milli));
      lending_.will_start(job, need.taken_milli);
      sized = std::move(with);
      return true;
    }
    draft_ = before;
    events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(events), events_.end());
    return false;
  }

  // GPUs that single jobs wait for, by the types they accept: they share the machines that are
  // ordered for them.
  void add_up_waiting() {
    std::size_t looked = 0;
    for (const auto& [id, job] : state_.jobs) {
      if (++looked > limits::pool_jobs_looked_at_max)
        break;
      if (job.state != JobState::queued)
        continue;
      for (const RoleSpec& role : job.spec->roles)
        waiting_milli_[role.resources.gpu_types] += wanted_milli(role.resources, 1) * role.count;
      if (job.spec->nodes == 1 && job.spec->roles.empty())
        waiting_milli_[job.spec->resources.gpu_types] += wanted_milli(job.spec->resources, 1);
    }
  }
  // Whether other projects' guarantees leave it what it asks for when the machines of this source
  // have come for it.
  bool is_lent_to(const Job& job, const Source& source) const {
    const std::int64_t brought = brought_milli(source, *job.spec);
    return lending_.lets(job, job.spec->resources.takes_node() ? brought : all_milli(*job.spec),
                         brought);
  }
  Rate charged_on(const Source& source, const JobSpec& spec) const {
    return rate_on(state_, source, spec, context_.prices);
  }
  std::int64_t useful_gpus(const JobSpec& spec, const Source& source) const {
    const Resources& r = spec.resources;
    if (r.takes_node())
      return source.gpus();
    if (spec.nodes > 1)
      return r.gpus;
    const auto waiting = waiting_milli_.find(r.gpu_types);
    const std::int64_t milli =
        waiting == waiting_milli_.end() ? wanted_milli(r, source.gpus()) : waiting->second;
    return (milli + 999) / 1000;
  }

  void keep_minimum() {
    for (const auto& [id, pool] : state_.pools) {
      while (draft_.count[id] < pool.machines_min) {
        const Source* best = nullptr;
        for (const Source& source : sources_) {
          if (source.pool != &pool || !takes_orders(source) || !may_order(source, 1))
            continue;
          if (!best || price_per_useful_gpu(source, source.gpus()) <
                           price_per_useful_gpu(*best, best->gpus()))
            best = &source;
        }
        if (!best)
          break;
        order(*best, {.nodes = 1, .gpus = best->gpus()},
              fmt::format("pool {} keeps {}", pool.name, pool.machines_min));
      }
    }
  }

  // True: the job is counted as packed; else it shares a machine that is sized at the end.
  bool order_for(const Job& job, const Source& source, std::vector<SizedMachine>& sized) {
    draft_.ordered_for.insert(job.id);
    const JobSpec& spec = *job.spec;
    PoolCapabilities can = source.pool->capabilities.value_or(PoolCapabilities{});
    can.sizes_to_demand = can.sizes_to_demand && !source.offer;
    if (spec.nodes == 1 && can.sizes_to_demand) {
      size_for(job, *source.pool, sized);
      return false;
    }
    Machine machine{.nodes = 1, .gpus = source.gpus(), .job = job.id};
    if (can.sizes_to_demand) {
      if (can.gangs_share_nodes)
        machine.gpus = gpus_on_a_node(spec.resources, source.gpus());
      machine.cpu_milli = cpu_milli_of(spec.resources);
      machine.mem_mib = spec.resources.mem_mib;
    }
    if (can.disk_mib_max > 0)
      machine.disk_mib = std::min(disk_for(spec, source), can.disk_mib_max);
    if (spec.nodes > 1) {
      const std::uint32_t orders = can.several_nodes_at_once ? 1 : spec.nodes;
      machine.nodes = spec.nodes / orders;
      for (std::uint32_t i = 0; i < orders; ++i)
        order(source, machine, fmt::format("job {} waits for {} nodes", job.id.value, spec.nodes));
    } else {
      order(source, machine, fmt::format("job {} waits for free capacity", job.id.value));
    }
    return pack(job);
  }

  // The jobs like this one that wait share the machine, as far as its GPUs go round.
  std::int64_t disk_for(const JobSpec& spec, const Source& source) const {
    const Resources& r = spec.resources;
    if (r.takes_node() || spec.nodes > 1 || r.gpus == 0)
      return r.disk_mib;
    const std::int64_t milli = std::max<std::int64_t>(1, wanted_milli(r, source.gpus()));
    const std::int64_t useful = std::min<std::int64_t>(useful_gpus(spec, source), source.gpus());
    return r.disk_mib * std::max<std::int64_t>(1, useful * 1000 / milli);
  }

  // Into the first of the machines that has GPUs and task slots left, or into another one.
  static void size_for(const Job& job, const Pool& pool, std::vector<SizedMachine>& sized) {
    const Resources& r = job.spec->resources;
    const std::int64_t milli = wanted_milli(r, pool.gpus), cpu = cpu_milli_of(r);
    auto at = std::find_if(sized.begin(), sized.end(), [&](const SizedMachine& machine) {
      return machine.milli + milli <= std::int64_t{1000} * pool.gpus &&
             machine.cpu_milli + cpu <= gpuless_tasks_per_node * std::int64_t{1000} &&
             machine.tasks < gpuless_tasks_per_node;
    });
    if (at == sized.end())
      at = sized.insert(sized.end(), SizedMachine{.first = job.id});
    at->milli += milli;
    at->cpu_milli += cpu;
    at->mem_mib += r.mem_mib;
    ++at->tasks;
  }

  void order_sized(const Pool& pool, const std::vector<SizedMachine>& machines) {
    for (const SizedMachine& sized : machines) {
      if (!may_order({.pool = &pool}, 1))
        return;
      order({.pool = &pool},
            {.nodes = 1,
             .gpus = sized.gpus(),
             .cpu_milli = sized.cpu_milli,
             .mem_mib = sized.mem_mib,
             .job = sized.first},
            fmt::format("job {} waits for free capacity", sized.first.value));
    }
  }

  // Into what is on its way; all tasks of a job or none. A machine that is late counts only where
  // no other pool can be asked.
  bool pack(const Job& job) {
    for (const bool slow : {false, true}) {
      if (slow && choose(job))
        return false;
      const std::vector<Bin*> chosen = bins_for(job, slow);
      if (chosen.empty())
        continue;
      take(job, chosen);
      return true;
    }
    return false;
  }

  // Groups are counted together (group_at_place).
  void take(const Job& job, const std::vector<Bin*>& chosen) {
    const Resources& r = job.spec->resources;
    std::int64_t taken = 0;
    for (Bin* bin : chosen) {
      taken += wanted_milli(r, bin->source.gpus());
      bin->take(r);
    }
    if (place_)
      return;
    std::int64_t borrowed = lending_.borrowed(job, taken);
    for (Bin* bin : chosen) {
      const std::int64_t lent = std::min(borrowed, wanted_milli(r, bin->source.gpus()));
      bin->lent_milli += lent;
      borrowed -= lent;
    }
    lending_.will_start(job, taken);
  }
  // Whether guarantees would let the job start when these have come.
  bool are_open_to(const Job& job, const std::vector<Bin*>& chosen) const {
    std::int64_t asked = 0, more = 0;
    for (const Bin* bin : chosen) {
      asked += wanted_milli(job.spec->resources, bin->source.gpus());
      more += bin->more_milli();
    }
    return place_ || lending_.lets(job, asked, more);
  }

  bool elsewhere(const Source& source) const { return place_ && !same_place(*place_, source); }

  // As many bins as the job has nodes, all at one place and not guaranteed to others; none if they
  // do not suffice.
  std::vector<Bin*> bins_for(const Job& job, bool slow) {
    const JobSpec& spec = *job.spec;
    std::vector<Bin*> usable;
    for (Bin& bin : draft_.bins) {
      const bool rented = bin.source.offer != nullptr;
      if (usable.size() == spec.nodes && !rented && are_open_to(job, usable))
        break;
      if ((bin.slow && !slow) || (bin.for_gangs_only && spec.nodes < 2 && !place_) ||
          elsewhere(bin.source))
        continue;
      const Resources& r = spec.resources;
      const std::int64_t milli = wanted_milli(r, bin.source.gpus());
      const bool type_fits = r.gpus == 0 || !bin.gpu_type.empty();
      if (type_fits && bin.free_milli >= milli && bin.free_cpu_milli >= cpu_milli_of(r) &&
          bin.free_mem_mib >= r.mem_mib && bin.free_disk_mib >= r.disk_mib &&
          (milli > 0 || bin.tasks_free > 0) && suits(job, bin.source))
        usable.push_back(&bin);
    }
    for (std::size_t first = 0; first + spec.nodes <= usable.size(); ++first) {
      std::vector<Bin*> chosen;
      for (std::size_t i = first; i < usable.size() && chosen.size() < spec.nodes; ++i)
        if (same_place(usable[first]->source, usable[i]->source))
          chosen.push_back(usable[i]);
      if (chosen.size() == spec.nodes && are_open_to(job, chosen))
        return chosen;
    }
    return {};
  }

  // The best source that takes orders: by the administrator's order, then by price.
  std::optional<Source> choose(const Job& job) {
    const JobSpec& spec = *job.spec;
    const Source* best = nullptr;
    std::tuple<std::int32_t, std::int64_t, std::uint64_t> best_key;
    for (const Source& source : sources_) {
      const Pool& pool = *source.pool;
      if (elsewhere(source) || !takes_orders(source) || is_slow(source) ||
          !may_order(source, spec.nodes) || is_spoilt(source, job, kind_of(job).second) ||
          one_came_in_vain(source, kind_of(job).second) || !suits(job, source))
        continue;
      const std::tuple key(pool.order, price_per_useful_gpu(source, useful_gpus(spec, source)),
                           pool.id.value);
      if (best && best_key <= key)
        continue;
      best = &source;
      best_key = key;
    }
    return best ? std::optional(*best) : std::nullopt;
  }

  void order(const Source& source, Machine machine, std::string why) {
    const Pool& pool = *source.pool;
    machine.name = fmt::format("{}-{}", pool.name, draft_.next_machine++);
    machine.pool = pool.id;
    if (source.offer)
      machine.offer = *source.offer;
    machine.wanted_at = now_;
    if (source.price().nano_usd_per_s > 0 && pool.capabilities &&
        pool.capabilities->bills_from_order)
      machine.account = NodeId(draft_.next_account++);
    machine.cache = cache_for(state_, pool, machine, draft_.caches);
    for (std::string& disk : caches_of(machine))
      draft_.caches.insert(std::move(disk));
    draft_.count[pool.id] += machine.nodes;
    draft_.ordered[pool.id] += machine.nodes;
    draft_.spends[pool.id] += source.price().nano_usd_per_s * machine.nodes;
    for (Bin& bin : bins_of(state_, machine, source)) {
      bin.used = true;
      draft_.bins.push_back(std::move(bin));
    }
    events_.push_back(MachineWanted{std::move(machine), std::move(why)});
  }

  // Whether the job that the machine was ordered for waits, and needs another one all the same. A
  // job that has found a place in what is on its way, or that a quota or a guarantee holds back,
  // only waits.
  bool came_too_late(const Machine& machine) const {
    const Job* job = state_.find_job(machine.job);
    return is_unused(state_, machine) &&
           (unserved_.contains(kind_of(*job)) || draft_.ordered_for.contains(job->id)) &&
           Lending(state_).lets(*job, all_milli(*job->spec),
                                std::int64_t{1000} * machine.gpus * machine.nodes);
  }

  void give_back() {
    std::set<std::string> needed;
    for (const Bin& bin : draft_.bins)
      if (bin.used)
        needed.insert(bin.machine);
    for (const auto& [name, machine] : state_.machines) {
      if (machine.is_disk() || !machine.twin_of.empty())
        continue;
      const Pool& pool = state_.pools.at(machine.pool);
      const auto release = [&](std::string reason, bool unused) {
        events_.push_back(MachineReleased{name, std::move(reason), unused});
        draft_.count[machine.pool] -= machine.nodes;
      };
      switch (machine.state) {
        case MachineState::wanted:
          // No job waits for it any more. One that was ordered a moment ago is kept: its job may
          // have started elsewhere only briefly.
          if (!needed.contains(name) && draft_.count[machine.pool] > pool.machines_min &&
              machine.wanted_at + limits::pool_second_thoughts < now_)
            release("no job waits for it any more", came_too_late(machine));
          else if (failed_to_join(state_, machine, context_))
            release(fmt::format("its agent did not connect within {}",
                                format_duration(limits::machine_join_max)),
                    is_wasted(state_, machine, events_, now_));
          break;
        case MachineState::here:
          if (machine.ends_at && machine.ends_at - limits::pool_end_margin < now_)
            leave_before_end(state_, machine, now_, events_);
          else if (machine.idle_since && machine.idle_since + pool.idle <= now_ &&
                   all_nodes_came(state_, machine, now_) && !needed.contains(name) &&
                   draft_.count[machine.pool] > pool.machines_min)
            release(fmt::format("idle for {}", format_duration(pool.idle)),
                    is_wasted(state_, machine, events_, now_));
          break;
        case MachineState::releasing:
          break;
      }
    }
  }

  // What an order changes, so that the orders of a group can be taken back together.
  struct Draft {
    std::uint64_t next_machine = 0;
    std::uint64_t next_account = 0;
    std::map<PoolId, std::uint32_t> count;
    std::map<PoolId, std::uint32_t> ordered;  // in this plan
    std::map<PoolId, std::int64_t> spends;    // nano-dollars per second
    std::vector<Bin> bins;
    std::set<std::string> caches;  // disks of machines that are ordered in this plan
    std::set<JobId> ordered_for;
  };

  const State& state_;
  Context context_;
  WallTime now_;
  Draft draft_;
  DemandLimits limits_;
  Lending lending_;
  std::vector<Source> sources_;  // everything that may be ordered
  std::optional<Source> place_;  // where the members of the group must be that is looked at
  using SourceKey = std::tuple<PoolId, std::string, std::string, std::string, bool, std::string>;
  std::map<std::pair<Kind, std::uint64_t>, std::map<SourceKey, bool>> suits_;
  std::vector<Source> slow_;
  std::map<std::vector<std::string>, std::int64_t> waiting_milli_;
  std::set<Kind> unserved_;  // nothing can be ordered for them in this plan
  Events events_;
};

}  // namespace

Decision Decider::operator()(const PlanPools&) {
  if (state.pools.empty())
    return Events{};
  return Planner(state, context).plan();
}

}  // namespace billow::control
