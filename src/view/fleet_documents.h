// The public documents of nodes, and of what projects share: quotas and reservations.
#pragma once

#include "base/json.h"
#include "core/control/state.h"
#include "core/wire/agent_v1.h"

namespace billow::view {

// `readings` is the node's newest heartbeat; null: none has arrived.
Json node_document(const control::State& state,
                   const Node& node,
                   const wire::agent_v1::Heartbeat* readings);
// A project's quota and what it uses of it now.
void add_quota(Json& document, const control::State& state, const Project& project, WallTime now);
Json reservation_document(const control::State& state,
                          const Reservation& reservation,
                          WallTime now);

}  // namespace billow::view
