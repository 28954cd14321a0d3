// Folding the events of money: settings, and every lease, mark and node into the books.
#include <algorithm>

#include "core/control/applier.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"

namespace billow::control {

void Applier::operator()(const PriceSet& e) {
  state.money.prices[e.rule.of] = e.rule;
}
void Applier::operator()(const PriceRemoved& e) {
  state.money.prices.erase(e.of);
}

void Applier::operator()(const BudgetSet& e) {
  BudgetEntry& entry = state.money.budgets[e.budget.key()];
  entry.budget = e.budget;
  entry.spent_closed = e.spent;
  entry.by = event.actor;
  entry.counted_from = ledger::period_of(e.budget.period, event.billed_at()).from;
  // Warnings are not repeated within the period; a raised limit warns again at its own thresholds.
  entry.progress = {.period_from = entry.counted_from};
}
void Applier::operator()(const BudgetRemoved& e) {
  state.money.budgets.erase(e.budget);
}
void Applier::operator()(const BudgetWarned& e) {
  if (const auto found = state.money.budgets.find(e.budget); found != state.money.budgets.end())
    found->second.progress = e.state;
}
void Applier::operator()(const JobHeld& e) {
  Job& j = job(e.job);
  state.index.dequeue(j.id);
  set_state(j, JobState::held);
  j.reason = e.reason;
  state.money.held[j.id] = e.rate;
}

void Applier::operator()(const DayClosed& e) {
  state.money.posted = state.money.books.close(WallTime{(e.day + 1) * day_ns});
  state.money.books.forget(WallTime{e.day * day_ns});  // one more day is kept, for late facts
  state.money.days_closed = e.day + 1;
}
void Applier::operator()(const MonthClosed& e) {
  state.money.months_closed.insert(e.month);
}

void Applier::operator()(const IdlePolicySet& e) {
  state.money.rules_changed = true;
  if (!e.project)
    state.money.idle = e.policy.value_or(IdlePolicy{});
  else if (e.policy)
    state.money.idle_of[e.project] = *e.policy;
  else
    state.money.idle_of.erase(e.project);
}
void Applier::operator()(const IdleFloorSet& e) {
  state.money.rules_changed = true;
  state.money.floor = e.floor;
}
void Applier::operator()(const IdleWarned& e) {
  if (e.action == IdleAction::recovered || e.action == IdleAction::none)
    state.money.idling.erase(e.task);
  else
    state.money.idling[e.task] = {e.task, e.state, e.action, e.text, event.at};
}
void Applier::operator()(const KeptAlive& e) {
  state.money.kept_alive[e.job] = {e.job, event.at + e.lasts, e.reason};
}
void Applier::operator()(const NodeReleased& e) {
  Node& n = node(e.node);
  n.drained = "given back: " + e.reason;
  state.index.upsert_node(shape_of(state, n));
  state.money.released.insert(e.node);
}

void Applier::operator()(const WebhookAdded& e) {
  state.money.webhooks[e.webhook.id] = e.webhook;
  state.money.next_webhook = std::max(state.money.next_webhook, e.webhook.id + 1);
}
void Applier::operator()(const WebhookRemoved& e) {
  state.money.webhooks.erase(e.webhook);
}
void Applier::operator()(const WebhookDelivered& e) {
  if (const auto found = state.money.webhooks.find(e.webhook); found != state.money.webhooks.end())
    found->second.delivered = std::max(found->second.delivered, e.through);
}
void Applier::operator()(const CommitmentSet& e) {
  state.money.commitments[e.commitment.name] = e.commitment;
}
void Applier::operator()(const CommitmentRemoved& e) {
  state.money.commitments.erase(e.name);
}
void Applier::operator()(const ProjectTagged& e) {
  auto& tags = state.money.tags[e.project];
  if (e.value.empty())
    tags.erase(e.key);
  else
    tags[e.key] = e.value;
  if (tags.empty())
    state.money.tags.erase(e.project);
}

namespace {

// Facts of one event share its number, so each gets a separate place below it.
struct Bookkeeper {
  State& state;
  const Event& event;
  Seq next = event.seq << 16;

  void tell(const ledger::Fact& fact) { (void)state.money.books.apply(++next, fact); }
  Money& money() { return state.money; }

  // A machine costs while it has no node, too: its account pays for the nodes that are not here.
  void price_account(const Machine& machine) {
    const auto pool = state.pools.find(machine.pool);
    if (!machine.account || pool == state.pools.end())
      return;
    std::int64_t missing = machine.nodes;
    for (NodeId node : machine.booked)
      missing -= state.nodes.contains(node) ? 1 : 0;
    if (machine.is_disk())
      missing = 1;
    const Rate price = machine.offer ? machine.offer->price : pool->second.price;
    const Rate rate{price.nano_usd_per_s * std::max<std::int64_t>(0, missing)};
    if (!money().books.knows(machine.account) || money().books.node_rate(machine.account) != rate)
      tell(ledger::NodePriced{machine.account, event.billed_at(), rate, 0});
  }
  void price_account_of(NodeId node) {
    for (const auto& [name, machine] : state.machines)
      if (std::find(machine.booked.begin(), machine.booked.end(), node) != machine.booked.end())
        price_account(machine);
  }
  void operator()(const MachineWanted& e) { price_account(e.machine); }
  void operator()(const MachineGone& e) {
    if (!e.account)
      return;
    if (e.bill && e.bill->correction.value != 0)
      tell(ledger::NodeExtra{e.account, {event.billed_at().ns - 1}, e.bill->correction});
    tell(ledger::NodeGone{e.account, event.billed_at()});
  }
  void operator()(const NodeJoined& e) {
    money().node_empty_since[e.node.id] = event.billed_at();
    if (e.node.pool)
      price_account_of(e.node.id);
  }
  // Put back into service after it was given back: the time without jobs begins anew.
  void operator()(const NodeDrained& e) {
    if (e.reason.empty() && money().released.erase(e.node) > 0 &&
        money().node_empty_since.contains(e.node))
      money().node_empty_since[e.node] = event.billed_at();
  }
  void operator()(const NodePriceSet& e) {
    tell(ledger::NodePriced{e.node, event.billed_at(), e.rate, e.capacity_milli});
  }
  void operator()(const NodeRemoved& e) {
    tell(ledger::NodeGone{e.node, event.billed_at()});
    money().node_empty_since.erase(e.node);
    money().released.erase(e.node);
    price_account_of(e.node);
  }
  // Time in which nothing can be shown to have run is not charged. What did run is charged when its
  // node reports it: then the same period gets its price back, and days posted meanwhile are
  // corrected.
  void operator()(const NodeUnreachable& e) {
    charge_all(e.node, state.nodes.at(e.node).unreachable_since, false);
  }
  void operator()(const NodeReachable& e) {
    WallTime& since = state.nodes.at(e.node).unreachable_since;
    if (since)
      charge_all(e.node, since, true);
    since = {};
  }
  void charge_all(NodeId node, WallTime from, bool charged) {
    const auto on = state.tasks_on.find(node);
    if (on == state.tasks_on.end())
      return;
    for (TaskId id : on->second)
      charge_from(state.tasks.at(id), from, charged);
  }
  void operator()(const TaskStarted& e) {
    const Task& task = state.tasks.at(e.task);
    if (e.lease_from)
      tell(ledger::LeaseBegan{ledger::lease_id(task), e.lease_from, ledger::charged_milli(task)});
  }
  void charge_from(Task task, WallTime from, bool charged) {
    const LeaseId lease = ledger::lease_id(task);
    const ledger::LeaseOpened* opened = money().books.opened(lease);
    if (!opened)
      return;
    task.price_class = opened->price_class;
    tell(ledger::LeaseChanged{lease, from, task.node, opened->price_class, opened->milli,
                              charged ? ledger::charged_milli(task) : 0, opened->rate});
  }
  // It ended, or changed what it holds, while its node was unreachable: until then it ran.
  void charge_silence(const Task& task, WallTime until) {
    const auto node = state.nodes.find(task.node);
    if (node != state.nodes.end() && !node->second.reachable &&
        until > node->second.unreachable_since)
      charge_from(task, node->second.unreachable_since, true);
  }
  // The task's lease from now on.
  void open(const Task& task) {
    const Job& job = state.jobs.at(task.job);
    const auto node = state.nodes.find(task.node);
    const bool suspended = task.price_class == PriceClass::suspended;
    ledger::LeaseOpened opened{ledger::lease_id(task),
                               job.id,
                               task.id,
                               job.project,
                               job.user,
                               task.node,
                               "",
                               task.price_class,
                               suspended ? 0 : ledger::gpu_milli(task),
                               task.rate,
                               task.lease_from};
    if (node != state.nodes.end()) {
      const auto& gpus = node->second.offer.gpus;
      const auto index =
          task.gpus.empty() ? gpus.size() : static_cast<std::size_t>(task.gpus.front().gpu);
      if (index < gpus.size())
        opened.gpu_type = gpus[index].type;
      // On a node without GPUs, cores are leased.
      else if (gpus.empty())
        opened.milli = task.cpu_milli;
    }
    tell(opened);
    const std::int64_t charged = ledger::charged_milli(task);
    if (charged != opened.milli)
      tell(ledger::LeaseChanged{opened.lease, task.lease_from, task.node, task.price_class,
                                opened.milli, charged, task.rate});
  }
  // Charges of ended leases count against the budgets of the current period; `since` returns the
  // part after a moment.
  template <class Concerned, class Since>
  void count(Concerned concerned, Since since) {
    for (auto& [key, entry] : money().budgets) {
      if (!concerned(key))
        continue;
      const WallTime from = ledger::period_of(entry.budget.period, event.billed_at()).from;
      if (entry.counted_from != from) {
        entry.spent_closed = {};
        entry.counted_from = from;
      }
      entry.spent_closed += since(from);
    }
  }
  void spend(const Job& job, LeaseId lease, WallTime from_at, WallTime to) {
    count([&](const BudgetKey& key) { return concerns(key, job); },
          [&](WallTime since) {
            return money().books.charge_between(lease, std::max(since, from_at), to);
          });
  }
  void mark(LeaseId lease, TaskId task, const TaskMeter& meter, WallTime at) {
    const auto known = money().meters.find(task);
    const Duration base = known == money().meters.end() ? Duration{} : known->second.base_active;
    const std::int64_t base_mj = known == money().meters.end() ? 0 : known->second.base_energy_mj;
    tell(ledger::LeaseMarked{lease, at, std::max(Duration{}, meter.active - base),
                             std::max<std::int64_t>(0, meter.energy_mj - base_mj)});
  }
  // What the task has sent since its last meter report; bytes without a price are kept too.
  void buy(const Task& task, const TaskMeter& meter, WallTime at) {
    const auto known = money().meters.find(task.id);
    const TaskMeter before = known == money().meters.end() ? TaskMeter{} : known->second.meter;
    if (meter.egress_bytes > before.egress_bytes || meter.egress > before.egress)
      tell(ledger::LeaseExtra{ledger::lease_id(task), task.node, at, meter.egress - before.egress,
                              meter.egress_bytes - before.egress_bytes});
  }
  void operator()(const JobPlaced& e) {
    for (const Task& task : e.tasks) {
      open(task);
      money().node_empty_since.erase(task.node);
    }
  }
  void operator()(const MemberReplaced& e) {
    open(e.task);
    money().node_empty_since.erase(e.task.node);
  }
  // The part of a reservation that its jobs did not pay for: charged although it leased nothing of
  // the node.
  void operator()(const ReservationEnded& e) {
    if (!e.lease.id || e.unused.value <= 0)
      return;
    const auto span_s =
        std::max<std::int64_t>(1, (e.lease.lease_to - e.lease.lease_from).ns / 1'000'000'000);
    ledger::LeaseOpened opened{ledger::lease_id(e.lease),
                               {},
                               e.lease.id,
                               e.project,
                               e.user,
                               e.lease.node,
                               "",
                               PriceClass::reserved,
                               0,
                               Rate{e.unused.value / span_s},
                               e.lease.lease_from};
    tell(opened);
    tell(ledger::LeaseChanged{opened.lease, e.lease.lease_from, e.lease.node, PriceClass::reserved,
                              0, whole_gpu_milli, opened.rate});
    tell(ledger::LeaseClosed{opened.lease, e.lease.lease_to});
    // The decided amount to the nano-dollar, not one recomputed at a rate in whole nano-dollars.
    count(
        [&](const BudgetKey& key) {
          return (key.scope == BudgetScope::project && key.of == e.project.value) ||
                 (key.scope == BudgetScope::user && key.of == e.user.value);
        },
        [&](WallTime since) {
          return part_since(e.unused, e.lease.lease_from, e.lease.lease_to, since);
        });
  }
  // One lease ends and the task's next begins; `apply` has already updated the task.
  void change_lease(const Task& task, WallTime at) {
    Task before = task;
    --before.lease_number;
    const LeaseId lease = ledger::lease_id(before);
    const ledger::LeaseOpened* opened = money().books.opened(lease);
    const WallTime from = opened ? opened->at : at;
    charge_silence(before, at);
    tell(ledger::LeaseClosed{lease, at});
    spend(state.jobs.at(task.job), lease, from, at);
    // Since the last mark it counts as active; the next lease's marks continue where this one's
    // end.
    MeteredTask& metered = money().meters[task.id];
    metered.task = task.id;
    metered.base_active = metered.meter.active;
    const bool held_gpus = opened && opened->price_class != PriceClass::suspended;
    Duration since = at - std::max(metered.at, from);
    // It is no longer active, whenever it was marked.
    if (task.price_class == PriceClass::suspended)
      since = std::max(Duration{}, since);
    if (held_gpus)
      metered.base_active = std::max(Duration{}, metered.base_active + since);
    metered.base_energy_mj = metered.meter.energy_mj;
    metered.at = at;
    open(task);
    if (const auto node = state.nodes.find(task.node);
        node != state.nodes.end() && !node->second.reachable)
      charge_from(task, task.lease_from, false);
  }
  void operator()(const TaskSuspended& e) {
    money().idling.erase(e.task);
    change_lease(state.tasks.at(e.task), e.lease_to);
  }
  void operator()(const TaskRerated& e) { change_lease(state.tasks.at(e.task), e.lease_to); }
  void operator()(const JobResuming& e) { change_lease(state.tasks.at(e.task), e.lease_to); }
  void operator()(const TaskEnded& e) {
    const Task& task = state.tasks.at(e.task);
    const LeaseId lease = ledger::lease_id(task);
    const TaskMeter& meter = e.usage.meter;
    if (meter.measured || meter.active.ns > 0)
      mark(lease, e.task, meter, e.lease_to);
    buy(task, meter, {e.lease_to.ns - 1});
    charge_silence(task, e.lease_to);
    tell(ledger::LeaseClosed{lease, e.lease_to});
    money().idling.erase(e.task);
    money().meters.erase(e.task);
    if (!state.tasks_on.contains(task.node))
      money().node_empty_since[task.node] = event.billed_at();
    spend(state.jobs.at(task.job), lease, task.lease_from, e.lease_to);
  }
  void operator()(const MeterMarked& e) {
    for (const TaskMark& m : e.marks) {
      const Task& task = state.tasks.at(m.task);
      if (task.price_class != PriceClass::suspended)
        mark(ledger::lease_id(task), m.task, m.meter, event.billed_at());
      buy(task, m.meter, event.billed_at());
      MeteredTask& metered = money().meters[m.task];
      metered.task = m.task;
      metered.meter = m.meter;
      metered.at = event.billed_at();
    }
  }
  void operator()(const JobReady& e) { money().held.erase(e.job); }
  void operator()(const JobEnded& e) {
    money().held.erase(e.job);
    money().kept_alive.erase(e.job);
    money().budgets.erase({BudgetScope::job, e.job.value, BudgetPeriod::total});
  }
  template <class Other>
  void operator()(const Other&) {}
};

}  // namespace

void keep_books(State& state, const Event& event) {
  if (state.money.days_closed == 0)
    state.money.days_closed = event.billed_at().ns / day_ns;
  visit(Bookkeeper{state, event}, event.body);
}

MoneyImage image_of(const Money& money) {
  MoneyImage out;
  const auto values = [](const auto& map, auto& into) {
    for (const auto& [key, value] : map)
      into.push_back(value);
  };
  out.books = money.books.image();
  out.days_closed = money.days_closed;
  out.months_closed.assign(money.months_closed.begin(), money.months_closed.end());
  values(money.prices, out.prices);
  values(money.budgets, out.budgets);
  for (const auto& [job, rate] : money.held)
    out.held.push_back({job, rate});
  out.idle = money.idle;
  for (const auto& [project, policy] : money.idle_of)
    out.idle_of.push_back({project, policy});
  out.floor = money.floor;
  out.rules_changed = money.rules_changed;
  values(money.idling, out.idling);
  values(money.meters, out.meters);
  values(money.kept_alive, out.kept_alive);
  for (const auto& [node, since] : money.node_empty_since)
    out.empty.push_back({node, since});
  out.released.assign(money.released.begin(), money.released.end());
  out.next_webhook = money.next_webhook;
  values(money.webhooks, out.webhooks);
  values(money.commitments, out.commitments);
  for (const auto& [project, tags] : money.tags)
    out.tags.push_back({project, tags});
  return out;
}

Money restore_money(MoneyImage in) {
  Money out;
  out.books = ledger::Books::restore(in.books);
  out.days_closed = in.days_closed;
  out.months_closed.insert(in.months_closed.begin(), in.months_closed.end());
  for (auto& x : in.prices)
    out.prices[x.of] = std::move(x);
  for (auto& x : in.budgets)
    out.budgets[x.budget.key()] = std::move(x);
  for (const auto& x : in.held)
    out.held[x.job] = x.rate;
  out.idle = in.idle;
  for (auto& x : in.idle_of)
    out.idle_of[x.project] = x.policy;
  out.floor = in.floor;
  out.rules_changed = in.rules_changed;
  for (auto& x : in.idling)
    out.idling[x.task] = std::move(x);
  for (auto& x : in.meters)
    out.meters[x.task] = x;
  for (auto& x : in.kept_alive)
    out.kept_alive[x.job] = std::move(x);
  for (const auto& x : in.empty)
    out.node_empty_since[x.node] = x.since;
  out.released.insert(in.released.begin(), in.released.end());
  out.next_webhook = in.next_webhook;
  for (auto& x : in.webhooks)
    out.webhooks[x.id] = std::move(x);
  for (auto& x : in.commitments)
    out.commitments[x.name] = std::move(x);
  for (auto& x : in.tags)
    out.tags[x.project] = std::move(x.tags);
  return out;
}

}  // namespace billow::control
