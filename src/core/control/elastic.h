// Internal to this module: whether an ended member of a gang is replaced instead of ending the
// attempt.
#pragma once

#include "core/control/state.h"

namespace billow::control {

// Its node was lost, or it failed by itself and has retries left. Of several failed members, those
// that failed first.
bool is_replaceable(const State& state, const Job& job, const Task& task);
// A group with no live member, of which one is about to be replaced: the group continues.
bool awaits_member(const State& state, const Job& job);

}  // namespace billow::control
