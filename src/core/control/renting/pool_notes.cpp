// What `billow explain` says of pools: what was ordered for a job, and why nothing more is.
#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/node_gone.h"
#include "core/control/renting/caches.h"
#include "core/control/renting/offers.h"
#include "core/control/renting/pool_limits.h"
#include "core/control/renting/unused.h"

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

// A machine came for the job, and the job did not start on it.
std::string vain_text(const State& state, const Job& job, const Pool& pool, WallTime now) {
  const JobId kind = kind_of_job(state, job.id);
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != pool.id || !came_in_vain(state, machine, kind, now))
      continue;
    for (NodeId id : nodes_of(state, machine)) {
      const std::size_t found = state.nodes.at(id).offer.gpus.size();
      if (found < static_cast<std::size_t>(machine.gpus))
        return fmt::format("Pool {}: {} came and cannot run it: its agent found {} of {} GPU{}.",
                           pool.name, name, found, machine.gpus, machine.gpus == 1 ? "" : "s");
    }
    return fmt::format("Pool {}: {} came and cannot run it; it is released after {} (--idle).",
                       pool.name, name, format_duration(pool.idle));
  }
  return {};
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
    return fmt::format("Pool {} refused ({}). It is asked again in {}.", pool.name, pool.denied,
                       format_duration(pool.denied_until - now));
  if (coming)
    return fmt::format(
        "Pool {}: {} was ordered {} ago{}{}.{}{}", pool.name, coming->name,
        format_duration(now - coming->wanted_at),
        coming->offer ? ": " + offer_text(*coming->offer) : "",
        coming->note.empty() ? "" : fmt::format(": {}", without_period(coming->note)),
        coming->wanted_at + pool.patience < now ? " It is slow, so the next pool is asked as well."
                                                : "",
        idle_text(state, pool));
  if (std::string vain = vain_text(state, job, pool, now); !vain.empty())
    return vain;
  if (machines + (job.spec->roles.empty() ? job.spec->nodes : 1) > pool.machines_max)
    return fmt::format("Pool {} is full: {} of at most {} machines exist.", pool.name, machines,
                       pool.machines_max);
  if (pool.capabilities && pool.capabilities->from_offers && pool.offers.empty())
    return fmt::format("Pool {} has no offers yet: its provider is being asked.", pool.name);
  const JobId kind = kind_of_job(state, job.id);
  for (const UnusedMachine& unused : pool.unused)
    if (unused.job == kind)
      return fmt::format("Pool {} is not used again for this job: its machine {} could not run it.",
                         pool.name, unused.machine);
  if (orders_left(pool, now) == 0)
    return fmt::format("Pool {} ordered {} machines within a minute and waits.", pool.name,
                       pool.recent_orders.size());
  if (pool.spend_max_h.value > 0)
    return fmt::format("Pool {} spends at most {} an hour (--max-hourly).", pool.name,
                       format_usd(pool.spend_max_h));
  if (!job.spec->roles.empty())
    return fmt::format(
        "Pool {} orders machines for all {} members of a group or for none: they do not fit into "
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
      "Pool {} rents nothing for it: its cheapest offer, {}, is not within --max-price {} per GPU "
      "and hour.",
      pool.name, offer_text(*cheapest->offer), format_usd(most));
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
    if (!note.empty())
      notes.push_back(std::move(note));
  }
  return notes;
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
