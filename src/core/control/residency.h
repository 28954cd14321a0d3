// Data residency: one answer to "may this project's data be there?", for jobs, files, environments
// and suspended images.
//
// Guarantees: a job of a project that is restricted to regions or pools is placed only there (by
// the scheduler); content is sent to a node only for a job that is there (`may_send`, checked
// before trees of files, environments and images are sent); a suspended image stays on the node its
// job ran on; and a restriction is refused while jobs of the project, running or suspended, are
// outside of it (`nothing_outside`). What such jobs left in a node's caches is deleted then: the
// node asks (`must_leave`).
#pragma once

#include <set>
#include <string>

#include "core/control/state.h"

namespace billow::control {

// By the node's location. A node without a location never matches a project that is bound to
// regions.
bool may_hold(const Quota& quota, const std::string& region, const std::string& pool);
// The same for a project and a node of the state, as an error for the user.
Status may_hold(const State& state, ProjectId project, NodeId node);
// Whether content with this digest (the tree of a working directory, or a saved environment) may be
// sent to the node: a job that names it has a task there, and its project's data may be there.
Status may_send(const State& state, NodeId node, std::string_view digest);
// The digests for which it is so.
std::set<std::string> trees_at(const State& state, NodeId node);
// Projects with jobs on the node whose data may be there.
std::vector<ProjectId> projects_at(const State& state, NodeId node);
// Of the named projects, those that are unknown or whose data may not be on the node: what they
// left there must be deleted.
std::vector<std::string> must_leave(const State& state,
                                    NodeId node,
                                    const std::vector<std::string>& projects);
// Whether all live jobs of the project are where this quota would allow them; an error names those
// that are not.
Status nothing_outside(const State& state, ProjectId project, const Quota& quota);

}  // namespace billow::control
