#include "core/sched/holds.h"

#include <algorithm>

#include "core/sched/reserved.h"

namespace billow::sched {

void Holds::keep(const Placement& placement,
                 const JobRequest& holder,
                 FreeCapacity then,
                 WallTime from,
                 For whom,
                 bool asks_spot) {
  auto it = index_.slot_of.find(placement.node);
  if (it == index_.slot_of.end())
    return;
  shift_free(then, index_.nodes[it->second].shape, placement, holder, -1);
  Held& held = nodes_[it->second];
  hide(it->second, held);
  held.parts.push_back({from, std::move(then), whom, asks_spot});
  show(it->second, held);
}

bool Holds::binds(const Part& part, const Leaves& leaves) {
  if (leaves.end && leaves.end <= part.from)
    return false;
  const bool asks = part.whom == For::reservation || (part.asks_spot && leaves.spot);
  return !asks || !leaves.asked_from || part.from < leaves.asked_from;
}

void Holds::show(Slot slot, Held& held) {
  show(slot, held, [](const Part&) { return true; });
}

// "Showing" a hold makes the node look fuller: each number is cut to the smallest spare of the
// shown parts.
void Holds::show(Slot slot, Held& held, const std::function<bool(const Part&)>& shown) {
  if (held.shown || std::ranges::none_of(held.parts, shown))
    return;
  NodeState& node = index_.nodes[slot];
  FreeCapacity& hidden = held.hidden;
  hidden = FreeCapacity{.gpus = std::vector<GpuState>(node.gpus.size()), .tasks = 1};
  const auto cut = [](auto& most, auto have, auto spare) {
    most = std::max<std::decay_t<decltype(most)>>(most, have - std::max<decltype(have)>(spare, 0));
  };
  for (const Part& part : held.parts) {
    if (!shown(part))
      continue;
    cut(hidden.cpu_milli, node.free_cpu_milli, part.spare.cpu_milli);
    cut(hidden.mem_mib, node.free_mem_mib, part.spare.mem_mib);
    cut(hidden.disk_mib, node.free_disk_mib, part.spare.disk_mib);
    for (std::size_t g = 0; g < std::min(node.gpus.size(), part.spare.gpus.size()); ++g) {
      cut(hidden.gpus[g].free_milli, node.gpus[g].free_milli, part.spare.gpus[g].free_milli);
      cut(hidden.gpus[g].free_mem_mib, node.gpus[g].free_mem_mib, part.spare.gpus[g].free_mem_mib);
      hidden.gpus[g].mig_used |= part.spare.gpus[g].mig_used & ~node.gpus[g].mig_used;
    }
  }
  node.free_cpu_milli -= hidden.cpu_milli;
  node.free_mem_mib -= hidden.mem_mib;
  node.free_disk_mib -= hidden.disk_mib;
  node.tasks += hidden.tasks;
  for (std::size_t g = 0; g < node.gpus.size(); ++g) {
    node.gpus[g].free_milli -= hidden.gpus[g].free_milli;
    node.gpus[g].free_mem_mib -= hidden.gpus[g].free_mem_mib;
    node.gpus[g].mig_used |= hidden.gpus[g].mig_used;
  }
  held.shown = true;
  index_.node_changed(node);
}

void Holds::hide(Slot slot, Held& held) {
  if (!held.shown)
    return;
  NodeState& node = index_.nodes[slot];
  node.free_cpu_milli += held.hidden.cpu_milli;
  node.free_mem_mib += held.hidden.mem_mib;
  node.free_disk_mib += held.hidden.disk_mib;
  node.tasks -= held.hidden.tasks;
  for (std::size_t g = 0; g < node.gpus.size(); ++g) {
    node.gpus[g].free_milli += held.hidden.gpus[g].free_milli;
    node.gpus[g].free_mem_mib += held.hidden.gpus[g].free_mem_mib;
    node.gpus[g].mig_used &= ~held.hidden.gpus[g].mig_used;
  }
  held.shown = false;
  index_.node_changed(node);
}

void Holds::show_all() {
  for (auto& [slot, held] : nodes_)
    show(slot, held);
}
void Holds::hide_all() {
  for (auto& [slot, held] : nodes_)
    hide(slot, held);
}

void Holds::take(const Placement& placement, const JobRequest& request, const Leaves& leaves) {
  auto slot = index_.slot_of.find(placement.node);
  auto it = slot == index_.slot_of.end() ? nodes_.end() : nodes_.find(slot->second);
  if (it == nodes_.end()) {
    index_.take(placement, request);
    return;
  }
  hide(it->first, it->second);
  index_.take(placement, request);
  for (Part& part : it->second.parts) {
    if (binds(part, leaves))
      shift_free(part.spare, index_.nodes[it->first].shape, placement, request, -1);
  }
  show(it->first, it->second);
}

void Holds::take_own(const Placement& placement, const JobRequest& request) {
  auto slot = index_.slot_of.find(placement.node);
  auto it = slot == index_.slot_of.end() ? nodes_.end() : nodes_.find(slot->second);
  if (it != nodes_.end())
    hide(it->first, it->second);
  index_.take(placement, request);
  if (it != nodes_.end())
    show(it->first, it->second);
}

FreeCapacity Holds::true_free(Slot slot, const Held& held) const {
  FreeCapacity free = free_of(index_.nodes[slot]);
  if (!held.shown)
    return free;
  free.cpu_milli += held.hidden.cpu_milli;
  free.mem_mib += held.hidden.mem_mib;
  free.disk_mib += held.hidden.disk_mib;
  free.tasks -= held.hidden.tasks;
  for (std::size_t g = 0; g < free.gpus.size(); ++g) {
    free.gpus[g].free_milli += held.hidden.gpus[g].free_milli;
    free.gpus[g].free_mem_mib += held.hidden.gpus[g].free_mem_mib;
    free.gpus[g].mig_used &= ~held.hidden.gpus[g].mig_used;
  }
  return free;
}

FreeCapacity Holds::true_free(Slot slot) const {
  auto it = nodes_.find(slot);
  return it == nodes_.end() ? free_of(index_.nodes[slot]) : true_free(slot, it->second);
}

bool Holds::truly_free(const std::vector<Placement>& placements, const JobRequest& request) const {
  std::map<Slot, FreeCapacity> left;  // members of a group may share a node
  for (const Placement& placement : placements) {
    auto slot = index_.slot_of.find(placement.node);
    if (slot == index_.slot_of.end())
      return false;
    FreeCapacity& free = left.try_emplace(slot->second, true_free(slot->second)).first->second;
    if (request.resources.takes_node() && free.tasks > 0)
      return false;
    shift_free(free, index_.nodes[slot->second].shape, placement, request, -1);
    const bool enough = std::ranges::all_of(
        free.gpus, [](const GpuState& g) { return g.free_milli >= 0 && g.free_mem_mib >= 0; });
    if (!enough || free.cpu_milli < 0 || free.mem_mib < 0 || free.disk_mib < 0)
      return false;
  }
  return true;
}

std::optional<Placement> Holds::place_short(const PlacementClass& c, const Leaves& leaves) const {
  std::optional<Placement> best;
  std::tuple<double, std::uint64_t, NodeGroups::Precedence> best_key;
  for (const auto& [slot, held] : nodes_) {
    const NodeState& node = index_.nodes[slot];
    if (!allowed(c, node))
      continue;
    FreeCapacity free = true_free(slot, held);
    for (const Part& part : held.parts) {  // parts that it would outlive still bind it
      if (!binds(part, leaves))
        continue;
      free.tasks = std::max(free.tasks, 1);
      free.cpu_milli = std::min(free.cpu_milli, part.spare.cpu_milli);
      free.mem_mib = std::min(free.mem_mib, part.spare.mem_mib);
      free.disk_mib = std::min(free.disk_mib, part.spare.disk_mib);
      for (std::size_t g = 0; g < std::min(free.gpus.size(), part.spare.gpus.size()); ++g) {
        free.gpus[g].free_milli = std::min(free.gpus[g].free_milli, part.spare.gpus[g].free_milli);
        free.gpus[g].free_mem_mib =
            std::min(free.gpus[g].free_mem_mib, part.spare.gpus[g].free_mem_mib);
        free.gpus[g].mig_used |= part.spare.gpus[g].mig_used;
      }
    }
    auto p = fit_free(c, node, free);
    if (!p)
      continue;
    std::int64_t left = 0;
    for (const GpuState& g : free.gpus)
      left += g.free_milli;
    const std::tuple key{static_cast<double>(left) + static_cast<double>(free.cpu_milli) / 1e6,
                         node.hash, index_.groups.precedence(slot)};
    if (!best || key < best_key) {
      best = std::move(p);
      best_key = key;
    }
  }
  return best;
}

namespace {

// Lets the oldest jobs of the node end one after the other until the task fits. Returns when the
// last of them started, and the capacity then.
std::optional<std::pair<std::int64_t, Drain>> drain(const SchedIndex::Impl& index,
                                                    const PlacementClass& c,
                                                    Slot slot,
                                                    WallTime now,
                                                    const CutCapacity& cut) {
  const NodeState& node = index.nodes[slot];
  if (!allowed(c, node))
    return std::nullopt;
  std::vector<std::pair<std::int64_t, JobId>> jobs;
  for (JobId last; JobId id : node.jobs) {
    if (std::exchange(last, id) == id)
      continue;
    const RunningJob& job = index.running.at(id);
    if (!holds_for_its_own(index, job.request, now))
      jobs.emplace_back(job.started.ns, id);
  }
  std::ranges::sort(jobs);
  Drain d{.slot = slot, .placement = {}, .then = free_of(node)};
  const std::int64_t asked = std::int64_t{c.resources.gpus} * c.resources.share.milli;
  std::int64_t started_ns = 0;
  for (std::size_t next = 0;; ++next) {
    std::int64_t free_milli = 0;
    FreeCapacity free = d.then;
    cut(free, slot);
    for (const GpuState& g : free.gpus)
      free_milli += std::max(g.free_milli, 0);
    // Skips the exact check.
    const bool hopeless =
        c.resources.takes_node() ? next < jobs.size() : !c.mig && free_milli < asked;
    if (auto p = hopeless ? std::nullopt : fit_free(c, node, free)) {
      d.placement = std::move(*p);
      return std::pair(started_ns, std::move(d));
    }
    if (next == jobs.size())
      return std::nullopt;
    started_ns = jobs[next].first;
    const RunningJob& job = index.running.at(jobs[next].second);
    for (const Placement& p : job.placements) {
      if (p.node == node.shape.id)
        shift_free(d.then, node.shape, p, job.request, +1);
    }
  }
}

}  // namespace

std::vector<Drain> drain_oldest(const SchedIndex::Impl& index,
                                const PlacementClass& c,
                                std::size_t tasks,
                                WallTime now,
                                const CutCapacity& cut) {
  std::vector<std::pair<std::int64_t, Drain>> found;
  for (Slot s = 0; s < index.nodes.size(); ++s) {
    if (auto d = drain(index, c, s, now, cut))
      found.push_back(std::move(*d));
  }
  std::ranges::sort(found, {}, [&](const auto& f) {
    return std::tuple(f.first, index.nodes[f.second.slot].hash, f.second.placement.node);
  });
  const Closeness close =
      c.constraints.close_required && tasks > 1 ? c.constraints.close : Closeness::anywhere;
  std::map<std::string, std::vector<Drain>> places;
  for (auto& [started_ns, d] : found) {
    const std::string name = close == Closeness::anywhere
                                 ? std::string()
                                 : domain_name(index.nodes[d.slot].shape.place, close);
    if (close != Closeness::anywhere && name.empty())
      continue;
    std::vector<Drain>& there = places[name];
    there.push_back(std::move(d));
    if (there.size() == tasks)
      return std::move(there);
  }
  return {};
}

}  // namespace billow::sched
