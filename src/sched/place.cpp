// Choosing nodes for a job: the best single node, or a set of them for a gang, close together when asked.
//
// Every class has its nodes in an order (order.h) that is brought up to date with the log of changed nodes before it is read.
// A gang, or a replica that keeps away from its likes, reads the scores of all nodes; that is one pass over an array.
#include <algorithm>
#include <limits>

#include "sched/index.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

PackNode after_placement(const NodeState& node, const Placement& p) {
  PackNode after = node.pack;
  after.cpu_milli -= p.cpu_milli;
  for (const GpuShare& g : p.gpus) {
    const auto i = static_cast<std::size_t>(g.gpu);
    if (i >= static_cast<std::size_t>(after.gpus)) continue;
    const std::int64_t total = node.shape.gpus[i].memory_mib;
    std::int64_t left = node.gpus[i].free_milli - g.share.milli;
    if (total > 0) left = std::min(left, (node.gpus[i].free_mem_mib - g.share.mem_mib) * 1000 / total);
    after.free[i] = static_cast<std::int32_t>(std::max<std::int64_t>(left, 0));
  }
  return after;
}

CandidateOrder::Leaf score_node(Impl& index, const PlacementClass& c, NodeState& node) {
  CandidateOrder::Leaf leaf{.hash = node.hash, .node = node.shape.id.value};
  const Resources& r = c.resources;
  if (node.free_cpu_milli < r.cpu_milli || node.free_mem_mib < r.mem_mib || !allowed(c, node)) return leaf;
  const PackModel& model = *index.model;
  if (r.gpus == 1 && !r.whole_node) {
    std::array<CardChoice, limits::gpus_per_node_max> cards;
    const std::size_t n = cards_that_fit(c, node, cards);
    if (n == 0) return leaf;
    const double fragment = index.fragment_of(node);
    Placement p{.node = node.shape.id, .gpus = {{}}, .cpu_milli = r.cpu_milli, .mem_mib = r.mem_mib};
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(cards[i].gpu);
      bool alike = false;  // a card like one already looked at scores the same
      for (std::size_t j = 0; j < i && !alike; ++j) {
        const GpuState& other = node.gpus[static_cast<std::size_t>(cards[j].gpu)];
        alike = other.free_milli == node.gpus[at].free_milli && other.free_mem_mib == node.gpus[at].free_mem_mib &&
                other.mig_used == node.gpus[at].mig_used && node.shape.gpus[at] == node.shape.gpus[static_cast<std::size_t>(cards[j].gpu)];
      }
      if (alike) continue;
      p.gpus[0] = {cards[i].gpu, cards[i].share, cards[i].mig_start};
      const double s = model.score(node.pack, fragment, after_placement(node, p));
      if (s < leaf.score) {
        leaf.score = s;
        leaf.gpu = cards[i].gpu;
      }
    }
  } else {
    const auto p = fit(c, node);
    if (!p) return leaf;
    leaf.score = model.score(node.pack, index.fragment_of(node), after_placement(node, *p));
  }
  // Cheaper nodes win between otherwise equal ones; spot nodes only take what can be taken away.
  leaf.score += static_cast<double>(node.shape.nano_usd_per_s) * 1e-15;
  return leaf;
}

}  // namespace

const CandidateOrder& candidates(Impl& index, const PlacementClass& c) {
  CandidateOrder& order = c.order;
  index.packing();
  const std::uint64_t end = index.log_position();
  const bool whole = order.cursor < index.log_base || order.model_version != index.model_version ||
                     order.size() != index.nodes.size() || end - order.cursor > index.nodes.size();
  if (whole) {
    order.reset(index.nodes.size());
    std::unordered_map<std::uint64_t, CandidateOrder::Leaf> seen;  // most nodes are like another
    const bool by_id = !c.constraints.only_nodes.empty() || !c.constraints.avoid_nodes.empty();
    for (Slot s = 0; s < index.nodes.size(); ++s) {
      NodeState& node = index.nodes[s];
      if (!node.present) continue;
      auto it = by_id ? seen.end() : seen.find(node.hash);
      if (it == seen.end()) {
        order.leaves()[s] = score_node(index, c, node);
        if (!by_id) seen.emplace(node.hash, order.leaves()[s]);
      } else {
        order.leaves()[s] = it->second;
        order.leaves()[s].node = node.shape.id.value;
      }
    }
    order.rebuild();
    order.model_version = index.model_version;
  } else {
    for (std::uint64_t at = order.cursor; at < end; ++at) {
      const Slot s = index.log[at - index.log_base];
      NodeState& node = index.nodes[s];
      const CandidateOrder::Leaf& leaf = order.leaf(s);
      if (!node.present) order.update(s, {});
      else if (leaf.hash != node.hash || leaf.node != node.shape.id.value) order.update(s, score_node(index, c, node));
    }
  }
  order.cursor = end;
  return order;
}

const std::string& domain_name(const Place& place, Closeness level) {
  static const std::string everywhere = "*";
  switch (level) {
    case Closeness::anywhere: return everywhere;
    case Closeness::region: return place.region;
    case Closeness::zone: return place.zone;
    case Closeness::rack: return place.rack;
    case Closeness::switch_: return place.switch_name;
  }
  return everywhere;
}

namespace {

// The tightest domain of a level that holds the gang: fewest open nodes, then the lower sum of scores' best, never its name.
std::vector<Slot> in_one_domain(const Impl& index, const CandidateOrder& order, const std::vector<Slot>& open, Closeness level, std::size_t tasks) {
  std::unordered_map<std::string_view, std::vector<Slot>> domains;
  for (Slot s : open) {
    const std::string& name = domain_name(index.nodes[s].shape.place, level);
    if (!name.empty()) domains[name].push_back(s);
  }
  std::vector<Slot>* best = nullptr;
  const auto least = [&](const std::vector<Slot>& slots) {
    return *std::min_element(slots.begin(), slots.end(), [&](Slot a, Slot b) { return order.better(a, b); });
  };
  for (auto& [name, members] : domains) {
    if (members.size() < tasks) continue;
    if (!best || members.size() < best->size() || (members.size() == best->size() && order.better(least(members), least(*best)))) best = &members;
  }
  return best ? std::move(*best) : std::vector<Slot>{};
}

std::vector<Slot> choose_gang(const Impl& index, const PlacementClass& c, const CandidateOrder& order, std::size_t tasks) {
  std::vector<Slot> open;
  for (Slot s = 0; s < order.size(); ++s) {
    if (order.leaf(s).open()) open.push_back(s);
  }
  if (open.size() < tasks) return {};
  // From the nearest outwards; what is merely preferred may end up anywhere.
  static constexpr Closeness outwards[] = {Closeness::switch_, Closeness::rack, Closeness::zone, Closeness::region, Closeness::anywhere};
  std::vector<Slot> chosen;
  for (Closeness level : outwards) {
    if (c.constraints.close_required && level < c.constraints.close) break;
    if (level > c.constraints.close && c.constraints.spread == Spread::spread) continue;
    chosen = in_one_domain(index, order, open, level, tasks);
    if (!chosen.empty()) break;
  }
  if (chosen.empty()) return {};
  std::partial_sort(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(tasks), chosen.end(),
                    [&](Slot a, Slot b) { return order.better(a, b); });
  chosen.resize(tasks);
  return chosen;
}

// Fewest of its likes on the node, then in the rack and zone, then the score.
Slot choose_apart(const Impl& index, const PlacementClass& c, const CandidateOrder& order) {
  std::map<Slot, int> likes;
  std::map<std::string, int> in_zone, in_rack;
  if (auto it = index.spread_groups.find(c.constraints.spread_key); it != index.spread_groups.end()) {
    for (const auto& [node, n] : it->second) {
      auto slot = index.slot_of.find(node);
      if (slot == index.slot_of.end()) continue;
      likes[slot->second] += n;
      const Place& place = index.nodes[slot->second].shape.place;
      if (!place.zone.empty()) in_zone[place.zone] += n;
      if (!place.rack.empty()) in_rack[place.rack] += n;
    }
  }
  const auto crowd = [&](Slot s) {
    const Place& place = index.nodes[s].shape.place;
    const auto count = [](const auto& map, const auto& key) { auto it = map.find(key); return it == map.end() ? 0 : it->second; };
    return std::tuple(count(in_zone, place.zone), count(likes, s), count(in_rack, place.rack));
  };
  Slot best = no_slot;
  for (Slot s = 0; s < order.size(); ++s) {
    if (!order.leaf(s).open()) continue;
    if (best == no_slot) { best = s; continue; }
    const auto a = crowd(s), b = crowd(best);
    if (a < b || (a == b && order.better(s, best))) best = s;
  }
  return best;
}

}  // namespace

std::vector<Placement> place(Impl& index, const PlacementClass& c, std::int32_t tasks) {
  const CandidateOrder& order = candidates(index, c);
  std::vector<Slot> chosen;
  if (tasks == 1) {
    const bool apart = c.constraints.spread == Spread::spread && c.constraints.spread_key != 0;
    const Slot best = apart ? choose_apart(index, c, order) : order.best();
    if (best == no_slot) return {};
    chosen.push_back(best);
  } else {
    chosen = choose_gang(index, c, order, static_cast<std::size_t>(tasks));
  }
  std::vector<Placement> placements;
  placements.reserve(chosen.size());
  for (Slot s : chosen) placements.push_back(*fit(c, index.nodes[s], order.leaf(s).gpu));
  return placements;
}

}  // namespace billow::sched
