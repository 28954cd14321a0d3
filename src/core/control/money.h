// Money in the core: what prices, budgets and idleness come to. `keep_books` is apply's; the rest
// decides and never changes. Internal to this module but for what the API shows (budget_uses,
// rates).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/control/decide/decide.h"
#include "core/ledger/budget.h"

namespace billow::control {

inline constexpr std::int64_t day_ns = 86'400'000'000'000;

// Leases, marks and nodes into the books, budgets' sums, and who idles. Called by `apply` for every
// event, after its own part.
void keep_books(State& state, const Event& event);

// What a lease that begins here is charged per whole GPU-second, and what the node costs a second.
Rate charge_rate(const State& state,
                 const Node& node,
                 std::string_view gpu_type,
                 PriceClass price_class,
                 const ledger::PriceBook* prices);
Rate cost_rate(const State& state, const Node& node, const ledger::PriceBook* prices);
// The price of the traffic that a task's agent has reported: the amount so far, plus the new bytes
// at today's price.
void reckon_egress(const State& state, const Task& task, TaskMeter& meter, WallTime billed);
// The same of a running task, as far as its agent has reported; part of its charge.
NanoUsd egress_so_far(const State& state, TaskId task);
NodePriceSet price_node(const State& state, const Node& node, const ledger::PriceBook* prices);
// The pool a node came from, by name; nodes that joined by themselves are of the one their label
// says, or of "local".
std::string pool_of(const State& state, const Node& node);
// What its provider calls it on a bill: its label provider-id, or what the pool's command said when
// the machine was made.
std::string provider_id(const State& state, const Node& node);
// Whether the node is billed for every hour that it exists.
bool node_bills(const Node& node);

// Every budget with what has been spent, is reserved and burns, at one moment. Looks at each live
// lease once.
std::map<BudgetKey, ledger::BudgetUse> budget_uses(const State& state, WallTime billed);
std::string budget_name(const State& state, const BudgetKey& key);  // "project vision, monthly"
// How long a task may run if its head falls silent; 0: no budget limits it.
Duration task_paid_for(const State& state,
                       const Task& task,
                       const std::map<BudgetKey, ledger::BudgetUse>& uses);

Rate rate_of(const std::vector<Task>& tasks);  // of all of them together

// The part of an amount, charged evenly over a period, that falls after a moment.
NanoUsd part_since(NanoUsd amount, WallTime from, WallTime to, WallTime since);

// Which of the scheduler's starts can be paid for at least their minimum time; the others are held.
// Reservations must be paid in full.
class Purse {
 public:
  Purse(const State& state, WallTime billed);
  Status take(const Job& job, const std::vector<Task>& tasks) { return take(job, rate_of(tasks)); }
  Status take(const Job& job, Rate rate);  // reserves, or says which budget is used up
  Status go_on(const Job& job,
               Rate rate);  // of one that runs and has another price now, all its tasks; as take
  Status reserve(const Reservation& reservation) const;  // one that is not in the state yet

 private:
  const State& state_;
  std::map<ReservationId, NanoUsd> paid_;  // of each reservation, by jobs inside
  std::map<BudgetKey, ledger::BudgetUse> uses_;
};

// Which budget keeps one of these jobs from running, as long as it does; empty: none.
std::string held_back(const State& state, const std::set<JobId>& jobs, WallTime billed);

// Events that follow from an event, and messages to agents.
std::vector<EventBody> money_reactions(const State& state,
                                       const EventBody& event,
                                       const Context& context);
void money_effects(const State& state, const Event& event, std::vector<Effect>& effects);
IdleRules idle_rules(const State& state, const Job& job);
bool concerns(const BudgetKey& key, const Job& job);  // whether the budget pays for it
// Suspends the job if possible, else stops it: for a budget or because it is idle.
void put_aside(const State& state,
               std::vector<EventBody>& events,
               const Job& job,
               SuspendCause cause,
               const std::string& reason);
// Whether the work of this job can be kept while its GPUs are given back.
bool can_suspend(const State& state, const Job& job);
// Past days that are not posted, oldest first. Decided before any command of a new day.
std::vector<EventBody> days_due(const State& state, const Context& context);

}  // namespace billow::control
