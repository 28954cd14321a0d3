// What a forecast asks about money: whether the budgets will pay for a start at a later moment, by
// the same rule that holds a job when it is about to start.
#pragma once

#include "core/control/decide/decide.h"
#include "core/control/money.h"
#include "core/sched/outlook.h"

namespace billow::control {

class PaidStarts final : public sched::Admission {
 public:
  PaidStarts(const State& state, const Context& context);
  std::unique_ptr<sched::Admission> clone() const override;
  Status start(JobId job, const std::vector<sched::Placement>& placements, WallTime at) override;
  void ended(JobId job, WallTime at) override;
  WallTime changes_after(WallTime at) const override;

 private:
  WallTime billed(WallTime at) const { return context_.billed + (at - context_.now); }

  const State& state_;
  Context context_;
  Purse purse_;
};

}  // namespace billow::control
