#include "core/sched/preempt.h"

#include <algorithm>
#include <functional>

#include "core/sched/pass.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

struct Asked {
  Preempt preempt;
  double cost = 0;
};
using Eligible = std::function<std::optional<Asked>(JobId, const RunningJob&)>;

struct NodeChoice {
  Slot slot = no_slot;
  double cost = 0;
  Placement placement;
  std::vector<Preempt> victims;
};

// The cheapest set of jobs that must leave one node before the task fits.
std::optional<NodeChoice> choose_on(const VictimSearch& search,
                                    const PlacementClass& c,
                                    Slot slot,
                                    const Stay& stay,
                                    const Eligible& eligible) {
  const Impl& index = search.index;
  const NodeState& node = index.nodes[slot];
  if (!allowed(c, node))
    return std::nullopt;
  NodeChoice choice{.slot = slot};
  FreeCapacity free = free_of(node);
  const auto fits = [&] {
    if (!search.reserved.any())
      return fit_free(c, node, free);
    FreeCapacity beside = free;
    search.reserved.cut(beside, slot, node.shape, stay);
    return fit_free(c, node, beside);
  };
  if (auto p = fits()) {
    choice.placement = std::move(*p);
    return choice;
  }
  std::vector<std::pair<double, Preempt>> asked;
  JobId last;
  for (JobId id : node.jobs) {
    if (std::exchange(last, id) == id)
      continue;
    if (auto a = eligible(id, index.running.at(id)))
      asked.emplace_back(a->cost, a->preempt);
  }
  if (asked.empty())
    return std::nullopt;
  std::ranges::sort(asked, [](const auto& a, const auto& b) {
    return std::tuple(a.first, a.second.victim) < std::tuple(b.first, b.second.victim);
  });
  const auto shift = [&](JobId id, int sign) {
    const RunningJob& job = index.running.at(id);
    for (const Placement& p : job.placements) {
      if (p.node == node.shape.id)
        shift_free(free, node.shape, p, job.request, sign);
    }
  };
  std::vector<JobId> leave;
  for (const auto& [cost, preempt] : asked)
    leave.push_back(preempt.victim);
  auto placement = least_asked(leave, shift, fits);
  if (!placement)
    return std::nullopt;
  choice.placement = std::move(*placement);
  for (auto& [cost, preempt] : asked) {
    if (std::ranges::find(leave, preempt.victim) == leave.end())
      continue;
    choice.cost += cost;
    choice.victims.push_back(preempt);
  }
  return choice;
}

// For a group, whose members may share nodes: the cheapest jobs anywhere, until all members fit.
VictimPlan choose_for_group(const VictimSearch& search,
                            const PlacementClass& c,
                            const JobRequest& job,
                            const Stay& stay,
                            const Eligible& eligible) {
  constexpr std::size_t asked_max = 64;  // each is tried with a search for all members
  Impl& index = search.index;
  std::vector<std::pair<double, Preempt>> asked;
  const auto in_the_way = [&](const Placement& p) {
    const NodeState* node = p.node ? index.find(p.node) : nullptr;
    return node && std::ranges::any_of(c.members,
                                       [&](const auto& member) { return allowed(*member, *node); });
  };
  for (const auto& [id, running] : index.running)
    if (auto a = eligible(id, running); a && std::ranges::any_of(running.placements, in_the_way))
      asked.emplace_back(a->cost, a->preempt);
  std::ranges::sort(asked, {}, [](const auto& a) { return std::pair(a.first, a.second.victim); });
  if (asked.size() > asked_max)
    asked.resize(asked_max);
  std::vector<JobId> leave;
  for (const auto& [cost, preempt] : asked)
    leave.push_back(preempt.victim);
  const auto shift = [&](JobId id, int sign) {
    const RunningJob& victim = index.running.at(id);
    for (const Placement& p : victim.placements)
      if (p.node && sign > 0)
        index.give(p, victim.request);
      else if (p.node)
        index.take(p, victim.request);
  };
  const std::uint64_t version = index.version;
  const auto fits = [&]() -> std::optional<std::vector<Placement>> {
    const ReservedView view(index, search.reserved, stay);
    auto placements = place(index, c, job.tasks);
    return placements.empty() ? std::nullopt : std::optional(std::move(placements));
  };
  VictimPlan plan;
  const std::vector<JobId> all = leave;
  if (auto already = fits())
    plan.placements = std::move(*already);
  else if (auto placements = least_asked(leave, shift, fits)) {
    plan.placements = std::move(*placements);
    for (const auto& [cost, preempt] : asked)
      if (std::ranges::find(leave, preempt.victim) != leave.end())
        plan.victims.push_back(preempt);
    for (JobId id : leave)
      shift(id, -1);
  } else {
    for (JobId id : all)
      shift(id, -1);
  }
  index.version = version;
  return plan;
}

// Where the job's tasks fit if the cheapest jobs leave. Each node is judged alone (choose_on); then
// as many of the cheapest nodes are taken as there are tasks, in one domain if the job requires
// that. A job on several of them is asked once.
VictimPlan choose(const VictimSearch& search,
                  const PlacementClass& c,
                  const JobRequest& job,
                  const Stay& stay,
                  const Eligible& eligible) {
  if (!c.members.empty())
    return choose_for_group(search, c, job, stay, eligible);
  const Impl& index = search.index;
  std::vector<NodeChoice> choices;
  for (Slot s = 0; s < index.nodes.size(); ++s) {
    if (!index.nodes[s].present)
      continue;
    if (auto choice = choose_on(search, c, s, stay, eligible))
      choices.push_back(std::move(*choice));
  }
  const auto tasks = static_cast<std::size_t>(job.tasks);
  if (choices.size() < tasks)
    return {};
  std::ranges::sort(choices, [&](const NodeChoice& a, const NodeChoice& b) {
    const auto key = [&](const NodeChoice& x) {
      return std::tuple(x.cost, index.nodes[x.slot].hash, index.groups.precedence(x.slot));
    };
    return key(a) < key(b);
  });
  std::vector<NodeChoice*> best;
  if (tasks > 1 && c.constraints.close_required) {
    std::map<std::string, std::vector<NodeChoice*>> domains;
    double best_cost = 0;
    for (NodeChoice& choice : choices) {
      const std::string& name =
          domain_name(index.nodes[choice.slot].shape.place, c.constraints.close);
      if (!name.empty() && domains[name].size() < tasks)
        domains[name].push_back(&choice);
    }
    for (auto& [name, members] : domains) {
      if (members.size() < tasks)
        continue;
      double cost = 0;
      for (const NodeChoice* m : members)
        cost += m->cost;
      if (best.empty() || cost < best_cost) {
        best = members;
        best_cost = cost;
      }
    }
  } else {
    for (std::size_t i = 0; i < tasks; ++i)
      best.push_back(&choices[i]);
  }
  if (best.size() < tasks)
    return {};
  VictimPlan plan;
  std::set<JobId> named;
  for (NodeChoice* choice : best) {
    plan.placements.push_back(std::move(choice->placement));
    for (const Preempt& p : choice->victims) {
      if (named.insert(p.victim).second)
        plan.victims.push_back(p);
    }
  }
  return plan;
}

}  // namespace

// In GPU-seconds. Every disturbed job costs something, so one large victim is preferred to many
// small ones. A suspended job pauses for a moment. A restarted one loses its work since its start,
// and the time to start again.
constexpr double disturbance_s = 30;
constexpr double suspend_s = 10;
constexpr double restart_s = 60;
constexpr double gpus_min = 0.1;  // so that preempting jobs without GPUs is not free

double cost_of(const RunningJob& job, WallTime now, Yields mode) {
  const double gpus =
      std::max(static_cast<double>(gpu_milli_of(job.request, job.placements)) / 1000.0, gpus_min);
  const double elapsed_s = std::max(0.0, (now - job.started).seconds());
  const double lost_s = mode == Yields::by_suspend ? suspend_s : restart_s + elapsed_s;
  return disturbance_s + gpus * lost_s;
}

Tier tier_of_queued(const Impl& index, const JobRequest& job, std::int64_t project_milli) {
  if (job.spot)
    return Tier::spot;
  auto it = index.projects.find(job.project);
  // A guarantee is a number of GPUs; jobs without GPUs are never within one.
  if (it == index.projects.end() || it->second.settings.guaranteed_milli <= 0 ||
      gpu_milli_of(job) == 0)
    return Tier::borrowed;
  return project_milli + gpu_milli_of(job) <= it->second.settings.guaranteed_milli
             ? Tier::guaranteed
             : Tier::borrowed;
}

namespace {

Tier tier_of_running(const Impl& index, const RunningJob& job) {
  const JobRequest& r = job.request;
  if (r.spot)
    return Tier::spot;
  // Without this job the project must still have its guarantee, or it could claim it back.
  const ProjectState& p = index.projects.at(r.project);
  const bool needed =
      p.settings.guaranteed_milli > 0 && gpu_milli_of(r) > 0 &&
      p.covered_milli() - gpu_milli_of(r, job.placements) < p.settings.guaranteed_milli;
  return needed ? Tier::guaranteed : Tier::borrowed;
}

// Whether a job of this tier may take the capacity of a running job.
bool outranks(const JobRequest& job, Tier tier, const JobRequest& victim, Tier victims_tier) {
  if (tier != victims_tier)
    return tier > victims_tier;
  return job.priority > victim.priority &&
         (tier != Tier::guaranteed || victim.project == job.project);
}

// Each victim was judged alone; together they must not cut into their project's guarantee.
bool leave_guarantees(const Impl& index,
                      const std::vector<Preempt>& victims,
                      ProjectId preemptors_project) {
  std::map<ProjectId, std::int64_t> left_milli;
  for (const Preempt& p : victims) {
    const RunningJob& victim = index.running.at(p.victim);
    const ProjectState& owner = index.projects.at(victim.request.project);
    if (victim.request.spot || owner.settings.guaranteed_milli <= 0 ||
        victim.request.project == preemptors_project)
      continue;
    std::int64_t& left =
        left_milli.try_emplace(victim.request.project, owner.covered_milli()).first->second;
    left -= gpu_milli_of(victim.request, victim.placements);
    if (left < owner.settings.guaranteed_milli)
      return false;
  }
  return true;
}

}  // namespace

VictimPlan find_victims(const VictimSearch& search,
                        const PlacementClass& c,
                        const JobRequest& job,
                        const Stay& stay) {
  const Impl& index = search.index;
  if (index.yielding == 0)
    return {};
  const auto project = index.projects.find(job.project);
  const Tier tier = tier_of_queued(
      index, job, project == index.projects.end() ? 0 : project->second.covered_milli());
  const Eligible eligible = [&](JobId id, const RunningJob& victim) -> std::optional<Asked> {
    const JobRequest& r = victim.request;
    if (victim.leaving || search.spoken_for.contains(id) || !gives_way(r) ||
        holds_for_its_own(index, r, search.now) || search.now - victim.started < r.run_min)
      return std::nullopt;
    const Tier theirs = tier_of_running(index, victim);
    if (!outranks(job, tier, r, theirs))
      return std::nullopt;
    PreemptCause cause = PreemptCause::priority;
    if (tier > theirs)
      cause = theirs == Tier::spot ? PreemptCause::spot : PreemptCause::reclaim;
    const Yields mode = mode_of(r);
    return Asked{{.victim = id, .mode = mode, .cause = cause, .for_job = job.id},
                 cost_of(victim, search.now, mode)};
  };
  VictimPlan plan = choose(search, c, job, stay, eligible);
  return leave_guarantees(index, plan.victims, job.project) ? plan : VictimPlan{};
}

VictimPlan find_moves(const VictimSearch& search,
                      const PlacementClass& c,
                      const JobRequest& job,
                      const Stay& stay) {
  Impl& index = search.index;
  const WallTime now = search.now;
  if (index.movable == 0)
    return {};
  const Eligible eligible = [&](JobId id, const RunningJob& victim) -> std::optional<Asked> {
    const JobRequest& r = victim.request;
    if (victim.leaving || search.spoken_for.contains(id) || r.moves_after.ns <= 0 || r.tasks != 1 ||
        r.resources.takes_node())
      return std::nullopt;
    if (holds_for_its_own(index, r, now) || !r.constraints.only_nodes.empty() ||
        r.resources.gpus > job.resources.gpus ||
        now - victim.started < std::max(r.run_min, r.moves_after))
      return std::nullopt;
    return Asked{{.victim = id,
                  .mode = Yields::by_requeue,
                  .cause = PreemptCause::consolidation,
                  .for_job = job.id},
                 cost_of(victim, now, Yields::by_suspend)};
  };
  VictimPlan plan = choose(search, c, job, stay, eligible);
  if (!plan.found() || plan.victims.empty())
    return {};
  // All jobs that move must have a place elsewhere at the same time.
  std::vector<std::pair<Placement, JobRequest>> trial;
  bool all = true;
  for (const Preempt& p : plan.victims) {
    JobRequest r = index.running.at(p.victim).request;
    for (const Placement& target : plan.placements)
      r.constraints.avoid_nodes.push_back(target.node);
    const PlacementClass elsewhere = class_of(index, r);
    const ReservedView view(
        index, search.reserved,
        {now, r.time_limit.ns > 0 ? now + r.time_limit : WallTime{}, gives_way(r)});
    std::vector<Placement> found = place(index, elsewhere, 1);
    if (found.empty()) {
      all = false;
      break;
    }
    index.take(found[0], r);
    plan.moves.emplace_back(p.victim, found[0]);
    trial.emplace_back(std::move(found[0]), std::move(r));
  }
  for (const auto& [placement, request] : trial)
    index.give(placement, request);
  return all ? plan : VictimPlan{};
}

// Asks the cheapest jobs that may be preempted to leave, and holds their capacity for the job.
bool Pass::ask_to_leave(const JobRequest& request, const PlacementClass& c) {
  // Behind a hold no job is preempted: the freed capacity would go to the holder, and the victim
  // might be back first.
  if (head_held_)
    return false;
  VictimPlan v;
  {
    const Holds::Met jobs_only = Holds::Met::of_jobs(*holds_);
    const VictimSearch search{index_, reserved_, now_, asked_};
    const Stay stay = stay_of(request, now_, end_if_started(request.id));
    if (index_.settings.consolidation)
      v = find_moves(search, c, request, stay);  // no job loses its GPUs
    if (!v.found())
      v = find_victims(search, c, request, stay);
    if (!v.found() || v.victims.empty())
      return false;
    std::vector<std::pair<Placement, const JobRequest*>> given;
    for (const Preempt& p : v.victims) {
      each_placement(index_.running.at(p.victim),
                     [&](const Placement& placement, const JobRequest& r) {
                       index_.give(placement, r);
                       given.emplace_back(placement, &r);
                     });
    }
    hold_for(request, v.placements, now_);
    for (const auto& [p, r] : given)
      index_.take(p, *r);
  }
  commit_hold();
  for (const auto& [id, target] : v.moves) {
    hold_for(index_.running.at(id).request, {target}, now_);
    commit_hold();
  }
  for (const Preempt& p : v.victims) {
    asked_.insert(p.victim);
    plan_.preempts.push_back(p);
  }
  forget_tries();
  return true;
}

}  // namespace billow::sched
