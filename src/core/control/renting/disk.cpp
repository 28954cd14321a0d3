#include "core/control/renting/disk.h"

#include <algorithm>
#include <cstdlib>

#include "core/control/decide/decider.h"

namespace billow::control {

std::int64_t disk_offered(const State& state, const Node& node, std::int64_t free_mib) {
  std::int64_t asked = 0;
  if (const auto on = state.tasks_on.find(node.id); on != state.tasks_on.end())
    for (TaskId id : on->second)
      asked += state.tasks.at(id).disk_mib;
  constexpr std::int64_t most = std::int64_t{1} << 50;  // a node may report anything
  const std::int64_t free = std::clamp<std::int64_t>(free_mib, 0, most);
  return asked == 0 ? free : std::min(node.offer.disk_mib, free + asked);
}

std::optional<std::int64_t> disk_changed(const State& state,
                                         const Node& node,
                                         std::int64_t free_mib) {
  constexpr std::int64_t step_mib = 10 << 10;
  const std::int64_t now = disk_offered(state, node, free_mib);
  if (std::abs(now - node.offer.disk_mib) < std::max(step_mib, node.offer.disk_mib / 20))
    return std::nullopt;
  return now;
}

Decision Decider::operator()(const DiskSeen& c) {
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end())
    return Events{};
  const auto disk = disk_changed(state, node->second, c.free_mib);
  if (!disk)
    return Events{};
  NodeOffer offer = node->second.offer;
  offer.disk_mib = *disk;
  return Events{NodeOfferChanged{c.node, std::move(offer)}};
}

}  // namespace billow::control
