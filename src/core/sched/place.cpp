// Choosing nodes for a job: the best single node, or a set of nodes for a gang, close together if
// asked.
//
// Every class scores the groups of nodes (order.h) and updates its scores before reading them. A
// single task takes the first node of the best group. A gang, or a replica that keeps apart from
// its siblings, walks the nodes of all open groups, which is one pass over small numbers.
#include <algorithm>
#include <limits>

#include "core/sched/index.h"
#include "core/sched/key.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

struct Scored {
  double score = CandidateOrder::closed;
  std::int32_t gpu = -1;  // rank of the card a single share goes to
};

std::int32_t rest_of(const GpuShape& card, const GpuState& state, const Share& share) {
  return usable_on(card.memory_mib, state.free_milli - share.milli,
                   state.free_mem_mib - share.mem_mib);
}

// Of a MIG instance, or of a share on one of the cards that the class names.
Scored score_exactly(Impl& index,
                     const PlacementClass& c,
                     const NodeState& node,
                     NodeGroup& group) {
  Scored best;
  const std::int64_t cpu_after = node.free_cpu_milli - c.resources.cpu_milli;
  const auto shown = static_cast<std::size_t>(PackNode::gpus_max);
  for (std::size_t r = 0; r < node.ranked.size(); ++r) {
    const std::uint8_t i = node.ranked[r];
    // Skips the exact check.
    if (!c.mig && node.gpus[i].free_milli < c.resources.share.milli)
      continue;
    if (r > 0 && c.constraints.only_gpus.empty()) {  // an identical card scores the same
      const std::uint8_t before = node.ranked[r - 1];
      if (node.kin[i] == node.kin[before] && node.gpus[i] == node.gpus[before])
        continue;
    }
    const auto fits = card_fits(c, node.shape.gpus[i], node.gpus[i], i);
    if (!fits)
      continue;
    const PackView& view = index.view_of(group);
    const double s =
        r < shown ? index.model->score_card(view, group.pack.free[r],
                                            rest_of(node.shape.gpus[i], node.gpus[i], fits->share),
                                            cpu_after)
                  : index.model->score_cores(view, cpu_after);
    if (s < best.score)
      best = {s, static_cast<std::int32_t>(r)};
  }
  return best;
}

// What a class asks for, as the log of groups is read for it.
class Need {
 public:
  explicit Need(const PlacementClass& c) : resources_(c.resources) {
    const Constraints& k = c.constraints;
    const Resources& r = c.resources;
    anywhere_ = k.regions.empty() && k.zones.empty() && k.fabrics.empty() && k.pools.empty() &&
                k.placement_group.empty() && k.labels.empty() && c.home_regions.empty() &&
                c.home_pools.empty() && r.disk_mib <= 0;
    const bool cards = r.gpus > 0 && !r.takes_node() && !c.mig;
    alike_ = cards && k.only_gpus.empty() &&
             (r.gpus == 1 || (r.share.milli >= whole_gpu_milli && !k.nvlink_required));
    std::uint64_t marks = mark_of_any;
    if (r.gpus > 0 && !r.gpu_types.empty()) {
      marks = 0;
      for (const std::string& type : r.gpu_types) {
        types_.push_back(hash_text(type));
        marks |= mark_of(types_.back());
      }
    }
    const bool whole = cards && r.gpus > 1 && r.share.milli >= whole_gpu_milli;
    least_ = FreeBrief(marks, r.cpu_milli, r.mem_mib, cards && !whole ? r.share.milli : 0,
                       whole ? r.gpus : 0);
  }

  const FreeBrief& least() const { return least_; }  // that a group must have; of the types, one
  bool anywhere() const { return anywhere_; }        // every node that accepts jobs will do
  // It takes a share of one card or several whole cards, no matter which of those alike.
  bool alike() const { return alike_; }
  bool takes(const AlikeCards& cards) const {
    return cards.shared &&
           (types_.empty() || std::ranges::find(types_, cards.type_hash) != types_.end());
  }
  // share_of_card(), computed once for all cards of one size.
  const Share* share_of(const AlikeCards& cards) {
    if (cards.memory_mib != memory_mib_) {
      memory_mib_ = cards.memory_mib;
      share_ = effective_share(resources_.share, memory_mib_);
    }
    const bool fits = resources_.share.mem_mib <= memory_mib_ && share_.milli > 0 &&
                      cards.free_milli >= share_.milli && cards.free_mem_mib >= share_.mem_mib;
    return fits ? &share_ : nullptr;
  }

 private:
  const Resources& resources_;
  std::vector<std::uint64_t> types_;  // hashes of the types asked for
  FreeBrief least_;
  bool anywhere_ = false, alike_ = false;
  std::int64_t memory_mib_ = -1;  // of the cards that `share_` is for
  Share share_;
};

// The same as score_node() for tasks of alike cards, read from the group alone: nodes lie far apart
// in memory. Nothing: it depends on which cards of several kinds the task takes.
std::optional<Scored> score_alike(Impl& index, Need& need, const Resources& r, NodeGroup& group) {
  Scored best;
  const PackView& view = index.view_of(group);
  const std::int64_t cpu_after = view.cpu_milli - r.cpu_milli;
  for (const AlikeCards& cards : group.cards) {
    if (cards.free_milli < r.share.milli || !need.takes(cards))
      continue;
    const Share* share = need.share_of(cards);
    if (!share)
      continue;
    const bool shown = cards.rank + r.gpus <= PackNode::gpus_max;
    if (r.gpus > 1 && (best.gpu >= 0 || cards.count < r.gpus || !shown))
      return std::nullopt;
    const double s =
        shown ? index.model->score_card(view, cards.usable_milli,
                                        usable_on(cards.memory_mib, cards.free_milli - share->milli,
                                                  cards.free_mem_mib - share->mem_mib),
                                        cpu_after, r.gpus)
              : index.model->score_cores(view, cpu_after);
    if (s < best.score)
      best = {s, cards.rank};
  }
  return best;
}

// Cheaper nodes win between otherwise equal ones.
double price_score(std::int64_t nano_usd_per_s) {
  return static_cast<double>(nano_usd_per_s) * 1e-15;
}

// `node` is any node of the group, except if the class names cards: then it is the exact node.
Scored score_node(Impl& index, const PlacementClass& c, const NodeState& node, NodeGroup& group) {
  const Resources& r = c.resources;
  if (node.free_cpu_milli < r.cpu_milli || node.free_mem_mib < r.mem_mib ||
      node.free_disk_mib < r.disk_mib || !allowed_alike(c, node))
    return {};
  Scored out;
  if (r.gpus == 1 && !r.takes_node()) {
    if (!c.mig && node.free_milli < r.share.milli)
      return {};
    out = score_exactly(index, c, node, group);
    if (out.gpu < 0)
      return {};
  } else if (r.gpus <= 0 && !r.takes_node()) {
    out.score = index.model->score_cores(index.view_of(group), node.free_cpu_milli - r.cpu_milli);
  } else {
    if (node.free_milli < std::int64_t{r.gpus} * r.share.milli)
      return {};
    const auto p = fit(c, node);
    if (!p)
      return {};
    const PackView& view = index.view_of(group);
    PackNode after = group.pack;
    after.cpu_milli -= p->cpu_milli;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(after.gpus); ++rank) {
      const std::uint8_t card = node.ranked[rank];
      for (const GpuShare& g : p->gpus) {
        if (g.gpu == card)
          after.free[rank] = rest_of(node.shape.gpus[card], node.gpus[card], g.share);
      }
    }
    out.score = index.model->score_cards(group.pack, view, after);
  }
  out.score += price_score(node.shape.nano_usd_per_s);
  return out;
}

Scored score_group(Impl& index, Need& need, const PlacementClass& c, NodeGroup& group) {
  const auto node = [&]() -> const NodeState& {
    return index.nodes[group.members.back()];
  };
  if (!need.alike())
    return score_node(index, c, node(), group);
  if (!need.anywhere() &&
      (node().free_disk_mib < c.resources.disk_mib || !allowed_alike(c, node())))
    return {};
  std::optional<Scored> out = score_alike(index, need, c.resources, group);
  if (!out)
    return score_node(index, c, node(), group);
  if (out->gpu < 0)
    return {};
  if (c.resources.gpus > 1)
    out->gpu = -1;  // fit() chooses them
  out->score += price_score(group.nano_usd_per_s);
  return *out;
}

}  // namespace

CandidateOrder& candidates(Impl& index, const PlacementClass& c) {
  CandidateOrder& order = c.order;
  index.packing();
  index.ask_labels(c.constraints.labels, c.resources.disk_mib > 0);
  NodeGroups& groups = index.groups;
  Need need(c);
  const auto look = [&](GroupSlot g) {
    const Scored scored = score_group(index, need, c, groups.at(g));
    if (scored.score < CandidateOrder::closed)
      order.add({scored.score, groups.since(g), g, scored.gpu});
  };
  if (order.model_version != index.model_version) {
    order.clear();
    order.cursor = 0;
    order.model_version = index.model_version;
  }
  groups.each_since(order.cursor, need.least(), look);
  order.cursor = groups.log_end();
  order.tidy(groups);
  return order;
}

namespace {

// A node open to the class, with the values that rank it.
struct Open {
  double score = 0;
  GroupSlot group = 0;
  Slot slot = no_slot;
  std::int32_t gpu = -1;  // rank of the card a single share goes to
};

bool better(const Impl& index, const Open& a, const Open& b) {
  if (a.score != b.score)
    return a.score < b.score;
  const NodeGroup &x = index.groups.at(a.group), &y = index.groups.at(b.group);
  if (x.tie != y.tie)
    return x.tie < y.tie;
  return index.groups.precedence(a.slot) < index.groups.precedence(b.slot);
}

template <class F>
void each_open(Impl& index, const PlacementClass& c, const CandidateOrder& order, F f) {
  const Constraints& k = c.constraints;
  // The node itself is scored: a group does not distinguish the slots of its nodes' cards.
  const auto look = [&](Slot s) {
    const NodeState& node = index.nodes[s];
    if (!node.present || !allowed_by_id(c, node.shape.id))
      return;
    const Scored scored = score_node(index, c, node, index.groups.at(node.group));
    if (scored.score < CandidateOrder::closed)
      f(Open{scored.score, node.group, s, scored.gpu});
  };
  if (!k.only_nodes.empty()) {
    for (auto id = k.only_nodes.begin(); id != k.only_nodes.end(); ++id) {
      auto it = index.slot_of.find(*id);
      if (it != index.slot_of.end() && std::find(k.only_nodes.begin(), id, *id) == id)
        look(it->second);
    }
    return;
  }
  if (!k.only_gpus.empty()) {
    for (Slot s = 0; s < index.nodes.size(); ++s)
      look(s);
    return;
  }
  for (const CandidateOrder::Open& entry : order.entries()) {
    if (entry.score == CandidateOrder::closed || !index.groups.alive(entry))
      continue;
    for (Slot s : index.groups.at(entry.group).members) {
      if (k.avoid_nodes.empty() || allowed_by_id(c, index.nodes[s].shape.id))
        f(Open{entry.score, entry.group, s, entry.gpu});
    }
  }
}

Open choose_one(Impl& index, const PlacementClass& c, CandidateOrder& order) {
  Open found;
  if (c.constraints.only_nodes.empty() && c.constraints.only_gpus.empty()) {
    const CandidateOrder::Open* first = nullptr;
    for (const CandidateOrder::Open& entry : order.best(index.groups)) {
      if (!first || index.groups.before(entry.group, first->group))
        first = &entry;
    }
    if (!first)
      return found;
    found = {first->score, first->group, index.groups.at(first->group).members.back(), first->gpu};
    if (allowed_by_id(c, index.nodes[found.slot].shape.id))
      return found;
    found = {};
  }
  each_open(index, c, order, [&](const Open& o) {
    if (found.slot == no_slot || better(index, o, found))
      found = o;
  });
  return found;
}

// The tightest domain of a level that holds the gang: fewest open nodes, then the better best node,
// never its name. A gang that must be close at one level stays in one domain of that level, even if
// a nearer domain (a switch that serves two racks) extends beyond it.
std::vector<Open> in_one_domain(const Impl& index,
                                const Constraints& k,
                                const std::vector<Open>& open,
                                Closeness level,
                                std::size_t tasks) {
  const auto l = static_cast<std::size_t>(level), within = static_cast<std::size_t>(k.close);
  const bool nested = k.close_required && level > k.close;
  struct Domain {
    std::size_t open = 0;
    const Open* best = nullptr;
    std::int64_t number = -1;
  };
  const auto number_of = [&](const Open& o) -> std::int64_t {
    const NodeState& node = index.nodes[o.slot];
    if (node.domain[l] < 0 || (nested && node.domain[within] < 0))
      return -1;
    return nested ? std::int64_t{node.domain[l]} << 32 | node.domain[within] : node.domain[l];
  };
  std::vector<Domain> domains(nested ? 0 : index.domains[l].size());
  std::unordered_map<std::int64_t, std::size_t> at;
  for (const Open& o : open) {
    const std::int64_t number = number_of(o);
    if (number < 0)
      continue;
    auto i = static_cast<std::size_t>(number);
    if (nested) {
      i = at.try_emplace(number, domains.size()).first->second;
      if (i == domains.size())
        domains.emplace_back();
    }
    Domain& d = domains[i];
    d.number = number;
    ++d.open;
    if (!d.best || better(index, o, *d.best))
      d.best = &o;
  }
  const Domain* chosen = nullptr;
  for (const Domain& d : domains) {
    if (d.open < tasks)
      continue;
    if (!chosen || d.open < chosen->open ||
        (d.open == chosen->open && better(index, *d.best, *chosen->best)))
      chosen = &d;
  }
  std::vector<Open> members;
  if (!chosen)
    return members;
  for (const Open& o : open) {
    if (number_of(o) == chosen->number)
      members.push_back(o);
  }
  return members;
}

// Spreads members as far apart as possible: each next one goes where the fewest are so far, by
// zone, then by rack.
std::vector<Open> spread_out(const Impl& index, std::vector<Open> open, std::size_t tasks) {
  std::ranges::sort(open, [&](const Open& a, const Open& b) { return better(index, a, b); });
  std::map<std::string, int> in_zone, in_rack;
  std::vector<Open> chosen;
  std::vector<char> taken(open.size(), 0);
  while (chosen.size() < tasks) {
    std::size_t best = open.size();
    std::pair<int, int> least;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (taken[i])
        continue;
      const Place& place = index.nodes[open[i].slot].shape.place;
      const std::pair crowd{in_zone[place.zone], in_rack[place.rack]};
      if (best == open.size() || crowd < least) {
        best = i;
        least = crowd;
      }
    }
    taken[best] = 1;
    chosen.push_back(open[best]);
    const Place& place = index.nodes[open[best].slot].shape.place;
    ++in_zone[place.zone];
    ++in_rack[place.rack];
  }
  return chosen;
}

std::vector<Open> choose_gang(Impl& index,
                              const PlacementClass& c,
                              const CandidateOrder& order,
                              std::size_t tasks) {
  std::vector<Open> open;
  each_open(index, c, order, [&](const Open& o) { open.push_back(o); });
  if (open.size() < tasks)
    return {};
  if (c.constraints.spread == Spread::spread && !c.constraints.close_required)
    return spread_out(index, std::move(open), tasks);
  // From the nearest level outwards; preferred closeness may end up anywhere.
  static constexpr Closeness outwards[] = {Closeness::switch_, Closeness::rack, Closeness::zone,
                                           Closeness::region, Closeness::anywhere};
  std::vector<Open> chosen;
  for (Closeness level : outwards) {
    if (c.constraints.close_required && level < c.constraints.close)
      break;
    if (level > c.constraints.close && c.constraints.spread == Spread::spread)
      continue;
    chosen = in_one_domain(index, c.constraints, open, level, tasks);
    if (!chosen.empty())
      break;
  }
  if (chosen.empty())
    return {};
  std::partial_sort(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(tasks),
                    chosen.end(),
                    [&](const Open& a, const Open& b) { return better(index, a, b); });
  chosen.resize(tasks);
  return chosen;
}

// Fewest siblings in the zone, then on the node and in the rack, then the score.
Open choose_apart(Impl& index, const PlacementClass& c, const CandidateOrder& order) {
  constexpr auto zone = static_cast<std::size_t>(Closeness::zone),
                 rack = static_cast<std::size_t>(Closeness::rack);
  std::unordered_map<Slot, int> likes;
  std::vector<int> in_zone(index.domains[zone].size()), in_rack(index.domains[rack].size());
  if (auto it = index.spread_groups.find(c.constraints.spread_key);
      it != index.spread_groups.end()) {
    for (const auto& [id, n] : it->second) {
      auto slot = index.slot_of.find(id);
      if (slot == index.slot_of.end())
        continue;
      likes[slot->second] += n;
      const NodeState& node = index.nodes[slot->second];
      if (node.domain[zone] >= 0)
        in_zone[static_cast<std::size_t>(node.domain[zone])] += n;
      if (node.domain[rack] >= 0)
        in_rack[static_cast<std::size_t>(node.domain[rack])] += n;
    }
  }
  const auto crowd = [&](Slot s) {
    const NodeState& node = index.nodes[s];
    const auto count = [](const std::vector<int>& of, std::int32_t number) {
      return number < 0 ? 0 : of[static_cast<std::size_t>(number)];
    };
    auto it = likes.find(s);
    return std::tuple(count(in_zone, node.domain[zone]), it == likes.end() ? 0 : it->second,
                      count(in_rack, node.domain[rack]));
  };
  Open best;
  std::tuple<int, int, int> least;
  each_open(index, c, order, [&](const Open& o) {
    const auto here = crowd(o.slot);
    if (best.slot != no_slot && (here > least || (here == least && !better(index, o, best))))
      return;
    best = o;
    least = here;
  });
  return best;
}

}  // namespace

std::vector<Placement> options_for(Impl& index,
                                   const PlacementClass& c,
                                   const std::function<bool(Slot)>& may_use) {
  const CandidateOrder& order = candidates(index, c);
  std::vector<Open> open;
  std::unordered_map<GroupSlot, std::size_t> at;
  each_open(index, c, order, [&](const Open& o) {
    if (!may_use(o.slot))
      return;
    const auto [known, fresh] = at.try_emplace(o.group, open.size());
    if (fresh)
      open.push_back(o);
    else if (better(index, o, open[known->second]))
      open[known->second] = o;
  });
  std::ranges::sort(open, [&](const Open& a, const Open& b) { return better(index, a, b); });
  std::vector<Placement> options;
  for (const Open& o : open) {
    const NodeState& node = index.nodes[o.slot];
    if (auto p = fit(c, node, o.gpu < 0 ? -1 : node.ranked[static_cast<std::size_t>(o.gpu)]))
      options.push_back(std::move(*p));
  }
  return options;
}

std::vector<Placement> place(Impl& index, const PlacementClass& c, std::int32_t tasks) {
  if (!c.members.empty())
    return place_roles(index, c);
  CandidateOrder& order = candidates(index, c);
  std::vector<Placement> placements;
  const auto add = [&](const Open& o) {
    const NodeState& node = index.nodes[o.slot];
    placements.push_back(
        *fit(c, node, o.gpu < 0 ? -1 : node.ranked[static_cast<std::size_t>(o.gpu)]));
  };
  if (tasks == 1) {
    const bool apart = c.constraints.spread == Spread::spread && c.constraints.spread_key != 0;
    const Open best = apart ? choose_apart(index, c, order) : choose_one(index, c, order);
    if (best.slot != no_slot)
      add(best);
    return placements;
  }
  const std::vector<Open> chosen = choose_gang(index, c, order, static_cast<std::size_t>(tasks));
  placements.reserve(chosen.size());
  for (const Open& o : chosen)
    add(o);
  return placements;
}

std::optional<Placement> place_beside(Impl& index,
                                      const JobRequest& request,
                                      const RunningJob& job,
                                      NodeId was) {
  // A member of a group keeps its address if it can, so that the others find it again.
  if (was && !job.request.parts.empty()) {
    JobRequest there = request;
    there.constraints.only_nodes = {was};
    if (auto found = place(index, class_of(index, there), 1); !found.empty())
      return std::move(found[0]);
  }
  const Closeness close = request.constraints.close;
  const NodeState* beside = nullptr;
  for (const Placement& p : job.placements)
    beside = p.node && !beside ? index.find(p.node) : beside;
  const std::string domain = beside && close != Closeness::anywhere
                                 ? domain_name(beside->shape.place, close)
                                 : std::string();
  if (!domain.empty()) {
    JobRequest near = request;
    for (const NodeState& n : index.nodes)
      if (n.present && domain_name(n.shape.place, close) == domain)
        near.constraints.only_nodes.push_back(n.shape.id);
    if (auto found = place(index, class_of(index, near), 1); !found.empty())
      return std::move(found[0]);
  }
  if (request.constraints.close_required && close != Closeness::anywhere)
    return std::nullopt;
  auto found = place(index, class_of(index, request), 1);
  if (found.empty())
    return std::nullopt;
  return std::move(found[0]);
}

}  // namespace billow::sched
