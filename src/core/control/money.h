// Money in the core: the effects of prices, budgets and idleness. `keep_books` belongs to apply;
// the rest decides and changes nothing. Internal to this module except for what the API shows
// (budget_uses, rates).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/control/agent_tokens.h"
#include "core/control/decide/decide.h"
#include "core/ledger/budget.h"

namespace billow::control {

inline constexpr std::int64_t day_ns = 86'400'000'000'000;

// Folds leases, marks and nodes into the books, the budgets' sums and the idle states. `apply`
// calls it for every event, after its own part.
void keep_books(State& state, const Event& event);

// The charge of a lease that begins now, per whole GPU-second, and the cost of the node per second.
Rate charge_rate(const State& state,
                 const Node& node,
                 std::string_view gpu_type,
                 PriceClass price_class,
                 const ledger::PriceBook* prices);
Rate cost_rate(const State& state, const Node& node, const ledger::PriceBook* prices);
// Limits what a task's agent has reported to what its hardware can have done, and prices its
// traffic: the amount so far, plus the new bytes at today's price.
void settle_meter(const State& state, const Task& task, TaskMeter& meter, WallTime billed);
// The same of a running task, as far as its agent has reported; part of its charge.
NanoUsd egress_so_far(const State& state, TaskId task);
NodePriceSet price_node(const State& state, const Node& node, const ledger::PriceBook* prices);
// The name of the pool that a node came from; for nodes that joined by themselves, the value of
// their label, or "local".
std::string pool_of(const State& state, const Node& node);
// The provider's id for the node on a bill: its label provider-id, or the id that the provider
// returned when the machine was created.
std::string provider_id(const State& state, const Node& node);
// Whether the node is billed for every hour that it exists.
bool node_bills(const Node& node);

// Every budget with its spent and reserved amounts and its burn rate at one moment. Visits each
// live lease once.
std::map<BudgetKey, ledger::BudgetUse> budget_uses(const State& state, WallTime billed);
std::string budget_name(const State& state, const BudgetKey& key);  // "project vision, monthly"
// How long a task may run if its head falls silent; 0: no budget limits it.
Duration task_paid_for(const State& state,
                       const Task& task,
                       const std::map<BudgetKey, ledger::BudgetUse>& uses);

Rate rate_of(const std::vector<Task>& tasks);  // of all of them together
std::int64_t milli_of(const std::vector<Task>& tasks);
std::string held_text(const Error& why);  // the reason of a job that waits for money or GPUs

// The part of an amount, charged evenly over a period, that falls after a moment.
NanoUsd part_since(NanoUsd amount, WallTime from, WallTime to, WallTime since);

// Which of the scheduler's starts can be paid for at least their minimum time; the others are held.
// Reservations must be paid in full.
class Purse {
 public:
  Purse(const State& state, WallTime billed);
  // Reserves, or says which budget is used up, or that the agent token holds all its GPUs.
  Status take(const Job& job, Rate rate, std::int64_t gpu_milli);
  // Whether the limit of an agent's job cannot pay for it at this price any more.
  bool used_up(const Job& job, Rate rate) const;
  Status go_on(const Job& job,
               Rate rate);  // for a running job with a new price, all its tasks; as take
  Status reserve(const Reservation& reservation) const;  // one that is not in the state yet

  // For forecasts: the money at a later moment, if everything that runs continues until then. Jobs
  // that are taken afterwards start at that moment.
  void move_to(WallTime billed);
  void ended(const Job& job);  // at that moment

 private:
  struct Lease {
    Rate rate;
    std::int64_t gpu_milli = 0;
    WallTime from;
    bool inside = false;  // a reservation
  };
  Status pay(const Job& job, Rate rate);
  void burn(const BudgetKey& key, ledger::BudgetUse& use, WallTime until);

  const State& state_;
  WallTime billed_;
  std::optional<std::map<JobId, Lease>> leases_;  // in a forecast
  AgentGpus gpus_;
  std::map<ReservationId, NanoUsd> paid_;  // of each reservation, by jobs inside
  std::map<BudgetKey, ledger::BudgetUse> uses_;
};

// Budgets that reach a threshold, are used up, or begin a new period.
void step_budgets(const State& state, const Context& context, std::vector<EventBody>& events);

// The budget that prevents one of these jobs from running; empty if none does.
std::string held_back(const State& state, const std::set<JobId>& jobs, WallTime billed);
// What would let a job start that is held because a budget is used up: "raise it with …". Empty if
// no budget holds it.
std::string budget_cure(const State& state, const Job& job, WallTime billed);

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
// Whether this job can be suspended, so that its GPUs are free and its work is kept.
bool can_suspend(const State& state, const Job& job);
// Past days that are not posted, oldest first. Decided before any command of a new day.
std::vector<EventBody> days_due(const State& state, const Context& context);

}  // namespace billow::control
