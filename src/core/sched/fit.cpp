// Whether and where a task fits on one node. place.cpp chooses among nodes.
#include <algorithm>

#include "core/sched/index.h"

namespace billow::sched {
namespace {

template <class T>
bool any_or_empty(const std::vector<T>& wanted, const T& have) {
  return wanted.empty() || std::ranges::find(wanted, have) != wanted.end();
}

// The cards of a node that could hold a share, in the order of `ranked`, and what would be left of
// each. Arrays without initial values: a decision looks at many nodes.
struct Cards {
  std::size_t count = 0;
  std::array<std::uint8_t, limits::gpus_per_node_max> gpu;
  std::array<std::int32_t, limits::gpus_per_node_max> left;  // by position in `gpu`
};

void cards_on(const PlacementClass& c,
              const NodeState& node,
              const std::vector<GpuState>& gpus,
              Cards& out) {
  for (std::uint8_t i : node.ranked) {
    if (out.count == out.gpu.size())
      break;
    if (const auto choice = card_fits(c, node.shape.gpus[i], gpus[i], i)) {
      out.gpu[out.count] = i;
      out.left[out.count++] = gpus[i].free_milli - choice->share.milli;
    }
  }
}

using Positions = std::array<std::uint8_t, limits::gpus_per_node_max>;

// The cards for a task of several, best first: those of the tightest NVLink domain that can hold
// the whole task, if one can, then the fullest. False: it needs such a domain, and none can.
bool by_domain(const PlacementClass& c,
               const NodeState& node,
               const Cards& cards,
               std::size_t wanted,
               Positions& order) {
  const auto domain = [&](std::size_t at) {
    return node.shape.gpus[cards.gpu[at]].nvlink_domain;
  };
  std::optional<std::pair<std::size_t, std::int32_t>> tightest;
  for (std::size_t i = 0; i < cards.count; ++i) {
    const std::int32_t d = domain(i);
    if (tightest && d == tightest->second)
      continue;
    std::size_t members = 0;
    for (std::size_t at = 0; at < cards.count; ++at)
      members += domain(at) == d;
    if (members >= wanted && (!tightest || members < tightest->first))
      tightest = {members, d};
  }
  if (!tightest && c.constraints.nvlink_required)
    return false;
  for (std::size_t i = 0; i < cards.count; ++i)
    order[i] = static_cast<std::uint8_t>(i);
  const auto key = [&](std::uint8_t at) {
    return std::tuple(tightest && domain(at) != tightest->second, cards.left[at], domain(at), at);
  };
  std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(cards.count),
            [&](std::uint8_t a, std::uint8_t b) { return key(a) < key(b); });
  return true;
}

std::optional<Placement> fit_whole(const PlacementClass& c, const NodeState& node, bool idle) {
  if (!idle || static_cast<std::int64_t>(node.shape.gpus.size()) < c.resources.gpus)
    return std::nullopt;
  if (c.resources.cpu_milli > node.shape.cpu_milli || c.resources.mem_mib > node.shape.mem_mib ||
      c.resources.disk_mib > node.shape.disk_mib)
    return std::nullopt;
  Placement p{.node = node.shape.id,
              .cpu_milli = node.shape.cpu_milli,
              .mem_mib = node.shape.mem_mib,
              .disk_mib = c.resources.disk_mib};
  for (std::size_t i = 0; i < node.shape.gpus.size(); ++i) {
    const GpuShape& card = node.shape.gpus[i];
    if (!card.healthy || !any_or_empty(c.resources.gpu_types, card.type))
      return std::nullopt;
    p.gpus.push_back({static_cast<std::int32_t>(i), {whole_gpu_milli, card.memory_mib}, -1});
  }
  return p;
}

std::optional<Placement> fit_on(const PlacementClass& c,
                                const NodeState& node,
                                const std::vector<GpuState>& gpus,
                                std::int64_t cpu_milli,
                                std::int64_t mem_mib,
                                std::int64_t disk_mib,
                                bool idle,
                                std::int32_t gpu) {
  const Resources& r = c.resources;
  if (r.takes_node())
    return fit_whole(c, node, idle);
  if (cpu_milli < r.cpu_milli || mem_mib < r.mem_mib || disk_mib < r.disk_mib)
    return std::nullopt;
  Placement p{.node = node.shape.id,
              .cpu_milli = r.cpu_milli,
              .mem_mib = r.mem_mib,
              .disk_mib = r.disk_mib};
  if (r.gpus <= 0)
    return p;
  if (r.gpus == 1 && gpu >= 0) {
    if (const auto there = card_fits(c, node.shape.gpus[static_cast<std::size_t>(gpu)],
                                     gpus[static_cast<std::size_t>(gpu)], gpu)) {
      p.gpus.push_back({there->gpu, there->share, there->mig_start});
      return p;
    }
  }
  Cards cards;
  cards_on(c, node, gpus, cards);
  const std::size_t n = cards.count;
  const auto wanted = static_cast<std::size_t>(r.gpus);
  if (n < wanted)
    return std::nullopt;
  const auto add = [&](std::size_t at) {
    const std::uint8_t i = cards.gpu[at];
    const CardChoice choice = *card_fits(c, node.shape.gpus[i], gpus[i], i);
    p.gpus.push_back({choice.gpu, choice.share, choice.mig_start});
  };
  if (wanted == 1) {
    // By default the fullest card, so that whole cards stay whole.
    add(static_cast<std::size_t>(
        std::min_element(cards.left.begin(), cards.left.begin() + static_cast<std::ptrdiff_t>(n)) -
        cards.left.begin()));
    return p;
  }
  Positions order;
  if (!by_domain(c, node, cards, wanted, order))
    return std::nullopt;
  p.gpus.reserve(wanted);
  for (std::size_t i = 0; i < wanted; ++i)
    add(order[i]);
  std::ranges::sort(p.gpus, {}, &GpuShare::gpu);
  return p;
}

}  // namespace

Share effective_share(const Share& asked, std::int64_t memory_mib) {
  Share s = asked;
  if (s.mem_mib > 0 && memory_mib > 0)
    s.milli =
        std::max(s.milli, static_cast<std::int32_t>(std::min<std::int64_t>(
                              whole_gpu_milli, (s.mem_mib * 1000 + memory_mib - 1) / memory_mib)));
  if (s.mem_mib == 0 || s.whole())
    s.mem_mib = memory_mib * s.milli / 1000;
  return s;
}

std::optional<Share> share_of_card(const Share& asked,
                                   std::int64_t memory_mib,
                                   std::int64_t free_milli,
                                   std::int64_t free_mem_mib) {
  // Also on a whole card: it is the least memory that the job can use.
  if (asked.mem_mib > memory_mib)
    return std::nullopt;
  const Share share = effective_share(asked, memory_mib);
  if (share.milli <= 0 || free_milli < share.milli || free_mem_mib < share.mem_mib)
    return std::nullopt;
  return share;
}

std::optional<CardChoice> card_fits(const PlacementClass& c,
                                    const GpuShape& card,
                                    const GpuState& state,
                                    std::int32_t gpu) {
  if (!card.healthy || card.mig_enabled != c.mig.has_value() ||
      (!c.mig && state.free_milli < c.resources.share.milli))
    return std::nullopt;
  if (!any_or_empty(c.resources.gpu_types, card.type))
    return std::nullopt;
  if (!any_or_empty(c.constraints.only_gpus, gpu))
    return std::nullopt;
  if (c.mig) {
    auto extent = mig_extent(*c.mig, card.type, card.memory_mib);
    if (!extent)
      return std::nullopt;
    const std::int32_t start =
        mig_start(card, c.resources.mig_profile, *extent, state.mig_used, state.mig_compute_used);
    if (start < 0)
      return std::nullopt;
    const Share share{extent->compute * 1000 / extent->compute_all,
                      card.memory_mib * extent->slices / extent->slices_all};
    return CardChoice{gpu, share, start};
  }
  const auto share =
      share_of_card(c.resources.share, card.memory_mib, state.free_milli, state.free_mem_mib);
  if (!share)
    return std::nullopt;
  return CardChoice{gpu, *share, -1};
}

bool allowed(const PlacementClass& c, const NodeState& node) {
  return allowed_alike(c, node) && allowed_by_id(c, node.shape.id);
}

bool allowed_by_id(const PlacementClass& c, NodeId node) {
  const Constraints& k = c.constraints;
  return any_or_empty(k.only_nodes, node) &&
         (k.avoid_nodes.empty() || std::ranges::find(k.avoid_nodes, node) == k.avoid_nodes.end());
}

bool allowed_alike(const PlacementClass& c, const NodeState& node) {
  return node.present && node.shape.use == NodeUse::schedulable && allowed_place(c, node.shape);
}

bool allowed_place(const PlacementClass& c, const NodeShape& s) {
  const Constraints& k = c.constraints;
  if (!any_or_empty(k.regions, s.place.region) || !any_or_empty(k.zones, s.place.zone) ||
      !any_or_empty(k.fabrics, s.place.fabric))
    return false;
  if (!any_or_empty(k.pools, s.pool))
    return false;
  if (!any_or_empty(c.home_regions, s.place.region) || !any_or_empty(c.home_pools, s.pool))
    return false;
  if (!k.placement_group.empty() && k.placement_group != s.place.placement_group)
    return false;
  for (const auto& [name, value] : k.labels) {
    auto it = s.labels.find(name);
    if (it == s.labels.end() || it->second != value)
      return false;
  }
  return true;
}

FreeCapacity free_of(const NodeState& node) {
  return {node.gpus, node.free_cpu_milli, node.free_mem_mib, node.tasks, node.free_disk_mib};
}

std::optional<Placement> fit_free(const PlacementClass& c,
                                  const NodeState& node,
                                  const FreeCapacity& free) {
  return fit_on(c, node, free.gpus, free.cpu_milli, free.mem_mib, free.disk_mib, free.tasks == 0,
                -1);
}

std::optional<Placement> fit(const PlacementClass& c, const NodeState& node, std::int32_t gpu) {
  return fit_on(c, node, node.gpus, node.free_cpu_milli, node.free_mem_mib, node.free_disk_mib,
                node.tasks == 0, gpu);
}

std::optional<Placement> fit_empty(const PlacementClass& c, const NodeState& node) {
  std::vector<GpuState> gpus(node.gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!node.shape.gpus[i].healthy)
      continue;
    gpus[i].free_milli = whole_gpu_milli;
    gpus[i].free_mem_mib = node.shape.gpus[i].memory_mib;
  }
  return fit_on(c, node, gpus, node.shape.cpu_milli, node.shape.mem_mib, node.shape.disk_mib, true,
                -1);
}

}  // namespace billow::sched
