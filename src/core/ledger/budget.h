// Budgets: how much a project, a user or a job may spend in a day, a month or in all, and what
// happens on the way there. A job reserves what it needs at least before it starts; warnings come
// at 50, 80 and 100 %; at the cap its leases are suspended and, after a grace, stopped. A lease
// carries how long it is paid for, so that an agent alone can keep the promise.
//
// All functions are pure. Money already spent comes from the books, money in flight from the
// leases' burn rate. Invariants: each warning is given once per period; what is paid for never
// exceeds what is left, shared by everything that burns from the same budget; the tightest of
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

// What a budget knows at a moment.
struct BudgetUse {
  NanoUsd spent;      // in this period, up to `at`
  NanoUsd reserved;   // for jobs placed whose minimum has not been spent yet, and for GPUs reserved
  NanoUsd held_back;  // the part of it that reservations will still come to
  Rate burn;          // of everything that runs from it now, per second
  Rate burn_inside;   // the part of it that runs inside those reservations, on what is held back
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

// When the money will be gone at today's burn; nothing where it lasts for the period, or is gone
// already (`capped_at` says since when).
std::optional<WallTime> runs_out(const Budget& budget, const BudgetUse& use);
// What the period will have cost at its end at today's burn; for `total`, what is spent.
NanoUsd forecast(const Budget& budget, const BudgetUse& use);

// May a job that needs at least this start? The error says which budget holds it and when that may
// change.
struct Ask {
  Rate rate;  // of the whole job, all tasks
  Duration at_least = minutes(10);
};
Status may_start(const std::vector<std::pair<Budget, BudgetUse>>& budgets, const Ask& ask);

// The same budget as work outside its reservations has it: what is held back for them is not there,
// nor does what runs inside burn from it.
BudgetUse outside(const BudgetUse& use);
// What of a budget is neither spent nor reserved, and how long that pays for something, to the
// second below.
NanoUsd uncommitted(const Budget& budget, const BudgetUse& use);
Duration lasts(NanoUsd amount, Rate rate);
// Why GPUs cannot be reserved that come to `need` in the period of `use`; `fits` is how long they
// could be.
Error too_dear(const Budget& budget, const BudgetUse& use, NanoUsd need, Duration fits);

// How long a lease that burns `own` may run on the money that is left, if no word comes: what
// remains of each budget is shared by rate among all that burn from it. 0: nothing is left. Never
// more than `most`, so that the head is heard in between.
Duration paid_for(const std::vector<std::pair<Budget, BudgetUse>>& budgets,
                  Rate own,
                  Duration most);

}  // namespace billow::ledger
