// The amounts spent, reserved and burning of every budget, and whether a job may start on the rest.
// Spent is the charge of leases that ended in the period (kept as a sum) plus the charge of live
// ones since it began. Reserved includes the future cost of reservations, because they are paid
// whether used or not; jobs inside a reservation are paid from it.
#include "core/control/money.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/agent_tokens.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"

namespace billow::control {
namespace {

constexpr Duration start_minimum = ledger::Ask{}.at_least;
// After this the agent must have heard from the head again.
constexpr Duration paid_at_most = hours(1);

// The money a job needs to start, as time. A job of an agent needs as much as it takes to stop it
// in time; its money was set aside when it was submitted. A job that runs for less than the usual
// minimum needs no more than that.
Duration minimum_of(const Budget& budget, const Job& job) {
  if (budget.hard())
    return budget.lead + seconds(1);
  const Duration limit = job.spec->time_limit;
  return limit.ns > 0 ? std::min(start_minimum, limit) : start_minimum;
}

struct Payers {
  ProjectId project;
  UserId user;
  JobId job, array;
  TokenId agent;
};
template <class F>
void each_budget(const State& state, const Payers& who, F visit) {
  const auto of = [&](BudgetScope scope, std::uint64_t id) {
    if (id == 0)
      return;
    for (const BudgetPeriod period :
         {BudgetPeriod::daily, BudgetPeriod::monthly, BudgetPeriod::total})
      if (const auto found = state.money.budgets.find({scope, id, period});
          found != state.money.budgets.end())
        visit(found->first, found->second);
  };
  of(BudgetScope::project, who.project.value);
  of(BudgetScope::user, who.user.value);
  of(BudgetScope::job, who.job.value);
  of(BudgetScope::job, who.array.value);
  of(BudgetScope::token, who.agent.value);
}
template <class F>
void each_budget(const State& state, const Job& job, F visit) {
  each_budget(state, Payers{job.project, job.user, job.id, job.array, job.agent}, visit);
}

// ---- the cost of reservations

bool pays(const BudgetKey& key, const Reservation& r) {
  switch (key.scope) {
    case BudgetScope::project:
      return key.of == r.project.value;
    case BudgetScope::user:
      return key.of == r.user.value;
    case BudgetScope::job:
    case BudgetScope::token:
      return false;
  }
  return false;
}

// Between two moments, whether used or not.
NanoUsd whole_between(const Reservation& r, WallTime from, WallTime to) {
  const auto until = [&](WallTime at) {
    return amount(r.rate, std::clamp(at, r.from, r.until) - r.from, r.gpu_milli());
  };
  return until(std::max(from, to)) - until(from);
}
WallTime end_of(const ledger::Period& period, const Reservation& r) {
  return period.to ? period.to : r.until;
}

// What jobs inside each reservation have paid so far; empty if there is no budget.
std::map<ReservationId, NanoUsd> paid_so_far(const State& state, WallTime at) {
  std::map<ReservationId, NanoUsd> out;
  if (state.reservations.empty() || state.money.budgets.empty())
    return out;
  for (const auto& [id, r] : state.reservations)
    out[id] = r.used;
  for (const auto& [id, task] : state.tasks) {
    if (!task.reservation || task.state == TaskState::ended ||
        task.price_class != PriceClass::reserved)
      continue;
    const auto r = state.reservations.find(task.reservation);
    if (r == state.reservations.end())
      continue;
    Task part = task;
    part.lease_to = at;
    out[r->first] += paid_inside(part, r->second);
  }
  return out;
}

// What the reservation will still charge to a budget in a period, through its jobs or at its end:
// the future part and, if it ends in the period, the unused past part.
NanoUsd still_to_pay(const Reservation& r,
                     NanoUsd paid,
                     const ledger::Period& period,
                     WallTime at) {
  NanoUsd out = whole_between(r, std::max(at, period.from), end_of(period, r));
  const NanoUsd unused = whole_between(r, r.from, at) - paid;
  if (r.until <= end_of(period, r) && unused.value > 0)
    out += part_since(unused, r.from, r.until, period.from);
  return out;
}

// Whether this budget already holds back the cost of the job.
bool lives_on_reservation(const State& state, const BudgetKey& key, const Job& job) {
  const Reservation* inside = reservation_of(state, job);
  return inside && pays(key, *inside);
}

// The part of a job's minimum time that its reservation already covers: everything up to the
// reservation's end.
Duration short_of_minimum(Duration minimum,
                          WallTime lease_from,
                          WallTime billed,
                          const Reservation* paid_by) {
  return minimum - ((paid_by ? std::max(billed, paid_by->until) : billed) - lease_from);
}

std::map<BudgetKey, ledger::BudgetUse> uses_with(const State& state,
                                                 WallTime billed,
                                                 const std::map<ReservationId, NanoUsd>& paid);

}  // namespace

NanoUsd part_since(NanoUsd amount, WallTime from, WallTime to, WallTime since) {
  if (since <= from)
    return amount;
  if (since >= to)
    return {};
  return {static_cast<std::int64_t>(static_cast<__int128>(amount.value) * (to - since).ns /
                                    (to - from).ns)};
}

std::string budget_name(const State& state, const BudgetKey& key) {
  switch (key.scope) {
    case BudgetScope::project:
      if (const auto p = state.projects.find(ProjectId(key.of)); p != state.projects.end())
        return "project " + p->second.name;
      break;
    case BudgetScope::user:
      if (const auto u = state.users.find(UserId(key.of)); u != state.users.end())
        return "user " + u->second.name;
      break;
    case BudgetScope::token:
      if (const auto t = state.tokens.find(TokenId(key.of)); t != state.tokens.end())
        return "agent token " + t->second.name;
      break;
    case BudgetScope::job:
      break;
  }
  return fmt::format("{} {}", enum_name(key.scope), key.of);
}

std::map<BudgetKey, ledger::BudgetUse> budget_uses(const State& state, WallTime billed) {
  return uses_with(state, billed, paid_so_far(state, billed));
}

namespace {
std::map<BudgetKey, ledger::BudgetUse> uses_with(const State& state,
                                                 WallTime billed,
                                                 const std::map<ReservationId, NanoUsd>& paid) {
  std::map<BudgetKey, ledger::BudgetUse> out;
  std::map<BudgetKey, WallTime> from;
  for (const auto& [key, entry] : state.money.budgets) {
    const ledger::Period period = ledger::period_of(entry.budget.period, billed);
    from[key] = period.from;
    out[key] = {.spent = entry.counted_from == period.from ? entry.spent_closed : NanoUsd{},
                .reserved = {},
                .burn = {},
                .at = billed,
                .who = budget_name(state, key)};
  }
  if (out.empty())
    return out;
  for (const auto& [id, task] : state.tasks) {
    if (task.state == TaskState::ended)
      continue;
    const LeaseId lease = ledger::lease_id(task);
    const Rate burn = state.money.books.burn(lease);
    const auto inside = task.price_class == PriceClass::reserved
                            ? state.reservations.find(task.reservation)
                            : state.reservations.end();
    const Job& job = state.jobs.at(task.job);
    each_budget(state, job, [&](const BudgetKey& key, const BudgetEntry& e) {
      ledger::BudgetUse& use = out.at(key);
      use.spent +=
          state.money.books.charge_between(lease, std::max(from.at(key), task.lease_from), billed);
      use.burn.nano_usd_per_s += burn.nano_usd_per_s;
      const Reservation* paid_by = inside != state.reservations.end() && pays(key, inside->second)
                                       ? &inside->second
                                       : nullptr;
      if (paid_by)
        use.burn_inside.nano_usd_per_s += burn.nano_usd_per_s;
      const Duration missing =
          short_of_minimum(minimum_of(e.budget, job), task.lease_from, billed, paid_by);
      if (missing.ns > 0 && key.scope != BudgetScope::token)
        use.reserved += amount(burn, missing);
    });
  }
  // Of an agent's budget everything is reserved that its jobs may still cost.
  for (const auto& [key, entry] : state.money.budgets) {
    const auto token = entry.budget.hard() ? out.find(token_budget(entry.budget.agent)) : out.end();
    if (token != out.end())
      token->second.reserved.value +=
          std::max<std::int64_t>(0, (entry.budget.limit - out.at(key).spent).value);
  }
  for (const auto& [id, so_far] : paid) {
    const Reservation& r = state.reservations.at(id);
    each_budget(
        state, Payers{.project = r.project, .user = r.user, .job = {}, .array = {}, .agent = {}},
        [&](const BudgetKey& key, const BudgetEntry& entry) {
          const NanoUsd to_come =
              still_to_pay(r, so_far, ledger::period_of(entry.budget.period, billed), billed);
          out.at(key).reserved += to_come;
          out.at(key).held_back += to_come;
        });
  }
  return out;
}
}  // namespace

Duration task_paid_for(const State& state,
                       const Task& task,
                       const std::map<BudgetKey, ledger::BudgetUse>& uses) {
  std::vector<std::pair<Budget, ledger::BudgetUse>> mine;
  Duration grace;
  std::optional<Duration> lead;
  const Job& job = state.jobs.at(task.job);
  each_budget(state, job, [&](const BudgetKey& key, const BudgetEntry& entry) {
    if (!entry.budget.stops)
      return;
    if (entry.budget.hard())
      lead = entry.budget.lead;
    mine.emplace_back(entry.budget, lives_on_reservation(state, key, job)
                                        ? uses.at(key)
                                        : ledger::outside(uses.at(key)));
    // At the cap the head suspends first and stops after the grace period; an agent alone allows
    // the same time.
    if (entry.progress.capped_at)
      grace = std::max(grace, entry.progress.capped_at + entry.budget.grace - uses.at(key).at);
  });
  const Rate burn = state.money.books.burn(ledger::lease_id(task));
  if (mine.empty() || burn.nano_usd_per_s == 0)
    return {};
  // A hard limit includes the time that the agent needs to stop the task. The head acts first.
  if (lead)
    return std::max(ledger::paid_for(mine, burn, paid_at_most) - *lead + agent_stop_margin / 2,
                    milliseconds(1));
  return std::max({ledger::paid_for(mine, burn, paid_at_most), grace, seconds(60)});
}

std::int64_t milli_of(const std::vector<Task>& tasks) {
  std::int64_t sum = 0;
  for (const Task& task : tasks)
    sum += ledger::gpu_milli(task);
  return sum;
}

std::string held_text(const Error& why) {
  return why.code == Code::exhausted ? "budget: " + why.message : why.message;
}

Rate rate_of(const std::vector<Task>& tasks) {
  Rate sum;
  for (const Task& task : tasks)
    sum.nano_usd_per_s += task.rate.nano_usd_per_s * ledger::gpu_milli(task) / 1000;
  return sum;
}

Purse::Purse(const State& state, WallTime billed)
    : state_(state),
      billed_(billed),
      paid_(paid_so_far(state, billed)),
      uses_(uses_with(state, billed, paid_)) {}

Status Purse::take(const Job& job, Rate rate, std::int64_t milli) {
  if (job.agent)
    BILLOW_TRY_VOID(gpus_.take(state_, job, milli));
  const Status paid = pay(job, rate);
  if (!paid && job.agent)
    gpus_.put_back(job, milli);
  if (paid && leases_)
    leases_->insert_or_assign(job.id,
                              Lease{rate, milli, billed_, reservation_of(state_, job) != nullptr});
  return paid;
}

void Purse::move_to(WallTime billed) {
  if (!leases_) {
    leases_.emplace();
    for (const auto& [id, task] : state_.tasks) {
      if (task.state == TaskState::ended)
        continue;
      Lease& lease = (*leases_)[task.job];
      lease.rate.nano_usd_per_s += state_.money.books.burn(ledger::lease_id(task)).nano_usd_per_s;
      lease.gpu_milli += task.holds_gpus() ? ledger::gpu_milli(task) : 0;
      lease.from = task.lease_from;
      lease.inside = task.price_class == PriceClass::reserved;
    }
  }
  // All of an agent token's budget that its jobs may cost is reserved already.
  for (auto& [key, use] : uses_)
    if (key.scope != BudgetScope::token)
      burn(key, use, billed);
  billed_ = billed;
}

void Purse::burn(const BudgetKey& key, ledger::BudgetUse& use, WallTime until) {
  const Budget& budget = state_.money.budgets.at(key).budget;
  const ledger::Period period = ledger::period_of(budget.period, until);
  const bool new_period = period.from > use.at;
  NanoUsd held_back;
  for (const auto& [id, paid] : paid_)
    if (const Reservation& r = state_.reservations.at(id); pays(key, r))
      held_back += still_to_pay(r, paid, period, until);
  use.spent = new_period ? NanoUsd{} : use.spent + (use.held_back - held_back);
  use.reserved += held_back - use.held_back;
  use.held_back = held_back;
  for (const auto& [id, lease] : *leases_) {
    const Job& job = state_.jobs.at(id);
    if (!concerns(key, job) || (lease.inside && lives_on_reservation(state_, key, job)))
      continue;
    const WallTime from = new_period ? std::max(period.from, lease.from) : use.at;
    use.spent += amount(lease.rate, until - from);
    const Duration minimum = minimum_of(budget, job);
    const auto missing = [&](WallTime at) {
      return std::max(Duration{}, minimum - (at - lease.from));
    };
    use.reserved -= amount(lease.rate, missing(use.at) - missing(until));
  }
  use.at = until;
}

void Purse::ended(const Job& job) {
  const auto found = leases_->find(job.id);
  if (found == leases_->end())
    return;
  const Lease lease = found->second;
  leases_->erase(found);
  if (job.agent)
    gpus_.put_back(job, lease.gpu_milli);
  each_budget(state_, job, [&](const BudgetKey& key, const BudgetEntry& entry) {
    if (key.scope == BudgetScope::token || (lease.inside && lives_on_reservation(state_, key, job)))
      return;
    ledger::BudgetUse& use = uses_.at(key);
    use.burn.nano_usd_per_s -= lease.rate.nano_usd_per_s;
    if (const Duration missing = minimum_of(entry.budget, job) - (billed_ - lease.from);
        missing.ns > 0)
      use.reserved -= amount(lease.rate, missing);
  });
}

bool Purse::used_up(const Job& job, Rate rate) const {
  const auto entry = state_.money.budgets.find(
      {BudgetScope::job, (job.array ? job.array : job.id).value, BudgetPeriod::total});
  return entry != state_.money.budgets.end() && entry->second.budget.hard() &&
         entry->second.budget.limit - uses_.at(entry->first).spent <
             amount(rate, minimum_of(entry->second.budget, job));
}

Status Purse::pay(const Job& job, Rate rate) {
  if (uses_.empty() || rate.nano_usd_per_s == 0)
    return {};
  std::vector<std::pair<Budget, ledger::BudgetUse>> mine;
  std::vector<std::pair<BudgetKey, Duration>> holds_back;
  const Reservation* inside = reservation_of(state_, job);
  each_budget(state_, job, [&](const BudgetKey& key, const BudgetEntry& entry) {
    ledger::BudgetUse use = uses_.at(key);
    const bool paid = inside && pays(key, *inside);
    if (paid)
      use.reserved -= still_to_pay(*inside, paid_.at(inside->id),
                                   ledger::period_of(entry.budget.period, use.at), use.at);
    holds_back.emplace_back(key, short_of_minimum(minimum_of(entry.budget, job), use.at, use.at,
                                                  paid ? inside : nullptr));
    mine.emplace_back(entry.budget, std::move(use));
  });
  for (const auto& each : mine)
    BILLOW_TRY_VOID(
        ledger::may_start({each}, {.rate = rate, .at_least = minimum_of(each.first, job)}));
  for (const auto& [key, missing] : holds_back) {
    if (missing.ns > 0)
      uses_.at(key).reserved += amount(rate, missing);
    uses_.at(key).burn.nano_usd_per_s += rate.nano_usd_per_s;
  }
  return {};
}

Status Purse::go_on(const Job& job, Rate rate) {
  if (uses_.empty() || rate.nano_usd_per_s == 0)
    return {};
  const auto before = uses_;
  for (TaskId id : job.tasks) {
    const Task& task = state_.tasks.at(id);
    if (task.state == TaskState::ended)
      continue;
    const Rate burn = state_.money.books.burn(ledger::lease_id(task));
    each_budget(state_, job, [&](const BudgetKey& key, const BudgetEntry& entry) {
      ledger::BudgetUse& use = uses_.at(key);
      use.burn.nano_usd_per_s -= burn.nano_usd_per_s;
      if (const Duration missing =
              short_of_minimum(minimum_of(entry.budget, job), task.lease_from, use.at, nullptr);
          missing.ns > 0)
        use.reserved -= amount(burn, missing);
    });
  }
  const Status paid = pay(job, rate);
  if (!paid)
    uses_ = before;
  return paid;
}

// The cost in each period must fit: in the current period into what is left, in later ones into the
// limit.
Status Purse::reserve(const Reservation& r) const {
  const Rate burn{whole_between(r, r.from, r.from + seconds(1)).value};
  if (uses_.empty() || burn.nano_usd_per_s <= 0)
    return {};
  std::optional<std::pair<Duration, Error>> tightest;
  each_budget(
      state_, Payers{.project = r.project, .user = r.user, .job = {}, .array = {}, .agent = {}},
      [&](const BudgetKey& key, const BudgetEntry& entry) {
        if (!entry.budget.stops)
          return;
        const WallTime at = uses_.at(key).at;
        ledger::Period period;
        for (WallTime in = std::max(at, r.from); in < r.until; in = end_of(period, r)) {
          period = ledger::period_of(entry.budget.period, in);
          ledger::BudgetUse use = uses_.at(key);
          if (period.from > at) {
            use = {.spent = {}, .reserved = {}, .burn = {}, .at = in, .who = std::move(use.who)};
            for (const auto& [id, other] : state_.reservations)
              if (pays(key, other))
                use.reserved += still_to_pay(other, paid_.at(id), period, at);
          }
          const NanoUsd need = whole_between(r, period.from, end_of(period, r)),
                        free = ledger::uncommitted(entry.budget, use);
          if (need <= free)
            continue;
          const Duration fits =
              (std::max(period.from, r.from) - r.from) + ledger::lasts(free, burn);
          if (!tightest || fits < tightest->first)
            tightest.emplace(fits, ledger::too_dear(entry.budget, use, need, fits));
          return;
        }
      });
  if (tightest)
    return pass(std::move(tightest->second));
  return {};
}

namespace {
// Money held back for reservations is not spent by other jobs: jobs outside are suspended or
// stopped when nothing else is left.
void keep_for_reservations(const State& state,
                           const std::map<BudgetKey, ledger::BudgetUse>& uses,
                           Events& events) {
  std::set<JobId> asked;
  for (const auto& [key, entry] : state.money.budgets) {
    const ledger::BudgetUse& use = uses.at(key);
    if (!entry.budget.stops || use.held_back.value <= 0 || use.spent >= entry.budget.limit ||
        use.spent + use.held_back < entry.budget.limit)
      continue;
    const std::string reason =
        fmt::format("budget: of {} for {}, {} is spent and the rest is set aside for reservations",
                    format_usd(entry.budget.limit), budget_name(state, key), format_usd(use.spent));
    for (const auto& [id, job] : state.jobs) {
      if (job.tasks.empty() || !concerns(key, job) || lives_on_reservation(state, key, job))
        continue;
      const bool burns = std::ranges::any_of(job.tasks, [&](TaskId task) {
        return state.money.books.burn(ledger::lease_id(state.tasks.at(task))).nano_usd_per_s > 0;
      });
      if (burns && asked.insert(id).second)
        put_aside(state, events, job, SuspendCause::budget, reason);
    }
  }
}
}  // namespace

std::string held_back(const State& state, const std::set<JobId>& jobs, WallTime billed) {
  for (JobId id : jobs) {
    const Job& job = state.jobs.at(id);
    const auto held = state.money.held.find(id);
    const bool asleep = job.suspension.phase == SuspendPhase::suspended &&
                        job.suspension.cause == SuspendCause::budget &&
                        !job.suspension.resume_wanted;
    if (held == state.money.held.end() && !asleep)
      continue;
    if (const Status paid =
            Purse(state, billed)
                .take(job, asleep ? Rate{1} : held->second, gpu_milli_of(*job.spec));
        !paid)
      return held_text(paid.error());
  }
  return {};
}

std::string budget_cure(const State& state, const Job& job, WallTime billed) {
  const auto held = state.money.held.find(job.id);
  if (held == state.money.held.end())
    return {};
  const Status paid = Purse(state, billed).take(job, held->second, gpu_milli_of(*job.spec));
  return paid ? std::string() : paid.error().hint;
}

// ---- decisions

Decision Decider::operator()(const SetBudget& c) {
  BILLOW_TRY_VOID(ledger::check(c.budget));
  switch (c.budget.scope) {
    case BudgetScope::project:
      if (!state.projects.contains(ProjectId(c.budget.of)))
        return fail(Code::not_found, "no such project");
      break;
    case BudgetScope::user:
      if (!state.users.contains(UserId(c.budget.of)))
        return fail(Code::not_found, "no such user");
      break;
    case BudgetScope::job:
      if (!state.jobs.contains(JobId(c.budget.of)) && !state.arrays.contains(JobId(c.budget.of)))
        return fail(Code::not_found,
                    fmt::format("job {} has ended, or does not exist", c.budget.of),
                    "see `billow ps -a`");
      if (c.budget.period != BudgetPeriod::total)
        return fail(Code::invalid, "a job's budget cannot have a period",
                    "drop the period, or use --total");
      if (const auto set = state.money.budgets.find(c.budget.key());
          set != state.money.budgets.end() && set->second.budget.hard())
        return fail(Code::conflict,
                    fmt::format("job {} belongs to an agent token, which limits what it may cost",
                                c.budget.of),
                    "submit it with another token");
      break;
    case BudgetScope::token:
      return fail(Code::invalid, "the budget of an agent token cannot be changed",
                  "create another token: billow token create --agent NAME --budget USD");
  }
  NanoUsd spent = c.spent;
  if (c.budget.scope == BudgetScope::job) {
    if (const Job* job = state.find_job(JobId(c.budget.of)))
      spent = job->cost;
    else
      spent = state.arrays.at(JobId(c.budget.of)).cost;
  }
  return Events{BudgetSet{c.budget, spent}};
}

Decision Decider::operator()(const RemoveBudget& c) {
  if (!state.money.budgets.contains(c.budget))
    return fail(Code::not_found,
                fmt::format("no {} budget is set for {}", enum_name(c.budget.period),
                            budget_name(state, c.budget)),
                "see `billow budget show`");
  if (c.budget.scope == BudgetScope::token || state.money.budgets.at(c.budget).budget.hard())
    return fail(Code::conflict, "the budgets of agent tokens and of their jobs cannot be removed",
                "end the token: billow token revoke ID");
  return Events{BudgetRemoved{c.budget}};
}

// Budgets reach a threshold, are used up, or begin a new period.
void step_budgets(const State& state, const Context& context, Events& events) {
  const auto uses = budget_uses(state, context.billed);
  for (const auto& [key, entry] : state.money.budgets) {
    const ledger::BudgetStep step = ledger::step(entry.budget, entry.progress, uses.at(key));
    if (step.state == entry.progress && step.action == BudgetAction::none)
      continue;
    events.push_back(BudgetWarned{
        key, step.state, step.action, step.pct,
        step.text.empty() ? "" : fmt::format("{}: {}", budget_name(state, key), step.text)});
  }
  if (events.empty())  // consequences of a spent budget come first
    keep_for_reservations(state, uses, events);
}

}  // namespace billow::control
