#include "core/control/renting/demand_limits.h"

#include <algorithm>

#include "core/control/renting/offers.h"
#include "core/ledger/meter.h"

namespace billow::control {

DemandLimits::DemandLimits(const State& state, WallTime billed) : state_(state), billed_(billed) {}
DemandLimits::~DemandLimits() = default;

DemandLimits::Load& DemandLimits::of_user(ProjectId project, UserId user) {
  if (!users_known_) {
    users_known_ = true;
    for (const auto& [id, job] : state_.jobs) {
      if (job.state != JobState::running)
        continue;
      Load& load = users_[{job.project, job.user}];
      ++load.jobs;
      for (TaskId task : job.tasks)
        if (const Task& t = state_.tasks.at(task); t.holds_gpus())
          load.milli += ledger::gpu_milli(t);
    }
  }
  return users_[{project, user}];
}

bool DemandLimits::take(const Job& job, std::int64_t gpu_milli) {
  const auto project = state_.projects.find(job.project);
  if (project == state_.projects.end())
    return true;
  const Quota& quota = project->second.quota;
  std::int64_t most = quota.limit_milli;
  if (!quota.may_borrow)
    most = most < 0 ? quota.guaranteed_milli : std::min(most, quota.guaranteed_milli);
  const auto [used, fresh] = projects_.try_emplace(job.project, 0);
  if (fresh)
    used->second = state_.index.running_milli(job.project);
  if (most >= 0 && gpu_milli > 0 && used->second + gpu_milli > most)
    return false;
  const bool user_limits = quota.user_limit_milli >= 0 || quota.user_running_max >= 0;
  if (user_limits) {
    Load& load = of_user(job.project, job.user);
    if (quota.user_limit_milli >= 0 && load.milli + gpu_milli > quota.user_limit_milli)
      return false;
    if (quota.user_running_max >= 0 && load.jobs >= quota.user_running_max)
      return false;
  }
  if (const auto array = state_.arrays.find(job.array);
      array != state_.arrays.end() && job.spec->array && job.spec->array->running_max > 0) {
    std::uint64_t& planned = arrays_[job.array];
    if (array->second.running + planned >= job.spec->array->running_max)
      return false;
    ++planned;
  }
  used->second += gpu_milli;
  if (user_limits) {
    Load& load = of_user(job.project, job.user);
    load.milli += gpu_milli;
    ++load.jobs;
  }
  return true;
}

bool DemandLimits::pays(const Job& job, Rate rate, std::int64_t gpu_milli) {
  if (state_.money.budgets.empty())
    return true;
  if (!purse_)
    purse_ = std::make_unique<Purse>(state_, billed_);
  return purse_->take(job, rate, gpu_milli).has_value();
}

// What its provider takes is not what the project pays, if an administrator has set a price: a job
// that cannot pay that one would be held on the machine that was rented for it.
Rate rate_on(const State& state,
             const Source& source,
             const JobSpec& spec,
             const ledger::PriceBook* prices) {
  if (!spec.roles.empty()) {
    Rate sum;
    for (const JobSpec& part : parts_of(spec))
      sum.nano_usd_per_s += rate_on(state, source, part, prices).nano_usd_per_s;
    return sum;
  }
  const std::int64_t gpus = spec.resources.takes_node() ? source.gpus() : spec.resources.gpus;
  Node node;
  node.pool = source.pool->id;
  node.offer.gpus.resize(static_cast<std::size_t>(std::max(0, source.gpus())));
  const bool is_set = state.money.prices.contains("pool:" + source.pool->name);
  const Rate each = source.offer && source.price().nano_usd_per_s > 0 && !is_set
                        ? Rate{source.price().nano_usd_per_s / std::max(1, source.gpus())}
                        : charge_rate(state, node, source.gpu_type(),
                                      spec.spot ? PriceClass::spot : PriceClass::on_demand, prices);
  return {each.nano_usd_per_s * gpus * spec.nodes};
}

std::int64_t all_milli(const JobSpec& spec) {
  std::int64_t milli = 0;
  for (const JobSpec& part : parts_of(spec))
    milli += wanted_milli(part.resources, 1) * part.nodes;
  return milli;
}

bool could_use_a_machine(const State& state, const Job& job, WallTime now) {
  return DemandLimits(state, state.billed).take(job, all_milli(*job.spec)) &&
         waits_for_capacity(state, job, now);
}

namespace {

bool more_machines_help(const sched::Reason& reason) {
  switch (reason.kind) {
    // What others are guaranteed: the planner knows what a machine would change (lending.h).
    case sched::ReasonKind::quota:
      return reason.by_guarantee;
    case sched::ReasonKind::held:
    case sched::ReasonKind::budget:
    case sched::ReasonKind::project_limit:
    case sched::ReasonKind::user_limit:
    case sched::ReasonKind::array_limit:
    case sched::ReasonKind::preempting:
      return false;
    // Everything where the project's jobs may run is in use: pools there bring more.
    case sched::ReasonKind::residency:
    case sched::ReasonKind::infeasible:
    case sched::ReasonKind::no_capacity:
    case sched::ReasonKind::fragmentation:
    case sched::ReasonKind::topology:
    case sched::ReasonKind::reserved:
    case sched::ReasonKind::waiting_behind:
    case sched::ReasonKind::next:
      return true;
  }
  return true;
}

}  // namespace

bool waits_for_capacity(const State& state, const Job& job, WallTime now) {
  const auto explanation = sched::explain(state.index, job.id, now, sched::Advice::none);
  return std::ranges::all_of(explanation.reasons, more_machines_help);
}

}  // namespace billow::control
