// The money tick: four duties, in this order.
#include <fmt/format.h>

#include <optional>
#include <set>
#include <tuple>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/agent_tokens.h"
#include "core/control/decide/decider.h"
#include "core/control/money.h"

namespace billow::control {
namespace {

// 2a. Jobs held for lack of money start when there is some. Of many jobs that wait for the same
// money one is tried; jobs with a separate budget are few, and each is tried.
void start_held_jobs(const State& state, const Context& context, Events& events) {
  Purse purse(state, context.billed);
  std::set<std::tuple<ProjectId, UserId, ReservationId, TokenId, std::int64_t>> refused;
  for (const auto& [id, rate] : state.money.held) {
    const Job& job = state.jobs.at(id);
    const auto has_budget = [&](JobId of) {
      return state.money.budgets.contains({BudgetScope::job, of.value, BudgetPeriod::total});
    };
    const bool own = has_budget(id) || (job.array && has_budget(job.array));
    const Reservation* inside = reservation_of(state, job);
    const std::tuple key(job.project, job.user, inside ? inside->id : ReservationId{}, job.agent,
                         rate.nano_usd_per_s);
    if (!own && refused.contains(key))
      continue;
    if (purse.take(job, rate, gpu_milli_of(*job.spec)))
      events.push_back(JobReady{id});
    else if (!own)
      refused.insert(key);
  }
}

// What the GPUs of a suspended job would cost again; nothing if its node no longer has them.
std::optional<Rate> rate_if_resumed(const State& state, const Context& context, const Job& job) {
  const Task& task = state.tasks.at(job.tasks.front());
  const auto node = state.nodes.find(task.node);
  if (node == state.nodes.end() || task.gpus.empty())
    return std::nullopt;
  const auto gpu = static_cast<std::size_t>(task.gpus.front().gpu);
  if (gpu >= node->second.offer.gpus.size())
    return std::nullopt;
  std::int64_t milli = 0;
  for (const GpuGrant& grant : task.gpus)
    milli += grant.share.milli;
  const Rate rate =
      charge_rate(state, node->second, node->second.offer.gpus[gpu].type,
                  job.spec->spot ? PriceClass::spot : PriceClass::on_demand, context.prices);
  return Rate{rate.nano_usd_per_s * milli / 1000};
}

// 2b. Jobs that a budget suspended resume when there is money.
void resume_for_money(const State& state, const Context& context, Events& events) {
  Purse purse(state, context.billed);
  for (const auto& [id, job] : state.jobs) {
    const Suspension& s = job.suspension;
    if (job.state != JobState::suspended || s.cause != SuspendCause::budget || s.resume_wanted ||
        job.stopping != StopCause::none)
      continue;
    const auto rate = rate_if_resumed(state, context, job);
    if (rate && purse.take(job, *rate, gpu_milli_of(*job.spec)))
      events.push_back(
          SuspensionChanged{id, SuspendCause::budget, "the budget allows it again", true});
  }
}

// 3. A job that was suspended because it was idle keeps its machine, but not for long if the
// machine is paid for by the hour.
void stop_idle_on_paid_nodes(const State& state, const Context& context, Events& events) {
  for (const auto& [id, job] : state.jobs) {
    if (job.state != JobState::suspended || job.suspension.cause != SuspendCause::idle ||
        job.stopping != StopCause::none)
      continue;
    const auto node = state.nodes.find(state.tasks.at(job.tasks.front()).node);
    if (node == state.nodes.end() || !node_bills(node->second))
      continue;
    const IdlePolicy& policy = state.money.policy_of(job.project);
    const Duration suspended = context.now - job.suspension.since;
    if (suspended >= policy.stop_after - policy.suspend_after)
      events.push_back(IdleActed{
          id, IdleAction::stop,
          fmt::format("suspended {} ago because it was idle; stopped, because its node costs money",
                      format_duration(suspended))});
  }
}

// 4. Nodes that are paid for and have no jobs are given back. Machines of a pool are not: their
// pool does that.
void give_back_empty_nodes(const State& state, const Context& context, Events& events) {
  for (const auto& [id, since] : state.money.node_empty_since) {
    const auto node = state.nodes.find(id);
    if (node == state.nodes.end() || node->second.pool || !node_bills(node->second))
      continue;
    if (!state.money.released.contains(id)) {
      if (context.billed - since >= limits::node_give_back_after)
        events.push_back(NodeReleased{
            id, fmt::format("no job for {}", format_duration(context.billed - since))});
      continue;
    }
    // It was released and has gone, so its owner no longer bills for it.
    if (!node->second.reachable &&
        context.billed - node->second.unreachable_since > limits::agent_unreachable_after * 2)
      events.push_back(NodeRemoved{id});
  }
}

}  // namespace

// 1. is step_budgets (budgets.cpp).
Decision Decider::operator()(const MoneyTick&) {
  Events events;
  if (!state.money.budgets.empty() || !state.money.held.empty()) {
    step_budgets(state, context, events);
    start_held_jobs(state, context, events);
  }
  if (state.count.contains(JobState::suspended)) {
    resume_for_money(state, context, events);
    stop_idle_on_paid_nodes(state, context, events);
  }
  give_back_empty_nodes(state, context, events);
  return events;
}

}  // namespace billow::control
