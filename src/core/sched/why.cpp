// Answers for people: why a job waits. What would start it now is in advice.cpp, when it will start
// in forecast.cpp.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "core/sched/advice.h"
#include "core/sched/reserved.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

std::string plural(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}
std::string gpus(std::int64_t milli) {
  return fmt::format("{:g}", static_cast<double>(milli) / 1000);
}

// What the project, its people and its array are held to.
void limits_of(Impl& index, const JobRequest& job, Explanation& e) {
  const auto add = [&](ReasonKind kind, std::string text) {
    e.reasons.push_back({kind, std::move(text), {}});
  };
  if (auto it = index.projects.find(job.project); it != index.projects.end()) {
    const ProjectState& p = it->second;
    const ProjectSettings& s = p.settings;
    const std::int64_t asked = asked_milli(index, job);
    if (s.budget_exhausted)
      add(ReasonKind::budget, "the budget of the project is used up");
    if (s.limit_milli >= 0 && p.running_milli + asked > s.limit_milli) {
      add(ReasonKind::project_limit,
          fmt::format("the project uses {} of its {} GPUs, and this asks for {}",
                      gpus(p.running_milli), gpus(s.limit_milli), gpus(asked)));
    }
    if (!s.may_borrow && p.running_milli + asked > s.guaranteed_milli) {
      add(ReasonKind::quota,
          fmt::format("the project may not borrow beyond its {} guaranteed GPUs; {} are in use",
                      gpus(s.guaranteed_milli), gpus(p.running_milli)));
    }
    // What could not be taken back is not lent (see Tally::within_limits).
    std::int64_t guaranteed = 0, lent = 0;
    for (const auto& [id, q] : index.projects) {
      guaranteed += q.settings.guaranteed_milli;
      lent += std::max<std::int64_t>(0, q.firm_milli - q.settings.guaranteed_milli);
    }
    if (guaranteed > 0 && !gives_way(job)) {
      const std::int64_t more =
          std::max<std::int64_t>(0, p.firm_milli + asked - s.guaranteed_milli) -
          std::max<std::int64_t>(0, p.firm_milli - s.guaranteed_milli);
      const std::int64_t open = std::max<std::int64_t>(0, index.total_milli - guaranteed);
      if (more > 0 && lent + more > open) {
        add(ReasonKind::quota,
            fmt::format("{} of {} GPUs are guaranteed to projects; work that cannot give way "
                        "borrows only the other {}, of which {} are in use",
                        gpus(guaranteed), gpus(index.total_milli), gpus(open), gpus(lent)));
      }
    }
    auto user = p.users.find(job.user);
    const UserRunning mine = user == p.users.end() ? UserRunning{} : user->second;
    if ((s.user_limit_milli >= 0 && mine.milli + asked > s.user_limit_milli) ||
        (s.user_running_max >= 0 && mine.jobs + 1 > s.user_running_max))
      add(ReasonKind::user_limit,
          fmt::format("this user runs {} with {} GPUs, the most the project allows",
                      plural(mine.jobs, "job"), gpus(mine.milli)));
  }
  if (job.array && job.array_running_max > 0) {
    auto it = index.array_running.find(job.array);
    if (it != index.array_running.end() && it->second >= job.array_running_max)
      add(ReasonKind::array_limit,
          fmt::format("{} of the array run, as many as it allows at once", it->second));
  }
}

// It waits inside a reservation: for its beginning, for others that use it, or in vain.
void inside_reservation(const Impl& index, const JobRequest& job, WallTime now, Explanation& e) {
  const auto r = index.reservations.find(job.reservation);
  if (r == index.reservations.end() || r->second.until <= now) {
    e = reservation_over(job.id, job.reservation);
    return;
  }
  if (r->second.from > now) {
    e.reasons.push_back({ReasonKind::reserved,
                         fmt::format("its reservation {} begins at {}", job.reservation.value,
                                     format_utc(r->second.from)),
                         {}});
    e.earliest_start = r->second.from;
    return;
  }
  std::set<JobId> inside;
  for (const Placement& reserved : r->second.placements)
    if (const NodeState* node = index.find(reserved.node))
      for (JobId id : node->jobs)
        if (index.running.at(id).request.reservation == job.reservation)
          inside.insert(id);
  constexpr std::size_t named_max = 5;
  std::string who;
  for (std::size_t n = 0; JobId id : inside)
    if (++n <= named_max)
      who += fmt::format("{}{}", who.empty() ? "" : ", ", id.value);
  if (inside.size() > named_max)
    who += fmt::format(" and {} more", inside.size() - named_max);
  e.reasons.push_back(
      {ReasonKind::no_room,
       who.empty()
           ? fmt::format(
                 "what is left of its reservation {} is too small, or others are still leaving it",
                 job.reservation.value)
           : fmt::format("job{} {} hold{} too much of its reservation {}, which ends at {}",
                         inside.size() == 1 ? "" : "s", who, inside.size() == 1 ? "s" : "",
                         job.reservation.value, format_utc(r->second.until)),
       inside.size() == 1 ? *inside.begin() : JobId{}});
}

// Numbers of jobs are told to those who may see them: the jobs of a project are nobody else's
// business.
bool same_project(const Impl& index, const JobRequest& job, JobId other) {
  if (const auto running = index.running.find(other); running != index.running.end())
    return running->second.request.project == job.project;
  const auto queued = index.queued.find(other);
  return queued != index.queued.end() &&
         index.request_of(other, queued->second).project == job.project;
}

// Room is there, but promised: to a reservation, or to those that come first.
void promised(Impl& index, const JobRequest& job, const Plan& next, WallTime now, Explanation& e) {
  if (const Reservation* r = kept_from_it(index, job, now)) {
    const bool begun = r->from <= now;
    if (!begun && gives_way(job) &&
        r->from < now + spot_before_reservation_min) {  // earlier it would have started there
      e.reasons.push_back(
          {ReasonKind::reserved,
           fmt::format("reservation {} begins at {} and has the room until {}; work that gives way "
                       "is not started in the {} before it would have to leave again",
                       r->id.value, format_utc(r->from), format_utc(r->until),
                       format_duration(spot_before_reservation_min)),
           {}});
      return;
    }
    e.reasons.push_back({ReasonKind::reserved,
                         begun
                             ? fmt::format("the room is kept for reservation {} until {}",
                                           r->id.value, format_utc(r->until))
                             : fmt::format("the room is kept for reservation {} from {} until {}",
                                           r->id.value, format_utc(r->from), format_utc(r->until)),
                         {}});
    return;
  }
  // Of the others: a job that has a place kept for it is told what keeps it from that place, not
  // that it waits for itself.
  const auto other = [&](const auto& list) {
    for (const auto& entry : list)
      if (entry.job != job.id)
        return entry.job;
    return JobId{};
  };
  const JobId kept = other(next.reserves), behind = kept ? kept : other(next.starts);
  if (const auto p = index.projects.find(job.project);
      p != index.projects.end() && p->second.settings.policy == OrderPolicy::fifo &&
      !p->second.kinds.empty()) {
    if (const JobId first = p->second.kinds.begin()->first; first != job.id) {
      e.reasons.push_back({ReasonKind::waiting_behind,
                           fmt::format("its project starts jobs strictly in the order they were "
                                       "submitted (--policy fifo), and job {} is before it",
                                       first.value),
                           first});
      return;
    }
  }
  const bool own = behind && same_project(index, job, behind);
  e.reasons.push_back({ReasonKind::waiting_behind,
                       !behind ? "others come first and take the room"
                       : own   ? fmt::format("job {} comes first and needs the room", behind.value)
                               : "another project's job comes first and needs the room",
                       own ? behind : JobId{}});
}

// It was suspended, and can only go on with the cards its image came from: which of them somebody
// has, and until when.
void waits_for_cards(const Impl& index,
                     const JobRequest& job,
                     const PlacementClass& c,
                     WallTime now,
                     Explanation& e) {
  const NodeState* node = index.find(job.constraints.only_nodes.front());
  const auto say = [&](std::string text, JobId who = {}) {
    e.reasons.push_back({ReasonKind::no_room, std::move(text), who});
  };
  if (!node || !allowed(c, *node))
    return say(
        node ? fmt::format(
                   "it can only go on on node {}, where its memory is, and that takes no work now",
                   node->shape.name)
             : "the node where its memory is is gone");
  std::set<JobId> holders;
  std::vector<std::string> cards, all;
  for (const std::int32_t gpu : job.constraints.only_gpus) {
    all.push_back(std::to_string(gpu));
    const auto g = static_cast<std::size_t>(gpu);
    if (g < node->gpus.size() && card_fits(c, node->shape.gpus[g], node->gpus[g], gpu))
      continue;
    cards.push_back(std::to_string(gpu));
    for (JobId id : node->jobs)
      for (const Placement& p : index.running.at(id).placements)
        if (p.node == node->shape.id &&
            std::ranges::find(p.gpus, gpu, &GpuShare::gpu) != p.gpus.end())
          holders.insert(id);
  }
  const std::string back = fmt::format("it comes back to GPU{} {} of node {}, where its memory is",
                                       job.constraints.only_gpus.size() == 1 ? "" : "s",
                                       join(all, ", "), node->shape.name);
  if (cards.empty())
    return say(back + ", and too few of that node's cores are free");
  WallTime free_at = now;
  std::string who;
  for (JobId id : holders) {
    const RunningJob& holder = index.running.at(id);
    const WallTime end = holder.leaving ? now : end_of(holder);
    free_at = !end || !free_at ? WallTime{} : std::max(free_at, end);
    who += fmt::format(
        "{}{} ({})", who.empty() ? "" : ", ",
        same_project(index, job, id) ? fmt::format("job {}", id.value) : "another project's job",
        holder.leaving ? "leaving"
        : !end         ? "without a time limit"
               : fmt::format("{} {}", holder.request.time_limit.ns > 0 ? "until" : "probably until",
                             format_utc(end)));
  }
  const bool one = cards.size() == job.constraints.only_gpus.size() && cards.size() == 1;
  if (who.empty())
    return say(fmt::format("{}; {} not to be had: out of service", back,
                           one ? "that is" : fmt::format("GPU {} is", join(cards, ", "))));
  say(fmt::format("{}; {} held by {}", back,
                  one ? "that is" : fmt::format("GPU {} is", join(cards, ", ")), who),
      holders.size() == 1 && same_project(index, job, *holders.begin()) ? *holders.begin()
                                                                        : JobId{});
  if (!e.earliest_start)
    e.earliest_start = free_at;
}

// What is free in sum and together, where the job could go.
void no_room_for(Impl& index, const JobRequest& job, const PlacementClass& c, Explanation& e) {
  const auto add = [&](ReasonKind kind, std::string text) {
    e.reasons.push_back({kind, std::move(text), {}});
  };
  std::int64_t free_cards = 0, free_milli = 0, nodes_that_fit = 0, nodes_that_could = 0;
  std::vector<std::string> closed;  // nodes that could run it and take no work
  for (const NodeState& n : index.nodes) {
    if (!n.present || !allowed_place(c, n.shape) || !allowed_by_id(c, n.shape.id) ||
        !fit_empty(c, n))
      continue;
    switch (n.shape.use) {
      case NodeUse::schedulable:
        break;
      case NodeUse::draining:
        closed.push_back(n.shape.name + " (drained)");
        continue;
      case NodeUse::unreachable:
        closed.push_back(n.shape.name + " (does not answer)");
        continue;
    }
    ++nodes_that_could;
    if (fit(c, n))
      ++nodes_that_fit;
    // Cards of other types are free for others.
    for (std::size_t i = 0; i < n.gpus.size(); ++i) {
      const GpuShape& card = n.shape.gpus[i];
      if (!card_fits(c, card,
                     GpuState{.free_milli = whole_gpu_milli, .free_mem_mib = card.memory_mib},
                     static_cast<std::int32_t>(i)))
        continue;
      free_milli += n.gpus[i].free_milli;
      free_cards += n.gpus[i].free_milli == whole_gpu_milli;
    }
  }
  constexpr std::size_t closed_named_max = 4;
  const std::size_t closed_count = closed.size();
  if (closed.size() > closed_named_max)
    closed.resize(closed_named_max);
  const std::string and_closed =
      closed_count == 0
          ? ""
          : fmt::format("{}{} take{} no work now", join(closed, ", "),
                        closed_count > closed_named_max
                            ? fmt::format(" and {} more", closed_count - closed_named_max)
                            : "",
                        closed_count == 1 ? "s" : "");
  if (nodes_that_could < job.tasks && closed_count > 0)
    return add(ReasonKind::no_room,
               nodes_that_could == 0
                   ? "of those that could run it, " + and_closed
                   : fmt::format("it needs {}, and {} could run it; {}", plural(job.tasks, "node"),
                                 plural(nodes_that_could, "node"), and_closed));
  if (nodes_that_fit >= job.tasks)
    add(ReasonKind::topology, fmt::format("{} have room, but not close together as required",
                                          plural(nodes_that_fit, "node")));
  else if (job.resources.gpus > 0 && free_milli >= gpu_milli_of(job))
    add(ReasonKind::fragmentation,
        fmt::format("{:g} GPUs are free in sum ({} whole), but not where {} × {} GPUs with their "
                    "CPUs and memory fit together{}",
                    static_cast<double>(free_milli) / 1000, free_cards, plural(job.tasks, "node"),
                    job.resources.gpus, closed_count == 0 ? "" : "; " + and_closed));
  else if (!c.home_regions.empty() || !c.home_pools.empty())
    add(ReasonKind::residency,
        fmt::format("its project is kept to {}, where everything that could run it is in use",
                    c.home_regions.empty() ? "pools " + join(c.home_pools, ", ")
                                           : "regions " + join(c.home_regions, ", ")));
  else
    add(ReasonKind::no_room,
        "everything that could run it is in use" + (closed_count == 0 ? "" : "; " + and_closed));
}

// Nothing forbids it: what is in the way?
void waiting_of(const SchedIndex& wrapped, const JobRequest& job, WallTime now, Explanation& e) {
  Impl& index = wrapped.impl();
  const auto add = [&](ReasonKind kind, std::string text) {
    e.reasons.push_back({kind, std::move(text), {}});
  };
  if (auto it = index.leaving_for.find(job.id); it != index.leaving_for.end()) {
    return add(ReasonKind::preempting,
               fmt::format("{} leaving to make room",
                           it->second.size() == 1 ? "one job is"
                                                  : fmt::format("{} jobs are", it->second.size())));
  }
  const Plan next = plan(wrapped, now, whole_plan);
  for (const Start& s : next.starts) {
    if (s.job != job.id)
      continue;
    e.earliest_start = now;
    return add(ReasonKind::next, "it starts with the next plan");
  }
  if (job.reservation)
    return inside_reservation(index, job, now, e);
  for (const Reserve& r : next.reserves) {
    if (r.job == job.id)
      e.earliest_start = r.expected_start;
  }
  const PlacementClass c = class_of(index, job);
  if (!place(index, c, job.tasks).empty())
    promised(index, job, next, now, e);
  else if (job.constraints.only_nodes.size() == 1 && !job.constraints.only_gpus.empty())
    waits_for_cards(index, job, c, now, e);
  else
    no_room_for(index, job, c, e);
}

}  // namespace

Explanation reservation_over(JobId job, ReservationId reservation, std::size_t elements) {
  Explanation e;
  const std::string whom =
      elements == 1 ? std::string("it") : fmt::format("its {} elements that wait", elements);
  e.reasons.push_back({ReasonKind::held,
                       fmt::format("its reservation {} is over, and nobody has asked for {} to run "
                                   "at the price of on-demand work",
                                   reservation.value, whom),
                       {}});
  e.would_start_now = fmt::format(
      "`billow resume {0} --on-demand` lets {1} start as any other job; `billow stop {0}` gives "
      "{1} up",
      job.value, elements == 1 ? "it" : "them");
  return e;
}

Explanation explain(const SchedIndex& wrapped, JobId id, WallTime now, Advice advice) {
  Impl& index = wrapped.impl();
  Explanation e;
  const auto add = [&](ReasonKind kind, std::string text, JobId behind = {}) {
    e.reasons.push_back({kind, std::move(text), behind});
  };
  auto queued = wrapped.queued(id);
  if (!queued) {
    add(ReasonKind::held,
        index.running.contains(id)
            ? "it is running"
            : "it is not in the queue: held, waiting for others to end, or finished");
    return e;
  }
  const JobRequest& job = *queued;
  if (Status ok = feasible(wrapped, job); !ok) {
    const bool nobody =
        ok.error().code == Code::unavailable;  // no node yet: nothing else can be said
    add(nobody ? ReasonKind::no_room : ReasonKind::infeasible, ok.error().message);
    e.would_start_now = ok.error().hint;
    return e;
  }
  if (job.eligible_at > now) {
    add(ReasonKind::held, fmt::format("not before {}", format_utc(job.eligible_at)));
    e.earliest_start = job.eligible_at;
  }
  limits_of(index, job, e);
  if (e.reasons.empty())
    waiting_of(wrapped, job, now, e);
  if (advice == Advice::wanted && e.would_start_now.empty() &&
      e.reasons.front().kind != ReasonKind::next)
    e.would_start_now = what_would_start(wrapped, job, now);
  return e;
}

}  // namespace billow::sched
