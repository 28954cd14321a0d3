// Choosing nodes for a job: the best single node, or a set of them for a gang, close together when asked.
#include <algorithm>

#include "sched/index.h"

namespace billow::sched {
namespace {

struct Option {
  double score = 0;       // lower is better
  std::uint64_t hash = 0; // between equal scores what the node is decides, never what it is called
  Slot slot = no_slot;
  bool operator<(const Option& o) const { return std::tie(score, hash, slot) < std::tie(o.score, o.hash, o.slot); }
};

// Best fit: what would be left over, GPUs first. Work without GPUs stays off nodes that have free ones.
double score(const PlacementClass& c, const NodeState& node) {
  const double gpu_left = static_cast<double>(node.free_milli) / 1000.0 - static_cast<double>(c.resources.gpus * c.resources.share.milli) / 1000.0;
  const double cpu_left = static_cast<double>(node.free_cpu_milli - c.resources.cpu_milli) / 128000.0;
  return gpu_left / 8.0 + cpu_left;
}

std::vector<Option> options(const SchedIndex::Impl& index, const PlacementClass& c) {
  std::vector<Option> found;
  for (Slot s = 0; s < index.nodes.size(); ++s) {
    const NodeState& node = index.nodes[s];
    if (allowed(c, node) && fit(c, node)) found.push_back({score(c, node), node.hash, s});
  }
  return found;
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

// The nodes of the tightest domain of a level that holds the gang; empty when none does.
std::vector<Option> in_one_domain(const SchedIndex::Impl& index, const std::vector<Option>& all, Closeness level, std::size_t tasks) {
  std::map<std::string, std::vector<Option>> domains;
  for (const Option& o : all) {
    const std::string& name = domain_name(index.nodes[o.slot].shape.place, level);
    if (!name.empty()) domains[name].push_back(o);
  }
  std::vector<Option>* best = nullptr;
  for (auto& [name, members] : domains) {
    if (members.size() >= tasks && (!best || members.size() < best->size())) best = &members;
  }
  return best ? std::move(*best) : std::vector<Option>{};
}

}  // namespace

std::vector<Placement> place(SchedIndex::Impl& index, const PlacementClass& c, std::int32_t tasks) {
  std::vector<Option> all = options(index, c);
  const auto wanted = static_cast<std::size_t>(tasks);
  if (all.size() < wanted) return {};
  std::vector<Option> chosen;
  if (tasks == 1) {
    chosen.push_back(*std::min_element(all.begin(), all.end()));
  } else {
    // From the nearest outwards; what is merely preferred may end up anywhere.
    static constexpr Closeness outwards[] = {Closeness::switch_, Closeness::rack, Closeness::zone, Closeness::region, Closeness::anywhere};
    for (Closeness level : outwards) {
      if (c.constraints.close_required && level < c.constraints.close) break;
      chosen = in_one_domain(index, all, level, wanted);
      if (!chosen.empty()) break;
    }
    if (chosen.empty()) return {};
    std::partial_sort(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(wanted), chosen.end());
    chosen.resize(wanted);
  }
  std::vector<Placement> placements;
  for (const Option& o : chosen) placements.push_back(*fit(c, index.nodes[o.slot]));
  return placements;
}

}  // namespace billow::sched
