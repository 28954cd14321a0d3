// The public documents of nodes, and of what projects share: quotas and reservations.
#pragma once

#include <map>

#include "base/json.h"
#include "core/control/state.h"
#include "core/wire/agent_v1.h"
#include "view/idle_jobs.h"

namespace billow::view {

// What the GPUs of the fleet are there for right now, in thousandths of a card: each part of each
// card counts once. One definition for every page, list and metric.
struct FleetCounts {
  std::int64_t gpus = 0;  // whole cards
  std::int64_t held_milli = 0, free_milli = 0;
  // Not held, and not free either: on drained nodes or cards, on nodes or cards that do not answer,
  // and inside reservations that have begun.
  std::int64_t drained_milli = 0, lost_milli = 0, reserved_milli = 0;
  std::uint64_t nodes = 0, nodes_ready = 0, nodes_drained = 0, nodes_unreachable = 0;
};

// Of each card: the thousandths inside reservations that have begun, held or not.
using ReservedCards = std::map<std::pair<NodeId, std::int32_t>, std::int64_t>;
ReservedCards reserved_cards(const control::State& state, WallTime now);
// What reservations keep free of a card of which leases hold `held_milli`. Nothing of a card that
// takes no jobs anyway.
std::int64_t kept_free(const ReservedCards& reserved,
                       const Node& node,
                       const NodeGpu& gpu,
                       std::int64_t held_milli);

FleetCounts fleet_counts(const control::State& state, const Readings& readings, WallTime now);

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
