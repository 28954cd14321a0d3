#include "core/control/renting/paid_starts.h"

#include "core/control/decide/decider.h"

namespace billow::control {

PaidStarts::PaidStarts(const State& state, const Context& context)
    : state_(state), context_(context), purse_(state, context.billed) {
  purse_.move_to(context.billed);
}

std::unique_ptr<sched::Admission> PaidStarts::clone() const {
  return std::make_unique<PaidStarts>(*this);
}

Status PaidStarts::start(JobId id, const std::vector<sched::Placement>& placements, WallTime at) {
  const Job* job = state_.find_job(id);
  if (!job)
    return {};  // one that the forecast invented
  purse_.move_to(billed(at));
  std::vector<Task> tasks;
  for (const sched::Placement& placement : placements)
    tasks.push_back(make_task(state_, *job, {}, 0, 0, placement, context_));
  return purse_.take(*job, rate_of(tasks), milli_of(tasks));
}

void PaidStarts::ended(JobId id, WallTime at) {
  const Job* job = state_.find_job(id);
  if (!job)
    return;
  purse_.move_to(billed(at));
  purse_.ended(*job);
}

WallTime PaidStarts::changes_after(WallTime at) const {
  WallTime next;
  for (const auto& [key, entry] : state_.money.budgets)
    if (const WallTime to = ledger::period_of(entry.budget.period, billed(at)).to;
        to && (!next || to < next))
      next = to;
  return next ? context_.now + (next - context_.billed) : WallTime{};
}

}  // namespace billow::control
