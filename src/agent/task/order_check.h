// Refuses orders that no honest head sends. The agent of a node is root, and what an order says
// becomes paths, variables of Billow's own programs and mounts. So it does not rely on the checks
// of its head: a head that was taken over gets no further than the node's policy lets it.
#pragma once

#include "base/result.h"
#include "core/wire/agent_v1.h"

namespace billow::agent {

// Numbers, lists, names, paths and variables of a start order. Volumes that are on this node are
// judged by where their paths lead.
Status check_order(const wire::agent_v1::Start& start);

}  // namespace billow::agent
