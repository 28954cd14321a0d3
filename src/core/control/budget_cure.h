#pragma once

#include <string>

#include "core/control/state.h"

namespace billow::control {

// What would let a job start that is held because a budget is used up: "raise it with …". Empty if
// no budget holds it.
std::string budget_cure(const State& state, const Job& job, WallTime billed);

}  // namespace billow::control
