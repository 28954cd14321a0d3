// Names of what the state refers to by number, as documents show them.
#pragma once

#include <string>

#include "core/control/state.h"

namespace billow::view {

// Empty if the user or project does not exist (any more).
std::string user_name(const control::State& state, UserId id);
std::string project_name(const control::State& state, ProjectId id);
// "node 7" for a node that was removed.
std::string node_name(const control::State& state, NodeId id);
// The type of the first GPU that the task holds; empty if it holds none.
std::string gpu_type(const control::State& state, const Task& task);
// "12", or "12.3" for element 3 of array 12.
std::string job_label(const Job& job);

}  // namespace billow::view
