// Internal to this module: when a member of a gang that ended is replaced instead of ending the
// attempt.
#pragma once

#include "core/control/state.h"

namespace billow::control {

// Its node was lost, or it failed by itself and there are retries left for it. Of several that
// failed, those that did so first.
bool is_replaceable(const State& state, const Job& job, const Task& task);

}  // namespace billow::control
