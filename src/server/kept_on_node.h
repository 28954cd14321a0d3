// How much a node keeps, and for how long it waits for what it brings, as `join`, `agent` and `up`
// are told it in the same words.
#pragma once

#include "agent/node/node.h"
#include "base/result.h"
#include "client/frame/command.h"

namespace billow::client {

inline constexpr const char* images_max_help =
    "size limit of container images per user (default 100G); the least recently used are deleted "
    "first";
inline constexpr const char* pull_patience_help =
    "give up fetching an image or environment that makes no progress for this long (default 10m)";

// What was not given, nor stands in the surroundings (BILLOW_IMAGES_MAX, BILLOW_PULL_PATIENCE),
// stays as it is.
Status read_kept_on_node(const Parsed& parsed, agent::NodeOptions& options);
// For this machine's agent, which the head starts.
Status pass_kept_on_node(const Parsed& parsed);

}  // namespace billow::client
