// When the charge of a task begins: an image may be pulled before its process starts, and that time
// is not charged.
#pragma once

#include "core/control/state.h"

namespace billow::control {

// Whether anything is known to have run for the task. While nothing is, it is charged nothing; its
// agent says later when the process began (decide_agents.cpp).
inline bool has_begun(const State& state, const Task& task) {
  return task.started_at || task.lease_number > 0 || state.money.meters.contains(task.id);
}

}  // namespace billow::control
