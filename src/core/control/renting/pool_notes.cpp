// What `billow explain` says of pools: what was ordered for a job, and why nothing more is.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/node_gone.h"
#include "core/control/renting/caches.h"
#include "core/control/renting/demand_limits.h"
#include "core/control/renting/lending.h"
#include "core/control/renting/offers.h"
#include "core/control/renting/pool_limits.h"
#include "core/control/renting/unused.h"
#include "core/ledger/meter.h"

namespace billow::control {
namespace {

// A provider's words inside a sentence of ours.
std::string_view without_period(std::string_view words) {
  while (words.ends_with('.'))
    words.remove_suffix(1);
  return words;
}

// On a cluster of fixed size, idle machines may be what the ordered one waits for.
std::string idle_text(const State& state, const Pool& pool) {
  std::vector<std::string> names;
  std::int64_t gpus = 0;
  for (const auto& [name, machine] : state.machines)
    if (machine.pool == pool.id && machine.state == MachineState::here && machine.idle_since) {
      names.push_back(name);
      gpus += std::int64_t{machine.gpus} * machine.nodes;
    }
  if (!pool.capabilities || !pool.capabilities->sizes_to_demand || gpus == 0)
    return {};
  return fmt::format(" Idle machines ({}) hold {} GPU{} for {} (--idle).", join(names, ", "), gpus,
                     gpus == 1 ? "" : "s", format_duration(pool.idle));
}

std::string join_ids(const std::set<JobId>& jobs) {
  std::vector<std::string> ids;
  for (const JobId id : jobs)
    ids.push_back(std::to_string(id.value));
  return join(ids, ", ");
}

// Some of what was ordered for a gang or a group has joined, and waits for the rest.
struct GangNews {
  std::uint32_t joined = 0, ordered = 0;
  // "2 of 3 nodes for it have joined"; empty: none has.
  std::string text() const {
    if (joined == 0)
      return {};
    return joined < ordered ? fmt::format("{} of {} nodes for it have joined", joined, ordered)
                            : fmt::format("{} node{} for it {} joined", joined,
                                          joined == 1 ? "" : "s", joined == 1 ? "has" : "have");
  }
};
GangNews gang_news(const State& state, const Job& job, const Pool& pool) {
  GangNews news;
  const JobSpec& spec = *job.spec;
  if (spec.nodes < 2 && spec.roles.empty())
    return news;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != pool.id || machine.job != job.id || machine.is_disk() ||
        machine.state == MachineState::releasing)
      continue;
    news.ordered += machine.nodes;
    news.joined += static_cast<std::uint32_t>(nodes_of(state, machine).size());
  }
  // The members of a group share nodes.
  news.ordered = spec.roles.empty() ? std::max(news.ordered, spec.nodes) : news.ordered;
  return news;
}

// A machine came for the job, and the job did not start on it.
std::string vain_text(const State& state, const Job& job, const Pool& pool, WallTime now) {
  const JobId kind = kind_of_job(state, job.id);
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != pool.id || !came_in_vain(state, machine, kind, now))
      continue;
    for (NodeId id : nodes_of(state, machine)) {
      const std::size_t found = state.nodes.at(id).offer.gpus.size();
      if (found < static_cast<std::size_t>(machine.gpus))
        return fmt::format("Pool {}: {} joined but cannot run it: its agent found {} of {} GPU{}.",
                           pool.name, name, found, machine.gpus, machine.gpus == 1 ? "" : "s");
    }
    return fmt::format("Pool {}: {} joined but cannot run it; it is released after {} (--idle).",
                       pool.name, name, format_duration(pool.idle));
  }
  return {};
}

// What its machines would bring is guaranteed to others.
std::string guarantee_note(const State& state, const Job& job, const Pool& pool) {
  std::int64_t more = 0;
  for (const Source& source : sources_of(pool))
    more = std::max(more, job.spec->roles.empty()
                              ? brought_milli(source, *job.spec)
                              : std::int64_t{1000} * source.gpus() * job.spec->nodes);
  const std::int64_t asked = job.spec->resources.takes_node() ? more : all_milli(*job.spec);
  if (Lending(state).lets(job, asked, more))
    return {};
  return fmt::format(
      "Pool {} orders no machine for it: the GPUs are guaranteed to other projects. Add --spot, or "
      "let an admin change the guarantees (billow project set).",
      pool.name);
}

// No machine of the pool is paid for by its budgets.
std::string budget_note(const State& state, const Job& job, const Pool& pool) {
  if (state.money.budgets.empty())
    return {};
  // What the head asks, where nobody has set a price.
  static const ledger::PriceBook market = ledger::PriceBook::market();
  std::string refused;
  for (const Source& source : sources_of(pool)) {
    if (!fits(state, job, source))
      continue;
    const Status paid =
        Purse(state, state.billed)
            .take(job, rate_on(state, source, *job.spec, &market), all_milli(*job.spec));
    if (paid)
      return {};
    refused = fmt::format("Pool {} orders no machine for it: {}. What would help: {}.", pool.name,
                          paid.error().message, paid.error().hint);
  }
  return refused;
}

// With what the machine brought, where that is known: it may be less than the pool promises.
std::string could_not_run(const Pool& pool, const UnusedMachine& unused) {
  std::string brought;
  for (const LearnedShape& shape : pool.learned) {
    if (shape.instance != unused.instance)
      continue;
    std::map<std::string, std::int32_t> types;
    for (const NodeGpu& gpu : shape.node.gpus)
      ++types[gpu.type];
    for (const auto& [type, count] : types)
      brought += fmt::format("{} × {}, ", count, type);
    brought = fmt::format(" ({}{} CPUs, {} GiB of memory", brought, shape.node.cpu_milli / 1000,
                          shape.node.mem_mib / 1024);
    if (pool.gpus > 0 && std::cmp_less(shape.node.gpus.size(), pool.gpus))
      brought += fmt::format("; the pool promises {} × {}", pool.gpus, pool.gpu_type);
    brought += ')';
  }
  return fmt::format("Pool {} is not used again for this job: its machine {}{} could not run it.",
                     pool.name, unused.machine, brought);
}

std::string pool_note(const State& state, const Job& job, const Pool& pool, WallTime now) {
  std::uint32_t machines = 0;
  const Machine* coming = nullptr;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != pool.id || machine.is_disk())
      continue;
    machines += machine.nodes;
    if (machine.state == MachineState::wanted && (!coming || machine.wanted_at < coming->wanted_at))
      coming = &machine;
  }
  if (!pool.stopped.empty())
    return fmt::format("Pool {} has stopped: {}.", pool.name, pool.stopped);
  if (pool.denied_until > now)
    return fmt::format("Pool {} refused ({}). Billow asks it again in {}.", pool.name, pool.denied,
                       format_duration(pool.denied_until - now));
  const GangNews gang = gang_news(state, job, pool);
  if (coming)
    return fmt::format(
        "Pool {}: {}{} was ordered {} ago{}{}.{}{}", pool.name,
        gang.joined > 0 ? gang.text() + "; " : "", coming->name,
        format_duration(now - coming->wanted_at),
        coming->offer ? ": " + offer_text(*coming->offer) : "",
        coming->note.empty() ? "" : fmt::format(": {}", without_period(coming->note)),
        coming->wanted_at + pool.patience < now ? " This takes long, so the next pool is asked too."
                                                : "",
        idle_text(state, pool));
  if (std::string vain = vain_text(state, job, pool, now); !vain.empty())
    return vain;
  if (gang.joined > 0 && gang.joined < gang.ordered)
    return fmt::format(
        "Pool {}: {}. The others did not join. When these have been idle for {} (--idle), they are "
        "released, and all are ordered again.",
        pool.name, gang.text(), format_duration(pool.idle));
  const bool all_came = gang.joined > 0;
  if (!all_came && machines + (job.spec->roles.empty() ? job.spec->nodes : 1) > pool.machines_max)
    return fmt::format("Pool {} is full: {} of at most {} machines exist.", pool.name, machines,
                       pool.machines_max);
  if (pool.capabilities && pool.capabilities->from_offers && pool.offers.empty())
    return fmt::format("Pool {} has no offers yet: its provider is being queried.", pool.name);
  const JobId kind = kind_of_job(state, job.id);
  for (const UnusedMachine& unused : pool.unused)
    if (unused.joined && unused.job == kind)
      return could_not_run(pool, unused);
  if (orders_left(pool, now) == 0)
    return fmt::format(
        "Pool {} ordered {} machines within a minute and waits before it orders more.", pool.name,
        pool.recent_orders.size());
  if (pool.spend_max_h.value > 0)
    return fmt::format("Pool {} may spend at most {} per hour (--max-hourly).", pool.name,
                       format_usd(pool.spend_max_h));
  if (!DemandLimits(state, state.billed).take(job, all_milli(*job.spec)))
    return fmt::format(
        "Pool {} orders no machine for it: a limit of its project, its user or its array lets "
        "nothing more start now (billow project list).",
        pool.name);
  if (std::string kept = guarantee_note(state, job, pool); !kept.empty())
    return kept;
  if (std::string unpaid = budget_note(state, job, pool); !unpaid.empty())
    return unpaid;
  if (!job.spec->roles.empty())
    return fmt::format(
        "Pool {} orders machines for all {} members of a group or for none: together they exceed "
        "what it may order ({} of at most {} machines exist).",
        pool.name, job.spec->nodes, machines, pool.machines_max);
  return {};
}

// Why the pool rents nothing for a job that only the job's own highest price keeps from its offers.
std::string price_note(const State& state, const Job& job, const Pool& pool) {
  const NanoUsd most = job.spec->place.max_price;
  if (most.value == 0 || !pool.capabilities || !pool.capabilities->from_offers)
    return {};
  const auto cheapest = cheapest_at_any_price(state, job, pool);
  if (!cheapest || !cheapest->offer)
    return {};
  return fmt::format(
      "Pool {} orders no machine for it: its cheapest offer, {}, exceeds --max-price {} per GPU "
      "and hour.",
      pool.name, offer_text(*cheapest->offer), format_usd(most));
}

// What machines of a pool without offers are like, for a job that none of them can hold: to wait
// for a pool would be wrong advice.
std::string unsuited_note(const Job& job, const Pool& pool) {
  const std::vector<std::string>& named = job.spec->place.pools;
  const bool meant = named.empty() || std::ranges::count(named, pool.name) > 0;
  if (!meant || (pool.capabilities && pool.capabilities->from_offers))
    return {};
  std::string have = pool.gpus == 0 ? "no GPU"
                                    : fmt::format("{} {} GPU{}", pool.gpus, pool.gpu_type,
                                                  pool.gpus == 1 ? "" : "s");
  if (const LearnedShape* last = learned_of({.pool = &pool}))
    have +=
        fmt::format(", {:g} CPUs and {} GiB of memory, as the last one had",
                    static_cast<double>(last->node.cpu_milli) / 1000, last->node.mem_mib / 1024);
  return fmt::format(
      "Pool {} orders no machine for it, because none could run it: its machines have {}, and at "
      "most {} exist at a time. Request no more than that, or submit the job for other machines.",
      pool.name, have, pool.machines_max);
}

const char* answer_text(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::no_answer:
      return "no answer";
    case RefusalKind::capacity:
      return "no capacity";
    case RefusalKind::quota:
      return "quota exceeded";
    case RefusalKind::not_offered:
      return "not offered";
    case RefusalKind::settings:
      return "wrong settings";
  }
  return "refused";
}

// How long each step took from the submission to the start of the job.
std::string stages_text(const Job& job, const Machine& machine) {
  std::string text = fmt::format("ordered {} after the submission, its agent connected {} later",
                                 format_duration(machine.wanted_at - job.submitted_at),
                                 format_duration(machine.here_at - machine.wanted_at));
  if (job.started_at && job.started_at >= machine.here_at)
    text += fmt::format(", the job started {} later",
                        format_duration(job.started_at - machine.here_at));
  return text;
}

}  // namespace

std::vector<std::string> pool_notes(const State& state, const Job& job, WallTime now) {
  std::vector<std::string> notes;
  if (job.state != JobState::queued)
    return notes;
  const bool never =
      !some_pool_could_run(state, job) && !sched::feasible(state.index, request_of(state, job));
  for (const auto& [id, pool] : state.pools) {
    if (pool.state != PoolState::removing && outlasts(*job.spec, pool))
      notes.push_back(fmt::format(
          "Pool {}: its allocations last {}, too short for --time {}. Give the job a shorter "
          "--time "
          "or --checkpoint-every, or the pool a longer --time.",
          pool.name, format_duration(pool.time), format_duration(job.spec->time_limit)));
    if (pool.state == PoolState::removing)
      continue;
    std::string note = could_run(state, job, pool) ? pool_note(state, job, pool, now)
                                                   : price_note(state, job, pool);
    if (note.empty() && never && !outlasts(*job.spec, pool))
      note = unsuited_note(job, pool);
    if (!note.empty())
      notes.push_back(std::move(note));
  }
  return notes;
}

std::string silent_note(const State& state, const Machine& machine) {
  if (machine.state != MachineState::here || machine.is_disk())
    return {};
  std::set<JobId> jobs;
  bool silent = false, rerun = true;
  for (const NodeId id : nodes_of(state, machine)) {
    silent = silent || !state.nodes.at(id).reachable;
    if (const auto on = state.tasks_on.find(id); on != state.tasks_on.end())
      for (const TaskId task : on->second) {
        const JobId job = state.tasks.at(task).job;
        jobs.insert(job);
        rerun = rerun && state.jobs.at(job).spec->rerun_if_lost;
      }
  }
  if (!silent)
    return {};
  const Pool& pool = state.pools.at(machine.pool);
  const std::string idle = format_duration(pool.idle);
  const std::string now = "to end it now: billow machine release " + machine.name;
  if (jobs.empty())
    return fmt::format("its machine is released after {} without jobs (--idle); {}", idle, now);
  if (rerun)
    return fmt::format(
        "its jobs restart elsewhere soon, then its machine is released after {} without jobs "
        "(--idle); {}",
        idle, now);
  return fmt::format(
      "its machine is kept and billed because {} {} may still run there, until its agent answers "
      "or {} stopped; {}",
      jobs.size() == 1 ? "job" : "jobs", join_ids(jobs),
      jobs.size() == 1 ? "the job is" : "the jobs are", now);
}

std::string silent_note(const State& state, const Node& node) {
  const Machine* machine = node.reachable ? nullptr : machine_of(state, node.offer.name);
  return machine && machine->pool == node.pool ? silent_note(state, *machine) : std::string();
}

std::vector<std::string> order_notes(const State& state, const Job& job, WallTime now) {
  std::vector<std::pair<WallTime, std::string>> asked;
  const WallTime until = job.started_at ? job.started_at : now;
  for (const auto& [id, pool] : state.pools) {
    std::vector<const OfferRefusal*> answers;
    for (const OfferRefusal& refusal : pool.refusals)
      if (refusal.at >= job.submitted_at && refusal.at <= until &&
          refusal.offer.instance != cache_instance &&
          fits(state, job, {.pool = &pool, .offer = &refusal.offer}))
        answers.push_back(&refusal);
    for (const OfferRefusal* r : answers)
      asked.emplace_back(
          r->at, fmt::format("Asked {} for {} {} ago: {} ({}){}.", pool.name, offer_text(r->offer),
                             format_duration(now - r->at), answer_text(r->kind), r->reason,
                             r->until > now ? fmt::format("; asked again in {} at the earliest",
                                                          format_duration(r->until - now))
                                            : ""));
  }
  // Those of one moment stay in the order of their journal.
  std::stable_sort(asked.begin(), asked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> notes;
  for (auto& [at, text] : asked)
    notes.push_back(std::move(text));
  for (const auto& [name, machine] : state.machines)
    if (machine.offer && machine.job == job.id && machine.state == MachineState::here)
      notes.push_back(fmt::format("Rented {}: {}; {}.", name, offer_text(*machine.offer),
                                  stages_text(job, machine)));
  return notes;
}

}  // namespace billow::control
