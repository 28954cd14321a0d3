#include "core/sched/reserved.h"

#include <algorithm>

namespace billow::sched {
namespace {

// The sum of several placements on one node.
struct Sum {
  std::map<std::int32_t, Share> gpus;
  std::int64_t cpu_milli = 0, mem_mib = 0;
  int holders = 0;

  void add(const Placement& p, int sign) {
    holders += sign;
    cpu_milli += sign * p.cpu_milli;
    mem_mib += sign * p.mem_mib;
    for (const GpuShare& g : p.gpus) {
      Share& s = gpus[g.gpu];
      s.milli += sign * g.share.milli;
      s.mem_mib += sign * g.share.mem_mib;
    }
  }
  Placement placement(NodeId node) const {
    Placement p{.node = node, .gpus = {}, .cpu_milli = cpu_milli, .mem_mib = mem_mib};
    for (const auto& [gpu, share] : gpus)
      if (share.milli > 0 || share.mem_mib > 0)
        p.gpus.push_back({gpu, share, -1});
    return p;
  }
};

}  // namespace

const JobRequest& nobody() {
  static const JobRequest request;
  return request;
}

Reserved::Reserved(const SchedIndex::Impl& index, WallTime now) {
  struct Change {
    WallTime at;
    Placement left;
    int sign = 0;
  };
  static const std::list<RunningJob> none;
  std::map<Slot, std::vector<Change>> changes;
  for (const auto& [id, r] : index.reservations) {
    if (r.until <= now)
      continue;
    for (const Placement& reserved : r.placements) {
      const auto slot = index.slot_of.find(reserved.node);
      if (slot == index.slot_of.end())
        continue;
      Placement left = left_of(index, r, reserved, none);
      changes[slot->second].push_back({std::max(r.from, now), left, +1});
      changes[slot->second].push_back({r.until, std::move(left), -1});
    }
  }
  for (auto& [slot, list] : changes) {
    std::ranges::stable_sort(list, {}, &Change::at);
    Sum sum;
    std::vector<Step>& steps = steps_[slot];
    for (std::size_t i = 0; i < list.size();) {
      const WallTime at = list[i].at;
      for (; i < list.size() && list[i].at == at; ++i)
        sum.add(list[i].left, list[i].sign);
      if (sum.holders > 0)
        steps.push_back({at, list[i].at, sum.placement(index.nodes[slot].shape.id)});
    }
  }
}

bool Reserved::meets(const Step& step, const Stay& stay) {
  if (step.until <= stay.from)
    return false;
  if (stay.gives_way)
    return step.from < stay.from + spot_before_reservation_min;
  return !stay.until || step.from < stay.until;
}

void Reserved::cut(FreeCapacity& free, Slot slot, const NodeShape& shape, const Stay& stay) const {
  const auto found = steps_.find(slot);
  if (found == steps_.end())
    return;
  const FreeCapacity all = free;
  for (const Step& step : found->second) {
    if (!meets(step, stay))
      continue;
    FreeCapacity beside = all;
    shift_free(beside, shape, step.used, nobody(), -1);
    free.tasks = std::max(free.tasks, beside.tasks);
    free.cpu_milli = std::min(free.cpu_milli, beside.cpu_milli);
    free.mem_mib = std::min(free.mem_mib, beside.mem_mib);
    free.disk_mib = std::min(free.disk_mib, beside.disk_mib);
    for (std::size_t g = 0; g < free.gpus.size(); ++g) {
      free.gpus[g].free_milli = std::min(free.gpus[g].free_milli, beside.gpus[g].free_milli);
      free.gpus[g].free_mem_mib = std::min(free.gpus[g].free_mem_mib, beside.gpus[g].free_mem_mib);
    }
  }
}

std::vector<WallTime> Reserved::ends() const {
  std::vector<WallTime> ends;
  for (const auto& [slot, steps] : steps_)
    for (const Step& step : steps)
      ends.push_back(step.until);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

ReservedView::ReservedView(SchedIndex::Impl& index, const Reserved& reserved, const Stay& stay)
    : holds_(index) {
  for (const auto& [slot, steps] : reserved.steps()) {
    const FreeCapacity free = free_of(index.nodes[slot]);
    for (const Reserved::Step& step : steps)
      if (Reserved::meets(step, stay))
        holds_.keep(step.used, nobody(), free, step.from);
  }
}

bool holds_for_its_own(const SchedIndex::Impl& index, const JobRequest& job, WallTime at) {
  const auto own = index.reservations.find(job.reservation);
  return own != index.reservations.end() && at < own->second.until;
}

WallTime surely_over(const RunningJob& job, WallTime now) {
  if (job.leaving)
    return now;
  if (job.request.time_limit.ns > 0)
    return job.started + job.request.time_limit;
  return {};
}

std::optional<Placement> fit_reserved(const PlacementClass& c,
                                      const NodeState& node,
                                      const Placement& reserved,
                                      std::int64_t disk_mib) {
  // It needs the whole node, so the reservation must cover all of it.
  if (c.resources.takes_node()) {
    const auto whole =
        std::ranges::count_if(reserved.gpus, [](const GpuShare& g) { return g.share.whole(); });
    if (static_cast<std::size_t>(whole) < node.gpus.size() ||
        reserved.cpu_milli < node.shape.cpu_milli || reserved.mem_mib < node.shape.mem_mib)
      return std::nullopt;
  }
  FreeCapacity free{.gpus = std::vector<GpuState>(node.gpus.size()),
                    .cpu_milli = reserved.cpu_milli,
                    .mem_mib = reserved.mem_mib,
                    .disk_mib = disk_mib};
  for (const GpuShare& g : reserved.gpus) {
    if (static_cast<std::size_t>(g.gpu) >= free.gpus.size())
      continue;  // the node came back with fewer cards
    free.gpus[static_cast<std::size_t>(g.gpu)].free_milli = g.share.milli;
    free.gpus[static_cast<std::size_t>(g.gpu)].free_mem_mib = g.share.mem_mib;
  }
  return fit_free(c, node, free);
}

Placement left_of(const SchedIndex::Impl& index,
                  const Reservation& r,
                  const Placement& reserved,
                  const std::list<RunningJob>& started) {
  Placement left = reserved;
  const NodeState* node = index.find(reserved.node);
  if (!node)
    return left;
  const auto less = [&](const RunningJob& job) {
    if (job.request.reservation != r.id)
      return;
    for (const Placement& p : job.placements) {
      if (p.node != reserved.node)
        continue;
      left.cpu_milli = std::max<std::int64_t>(0, left.cpu_milli - p.cpu_milli);
      left.mem_mib = std::max<std::int64_t>(0, left.mem_mib - p.mem_mib);
      for (const GpuShare& used : p.gpus) {
        for (GpuShare& g : left.gpus) {
          if (g.gpu != used.gpu)
            continue;
          g.share.milli = std::max(0, g.share.milli - used.share.milli);
          g.share.mem_mib = std::max<std::int64_t>(0, g.share.mem_mib - used.share.mem_mib);
        }
      }
    }
  };
  JobId last;
  for (JobId id : node->jobs) {
    if (std::exchange(last, id) != id)
      less(index.running.at(id));
  }
  for (const RunningJob& job : started)
    less(job);
  return left;
}

}  // namespace billow::sched
