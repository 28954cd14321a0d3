// Nodes for an advance reservation: capacity that will certainly be free for its whole time.
//
// The capacity of a node is its total, less other reservations at that time, less jobs that may
// still run when the reservation begins. A job with a time limit may have ended by then; one
// without may still run, unless it can be preempted (spot), which the plan does when the
// reservation begins. Nodes on which no job must leave come first, then those where it costs least.
// Every later plan keeps the chosen capacity (holds.h), so nothing that would be in the way starts
// meanwhile.
#include <algorithm>

#include <fmt/format.h>

#include "base/relative_time.h"
#include "base/text.h"
#include "core/sched/preempt.h"
#include "core/sched/reserved.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;
constexpr std::size_t later_tries_max = 64;  // ends of other jobs tried for "it would fit from …"

bool overlap(const Reservation& r, WallTime from, WallTime until) {
  return r.from < until && from < r.until;
}

struct NodeFree {
  Slot slot = no_slot;
  Placement placement;
  double cost = 0;  // of preempting the jobs that must leave
};

// The cores and memory divided among a node's GPUs if the request does not specify them. Jobs
// without GPUs keep one eighth, and at least one core of two or more.
constexpr std::int64_t left_to_others = 8;
constexpr std::int64_t core_milli = 1000;
std::int64_t cpu_to_share(const NodeShape& node) {
  return node.cpu_milli < 2 * core_milli
             ? node.cpu_milli
             : node.cpu_milli - std::max(core_milli, node.cpu_milli / left_to_others);
}
std::int64_t mem_to_share(const NodeShape& node) {
  return node.mem_mib - node.mem_mib / left_to_others;
}

struct Search {
  Impl& index;
  const ReservationRequest& request;
  const PlacementClass& c;
  WallTime now;
  std::int64_t endless = 0;  // jobs in the way without a known end

  // The node without running jobs, less the other reservations at that time.
  FreeCapacity without_jobs(const NodeState& node, WallTime from, WallTime until) const {
    FreeCapacity free{.gpus = std::vector<GpuState>(node.gpus.size()),
                      .cpu_milli = node.shape.cpu_milli,
                      .mem_mib = node.shape.mem_mib,
                      .disk_mib = node.shape.disk_mib};
    for (std::size_t i = 0; i < free.gpus.size(); ++i) {
      if (!node.shape.gpus[i].healthy)
        continue;
      free.gpus[i].free_milli = whole_gpu_milli;
      free.gpus[i].free_mem_mib = node.shape.gpus[i].memory_mib;
    }
    static const JobRequest nobody;
    for (const auto& [id, r] : index.reservations) {
      if (id == request.instead_of || !overlap(r, from, until))
        continue;
      for (const Placement& p : r.placements)
        if (p.node == node.shape.id)
          shift_free(free, node.shape, p, nobody, -1);
    }
    return free;
  }

  // The jobs of the node that may still run when the reservation begins.
  std::vector<JobId> in_the_way(const NodeState& node, WallTime from, WallTime until) const {
    std::vector<JobId> out;
    JobId last;
    for (JobId id : node.jobs) {
      if (std::exchange(last, id) == id)
        continue;
      const RunningJob& job = index.running.at(id);
      // A job inside a reservation that overlaps is counted with that reservation.
      if (const auto own = index.reservations.find(job.request.reservation);
          own != index.reservations.end() && overlap(own->second, from, until))
        continue;
      const WallTime end = surely_over(job, now);
      if (!end || end > from)
        out.push_back(id);
    }
    return out;
  }

  // GPUs without cores are useless: if the request names no cores or memory, it gets its GPUs'
  // proportion of the node's, as far as free.
  void add_cores(Placement& p, const NodeState& node, const FreeCapacity& free) const {
    if (c.resources.takes_node())
      return;
    const auto cards = static_cast<std::int64_t>(node.shape.gpus.size());
    std::int64_t milli = 0;
    for (const GpuShare& g : p.gpus)
      milli += g.share.milli;
    const auto part = [&](std::int64_t asked, std::int64_t free_now, std::int64_t all) {
      if (asked > 0 || cards == 0)
        return asked;
      return std::clamp<std::int64_t>(all * milli / (cards * whole_gpu_milli), 0,
                                      std::max<std::int64_t>(free_now, 0));
    };
    p.cpu_milli = std::max(
        p.cpu_milli, part(request.resources.cpu_milli, free.cpu_milli, cpu_to_share(node.shape)));
    p.mem_mib = part(p.mem_mib, free.mem_mib, mem_to_share(node.shape));
  }

  std::optional<NodeFree> free_on(Slot slot, WallTime from, WallTime until) {
    const NodeState& node = index.nodes[slot];
    if (!allowed(c, node))
      return std::nullopt;
    FreeCapacity free = without_jobs(node, from, until);
    const auto shift = [&](JobId id, int sign) {
      const RunningJob& job = index.running.at(id);
      for (const Placement& p : job.placements)
        if (p.node == node.shape.id)
          shift_free(free, node.shape, p, job.request, sign);
    };
    std::int64_t endless_here = 0;
    std::vector<std::pair<double, JobId>> yielding;
    for (JobId id : in_the_way(node, from, until)) {
      const RunningJob& job = index.running.at(id);
      if (gives_way(job.request))
        yielding.emplace_back(cost_of(job, now, mode_of(job.request)), id);
      else if (!surely_over(job, now))
        ++endless_here;
      shift(id, -1);
    }
    std::ranges::sort(yielding);
    NodeFree found{.slot = slot};
    auto p = fit_free(c, node, free);
    if (!p) {
      std::vector<JobId> leave;
      for (const auto& [cost, id] : yielding)
        leave.push_back(id);
      p = least_asked(leave, shift, [&] { return fit_free(c, node, free); });
      for (const auto& [cost, id] : yielding)
        if (p && std::ranges::find(leave, id) != leave.end())
          found.cost += cost;
    }
    if (!p) {
      endless += endless_here;
      return std::nullopt;
    }
    add_cores(*p, node, free);
    found.placement = std::move(*p);
    return found;
  }

  std::vector<Placement> at(WallTime from, WallTime until) {
    endless = 0;
    std::vector<NodeFree> candidates;
    for (Slot s = 0; s < index.nodes.size(); ++s) {
      if (!index.nodes[s].present)
        continue;
      if (auto r = free_on(s, from, until))
        candidates.push_back(std::move(*r));
    }
    const auto tasks = static_cast<std::size_t>(request.tasks);
    if (candidates.size() < tasks)
      return {};
    // Nodes that no job must leave come first, then the tightest fits; names decide nothing.
    const auto key = [&](const NodeFree& r) {
      const NodeState& n = index.nodes[r.slot];
      return std::tuple(r.cost, n.shape.gpus.size(), n.shape.cpu_milli, n.hash, n.shape.id);
    };
    std::ranges::sort(candidates,
                      [&](const NodeFree& a, const NodeFree& b) { return key(a) < key(b); });
    std::vector<NodeFree*> chosen;
    static constexpr Closeness outwards[] = {Closeness::switch_, Closeness::rack, Closeness::zone,
                                             Closeness::region, Closeness::anywhere};
    for (Closeness level : outwards) {
      if (tasks == 1)
        break;
      if (c.constraints.close_required && level < c.constraints.close)
        return {};
      std::map<std::string, std::vector<NodeFree*>> domains;
      for (NodeFree& r : candidates) {
        const std::string& name = domain_name(index.nodes[r.slot].shape.place, level);
        if (!name.empty() && domains[name].size() < tasks)
          domains[name].push_back(&r);
      }
      for (auto& [name, members] : domains) {
        if (members.size() < tasks)
          continue;
        if (chosen.empty() || key(*members.front()) < key(*chosen.front()))
          chosen = members;
      }
      if (!chosen.empty())
        break;
    }
    if (tasks == 1)
      chosen.push_back(&candidates.front());
    std::vector<Placement> out;
    for (NodeFree* r : chosen)
      out.push_back(std::move(r->placement));
    return out;
  }
};

}  // namespace

Result<std::vector<Placement>> place_reservation(const SchedIndex& wrapped,
                                                 const ReservationRequest& r,
                                                 WallTime now) {
  if (r.until <= r.from || r.until <= now)
    return fail(Code::invalid, "a reservation ends after it begins, and in the future");
  JobRequest job{.project = r.project,
                 .resources = r.resources,
                 .tasks = r.tasks,
                 .constraints = r.constraints};
  if (job.resources.cpu_milli == 0 && !job.resources.takes_node())
    job.resources.cpu_milli = limits::task_cpu_milli_assumed;
  BILLOW_TRY_VOID(reservable(wrapped, job));
  Impl& index = wrapped.impl();
  const PlacementClass c = class_of(index, job);
  Search search{.index = index, .request = r, .c = c, .now = now};
  std::vector<Placement> placements = search.at(std::max(r.from, now), r.until);
  if (!placements.empty())
    return placements;
  // When would it fit? Free capacity grows only when something ends.
  const std::int64_t endless = search.endless;
  std::set<WallTime> ends;
  for (const auto& [id, other] : index.reservations)
    if (id != r.instead_of && other.until > r.from)
      ends.insert(other.until);
  for (const auto& [id, running] : index.running)
    if (const WallTime end = surely_over(running, now); end > r.from)
      ends.insert(end);
  std::string hint;
  std::size_t tries = 0;
  for (const WallTime from : ends) {
    if (++tries > later_tries_max)
      break;
    if (search.at(from, from + (r.until - r.from)).empty())
      continue;
    hint = fmt::format("the earliest possible start is {}: --from {}",
                       relative_time(from, now, Zone::utc), format_utc(from));
    break;
  }
  if (hint.empty() && endless > 0)
    hint = fmt::format(
        "{} without a time limit may still run then; give jobs a --time, or reserve fewer GPUs",
        endless == 1 ? "a job" : fmt::format("{} jobs", endless));
  return fail(Code::exhausted,
              fmt::format("not enough GPUs are certain to be free for {}, starting {}",
                          rough_duration(r.until - std::max(r.from, now)),
                          r.from <= now ? "now" : relative_time(r.from, now, Zone::utc)),
              std::move(hint));
}

}  // namespace billow::sched
