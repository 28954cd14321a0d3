// Prices, and the consequences of money: nodes get prices when they join, jobs end when their
// budget is spent or they are idle, and agents get the resulting orders.
#include "core/control/money.h"

#include <fmt/format.h>
#include <algorithm>
#include <limits>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"

namespace billow::control {

std::string pool_of(const State& state, const Node& node) {
  if (const auto pool = state.pools.find(node.pool); pool != state.pools.end())
    return pool->second.name;
  const auto label = node.offer.labels.find("pool");
  return label == node.offer.labels.end() ? "local" : label->second;
}

bool node_bills(const Node& node) {
  if (node.pool)
    return true;
  const auto label = node.offer.labels.find("bills");
  return label != node.offer.labels.end() && label->second == "yes";
}

namespace {

const PriceRule* rule(const State& state, const std::string& of) {
  const auto found = state.money.prices.find(of);
  return found == state.money.prices.end() ? nullptr : &found->second;
}

// What the provider takes for the whole machine: by the offer it was ordered from, else by its
// pool.
Rate machine_price(const State& state, const Node& node) {
  const auto pool = state.pools.find(node.pool);
  if (pool == state.pools.end())
    return {};
  // "aws-7", or "aws-7.0" of a machine of several nodes.
  auto machine = state.machines.find(node.offer.name);
  if (machine == state.machines.end())
    machine = state.machines.find(node.offer.name.substr(0, node.offer.name.rfind('.')));
  if (machine != state.machines.end() && machine->second.pool == node.pool && machine->second.offer)
    return machine->second.offer->price;
  return pool->second.price;
}

// The price per GPU: set for this node or its pool; else the pool's price of its machines; else set
// for the type.
template <class Pick>
std::optional<Rate> narrowest(const State& state,
                              const Node& node,
                              std::string_view gpu_type,
                              Pick pick) {
  const auto set = [&](const std::string& of) {
    const PriceRule* found = rule(state, of);
    return found ? pick(*found) : std::optional<Rate>();
  };
  if (const auto rate = set("node:" + node.offer.name))
    return rate;
  if (const auto rate = set("pool:" + pool_of(state, node)))
    return rate;
  if (const Rate machine = machine_price(state, node); machine.nano_usd_per_s > 0)
    return Rate{machine.nano_usd_per_s /
                static_cast<std::int64_t>(std::max<std::size_t>(1, node.offer.gpus.size()))};
  return set("gpu:" + std::string(gpu_type));
}

// A node's storage per second, if its pool or the node has a price for it: the whole file system,
// whether used or not.
Rate storage_rate(const State& state, const Node& node) {
  const auto label = node.offer.labels.find("disk-gib");
  const std::int64_t disk_gib =
      label == node.offer.labels.end() ? 0 : parse_int(label->second, 0, 1 << 30).value_or(0);
  constexpr __int128 month_s = 2'629'800;  // a twelfth of 365.25 days
  for (const std::string& of : {"node:" + node.offer.name, "pool:" + pool_of(state, node)})
    if (const PriceRule* found = rule(state, of); found && found->storage_gib_month.value > 0)
      return {static_cast<std::int64_t>(
          (static_cast<__int128>(found->storage_gib_month.value) * disk_gib + month_s / 2) /
          month_s)};
  return {};
}

NanoUsd egress_price(const State& state, NodeId id) {
  const auto node = state.nodes.find(id);
  if (node == state.nodes.end())
    return {};
  for (const std::string& of :
       {"node:" + node->second.offer.name, "pool:" + pool_of(state, node->second)})
    if (const PriceRule* found = rule(state, of); found && found->egress_gib.value > 0)
      return found->egress_gib;
  return {};
}

}  // namespace

namespace {

// What the cards of a task can have used: a node may report anything.
std::int64_t energy_mj_max(const Task& task, std::int64_t before_lease_mj, WallTime billed) {
  constexpr std::int64_t card_mj_per_s = 2'000'000;  // 2 kW, more than any card
  const std::int64_t lasted_s =
      std::max<std::int64_t>(0, billed.ns - task.lease_from.ns) / 1'000'000'000 + 2;
  return before_lease_mj + lasted_s * card_mj_per_s * static_cast<std::int64_t>(task.gpus.size());
}

}  // namespace

// The price of all bytes so far less that of the bytes before, each rounded down, so the result
// does not depend on how often they are reported. The count is limited to what a network line can
// have carried since the lease began, and no sum overflows.
void settle_meter(const State& state, const Task& task, TaskMeter& meter, WallTime billed) {
  constexpr std::int64_t line_bytes_per_s = 50'000'000'000;  // 400 Gbit/s
  constexpr __int128 most = std::numeric_limits<std::int64_t>::max();
  const auto known = state.money.meters.find(task.id);
  const TaskMeter before = known == state.money.meters.end() ? TaskMeter{} : known->second.meter;
  const __int128 lasted_ns =
      std::max<std::int64_t>(0, billed.ns - task.lease_from.ns) + seconds(1).ns;
  const auto carried =
      static_cast<std::int64_t>(std::min(most, lasted_ns * line_bytes_per_s / 1'000'000'000));
  meter.egress_bytes = std::max(std::min(meter.egress_bytes, carried), before.egress_bytes);
  const std::int64_t before_lease_mj =
      known == state.money.meters.end() ? 0 : known->second.base_energy_mj;
  meter.energy_mj = std::min(meter.energy_mj, energy_mj_max(task, before_lease_mj, billed));
  const __int128 price = egress_price(state, task.node).value;
  const __int128 sum = before.egress.value + (price * meter.egress_bytes >> 30) -
                       (price * before.egress_bytes >> 30);
  meter.egress = {static_cast<std::int64_t>(std::min(most, sum))};
}

NanoUsd egress_so_far(const State& state, TaskId task) {
  const auto known = state.money.meters.find(task);
  return known == state.money.meters.end() ? NanoUsd{} : known->second.meter.egress;
}

std::string provider_id(const State& state, const Node& node) {
  if (const auto label = node.offer.labels.find("provider-id"); label != node.offer.labels.end())
    return label->second;
  for (const auto& [name, machine] : state.machines)
    if (node.offer.name == name || node.offer.name.starts_with(name + "."))
      return machine.external;
  return {};
}

Rate charge_rate(const State& state,
                 const Node& node,
                 std::string_view gpu_type,
                 PriceClass price_class,
                 const ledger::PriceBook* prices) {
  const bool spot = price_class == PriceClass::spot;
  const auto set = narrowest(state, node, gpu_type, [&](const PriceRule& r) {
    if (spot && r.charge_spot)
      return r.charge_spot;
    return r.charge ? r.charge : r.cost;
  });
  Rate out = set ? *set : prices ? prices->rate(gpu_type, price_class) : Rate{};
  // A lease of a part of the GPUs pays that part of the disk.
  if (!node.offer.gpus.empty())
    out.nano_usd_per_s += storage_rate(state, node).nano_usd_per_s /
                          static_cast<std::int64_t>(node.offer.gpus.size());
  return out;
}

Rate cost_rate(const State& state, const Node& node, const ledger::PriceBook* prices) {
  Rate sum = storage_rate(state, node);
  const auto cost = [](const PriceRule& r) {
    return r.cost;
  };
  if (node.offer.gpus.empty())
    return {sum.nano_usd_per_s + narrowest(state, node, "", cost).value_or(Rate{}).nano_usd_per_s};
  for (const NodeGpu& gpu : node.offer.gpus) {
    const auto set = narrowest(state, node, gpu.type, cost);
    sum.nano_usd_per_s += set      ? set->nano_usd_per_s
                          : prices ? prices->rate(gpu.type, PriceClass::on_demand).nano_usd_per_s
                                   : 0;
  }
  return sum;
}

NodePriceSet price_node(const State& state, const Node& node, const ledger::PriceBook* prices) {
  NodePriceSet out{node.id, cost_rate(state, node, prices), 0};
  // A node that comes back with fewer cards than are leased on it keeps those leases.
  std::int64_t leased = 0;
  if (const auto on = state.tasks_on.find(node.id); on != state.tasks_on.end())
    for (TaskId id : on->second)
      leased += ledger::gpu_milli(state.tasks.at(id));
  out.capacity_milli =
      node.offer.gpus.empty()
          ? node.offer.cpu_milli
          : std::max<std::int64_t>(
                leased, static_cast<std::int64_t>(node.offer.gpus.size()) * whole_gpu_milli);
  return out;
}

bool can_suspend(const State& state, const Job& job) {
  if (!could_be_suspended(*job.spec))
    return false;
  return std::all_of(job.tasks.begin(), job.tasks.end(),
                     [&](TaskId id) { return state.tasks.at(id).unsuspendable.empty(); });
}

namespace {
// A replica within the endpoint's minimum: it is paid for while it waits for requests, on purpose;
// its gateway suspends replicas beyond the minimum.
bool waits_on_purpose(const State& state, const Job& job) {
  const auto of = job.spec->labels.find(label_endpoint);
  if (of == job.spec->labels.end())
    return false;
  const auto endpoint = state.endpoints.find(of->second);
  if (endpoint == state.endpoints.end())
    return false;
  const Revision* current = endpoint->second.current();
  if (!current)
    return false;
  const EndpointScaling& scaling = current->policy.scaling;
  return std::max(current->policy.min, current->policy.base_on_demand) > 0 ||
         !scaling.min_at.empty() || scaling.query.any() || scaling.predict;
}
}  // namespace

IdleRules idle_rules(const State& state, const Job& job) {
  if (waits_on_purpose(state, job)) {
    IdleRules rules{{}, {}, can_suspend(state, job), job.spec->nodes > 1};
    rules.policy.enabled = false;
    rules.floor = {Duration{}, Duration{}};
    return rules;
  }
  return {state.money.policy_of(job.project), state.money.floor, can_suspend(state, job),
          job.spec->nodes > 1};
}

bool concerns(const BudgetKey& key, const Job& job) {
  switch (key.scope) {
    case BudgetScope::project:
      return key.of == job.project.value;
    case BudgetScope::user:
      return key.of == job.user.value;
    case BudgetScope::job:
      return key.of == job.id.value || key.of == job.array.value;
    case BudgetScope::token:
      return key.of == job.agent.value;
  }
  return false;
}

// Suspends the job if possible; otherwise stops it, because a spending limit must take effect now.
void put_aside(const State& state,
               Events& events,
               const Job& job,
               SuspendCause cause,
               const std::string& reason) {
  if (job.stopping == StopCause::request)
    return;
  const bool under_way = job.suspension.phase == SuspendPhase::suspending ||
                         job.suspension.phase == SuspendPhase::suspended;
  if (under_way && !job.suspension.resume_wanted)
    return;
  // A preempted job must not resume by itself without money.
  if (under_way)
    events.push_back(SuspensionChanged{job.id, cause, reason, false});
  else if (suspendable(state, job))
    events.push_back(suspend_event(job, reason, cause, SuspendMode::warm, {}));
  else
    events.push_back(JobStopping{job.id, reason, StopCause::request, false, {}});
}

namespace {

void end(Events& events, const Job& job, const std::string& reason) {
  if (job.stopping != StopCause::request)
    events.push_back(JobStopping{job.id, reason, StopCause::request, false, {}});
}

struct Consequences {
  const State& state;
  const Context& context;
  Events events;

  void price_all(bool only_unknown) {
    for (const auto& [id, node] : state.nodes) {
      if (only_unknown && state.money.books.knows(id))
        continue;
      NodePriceSet priced = price_node(state, node, context.prices);
      if (only_unknown || priced.rate != state.money.books.node_rate(id))
        events.push_back(priced);
    }
  }
  void operator()(const HeadStarted&) { price_all(true); }
  void operator()(const PriceSet&) { price_all(false); }
  void operator()(const PriceRemoved&) { price_all(false); }
  void operator()(const NodeJoined& e) {
    events.push_back(price_node(state, state.nodes.at(e.node.id), context.prices));
  }
  void operator()(const NodeOfferChanged& e) {
    events.push_back(price_node(state, state.nodes.at(e.node), context.prices));
  }
  void operator()(const BudgetWarned& e) {
    if (e.action != BudgetAction::suspend && e.action != BudgetAction::stop)
      return;
    for (const auto& [id, job] : state.jobs) {
      if (!concerns(e.budget, job))
        continue;
      if (job.state != JobState::running && job.state != JobState::suspended)
        continue;
      if (e.action == BudgetAction::suspend)
        put_aside(state, events, job, SuspendCause::budget, "budget: " + e.text);
      else
        end(events, job, "budget: " + e.text);
    }
  }
  // A gang is idle only when all its ranks are, because they wait for each other.
  void operator()(const IdleWarned& e) {
    if (e.action != IdleAction::suspend && e.action != IdleAction::stop)
      return;
    const Job* job = state.find_job(e.job);
    if (!job || job->stopping != StopCause::none || job->suspension.phase != SuspendPhase::none ||
        waits_on_purpose(state, *job))
      return;
    for (TaskId id : job->tasks) {
      if (state.tasks.at(id).state == TaskState::ended)
        continue;
      const auto said = state.money.idling.find(id);
      if (said == state.money.idling.end() ||
          (said->second.action != IdleAction::suspend && said->second.action != IdleAction::stop))
        return;
    }
    events.push_back(IdleActed{e.job,
                               e.action == IdleAction::suspend && can_suspend(state, *job)
                                   ? IdleAction::suspend
                                   : IdleAction::stop,
                               e.text});
  }
  void operator()(const IdleActed& e) {
    const Job* job = state.find_job(e.job);
    if (!job)
      return;
    if (e.action == IdleAction::suspend)
      put_aside(state, events, *job, SuspendCause::idle, e.text);
    else
      end(events, *job, e.text);
  }
  // A suspend for a budget or for idleness failed; its cause still applies.
  void operator()(const SuspendFailed& e) {
    const Job* job = state.find_job(e.job);
    if (!job || job->stopping != StopCause::none)
      return;
    if (e.cause == SuspendCause::budget || e.cause == SuspendCause::idle)
      end(events, *job,
          fmt::format("{}, and could not be suspended: {}",
                      e.cause == SuspendCause::budget ? "its budget is spent" : "it idles",
                      e.reason));
  }
  template <class Other>
  void operator()(const Other&) {}
};

}  // namespace

std::vector<EventBody> money_reactions(const State& state,
                                       const EventBody& event,
                                       const Context& context) {
  Consequences out{state, context, {}};
  visit(out, event);
  return std::move(out.events);
}

void money_effects(const State& state, const Event& event, std::vector<Effect>& effects) {
  using namespace wire::agent_v1;
  const auto live_tasks = [&](const Job& job, auto say) {
    for (TaskId id : job.tasks)
      if (const Task& task = state.tasks.at(id); task.state != TaskState::ended)
        say(task);
  };
  if (const auto* kept = get_if<KeptAlive>(&event.body); kept && !kept->by_task) {
    if (const Job* job = state.find_job(kept->job))
      live_tasks(*job, [&](const Task& task) {
        effects.push_back({task.node, KeepTask{state.epoch, task.id, kept->lasts}});
      });
  } else if (holds_alternative<IdlePolicySet>(event.body) ||
             holds_alternative<IdleFloorSet>(event.body)) {
    for (const auto& [id, job] : state.jobs)
      live_tasks(job, [&](const Task& task) {
        effects.push_back({task.node, SetIdleRules{state.epoch, task.id, idle_rules(state, job)}});
      });
  } else if (holds_alternative<EndpointScaled>(event.body) ||
             holds_alternative<RevisionJudged>(event.body)) {
    const auto* scaled = get_if<EndpointScaled>(&event.body);
    const auto replicas =
        state.replicas.find(scaled ? scaled->endpoint : get<RevisionJudged>(event.body).endpoint);
    if (replicas != state.replicas.end())
      for (JobId id : replicas->second) {
        const Job& job = state.jobs.at(id);
        live_tasks(job, [&](const Task& task) {
          effects.push_back(
              {task.node, SetIdleRules{state.epoch, task.id, idle_rules(state, job)}});
        });
      }
  } else if (const auto* declared = get_if<TaskDeclared>(&event.body)) {
    const Task& task = state.tasks.at(declared->task);
    effects.push_back({task.node, SetIdleRules{state.epoch, task.id,
                                               idle_rules(state, state.jobs.at(task.job))}});
  } else if (const auto* budget = get_if<BudgetSet>(&event.body)) {
    // Immediately, not with the next renewal: a head that dies now must not leave agents with the
    // time of a larger budget.
    const auto uses = budget_uses(state, event.billed_at());
    for (const auto& [id, job] : state.jobs)
      if (concerns(budget->budget.key(), job))
        live_tasks(job, [&](const Task& task) {
          if (const Duration paid = task_paid_for(state, task, uses); paid.ns > 0)
            effects.push_back({task.node, LeaseRenew{state.epoch, {task.id}, paid}});
        });
  } else if (const auto* rerated = get_if<TaskRerated>(&event.body);
             rerated && !state.money.budgets.empty()) {
    // The new price changes how long its money lasts.
    const Task& task = state.tasks.at(rerated->task);
    if (const Duration paid = task_paid_for(state, task, budget_uses(state, event.billed_at()));
        paid.ns > 0)
      effects.push_back({task.node, LeaseRenew{state.epoch, {task.id}, paid}});
  } else if (const auto* released = get_if<NodeReleased>(&event.body)) {
    effects.push_back({released->node, Leave{.stop_tasks = false, .give_back = true}});
  }
}

std::vector<EventBody> days_due(const State& state, const Context& context) {
  Events events;
  if (state.money.days_closed == 0 || (state.money.days_closed + 1) * day_ns > context.billed.ns)
    return events;
  // Once a day: decides the figures; apply closes the books.
  ledger::Books books = state.money.books;
  for (std::int64_t day = state.money.days_closed; (day + 1) * day_ns <= context.billed.ns; ++day) {
    DayClosed closed{.day = day};
    for (const ledger::Entry& entry : books.close(WallTime{(day + 1) * day_ns})) {
      switch (entry.kind) {
        case ledger::EntryKind::active:
          closed.active += entry.amount;
          break;
        case ledger::EntryKind::idle:
          closed.idle += entry.amount;
          break;
        case ledger::EntryKind::unallocated:
          closed.unallocated += entry.amount;
          break;
        case ledger::EntryKind::charge:
        case ledger::EntryKind::egress:
          closed.charge += entry.amount;
          break;
      }
    }
    closed.fleet = closed.active + closed.idle + closed.unallocated;
    events.push_back(closed);
  }
  return events;
}

}  // namespace billow::control
