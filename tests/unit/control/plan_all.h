// Plans until nothing more fits, as the head does. A scheduler that does not come to an end fails
// the test; it must not hang it.
#pragma once

#include <gtest/gtest.h>

#include "core/control/core.h"

namespace billow::control {

template <class PlanOnce>
void plan_all(const Core& core, PlanOnce plan_once) {
  constexpr int rounds_max = 10'000;
  for (int round = 0; round < rounds_max; ++round) {
    plan_once();
    if (!core.more() || ::testing::Test::HasFatalFailure())
      return;
  }
  FAIL() << "the scheduler finds more to start after " << rounds_max << " rounds";
}

}  // namespace billow::control
