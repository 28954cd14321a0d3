// Budgets: how much a project, a user or a job may spend in a day, a month or in total, and what
// happens before and at the limit. A job reserves its minimum before it starts; warnings come at
// 50, 80 and 100 %; at the cap its leases are suspended and, after a grace period, stopped. A lease
// carries how long it is paid for, so that an agent can enforce the limit without the head.
//
// All functions are pure. Money already spent comes from the books, money in flight from the
// leases' burn rate. Invariants: each warning is given once per period; the paid time never exceeds
// the remaining money, which everything that burns from the same budget shares; the tightest of
// several budgets decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"
#include "base/result.h"
#include "core/model/money.h"

namespace billow::ledger {

using billow::Budget;
using billow::BudgetAction;
using billow::BudgetPeriod;
using billow::BudgetScope;
using billow::BudgetState;

Status check(const Budget& budget);

struct Period {
  WallTime from, to;  // to is 0 for `total`
  bool operator==(const Period&) const = default;
};
Period period_of(BudgetPeriod period, WallTime at);

// The state of a budget at a moment.
struct BudgetUse {
  NanoUsd spent;     // in this period, up to `at`
  NanoUsd reserved;  // for placed jobs that have not spent their minimum yet, and for reserved GPUs
  NanoUsd held_back;  // the part of it that reservations will still cost
  Rate burn;          // of everything running on it now, per second
  Rate burn_inside;   // the part of it inside those reservations, paid from what is held back
  WallTime at;
  std::string who;  // for people: "project vision"; empty: told by number
};

struct BudgetStep {
  BudgetState state;
  BudgetAction action = BudgetAction::none;
  std::int32_t pct = 0;  // of a warning
  std::string
      text;  // "80 % of this month's $500.00 is spent; at $4.20/h it lasts until 2026-11-20T…Z"
};
BudgetStep step(const Budget& budget, const BudgetState& state, const BudgetUse& use);

// When the money will be gone at the current burn rate; empty if it lasts for the period or is
// already gone (since `capped_at`).
std::optional<WallTime> runs_out(const Budget& budget, const BudgetUse& use);
// The total of the period at the current burn rate; for `total`, the amount spent.
NanoUsd forecast(const Budget& budget, const BudgetUse& use);

// Whether a job that needs at least this may start. The error names the budget that prevents it and
// when that may change.
struct Ask {
  Rate rate;  // of the whole job, all tasks
  Duration at_least = minutes(10);
};
Status may_start(const std::vector<std::pair<Budget, BudgetUse>>& budgets, const Ask& ask);

// The budget as seen by jobs outside its reservations: without the money held back for them and
// without the burn rate inside them.
BudgetUse outside(const BudgetUse& use);
// The part of a budget that is neither spent nor reserved, and how long that pays for something,
// rounded down to the second.
NanoUsd uncommitted(const Budget& budget, const BudgetUse& use);
Duration lasts(NanoUsd amount, Rate rate);
// Why GPUs that cost `need` in the period of `use` cannot be reserved; `fits` is the longest
// affordable time.
Error too_dear(const Budget& budget, const BudgetUse& use, NanoUsd need, Duration fits);

// How long a lease that burns `own` may run on the remaining money without a new order: the rest of
// each budget is shared by rate among everything that burns from it. 0: nothing is left. Never more
// than `most`, so that agents ask the head again in between.
Duration paid_for(const std::vector<std::pair<Budget, BudgetUse>>& budgets,
                  Rate own,
                  Duration most);

}  // namespace billow::ledger
