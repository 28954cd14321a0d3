// Pools and their machines: added, removed, listed, refused, released. Which machines to order is
// decided in pool_demand.cpp. The head (head/pools) carries the orders out: it asks the provider
// again until the provider's list agrees with the state.
//
// Guarantees: a machine is journaled before its provider is asked, so a machine that the provider
// lists and the state does not know is a stray. A machine's nodes leave the state only when the
// provider no longer lists the machine.
#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/node_gone.h"
#include "core/control/renting/caches.h"
#include "core/control/renting/offers.h"
#include "core/control/renting/pool_limits.h"
#include "core/control/renting/twins.h"
#include "core/control/renting/unused.h"

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
  const Duration lag = pool.capabilities.value_or(PoolCapabilities{}).list_lag;
  return machine.wanted_at + lag < listed_at;
}

// Whether a node of the machine is connected, or was until a moment ago: a head that has just
// started has not heard from all nodes yet. Real silence is noticed only after this time.
bool machine_answers(const State& state, const Machine& machine, const Context& context) {
  const std::vector<NodeId> nodes = nodes_of(state, machine);
  return std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) {
    const Node& node = state.nodes.at(id);
    return node.reachable ||
           context.billed - node.unreachable_since <= limits::agent_unreachable_after;
  });
}

Duration ended_for(const PoolSeen& list, const Machine& machine) {
  const auto known = list.missing_for.find(machine.name);
  return known == list.missing_for.end() ? Duration{} : known->second;
}

// What was asked for is not asked for again for a while: the one offer, or the whole pool if it
// has no offers or its settings are wrong. A pool that is being removed is not asked anyway.
void pause_orders(const Pool& pool,
                  const Machine& machine,
                  RefusalKind kind,
                  std::string_view words,
                  WallTime now,
                  Events& events,
                  Duration pause = limits::pool_denied_pause) {
  if (pool.state != PoolState::active)
    return;
  const std::string reason(utf8_prefix(words, limits::words_bytes_max));
  if (kind == RefusalKind::settings)
    events.push_back(
        PoolDenied{pool.id,
                   fmt::format("{}; fix its settings or credentials, then: billow cloud check {}",
                               reason, pool.name),
                   now + pause_after(kind), false});
  else if (machine.offer)
    events.push_back(OfferRefused{pool.id,
                                  {.offer = *machine.offer,
                                   .kind = kind,
                                   .reason = reason,
                                   .at = now,
                                   .until = now + pause_after(kind),
                                   .machine = machine.name}});
  else
    events.push_back(PoolDenied{pool.id, reason, now + pause, false});
}

// Whether the pool has ordered machines, and its provider may carry out an order late or twice.
bool may_bring_more(const Pool& pool) {
  const bool ordered = !pool.ended.empty() || !pool.recent_orders.empty() || !pool.learned.empty();
  return ordered && !pool.capabilities.value_or(PoolCapabilities{}).list_is_final;
}

// Jobs that may not run twice, on nodes that do not answer: nobody can say how they end there. They
// are not asked to continue elsewhere, and end as lost with the machine.
std::set<JobId> not_to_run_twice(const State& state, const std::vector<NodeId>& nodes) {
  std::set<JobId> out;
  for (NodeId node : nodes) {
    const auto on = state.tasks_on.find(node);
    if (on == state.tasks_on.end() || state.nodes.at(node).reachable)
      continue;
    for (TaskId id : on->second) {
      const Task& task = state.tasks.at(id);
      if (task.started_at && !state.jobs.at(task.job).spec->rerun_if_lost)
        out.insert(task.job);
    }
  }
  return out;
}

void release_machine(const State& state,
                     const Machine& machine,
                     std::string reason,
                     Events& events) {
  const std::vector<NodeId> nodes = nodes_of(state, machine);
  send_jobs_away(state, nodes, reason, events, not_to_run_twice(state, nodes));
  events.push_back(MachineReleased{machine.name, std::move(reason)});
}

// The other nodes of a gang that were ordered one by one: without this one they are of no use.
void release_siblings(const State& state, const Machine& machine, Events& events) {
  const Job* job = state.find_job(machine.job);
  if (!job || job->spec->nodes < 2 || machine.nodes > 1)
    return;
  const std::set<std::string> gone = gone_in(events);
  for (const auto& [name, other] : state.machines)
    if (name != machine.name && other.job == machine.job && other.pool == machine.pool &&
        other.state == MachineState::wanted && !gone.contains(name))
      events.push_back(MachineReleased{
          name, fmt::format("job {} did not get all its nodes there", job->id.value)});
}

Status check_machine_offer(const MachineOffer& offer) {
  const auto bad = [&](std::string_view what) {
    return fail(Code::invalid, fmt::format("offer \"{}\": {}", offer.instance, what));
  };
  if (offer.instance.empty() || offer.instance.size() > 128)
    return bad("its instance name must have between 1 and 128 characters");
  if (offer.region.size() > 128 || offer.zone.size() > 128 || offer.reservation.size() > 256)
    return bad("its place must have at most 128 characters");
  if (offer.gpus < 0 || offer.gpus > static_cast<std::int32_t>(limits::gpus_per_node_max) ||
      offer.cpus < 0 || offer.memory_mib < 0 || offer.price.nano_usd_per_s < 0)
    return bad("a number is negative or too large");
  if ((offer.gpus > 0) != !offer.gpu_type.empty())
    return bad("GPUs need both a type and a number");
  return {};
}

Status check_offers(const Pool& pool, const std::vector<MachineOffer>& offers) {
  if (!offers.empty() && !pool.capabilities.value_or(PoolCapabilities{}).from_offers)
    return fail(Code::invalid, fmt::format("pools of kind {} have no offers", pool.kind));
  if (offers.size() > limits::pool_offers_max)
    return fail(Code::too_large,
                fmt::format("pool {} has {} offers; at most {} are kept", pool.name, offers.size(),
                            limits::pool_offers_max),
                "name fewer regions or GPU types");
  for (const MachineOffer& offer : offers)
    BILLOW_TRY_VOID(check_machine_offer(offer));
  return {};
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

const Machine* machine_of(const State& state, std::string_view node) {
  auto found = state.machines.find(std::string(node));
  if (found == state.machines.end() && node.rfind('.') != std::string_view::npos)
    found = state.machines.find(std::string(node.substr(0, node.rfind('.'))));
  return found != state.machines.end() && node_of_machine(node, found->second) ? &found->second
                                                                               : nullptr;
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
  const Pool* const other = pool_by_name(state, pool.name);
  const bool takes_over = other && is_only_watched(state, *other) && other->kind == pool.kind;
  if (other && !takes_over) {
    if (is_only_watched(state, *other))
      return fail(
          Code::conflict,
          fmt::format("pool \"{}\" of kind {} was removed some minutes ago, and a late "
                      "order may still bring a machine",
                      pool.name, other->kind),
          "choose another name, or stop looking for late machines: billow pool rm " + pool.name);
    if (other->state == PoolState::removing)
      return fail(Code::conflict, fmt::format("pool \"{}\" is still being removed", pool.name),
                  "repeat the command when `billow pool list` no longer shows it");
    return fail(Code::conflict, fmt::format("pool \"{}\" already exists", pool.name),
                "remove it first: billow pool rm " + pool.name);
  }
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
  if (pool.cache_gib < 0 || pool.cache_gib > limits::cache_gib_max)
    return bad(fmt::format("--cache must be at most {} GiB", limits::cache_gib_max));
  if (pool.cache_gib > 0 &&
      pool.capabilities.value_or(PoolCapabilities{}).cache_gib_month.value == 0)
    return bad(fmt::format("pools of kind {} have no disks that outlive their machines", pool.kind),
               "omit --cache; only aws, gcp and azure have such disks");
  pool.id = PoolId(state.next_pool);
  pool.state = PoolState::active;
  pool.denied.clear();
  pool.denied_until = {};
  pool.refusals.clear();
  pool.ended.clear();
  BILLOW_TRY_VOID(check_offers(pool, pool.offers));
  if (!takes_over)
    return Events{PoolAdded{std::move(pool)}};
  // From now on the new pool looks for what late orders of the old one bring.
  pool.ended = other->ended;
  return Events{PoolRemoved{other->id}, PoolAdded{std::move(pool)}};
}

Decision Decider::operator()(const RemovePool& c) {
  const Pool* pool = pool_by_name(state, c.name);
  if (!pool)
    return fail(Code::not_found, fmt::format("there is no pool \"{}\"", c.name),
                "see `billow pool list`");
  Events events;
  bool has_machines = false;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != pool->id)
      continue;
    has_machines = true;
    if (machine.state != MachineState::releasing)
      release_machine(state, machine, fmt::format("pool {} is being removed", pool->name), events);
  }
  // With machines left, the pool stays until they have ended, and orders no more. It stays, too,
  // while a late order may bring another, unless it is removed again. Version 0.1 reads the far
  // future as the same.
  const bool watched = pool->state == PoolState::active && may_bring_more(*pool);
  if (has_machines || watched)
    events.push_back(PoolDenied{pool->id, "is being removed", WallTime{INT64_MAX}, true});
  else
    events.push_back(PoolRemoved{pool->id});
  return events;
}

// Compares the provider's list with the machines of the state. A pool that is being removed is
// removed once none of its machines is left; if a late order may bring another, the head removes
// it again some time after the last order (head/pools).
Decision Decider::operator()(const PoolSeen& c) {
  Events events;
  const auto found = state.pools.find(c.pool);
  if (found == state.pools.end())
    return events;
  const Pool& pool = found->second;
  const std::vector<MachineSighting> listed = tell_apart(state, pool, c.machines);
  bool has_machines = false;
  for (const auto& [name, machine] : state.machines) {
    if (machine.pool != c.pool)
      continue;
    const auto seen = std::find_if(listed.begin(), listed.end(),
                                   [&](const MachineSighting& s) { return s.name == name; });
    const bool remains = seen != listed.end() ? machine_listed(pool, machine, *seen, c, events)
                                              : machine_omitted(pool, machine, c, events);
    has_machines = has_machines || remains;
  }
  has_machines = settle_twins(state, pool, listed, context, events) || has_machines;
  if (!has_machines && pool.state == PoolState::removing && !may_bring_more(pool))
    events.push_back(PoolRemoved{c.pool});
  return events;
}

// The list contains the machine: alive (what changed of it is noted), failed or ended. True: it
// still counts as a machine of the pool.
bool Decider::machine_listed(const Pool& pool,
                             const Machine& machine,
                             const MachineSighting& seen,
                             const PoolSeen& list,
                             Events& events) {
  if (seen.ended && seen.may_linger && may_run_twice(state, machine, context))
    return true;
  if (seen.ended || seen.failed) {
    provider_ended(pool, machine, seen, list, events);
    return !seen.ended;
  }
  const bool billed = seen.billed_from && seen.billed_from != machine.billed_from;
  const std::string note(utf8_prefix(repaired_utf8(seen.note), limits::words_bytes_max));
  if (seen.external != machine.external || note != machine.note ||
      seen.ends_at != machine.ends_at || billed)
    events.push_back(
        MachineSeen{machine.name, seen.external, note, seen.ends_at, seen.billed_from});
  return true;
}

// The list does not contain the machine, which is gone if the list can be believed and no job of it
// could then run twice. True: it still counts as a machine of the pool.
bool Decider::machine_omitted(const Pool& pool,
                              const Machine& machine,
                              const PoolSeen& list,
                              Events& events) {
  // A node that answers outweighs a list that may be wrong: a machine that has ended falls silent
  // within seconds.
  const bool final_list = pool.capabilities && pool.capabilities->list_is_final;
  if (!has_ended(machine, pool, list.looked_at) ||
      (machine.state == MachineState::here && !final_list &&
       machine_answers(state, machine, context)) ||
      may_run_twice(state, machine, context))
    return true;
  const std::string reason =
      machine.state == MachineState::releasing ? machine.reason : "it disappeared from its pool";
  const bool never_joined = machine.state == MachineState::wanted;
  machine_gone(state, machine,
               {.reason = reason,
                .existed = !machine.external.empty() || !machine.booked.empty(),
                .unused = ended_wasted(state, machine, events, context.now),
                .missing_for = ended_for(list, machine)},
               context, events);
  // It ended before its agent connected: the next one would end the same way at once.
  if (never_joined)
    pause_orders(pool, machine, RefusalKind::capacity,
                 fmt::format("{} ended before its agent reached this head", machine.name),
                 context.now, events);
  return false;
}

// The provider accepted the order and could not keep the machine, or the machine has ended
// itself.
void Decider::provider_ended(const Pool& pool,
                             const Machine& machine,
                             const MachineSighting& seen,
                             const PoolSeen& list,
                             Events& events) {
  const std::string why = seen.note.empty() ? "the provider ended it" : seen.note;
  // What the provider took back before it ran costs nothing and is no fault of the pool.
  const bool taken_back = seen.failed && machine.state == MachineState::wanted;
  // A gang of which a part never came. (A single node that has left is no sign of that, nor are
  // nodes of a machine that was given back.)
  const bool incomplete = machine.nodes > 1 && machine.state != MachineState::releasing &&
                          nodes_of(state, machine).size() < machine.nodes;
  if (machine.state == MachineState::wanted || incomplete) {
    pause_orders(
        pool, machine, seen.failed.value_or(RefusalKind::capacity),
        fmt::format("{} ended before its agent reached this head: {}", machine.name, why),
        context.now, events,
        taken_back && seen.ended ? limits::pool_second_thoughts : limits::pool_denied_pause);
    release_siblings(state, machine, events);
  }
  // The bill is for the id that has ended: the pool remembers that one (renting/twins.h).
  if (seen.ended && !seen.external.empty() && seen.external != machine.external &&
      !machine.is_disk())
    events.push_back(
        MachineSeen{machine.name, seen.external, machine.note, machine.ends_at, seen.billed_from});
  if (seen.ended)
    machine_gone(state, machine,
                 {.reason = machine.reason.empty() ? why : machine.reason,
                  .billed_to = seen.billed_to,
                  .existed = !taken_back,
                  .unused = !taken_back && ended_wasted(state, machine, events, context.now),
                  .billed_from = seen.billed_from,
                  .missing_for = ended_for(list, machine)},
                 context, events);
  else if (machine.state != MachineState::releasing)
    release_machine(state, machine, why, events);
}

Decision Decider::operator()(const OrderFailed& c) {
  Events events;
  const auto found = state.machines.find(c.machine);
  if (found == state.machines.end() || found->second.state == MachineState::here)
    return events;
  // Its agent came before the provider answered: what the provider says now is not so. If it is
  // being given back, its jobs have their time to end.
  if (!nodes_of(state, found->second).empty())
    return events;
  const auto pool = state.pools.find(found->second.pool);
  machine_gone(state, found->second, {.reason = c.reason, .existed = false}, context, events);
  if (pool != state.pools.end())
    pause_orders(pool->second, found->second, c.kind, c.reason, context.now, events);
  release_siblings(state, found->second, events);
  return events;
}

// A provider's list may hold anything: offers that make no sense are left out, and of too many the
// cheapest are kept.
Decision Decider::operator()(const SetOffers& c) {
  const auto pool = state.pools.find(c.pool);
  if (pool == state.pools.end())
    return Events{};
  std::vector<MachineOffer> offers = c.offers;
  std::erase_if(offers, [](const MachineOffer& offer) { return !check_machine_offer(offer); });
  if (offers.empty() && !c.offers.empty())
    return fail(Code::invalid, "none of the provider's offers can be used; the older ones remain");
  if (offers.size() > limits::pool_offers_max) {
    std::ranges::stable_sort(offers, {}, [&](const MachineOffer& offer) {
      return price_per_useful_gpu({.pool = &pool->second, .offer = &offer}, offer.gpus);
    });
    offers.resize(limits::pool_offers_max);
  }
  BILLOW_TRY_VOID(check_offers(pool->second, offers));
  if (pool->second.offers == offers)
    return Events{};
  return Events{PoolOffersSet{c.pool, std::move(offers)}};
}

// Without any offer nothing can be ordered: `explain` says why. Older offers remain in use.
Decision Decider::operator()(const OffersFailed& c) {
  const auto pool = state.pools.find(c.pool);
  if (pool == state.pools.end() || pool->second.state != PoolState::active ||
      !pool->second.offers.empty() || pool->second.denied_until > context.now)
    return Events{};
  return Events{PoolDenied{c.pool, std::string(utf8_prefix(c.reason, limits::words_bytes_max)),
                           context.now + limits::pool_offers_retry, false}};
}

Decision Decider::operator()(const RetryPool& c) {
  const Pool* pool = pool_by_name(state, c.name);
  if (!pool)
    return fail(Code::not_found, fmt::format("there is no pool \"{}\"", c.name),
                "see `billow pool list`");
  if (pool->state == PoolState::removing || (pool->refusals.empty() && pool->denied.empty() &&
                                             pool->stopped.empty() && pool->unused.empty()))
    return Events{};
  return Events{PoolRetried{pool->id}};
}

Decision Decider::operator()(const ReleaseMachine& c) {
  const auto found = state.machines.find(c.machine);
  if (found == state.machines.end())
    return fail(Code::not_found, fmt::format("there is no machine \"{}\"", c.machine),
                "see `billow pool list`");
  if (const Machine* holder = holder_of(state, c.machine))
    return fail(Code::conflict,
                fmt::format("machine {} uses the cache {}", holder->name, c.machine),
                fmt::format("release the machine first: billow machine release {}", holder->name));
  Events events;
  if (found->second.state != MachineState::releasing)
    release_machine(state, found->second, c.reason, events);
  return events;
}

bool could_run(const State& state, const Job& job, const Pool& pool) {
  const JobSpec& spec = *job.spec;
  const bool offers_unknown =
      pool.capabilities && pool.capabilities->from_offers && pool.offers.empty();
  if (offers_unknown)
    return spec.resources.mig_profile.empty() &&
           (spec.roles.empty() ? spec.nodes : 1) <= pool.machines_max;
  const std::vector<Source> sources = sources_of(pool);
  return std::any_of(sources.begin(), sources.end(),
                     [&](const Source& source) { return fits(state, job, source); });
}

bool all_nodes_came(const State& state, const Machine& machine, WallTime now) {
  std::uint32_t here = 0;
  for (NodeId node : machine.booked)
    here += state.nodes.contains(node) ? 1 : 0;
  return here >= machine.nodes || machine.wanted_at + limits::machine_join_max < now;
}

bool some_pool_could_run(const State& state, const Job& job) {
  return std::any_of(state.pools.begin(), state.pools.end(), [&](const auto& entry) {
    return entry.second.state == PoolState::active && could_run(state, job, entry.second);
  });
}

}  // namespace billow::control
