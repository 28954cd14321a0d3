// What is spent, reserved and burning of every budget, and whether a job may start on what is left. Spent is what ended leases
// were charged in the period (kept as a sum) and what live ones have been charged since it began.
#include "control/money.h"

#include <fmt/format.h>

#include <set>
#include <tuple>

#include "base/limits.h"
#include "base/text.h"
#include "control/decider.h"

namespace billow::control {
namespace {

constexpr Duration start_minimum = ledger::Ask{}.at_least;
constexpr Duration paid_at_most = hours(1);   // then the head must have been heard again

template <class F>
void each_budget(const State& state, const Job& job, F visit) {
  const auto of = [&](BudgetScope scope, std::uint64_t id) {
    if (id == 0) return;
    for (const BudgetPeriod period : {BudgetPeriod::daily, BudgetPeriod::monthly, BudgetPeriod::total})
      if (const auto found = state.money.budgets.find({scope, id, period}); found != state.money.budgets.end()) visit(found->first, found->second);
  };
  of(BudgetScope::project, job.project.value);
  of(BudgetScope::user, job.user.value);
  of(BudgetScope::job, job.id.value);
  of(BudgetScope::job, job.array.value);
}

}  // namespace

std::string budget_name(const State& state, const BudgetKey& key) {
  switch (key.scope) {
    case BudgetScope::project:
      if (const auto p = state.projects.find(ProjectId(key.of)); p != state.projects.end()) return "project " + p->second.name;
      break;
    case BudgetScope::user:
      if (const auto u = state.users.find(UserId(key.of)); u != state.users.end()) return "user " + u->second.name;
      break;
    case BudgetScope::job: break;
  }
  return fmt::format("{} {}", enum_name(key.scope), key.of);
}

std::map<BudgetKey, ledger::BudgetUse> budget_uses(const State& state, WallTime billed) {
  std::map<BudgetKey, ledger::BudgetUse> out;
  std::map<BudgetKey, WallTime> from;
  for (const auto& [key, entry] : state.money.budgets) {
    const ledger::Period period = ledger::period_of(entry.budget.period, billed);
    from[key] = period.from;
    out[key] = {.spent = entry.counted_from == period.from ? entry.spent_closed : NanoUsd{}, .reserved = {}, .burn = {}, .at = billed, .who = budget_name(state, key)};
  }
  if (out.empty()) return out;
  for (const auto& [id, task] : state.tasks) {
    if (task.state == TaskState::ended) continue;
    const LeaseId lease = ledger::lease_id(task);
    const Rate burn = state.money.books.burn(lease);
    const Duration short_of_minimum = start_minimum - (billed - task.lease_from);
    each_budget(state, state.jobs.at(task.job), [&](const BudgetKey& key, const BudgetEntry&) {
      ledger::BudgetUse& use = out.at(key);
      use.spent += state.money.books.charge_between(lease, std::max(from.at(key), task.lease_from), billed);
      use.burn.nano_usd_per_s += burn.nano_usd_per_s;
      if (short_of_minimum.ns > 0) use.reserved += amount(burn, short_of_minimum);
    });
  }
  return out;
}

Duration task_paid_for(const State& state, const Task& task, const std::map<BudgetKey, ledger::BudgetUse>& uses) {
  std::vector<std::pair<Budget, ledger::BudgetUse>> mine;
  Duration grace;
  each_budget(state, state.jobs.at(task.job), [&](const BudgetKey& key, const BudgetEntry& entry) {
    if (!entry.budget.stops) return;
    mine.emplace_back(entry.budget, uses.at(key));
    // At the cap the head suspends first and stops after the grace; an agent alone gives it the same time.
    if (entry.progress.capped_at) grace = std::max(grace, entry.progress.capped_at + entry.budget.grace - uses.at(key).at);
  });
  const Rate burn = state.money.books.burn(ledger::lease_id(task));
  if (mine.empty() || burn.nano_usd_per_s == 0) return {};
  return std::max({ledger::paid_for(mine, burn, paid_at_most), grace, seconds(60)});
}

Rate rate_of(const std::vector<Task>& tasks) {
  Rate sum;
  for (const Task& task : tasks) sum.nano_usd_per_s += task.rate.nano_usd_per_s * ledger::gpu_milli(task) / 1000;
  return sum;
}

Purse::Purse(const State& state, WallTime billed) : state_(state), uses_(budget_uses(state, billed)) {}

Status Purse::take(const Job& job, Rate rate) {
  if (uses_.empty() || rate.nano_usd_per_s == 0) return {};
  std::vector<std::pair<Budget, ledger::BudgetUse>> mine;
  std::vector<BudgetKey> keys;
  each_budget(state_, job, [&](const BudgetKey& key, const BudgetEntry& entry) {
    mine.emplace_back(entry.budget, uses_.at(key));
    keys.push_back(key);
  });
  const ledger::Ask ask{.rate = rate};
  BILLOW_TRY_VOID(ledger::may_start(mine, ask));
  for (const BudgetKey& key : keys) {
    uses_.at(key).reserved += amount(rate, ask.at_least);
    uses_.at(key).burn.nano_usd_per_s += rate.nano_usd_per_s;
  }
  return {};
}

std::string held_back(const State& state, const std::set<JobId>& jobs, WallTime billed) {
  for (JobId id : jobs) {
    const Job& job = state.jobs.at(id);
    const auto held = state.money.held.find(id);
    const bool asleep = job.suspension.phase == SuspendPhase::suspended && job.suspension.cause == SuspendCause::budget && !job.suspension.resume_wanted;
    if (held == state.money.held.end() && !asleep) continue;
    if (const Status paid = Purse(state, billed).take(job, asleep ? Rate{1} : held->second); !paid) return "budget: " + paid.error().message;
  }
  return {};
}

// ---- decisions

Decision Decider::operator()(const SetBudget& c) {
  BILLOW_TRY_VOID(ledger::check(c.budget));
  switch (c.budget.scope) {
    case BudgetScope::project:
      if (!state.projects.contains(ProjectId(c.budget.of))) return fail(Code::not_found, "there is no such project");
      break;
    case BudgetScope::user:
      if (!state.users.contains(UserId(c.budget.of))) return fail(Code::not_found, "there is no such user");
      break;
    case BudgetScope::job:
      if (!state.jobs.contains(JobId(c.budget.of)) && !state.arrays.contains(JobId(c.budget.of))) return fail(Code::not_found, fmt::format("there is no live job {}", c.budget.of));
      if (c.budget.period != BudgetPeriod::total) return fail(Code::invalid, "a job's budget is for all of it", "leave the period out, or say --total");
      break;
  }
  NanoUsd spent = c.spent;
  if (c.budget.scope == BudgetScope::job) {
    if (const Job* job = state.find_job(JobId(c.budget.of))) spent = job->cost;
    else spent = state.arrays.at(JobId(c.budget.of)).cost;
  }
  return Events{BudgetSet{c.budget, spent}};
}

Decision Decider::operator()(const RemoveBudget& c) {
  if (!state.money.budgets.contains(c.budget)) return fail(Code::not_found, fmt::format("there is no {} budget of {}", enum_name(c.budget.period), budget_name(state, c.budget)), "see `billow budget show`");
  return Events{BudgetRemoved{c.budget}};
}

Decision Decider::operator()(const MoneyTick&) {
  Events events;
  if (!state.money.budgets.empty() || !state.money.held.empty()) {
    const auto uses = budget_uses(state, context.billed);
    for (const auto& [key, entry] : state.money.budgets) {
      const ledger::BudgetStep step = ledger::step(entry.budget, entry.progress, uses.at(key));
      if (step.state == entry.progress && step.action == BudgetAction::none) continue;
      events.push_back(BudgetWarned{key, step.state, step.action, step.pct, step.text.empty() ? "" : fmt::format("{}: {}", budget_name(state, key), step.text)});
    }
    Purse purse(state, context.billed);
    // Of a hundred thousand that wait for the same money one is asked; budgets of single jobs are few and asked each.
    std::set<std::tuple<ProjectId, UserId, std::int64_t>> refused;
    for (const auto& [id, rate] : state.money.held) {
      const Job& job = state.jobs.at(id);
      const bool own = state.money.budgets.contains({BudgetScope::job, id.value, BudgetPeriod::total}) || (job.array && state.money.budgets.contains({BudgetScope::job, job.array.value, BudgetPeriod::total}));
      const std::tuple key(job.project, job.user, rate.nano_usd_per_s);
      if (!own && refused.contains(key)) continue;
      if (purse.take(job, rate)) events.push_back(JobReady{id});
      else if (!own) refused.insert(key);
    }
  }
  // What was suspended at the cap goes on when there is money again; the rest of its way is that of any resume.
  if (state.count.contains(JobState::suspended)) {
    Purse purse(state, context.billed);
    for (const auto& [id, job] : state.jobs) {
      const Suspension& s = job.suspension;
      if (job.state != JobState::suspended || s.cause != SuspendCause::budget || s.resume_wanted || job.stopping != StopCause::none) continue;
      const Task& task = state.tasks.at(job.tasks.front());
      const auto node = state.nodes.find(task.node);
      if (node == state.nodes.end() || task.gpus.empty()) continue;
      std::int64_t milli = 0;
      for (const GpuGrant& grant : task.gpus) milli += grant.share.milli;
      const auto gpu = static_cast<std::size_t>(task.gpus.front().gpu);
      if (gpu >= node->second.offer.gpus.size()) continue;
      const Rate rate = charge_rate(state, node->second, node->second.offer.gpus[gpu].type, job.spec->spot ? PriceClass::spot : PriceClass::on_demand, context.prices);
      if (purse.take(job, Rate{rate.nano_usd_per_s * milli / 1000})) events.push_back(SuspensionChanged{id, SuspendCause::budget, "there is money again", true});
    }
  }
  // What was suspended for idling keeps its machine; where that is paid for by the hour, not for long.
  if (state.count.contains(JobState::suspended)) for (const auto& [id, job] : state.jobs) {
    if (job.state != JobState::suspended || job.suspension.cause != SuspendCause::idle || job.stopping != StopCause::none) continue;
    const auto node = state.nodes.find(state.tasks.at(job.tasks.front()).node);
    if (node == state.nodes.end() || !node_bills(node->second)) continue;
    const IdlePolicy& policy = state.money.policy_of(job.project);
    const Duration suspended = context.now - job.suspension.since;
    if (suspended >= policy.stop_after - policy.suspend_after)
      events.push_back(IdleActed{id, IdleAction::stop, fmt::format("suspended after idling, {} ago; its node costs money, so it is stopped", format_duration(suspended))});
  }
  for (const auto& [id, since] : state.money.node_empty_since) {
    const auto node = state.nodes.find(id);
    // Machines of a pool are given back by it.
    if (node == state.nodes.end() || node->second.pool || !node_bills(node->second)) continue;
    if (state.money.released.contains(id)) {
      // It was told to go and has gone: whoever lent it sends no bill for it any more.
      if (!node->second.reachable) events.push_back(NodeRemoved{id});
    } else if (context.billed - since >= limits::node_give_back_after) {
      events.push_back(NodeReleased{id, fmt::format("no job for {}", format_duration(context.billed - since))});
    }
  }
  return events;
}

}  // namespace billow::control
