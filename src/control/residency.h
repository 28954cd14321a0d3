// Data residency: one answer to "may this project's data be there?", for jobs, files, environments and suspended images alike.
#pragma once

#include <string>

#include "control/state.h"

namespace billow::control {

// By where a node stands. One that does not say is nowhere: a project that is bound to regions does not go there.
bool may_hold(const Quota& quota, const std::string& region, const std::string& pool);
// The same for a project and a node of the state, as an error a user can act on.
Status may_hold(const State& state, ProjectId project, NodeId node);

}  // namespace billow::control
