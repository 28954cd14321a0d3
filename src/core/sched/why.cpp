// Why a job waits. Each reason has a code for programs (reason_name) and a sentence for people.
// Sentences give times relative to now, and name no job of a project that the owner of this job may
// not see. advice.cpp finds what would start the job now, forecast.cpp when it will start.
#include <algorithm>

#include <fmt/format.h>

#include "base/relative_time.h"
#include "base/text.h"
#include "core/sched/advice.h"
#include "core/sched/outlook.h"
#include "core/sched/reserved.h"
#include "core/sched/words.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

struct Why : Explanation {
  std::string start_unknown;  // why nobody can tell when the job starts
};

void add(Why& e, ReasonKind kind, std::string text, JobId behind = {}, bool by_guarantee = false) {
  e.reasons.push_back({kind, std::move(text), behind, by_guarantee});
}

// Members of a project may see its jobs and no others.
bool same_project(const Impl& index, const JobRequest& job, JobId other) {
  if (const auto running = index.running.find(other); running != index.running.end())
    return running->second.request.project == job.project;
  const auto queued = index.queued.find(other);
  return queued != index.queued.end() &&
         index.request_of(other, queued->second).project == job.project;
}

std::string name_for(const Impl& index, const JobRequest& job, JobId other) {
  return same_project(index, job, other) ? fmt::format("job {}", other.value)
                                         : "another project's job";
}

// ---- Limits of the project, of its users and of the array

// Capacity that could not be taken back is not lent (see Tally::within_limits).
void guarantees_of_others(
    const Impl& index, const JobRequest& job, const ProjectState& p, std::int64_t asked, Why& e) {
  std::int64_t guaranteed = 0, lent = 0;
  for (const auto& [id, q] : index.projects) {
    guaranteed += q.settings.guaranteed_milli;
    lent += std::max<std::int64_t>(0, q.firm_milli - q.settings.guaranteed_milli);
  }
  if (guaranteed == 0 || gives_way(job))
    return;
  const std::int64_t own = p.settings.guaranteed_milli;
  const std::int64_t more = std::max<std::int64_t>(0, p.firm_milli + asked - own) -
                            std::max<std::int64_t>(0, p.firm_milli - own);
  const std::int64_t open = std::max<std::int64_t>(0, index.total_milli - guaranteed);
  if (more > 0 && lent + more > open)
    add(e, ReasonKind::quota,
        fmt::format("Non-spot jobs can borrow only {} of the {} GPUs, and {} of those are in use; "
                    "the other {} are guaranteed to projects.",
                    gpus_text(open), gpus_text(index.total_milli), gpus_text(lent),
                    gpus_text(guaranteed)),
        {}, true);
}

void limits_of_project(const Impl& index, const JobRequest& job, const ProjectState& p, Why& e) {
  const ProjectSettings& s = p.settings;
  const std::int64_t asked = asked_milli(index, job);
  if (s.budget_exhausted)
    add(e, ReasonKind::budget, "The project's budget is used up.");
  if (s.limit_milli >= 0 && p.running_milli + asked > s.limit_milli)
    add(e, ReasonKind::project_limit,
        fmt::format("The project may use {} GPUs at once and uses {}; this job needs {}.",
                    gpus_text(s.limit_milli), gpus_text(p.running_milli), gpus_text(asked)));
  if (!s.may_borrow && p.running_milli + asked > s.guaranteed_milli)
    add(e, ReasonKind::quota,
        fmt::format("The project may use only its {} guaranteed GPUs and uses {}; this job needs "
                    "{}.",
                    gpus_text(s.guaranteed_milli), gpus_text(p.running_milli), gpus_text(asked)));
  guarantees_of_others(index, job, p, asked, e);
  const auto user = p.users.find(job.user);
  const UserRunning mine = user == p.users.end() ? UserRunning{} : user->second;
  if ((s.user_limit_milli >= 0 && mine.milli + asked > s.user_limit_milli) ||
      (s.user_running_max >= 0 && mine.jobs + 1 > s.user_running_max))
    add(e, ReasonKind::user_limit,
        fmt::format("Its user runs {} with {} GPUs; the project allows no more per user.",
                    plural(mine.jobs, "job"), gpus_text(mine.milli)));
}

void limits_of(const Impl& index, const JobRequest& job, Why& e) {
  if (const auto it = index.projects.find(job.project); it != index.projects.end())
    limits_of_project(index, job, it->second, e);
  if (!job.array || job.array_running_max <= 0)
    return;
  const auto it = index.array_running.find(job.array);
  if (it != index.array_running.end() && it->second >= job.array_running_max)
    add(e, ReasonKind::array_limit,
        fmt::format("{} of the array are running; it allows no more at a time.",
                    plural(it->second, "element")));
}

// ---- Reservations, and jobs that come first

// "jobs 4, 5 and 2 more"
std::string list_jobs(const std::set<JobId>& jobs) {
  constexpr std::size_t named_max = 5;
  std::vector<std::string> named;
  for (JobId id : jobs)
    if (named.size() < named_max)
      named.push_back(std::to_string(id.value));
  std::string text = (jobs.size() == 1 ? "job " : "jobs ") + join(named, ", ");
  if (jobs.size() > named_max)
    text += fmt::format(" and {} more", jobs.size() - named_max);
  return text;
}

// The job belongs to a reservation, which has not begun, is full, or has ended.
void inside_reservation(const Impl& index, const JobRequest& job, WallTime now, Why& e) {
  const auto found = index.reservations.find(job.reservation);
  if (found == index.reservations.end() || found->second.until <= now) {
    static_cast<Explanation&>(e) = reservation_over(job.id, job.reservation);
    return;
  }
  const Reservation& r = found->second;
  if (r.from > now) {
    e.earliest_start = r.from;
    return add(e, ReasonKind::reserved,
               fmt::format("Its reservation {} begins {}.", r.id.value,
                           relative_time(r.from, now, Zone::utc)));
  }
  std::set<JobId> inside;
  for (const Placement& reserved : r.placements)
    if (const NodeState* node = index.find(reserved.node))
      for (JobId id : node->jobs)
        if (index.running.at(id).request.reservation == job.reservation)
          inside.insert(id);
  if (inside.empty())
    return add(e, ReasonKind::no_capacity,
               fmt::format("Its reservation {} is too small for this job, or other jobs are still "
                           "leaving it.",
                           r.id.value));
  add(e, ReasonKind::no_capacity,
      sentence(fmt::format("{} use{} too much of reservation {}, which ends {}", list_jobs(inside),
                           inside.size() == 1 ? "s" : "", r.id.value,
                           relative_time(r.until, now, Zone::utc))),
      inside.size() == 1 ? *inside.begin() : JobId{});
}

void kept_for_reservation(const Reservation& r, const JobRequest& job, WallTime now, Why& e) {
  if (r.from <= now)
    return add(e, ReasonKind::reserved,
               fmt::format("The free capacity is kept for reservation {}, which ends {}.",
                           r.id.value, relative_time(r.until, now, Zone::utc)));
  // A preemptible job may start there if it can stay for a while.
  if (gives_way(job) && r.from < now + spot_before_reservation_min)
    return add(e, ReasonKind::reserved,
               fmt::format("Reservation {} begins {}; jobs that it would preempt are not started "
                           "in the {} before that.",
                           r.id.value, relative_time(r.from, now, Zone::utc),
                           rough_duration(spot_before_reservation_min)));
  add(e, ReasonKind::reserved,
      fmt::format("The free capacity is kept for reservation {}, which begins {} and lasts {}.",
                  r.id.value, relative_time(r.from, now, Zone::utc),
                  rough_duration(r.until - r.from)));
}

// Capacity is free, but it is kept for a reservation or for jobs that come first.
void promised(Impl& index, const JobRequest& job, const Plan& next, WallTime now, Why& e) {
  if (const Reservation* r = kept_from_it(index, job, now))
    return kept_for_reservation(*r, job, now, e);
  if (const auto p = index.projects.find(job.project);
      p != index.projects.end() && p->second.settings.policy == OrderPolicy::fifo &&
      !p->second.kinds.empty()) {
    const JobId first = p->second.kinds.begin()->first;
    if (first != job.id)
      return add(
          e, ReasonKind::waiting_behind,
          fmt::format("Its project starts jobs strictly in the order of submission (--policy "
                      "fifo), and job {} is first.",
                      first.value),
          first);
  }
  // A job with capacity kept for it does not wait behind itself.
  const auto other = [&](const auto& list) {
    for (const auto& entry : list)
      if (entry.job != job.id)
        return entry.job;
    return JobId{};
  };
  const JobId kept = other(next.reserves);
  const JobId behind = kept ? kept : other(next.starts);
  if (!behind)
    return add(e, ReasonKind::waiting_behind,
               "Other jobs are ahead of it in the queue and need the free capacity.");
  add(e, ReasonKind::waiting_behind,
      sentence(name_for(index, job, behind) +
               " is ahead of it in the queue and needs the free capacity"),
      same_project(index, job, behind) ? behind : JobId{});
}

// ---- No free capacity

// "ends in about 4 min", as far as its time limit or earlier runs tell.
std::string end_text(const RunningJob& job, WallTime now) {
  if (job.leaving)
    return "is leaving";
  const WallTime end = end_of(job);
  if (!end)
    return "has no time limit";
  return fmt::format("ends in {} {}", job.request.time_limit.ns > 0 ? "at most" : "about",
                     rough_duration(end - now));
}

// A suspended job can resume only on the GPUs that its memory came from.
void waits_for_cards(
    const Impl& index, const JobRequest& job, const PlacementClass& c, WallTime now, Why& e) {
  const NodeState* node = index.find(job.constraints.only_nodes.front());
  if (!node) {
    e.start_unknown = "the node that holds its memory is gone";
    e.would_start_now = fmt::format(
        "`billow rerun {0}` starts it again, from its last checkpoint if it has one; `billow stop "
        "{0}` ends it",
        job.id.value);
    return add(e, ReasonKind::no_capacity, "The node that holds its memory is gone.");
  }
  if (!allowed(c, *node))
    e.start_unknown = "its node accepts no jobs now";
  if (!allowed(c, *node))
    return add(e, ReasonKind::no_capacity,
               fmt::format(
                   "It can resume only on node {}, which holds its memory and accepts no jobs now.",
                   node->shape.name));
  std::set<JobId> holders;
  std::vector<std::string> all;
  std::vector<std::string> taken;
  for (const std::int32_t gpu : job.constraints.only_gpus) {
    all.push_back(std::to_string(gpu));
    const auto g = static_cast<std::size_t>(gpu);
    if (g < node->gpus.size() && card_fits(c, node->shape.gpus[g], node->gpus[g], gpu))
      continue;
    taken.push_back(std::to_string(gpu));
    for (JobId id : node->jobs)
      for (const Placement& p : index.running.at(id).placements)
        if (p.node == node->shape.id &&
            std::ranges::find(p.gpus, gpu, &GpuShare::gpu) != p.gpus.end())
          holders.insert(id);
  }
  const std::string where =
      fmt::format("It can resume only on GPU{} {} of node {}, which holds its memory.",
                  all.size() == 1 ? "" : "s", join(all, ", "), node->shape.name);
  if (taken.empty())
    return add(e, ReasonKind::no_capacity, where + " Too few CPU cores are free there.");
  if (holders.empty())
    return add(e, ReasonKind::no_capacity,
               fmt::format("{} {} out of service.", where, cards_are(taken)));
  WallTime free_at = now;
  std::vector<std::string> who;
  for (JobId id : holders) {
    const RunningJob& holder = index.running.at(id);
    const WallTime end = holder.leaving ? now : end_of(holder);
    free_at = !end || !free_at ? WallTime{} : std::max(free_at, end);
    who.push_back(fmt::format("{} ({})", name_for(index, job, id), end_text(holder, now)));
  }
  const JobId only = holders.size() == 1 ? *holders.begin() : JobId{};
  add(e, ReasonKind::no_capacity,
      fmt::format("{} {} in use by {}.", where, cards_are(taken), join(who, ", ")),
      only && same_project(index, job, only) ? only : JobId{});
  if (!e.earliest_start)
    e.earliest_start = free_at;
}

// The capacity of the nodes that could run the job, and how much of it is free.
struct Supply {
  std::int64_t nodes = 0;
  std::int64_t nodes_that_fit = 0;
  std::int64_t cards = 0, free_cards = 0;
  std::int64_t free_milli = 0;
  std::int64_t fitting_cards = 0;             // with enough free on the card itself…
  std::int64_t fitting_on_node = 0;           // …the most on one node
  const NodeState* short_of_cores = nullptr;  // its cards would do, its cores or memory do not
  std::int64_t free_cpu_milli = 0, free_mem_mib = 0;  // the most on one node
  std::vector<std::string> closed;                    // nodes that could run it but accept no jobs
  std::vector<std::string> drained;  // of these, the ones that an admin can open again
  std::set<JobId> jobs;              // running on these nodes
};

Supply supply_for(const Impl& index, const PlacementClass& c) {
  Supply out;
  for (const NodeState& n : index.nodes) {
    if (!n.present || !allowed_place(c, n.shape) || !allowed_by_id(c, n.shape.id) ||
        !fit_empty(c, n))
      continue;
    switch (n.shape.use) {
      case NodeUse::schedulable:
        break;
      case NodeUse::draining:
        out.closed.push_back(n.shape.name + (n.shape.leaves ? " (being released)" : " (drained)"));
        if (!n.shape.leaves)
          out.drained.push_back(n.shape.name);
        continue;
      case NodeUse::unreachable:
        out.closed.push_back(n.shape.name + " (does not answer)");
        continue;
    }
    ++out.nodes;
    out.free_cpu_milli = std::max(out.free_cpu_milli, n.free_cpu_milli);
    out.free_mem_mib = std::max(out.free_mem_mib, n.free_mem_mib);
    out.nodes_that_fit += fit(c, n).has_value();
    out.jobs.insert(n.jobs.begin(), n.jobs.end());
    std::int64_t fitting = 0;
    for (std::size_t i = 0; i < n.gpus.size(); ++i) {
      const GpuShape& card = n.shape.gpus[i];
      const GpuState empty{.free_milli = whole_gpu_milli, .free_mem_mib = card.memory_mib};
      if (!card_fits(c, card, empty, static_cast<std::int32_t>(i)))
        continue;  // a card of another type
      ++out.cards;
      out.free_milli += n.gpus[i].free_milli;
      out.free_cards += n.gpus[i].free_milli == whole_gpu_milli;
      fitting += card_fits(c, card, n.gpus[i], static_cast<std::int32_t>(i)).has_value();
    }
    out.fitting_cards += fitting;
    out.fitting_on_node = std::max(out.fitting_on_node, fitting);
    const Resources& r = c.resources;
    if (!r.takes_node() && fitting >= r.gpus &&
        (n.free_cpu_milli < r.cpu_milli || n.free_mem_mib < r.mem_mib ||
         n.free_disk_mib < r.disk_mib))
      out.short_of_cores = &n;
  }
  return out;
}

// "n1 (drained), n2 (does not answer) and 3 more"
std::string list_nodes(const std::vector<std::string>& nodes) {
  constexpr std::size_t named_max = 4;
  const std::size_t count = std::min(nodes.size(), named_max);
  std::string text =
      join({nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count)}, ", ");
  if (nodes.size() > named_max)
    text += fmt::format(" and {} more", nodes.size() - named_max);
  return text;
}

// "Job 98 ends in about 4 min.": the job that frees some of it soonest.
std::string soonest_end(const Impl& index,
                        const JobRequest& job,
                        const Supply& supply,
                        WallTime now) {
  JobId soonest;
  WallTime end;
  for (JobId id : supply.jobs) {
    const RunningJob& running = index.running.at(id);
    const WallTime at = running.leaving ? now : end_of(running);
    if (!at || (job.resources.gpus > 0 && gpu_milli_of(running.request) == 0))
      continue;
    if (!soonest || at < end) {
      soonest = id;
      end = at;
    }
  }
  if (!soonest)
    return {};
  return " " + sentence(fmt::format("{} {}", name_for(index, job, soonest),
                                    end_text(index.running.at(soonest), now)));
}

// "a free share of 0.5", "20 GiB free"
std::string slice_text(const Resources& r) {
  if (r.share.milli == 0)
    return size_text(r.share.mem_mib) + " free";
  return "a free share of " + gpus_text(r.share.milli) +
         (r.share.mem_mib > 0 ? " with " + size_text(r.share.mem_mib) : "");
}

// Something is free on some cards, but not what the job needs, where it needs it.
std::string not_together(const JobRequest& job, const PlacementClass& c, const Supply& supply) {
  const Resources& r = job.resources;
  if (r.takes_node())
    return fmt::format("No node is empty, and the job needs {} for itself.",
                       job.tasks == 1 ? "one" : std::to_string(job.tasks));
  const std::string on_each =
      job.tasks == 1 ? "on one node" : fmt::format("on each of {} nodes", job.tasks);
  if (supply.short_of_cores) {
    const NodeState& n = *supply.short_of_cores;
    if (n.free_cpu_milli < r.cpu_milli)
      return fmt::format(
          "Enough GPUs are free, but not enough CPU cores beside them: node {} has {} free, and "
          "the job needs {}.",
          n.shape.name, gpus_text(n.free_cpu_milli), gpus_text(r.cpu_milli));
    const bool disk = n.free_mem_mib >= r.mem_mib;
    return fmt::format(
        "Enough GPUs are free, but not enough {} beside them: node {} has {}; the job needs {}.",
        disk ? "disk" : "memory", n.shape.name, size_text(disk ? n.free_disk_mib : n.free_mem_mib),
        size_text(disk ? r.disk_mib : r.mem_mib));
  }
  if (c.mig)
    return fmt::format("{} of {} {} free, but not {}.",
                       plural(supply.fitting_cards, "MIG instance"), r.mig_profile,
                       supply.fitting_cards == 1 ? "is" : "are", on_each);
  if (!r.share.whole() || r.share.mem_mib > 0)
    return fmt::format(
        "No single GPU has {}: {} of {} GPUs are free in total, but in parts that are too small.",
        slice_text(r), gpus_text(supply.free_milli), supply.cards);
  if (supply.fitting_cards >= r.gpus && supply.fitting_on_node < r.gpus)
    return fmt::format(
        "{} free, but at most {} on one node; the job needs {} {}.",
        supply.fitting_cards == 1 ? "1 GPU is" : fmt::format("{} GPUs are", supply.fitting_cards),
        supply.fitting_on_node, r.gpus, on_each);
  return fmt::format(
      "{} of {} {} free as a whole; the others are partly or fully in use ({} free in total). The "
      "job needs {} whole {}.",
      supply.free_cards, plural(supply.cards, "GPU"), supply.free_cards == 1 ? "is" : "are",
      gpus_text(supply.free_milli), plural(r.gpus, "GPU"), on_each);
}

// Why nobody can tell when the job starts: a job in its way has no end that is known.
std::string endless_job(const Impl& index, const JobRequest& job, const Supply& supply) {
  for (JobId id : supply.jobs) {
    const RunningJob& running = index.running.at(id);
    if (!running.leaving && !end_of(running) &&
        (job.resources.gpus == 0 || gpu_milli_of(running.request) > 0))
      return name_for(index, job, id) + ", which runs before it, has no time limit";
  }
  return {};
}

std::string plural_cpus(std::int64_t milli) {
  return gpus_text(milli) + (milli == 1000 ? " CPU" : " CPUs");
}

// "No H100 is free: all 8 are in use."
std::string all_in_use(const JobRequest& job, const PlacementClass& c, const Supply& supply) {
  const Resources& r = job.resources;
  if (r.takes_node())
    return fmt::format("No node is free: each of the {} that could run it is in use.",
                       plural(supply.nodes, "node"));
  if (r.gpus == 0)
    return fmt::format(
        "No node has enough free CPU cores and memory: the job needs {} with {}; the most free on "
        "one node is {} and {}.",
        plural_cpus(r.cpu_milli), size_text(r.mem_mib), plural_cpus(supply.free_cpu_milli),
        size_text(supply.free_mem_mib));
  if (c.mig)
    return fmt::format("No GPU has a free MIG instance {}.", r.mig_profile);
  const std::string type = r.gpu_types.size() == 1 ? r.gpu_types.front() + " GPU" : "GPU";
  if (supply.free_milli == 0)
    return supply.cards == 1 ? fmt::format("No {} is free: the only one is in use.", type)
                             : fmt::format("No {} is free: all {} are in use.", type, supply.cards);
  return fmt::format("Only {} of {}s {} free; the job needs {}.", gpus_text(supply.free_milli),
                     fmt::format("{} {}", supply.cards, type),
                     supply.free_milli == whole_gpu_milli ? "is" : "are",
                     gpus_text(gpu_milli_of(job)));
}

void no_capacity_for(
    const Impl& index, const JobRequest& job, const PlacementClass& c, WallTime now, Why& e) {
  const Supply supply = supply_for(index, c);
  const std::string closed =
      supply.closed.empty() ? ""
                            : fmt::format(" Closed to new jobs: {}.", list_nodes(supply.closed));
  if (supply.nodes < job.tasks && !supply.drained.empty())
    e.would_start_now = fmt::format("an admin can open {} again: `billow undrain {}`",
                                    supply.drained.size() == 1 ? "the node" : "the nodes",
                                    join(supply.drained, " "));
  e.start_unknown = endless_job(index, job, supply);
  if (supply.nodes == 0 && !supply.closed.empty()) {
    e.start_unknown = "every node that could run it is closed to new jobs";
    return add(e, ReasonKind::no_capacity, "No node that could run it accepts jobs now." + closed);
  }
  if (supply.nodes < job.tasks && !supply.closed.empty()) {
    e.start_unknown = "too few nodes are open to new jobs";
    return add(e, ReasonKind::no_capacity,
               fmt::format("It needs {}, and only {} could run it now.{}",
                           plural(job.tasks, "node"), supply.nodes, closed));
  }
  if (supply.nodes_that_fit >= job.tasks)
    return add(e, ReasonKind::topology,
               fmt::format("{} with free capacity exist, but not close together as required.",
                           plural(supply.nodes_that_fit, "node")));
  const bool some_free = supply.free_milli > 0 && supply.free_milli >= gpu_milli_of(job);
  if (job.resources.gpus > 0 && (some_free || supply.short_of_cores))
    return add(e, ReasonKind::fragmentation, not_together(job, c, supply) + closed);
  if (!c.home_regions.empty() || !c.home_pools.empty())
    return add(e, ReasonKind::residency,
               fmt::format("The project's jobs must stay in {}, where everything that could run "
                           "this job is in use.",
                           c.home_regions.empty() ? "pools " + join(c.home_pools, ", ")
                                                  : "regions " + join(c.home_regions, ", ")));
  add(e, ReasonKind::no_capacity,
      all_in_use(job, c, supply) + soonest_end(index, job, supply, now) + closed);
}

// Of a group: the role of which not even one member fits, or that they do not fit together.
void no_capacity_for_group(
    Impl& index, const JobRequest& job, const PlacementClass& c, WallTime now, Why& e) {
  std::int32_t first = 0;
  for (const RolePart& role : job.parts) {
    const JobRequest one = member_request(job, first);
    const PlacementClass& each = *c.members[static_cast<std::size_t>(first)];
    first += role.tasks;
    if (!place(index, each, 1).empty())
      continue;
    no_capacity_for(index, one, each, now, e);
    e.reasons.front().text =
        fmt::format("The roles of a group start together, and role {} does not fit: {}", role.name,
                    e.reasons.front().text);
    return;
  }
  add(e, ReasonKind::fragmentation,
      fmt::format("The roles of a group start together. Each would fit alone, but not all {} "
                  "members at once, which need {} GPUs.",
                  job.tasks, gpus_text(gpu_milli_of(job))));
}

// No limit keeps the job back: why has it not started?
void waiting_of(const SchedIndex& wrapped, const JobRequest& job, WallTime now, Why& e) {
  Impl& index = wrapped.impl();
  if (const auto it = index.leaving_for.find(job.id); it != index.leaving_for.end())
    return add(e, ReasonKind::preempting,
               it->second.size() == 1
                   ? "Another job is being preempted for it."
                   : fmt::format("{} other jobs are being preempted for it.", it->second.size()));
  const Plan next = plan(wrapped, now, whole_plan);
  for (const Start& s : next.starts) {
    if (s.job != job.id)
      continue;
    e.earliest_start = now;
    return add(e, ReasonKind::next, "It starts in a moment.");
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
  else if (!job.parts.empty())
    no_capacity_for_group(index, job, c, now, e);
  else
    no_capacity_for(index, job, c, now, e);
}

Why why(const SchedIndex& wrapped, JobId id, WallTime now, Advice advice) {
  Impl& index = wrapped.impl();
  Why e;
  const auto queued = wrapped.queued(id);
  if (!queued) {
    add(e, ReasonKind::held,
        index.running.contains(id)
            ? "It is running."
            : "It is not in the queue: it is held, waits for other jobs, or has finished.");
    return e;
  }
  const JobRequest& job = *queued;
  if (const Status ok = feasible(wrapped, job); !ok) {
    const bool no_node_yet = ok.error().code == Code::unavailable;
    add(e, no_node_yet ? ReasonKind::no_capacity : ReasonKind::infeasible,
        sentence(ok.error().message));
    e.start_unknown = no_node_yet ? "no node has joined" : "no node here could run it now";
    e.would_start_now =
        !ok.error().hint.empty()
            ? ok.error().hint
            : fmt::format(
                  "let a node that can run it join (`billow join`), or cancel it with "
                  "`billow stop {}` and submit it with other options",
                  id.value);
    return e;
  }
  if (job.eligible_at > now) {
    add(e, ReasonKind::held,
        fmt::format("It starts {} at the earliest.",
                    relative_time(job.eligible_at, now, Zone::utc)));
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

}  // namespace

Explanation explain(const SchedIndex& wrapped, JobId id, WallTime now, Advice advice) {
  return why(wrapped, id, now, advice);
}

std::string start_unknown(const SchedIndex& wrapped, JobId id, WallTime now) {
  return why(wrapped, id, now, Advice::none).start_unknown;
}

}  // namespace billow::sched
