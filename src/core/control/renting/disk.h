// How much of a node's disk is offered to jobs. The node reports what is free; jobs that asked for
// disk may have filled some of theirs or none of it. The scheduler subtracts what they asked for,
// so it is added here; what is offered then never exceeds what was offered before they started.
#pragma once

#include <optional>

#include "core/control/state.h"

namespace billow::control {

std::int64_t disk_offered(const State& state, const Node& node, std::int64_t free_mib);

// The same, if it differs so much from what the node offers that it is worth recording.
std::optional<std::int64_t> disk_changed(const State& state,
                                         const Node& node,
                                         std::int64_t free_mib);

}  // namespace billow::control
