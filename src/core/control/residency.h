// Data residency: one answer to "may this project's data be there?", for jobs, files, environments
// and suspended images alike.
//
// What holds: a job of a project that is kept to regions or pools is placed there alone (the
// scheduler's own rule); content goes to a node only for a job that is there (`may_send`, to be
// asked before anything leaves for a node: trees of files, environments, images); a suspended image
// stays on the node its job ran on; and a project cannot be kept to other places while work of it,
// running or suspended, is outside of them (`nothing_outside`). What such work left in a node's
// caches goes when that is decided: the node asks
// (`must_leave`).
#pragma once

#include <string>

#include "core/control/state.h"

namespace billow::control {

// By where a node stands. One that does not say is nowhere: a project that is bound to regions does
// not go there.
bool may_hold(const Quota& quota, const std::string& region, const std::string& pool);
// The same for a project and a node of the state, as an error a user can act on.
Status may_hold(const State& state, ProjectId project, NodeId node);
// Whether content with this digest (the tree of a working directory, or a saved environment) may be
// sent to the node: a job that names it has a task there, and its project's data may be there.
Status may_send(const State& state, NodeId node, std::string_view digest);
// Projects that have work on the node, and whose data may be there.
std::vector<ProjectId> projects_at(const State& state, NodeId node);
// Of these projects, by name, those whose data may not be on the node, or that are not known: what
// they left there must go.
std::vector<std::string> must_leave(const State& state,
                                    NodeId node,
                                    const std::vector<std::string>& projects);
// Whether all live work of the project is where this quota would allow it; an error names what is
// not.
Status nothing_outside(const State& state, ProjectId project, const Quota& quota);

}  // namespace billow::control
