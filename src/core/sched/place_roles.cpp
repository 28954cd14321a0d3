// Placing a group: all of its members or none. Members differ and may share nodes, so they are
// placed one after the other, each on what the ones before it leave.
//
// The search goes back and tries the next place of an earlier member if a later one does not fit,
// within a bound: a group that fits only in one of very many ways may be found too late. The
// members with the fewest possible nodes come first, so that flexible members do not take their
// places.
#include <algorithm>
#include <map>
#include <numeric>

#include "core/sched/index.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

constexpr std::size_t looks_per_member = 8;  // places tried, on average…
constexpr std::size_t looks_min = 256;       // …and in all, at least
constexpr std::size_t domains_tried_max = 32;

class RoleSearch {
 public:
  RoleSearch(Impl& index, const PlacementClass& group)
      : index_(index), group_(group), placements_(group.members.size()) {}

  // Empty: they do not fit together on these nodes.
  std::vector<Placement> among(const std::function<bool(Slot)>& may_use) {
    may_use_ = may_use;
    looks_left_ = looks_min + looks_per_member * group_.members.size();
    put_in_order();
    const bool found = !order_.empty() && place_from(0);
    if (!found)
      return {};
    for (const Placement& p : placements_)
      index_.give(p, nobody_);
    return placements_;
  }

 private:
  void put_in_order() {
    std::map<std::string, std::size_t> nodes;  // possible ones, by class
    order_.clear();
    for (const auto& member : group_.members) {
      const auto [at, fresh] = nodes.try_emplace(member->key, 0);
      if (!fresh)
        continue;
      at->second = options_for(index_, *member, may_use_).size();
      if (at->second == 0)
        return;  // one that fits nowhere
    }
    order_.resize(group_.members.size());
    std::iota(order_.begin(), order_.end(), 0);
    const auto key = [&](std::size_t task) {
      const PlacementClass& c = *group_.members[task];
      return std::tuple(nodes.at(c.key), -std::int64_t{c.resources.gpus} * c.resources.share.milli,
                        -c.resources.cpu_milli, -c.resources.mem_mib, task);
    };
    std::ranges::sort(order_, {}, key);
  }

  bool place_from(std::size_t position) {
    if (position == order_.size())
      return true;
    const std::size_t task = order_[position];
    for (Placement& option : options_for(index_, *group_.members[task], may_use_)) {
      if (looks_left_ == 0)
        return false;
      --looks_left_;
      index_.take(option, nobody_);
      placements_[task] = std::move(option);
      if (place_from(position + 1))
        return true;
      index_.give(placements_[task], nobody_);
    }
    return false;
  }

  Impl& index_;
  const PlacementClass& group_;
  std::function<bool(Slot)> may_use_;
  std::vector<std::size_t> order_;  // of tasks, the most restricted first
  std::vector<Placement> placements_;
  std::size_t looks_left_ = 0;
  const JobRequest nobody_;  // groups have no MIG instances, the only use of a request here
};

std::int64_t milli_of(const PlacementClass& group) {
  std::int64_t milli = 0;
  for (const auto& member : group.members)
    milli += std::int64_t{member->resources.gpus} * member->resources.share.milli;
  return milli;
}

// The domains of a level with enough free GPUs in total, the one with the least first.
std::vector<std::int32_t> domains_at(const Impl& index,
                                     const PlacementClass& group,
                                     Closeness level) {
  struct Domain {
    std::int64_t free_milli = 0;
    std::uint64_t alike = 0;  // equal for domains with equal nodes
    NodeId first{UINT64_MAX};
    std::int32_t number = -1;
  };
  std::map<std::int32_t, Domain> domains;
  for (const NodeState& node : index.nodes) {
    const std::int32_t number = node.domain[static_cast<std::size_t>(level)];
    if (!node.present || number < 0)
      continue;
    Domain& d = domains[number];
    d.number = number;
    d.free_milli += node.free_milli;
    d.alike += node.hash;
    d.first = std::min(d.first, node.shape.id);
  }
  std::vector<Domain> enough;
  for (const auto& [number, d] : domains)
    if (d.free_milli >= milli_of(group))
      enough.push_back(d);
  std::ranges::sort(enough, {},
                    [](const Domain& d) { return std::tuple(d.free_milli, d.alike, d.first); });
  if (enough.size() > domains_tried_max)
    enough.resize(domains_tried_max);
  std::vector<std::int32_t> numbers;
  for (const Domain& d : enough)
    numbers.push_back(d.number);
  return numbers;
}

}  // namespace

std::vector<Placement> place_roles(Impl& index, const PlacementClass& c) {
  const std::uint64_t version = index.version;
  // Near each other if possible; only within one domain of the level that is required.
  static constexpr Closeness outwards[] = {Closeness::switch_, Closeness::rack, Closeness::zone,
                                           Closeness::region, Closeness::anywhere};
  std::vector<Placement> found;
  RoleSearch search(index, c);
  for (Closeness level : outwards) {
    if (!found.empty() || (c.constraints.close_required && level != c.constraints.close))
      continue;
    for (const std::int32_t number : domains_at(index, c, level)) {
      found = search.among([&](Slot slot) {
        return index.nodes[slot].domain[static_cast<std::size_t>(level)] == number;
      });
      if (!found.empty())
        break;
    }
  }
  index.version = version;  // what was taken for the search has been given back
  return found;
}

JobRequest member_request(const JobRequest& request, std::int32_t task) {
  JobRequest member = request;
  if (request.parts.empty())
    return member;
  member.parts.clear();
  member.tasks = 1;
  for (const RolePart& part : request.parts) {
    if (task < part.tasks) {
      member.resources = part.resources;
      break;
    }
    task -= part.tasks;
  }
  return member;
}

bool fit_together_when_empty(SchedIndex::Impl& index, const JobRequest& job) {
  const std::string key = class_of(index, job).key + '\xff';  // no class's own key ends so
  if (const auto known = index.capacities.find(key); known != index.capacities.end())
    return known->second.together > 0;
  IndexContents empty{.settings = index.settings};
  for (const NodeState& node : index.nodes) {
    if (!node.present)
      continue;
    empty.nodes.push_back(node.shape);
    empty.nodes.back().use = NodeUse::schedulable;  // it may come back
  }
  for (const auto& [id, project] : index.projects)
    empty.projects.push_back(project.settings);
  const SchedIndex fresh = SchedIndex::rebuild(empty);
  const bool fit = !place(fresh.impl(), class_of(fresh.impl(), job), job.tasks).empty();
  index.keep_capacity(key, {.nodes = job.tasks, .together = fit ? job.tasks : 0});
  return fit;
}

}  // namespace billow::sched
