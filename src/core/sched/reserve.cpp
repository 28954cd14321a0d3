// Nodes for an advance reservation: what will surely be free for the whole of its time.
//
// On each node the room is what the node has, less what other reservations of that time hold, less
// what runs there now and may still run when it begins. A job with a time limit is gone by then or
// not; one without may run for ever, unless it can be asked to give way (spot), which the plan does
// when the reservation begins. Room that nobody has to leave comes first; where there is none,
// those are asked whom it costs least. What is chosen is kept by every later plan (holds.h), so
// nothing that would be in the way starts in between.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "core/sched/reserved.h"
#include "core/sched/victims.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;
constexpr std::size_t later_tries_max = 64;  // ends of others looked at for "it would fit from …"

bool overlap(const Reservation& r, WallTime from, WallTime until) {
  return r.from < until && from < r.until;
}

struct NodeRoom {
  Slot slot = no_slot;
  Placement placement;
  double cost = 0;  // of asking those to leave who are on it now and can
};

// What the GPUs' part of a node's cores or memory is, where the request does not say. Not all of
// it, even of all GPUs: a part is left for work without GPUs, which has nowhere else to go.
constexpr std::int64_t left_to_others = 8;  // one part in so many…
constexpr std::int64_t core_milli = 1000;   // …and a core at least, where there are two
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
  std::int64_t endless = 0;  // jobs in the way of which nobody knows when they end

  std::optional<NodeRoom> room_on(Slot slot, WallTime from, WallTime until) {
    const NodeState& node = index.nodes[slot];
    if (!allowed(c, node))
      return std::nullopt;
    Room room{.gpus = std::vector<GpuState>(node.gpus.size()),
              .cpu_milli = node.shape.cpu_milli,
              .mem_mib = node.shape.mem_mib};
    for (std::size_t i = 0; i < room.gpus.size(); ++i) {
      if (!node.shape.gpus[i].healthy)
        continue;
      room.gpus[i].free_milli = whole_gpu_milli;
      room.gpus[i].free_mem_mib = node.shape.gpus[i].memory_mib;
    }
    static const JobRequest nobody;
    for (const auto& [id, r] : index.reservations) {
      if (id == request.instead_of || !overlap(r, from, until))
        continue;
      for (const Placement& p : r.placements)
        if (p.node == node.shape.id)
          shift_room(room, node.shape, p, nobody, -1);
    }
    const auto shift = [&](JobId id, int sign) {
      const RunningJob& job = index.running.at(id);
      for (const Placement& p : job.placements)
        if (p.node == node.shape.id)
          shift_room(room, node.shape, p, job.request, sign);
    };
    std::int64_t endless_here = 0;
    std::vector<std::pair<double, JobId>> yielding;
    JobId last;
    for (JobId id : node.jobs) {
      if (std::exchange(last, id) == id)
        continue;
      const RunningJob& job = index.running.at(id);
      // While its own reservation lasts it is counted as that; afterwards it goes on.
      if (const auto own = index.reservations.find(job.request.reservation);
          own != index.reservations.end() && overlap(own->second, from, until))
        continue;
      const WallTime end = surely_over(job, now);
      if (end && end <= from)
        continue;
      if (gives_way(job.request))
        yielding.emplace_back(cost_of(job, now, mode_of(job.request)), id);
      else if (!end)
        ++endless_here;
      shift(id, -1);
    }
    std::ranges::sort(yielding);
    NodeRoom found{.slot = slot};
    auto p = fit_room(c, node, room);
    if (!p) {
      std::vector<JobId> leave;
      for (const auto& [cost, id] : yielding)
        leave.push_back(id);
      p = least_asked(leave, shift, [&] { return fit_room(c, node, room); });
      for (const auto& [cost, id] : yielding)
        if (p && std::ranges::find(leave, id) != leave.end())
          found.cost += cost;
    }
    if (!p) {
      endless += endless_here;
      return std::nullopt;
    }
    // GPUs without cores are of no use: what is not asked for is the GPUs' part of the node's, as
    // far as it is free.
    const auto cards = static_cast<std::int64_t>(node.shape.gpus.size());
    std::int64_t milli = 0;
    for (const GpuShare& g : p->gpus)
      milli += g.share.milli;
    const auto part = [&](std::int64_t asked, std::int64_t free, std::int64_t all) {
      return asked > 0 || cards == 0
                 ? asked
                 : std::clamp<std::int64_t>(all * milli / (cards * whole_gpu_milli), 0,
                                            std::max<std::int64_t>(free, 0));
    };
    if (!c.resources.takes_node()) {
      p->cpu_milli = std::max(p->cpu_milli, part(request.resources.cpu_milli, room.cpu_milli,
                                                 cpu_to_share(node.shape)));
      p->mem_mib = part(p->mem_mib, room.mem_mib, mem_to_share(node.shape));
    }
    found.placement = std::move(*p);
    return found;
  }

  std::vector<Placement> at(WallTime from, WallTime until) {
    endless = 0;
    std::vector<NodeRoom> rooms;
    for (Slot s = 0; s < index.nodes.size(); ++s) {
      if (!index.nodes[s].present)
        continue;
      if (auto r = room_on(s, from, until))
        rooms.push_back(std::move(*r));
    }
    const auto tasks = static_cast<std::size_t>(request.tasks);
    if (rooms.size() < tasks)
      return {};
    // Nodes that need nobody asked to leave come first, then those it fits most tightly; names
    // decide nothing.
    const auto key = [&](const NodeRoom& r) {
      const NodeState& n = index.nodes[r.slot];
      return std::tuple(r.cost, n.shape.gpus.size(), n.shape.cpu_milli, n.hash, n.shape.id);
    };
    std::ranges::sort(rooms, [&](const NodeRoom& a, const NodeRoom& b) { return key(a) < key(b); });
    std::vector<NodeRoom*> chosen;
    static constexpr Closeness outwards[] = {Closeness::switch_, Closeness::rack, Closeness::zone,
                                             Closeness::region, Closeness::anywhere};
    for (Closeness level : outwards) {
      if (tasks == 1)
        break;
      if (c.constraints.close_required && level < c.constraints.close)
        return {};
      std::map<std::string, std::vector<NodeRoom*>> domains;
      for (NodeRoom& r : rooms) {
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
      chosen.push_back(&rooms.front());
    std::vector<Placement> out;
    for (NodeRoom* r : chosen)
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
  BILLOW_TRY_VOID(feasible(wrapped, job));
  Impl& index = wrapped.impl();
  const PlacementClass c = class_of(index, job);
  Search search{.index = index, .request = r, .c = c, .now = now};
  std::vector<Placement> placements = search.at(std::max(r.from, now), r.until);
  if (!placements.empty())
    return placements;
  // When would it fit? Room grows only when something ends.
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
    hint = fmt::format("it would fit from {} on: --from {}", format_utc(from), format_utc(from));
    break;
  }
  if (hint.empty() && endless > 0)
    hint = fmt::format(
        "{} without a time limit may still run then; give jobs --time, or reserve fewer GPUs",
        endless == 1 ? "a job" : fmt::format("{} jobs", endless));
  return fail(Code::exhausted,
              fmt::format("not enough is sure to be free from {} until {}",
                          format_utc(std::max(r.from, now)), format_utc(r.until)),
              std::move(hint));
}

}  // namespace billow::sched
