// Capacity that a pass sets aside before it starts anything: for jobs whose victims are leaving,
// for jobs that move to another node, and for advance reservations.
#include <algorithm>

#include "core/sched/pass.h"

namespace billow::sched {
namespace {}  // namespace

void Pass::hold_for(const JobRequest& request,
                    std::vector<Placement> placements,
                    WallTime from,
                    bool asks_spot) {
  if (placements.empty())
    return;
  pending_.clear();
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const NodeState& node = *index_.find(placements[i].node);
    FreeCapacity free = free_of(node);
    // Members of a group may share the node.
    for (std::size_t before = 0; before < i; ++before)
      if (placements[before].node == node.shape.id)
        shift_free(free, node.shape, placements[before], request, -1);
    pending_.emplace_back(placements[i], std::move(free));
  }
  own_[request.id] = std::move(placements);
  commit_ = Commit{request, from, asks_spot};
}
void Pass::commit_hold() {
  for (auto& [p, free] : pending_)
    holds_->keep(p, commit_->request, std::move(free), commit_->from, Holds::For::job,
                 commit_->asks_spot);
  pending_.clear();
}

// Victims of an earlier plan are leaving: their capacity is kept for the job that preempted them.
void Pass::keep_for_waiting() {
  for (const auto& [id, leavers] : index_.leaving_for) {
    auto it = index_.queued.find(id);
    if (it == index_.queued.end())
      continue;
    const JobRequest request = index_.request_of(id, it->second);
    std::vector<std::pair<Placement, const JobRequest*>> given;
    for (JobId leaver : leavers) {
      const RunningJob& job = index_.running.at(leaver);
      each_placement(job, [&](const Placement& p, const JobRequest& r) {
        index_.give(p, r);
        given.emplace_back(p, &r);
      });
    }
    std::vector<Placement> placements;
    {
      const ReservedView view(index_, reserved_, stay_of(request, now_, end_if_started(id)));
      placements = place(index_, *it->second.kind->placement, request.tasks);
    }
    hold_for(request, std::move(placements), now_);
    for (const auto& [p, r] : given)
      index_.take(p, *r);
    commit_hold();
    waits_for_leavers_.insert(id);
  }
}

// A moving job was promised capacity elsewhere. That capacity stays reserved while the job saves
// its state and starts again.
void Pass::keep_for_moving() {
  for (JobId id : index_.moving) {
    const auto queued = index_.queued.find(id);
    const bool leaves = queued == index_.queued.end();
    const JobRequest request =
        leaves ? index_.running.at(id).request : index_.request_of(id, queued->second);
    std::vector<Placement> placements;
    {
      const ReservedView view(index_, reserved_,
                              stay_of(request, now_, leaves ? WallTime{} : end_if_started(id)));
      placements = place(index_, class_of(index_, request), 1);
    }
    hold_for(request, std::move(placements), now_);
    commit_hold();
  }
}

void Pass::keep_reservations() {
  for (const auto& [id, r] : index_.reservations) {
    if (r.until <= now_)
      continue;
    wake_at(r.from);
    wake_at(r.until);
    if (r.from > now_)
      continue;
    for (const Placement& reserved : r.placements) {
      const auto slot = index_.slot_of.find(reserved.node);
      if (slot != index_.slot_of.end())
        clear_for(left_of(index_, r, reserved, started_now_), slot->second);
    }
  }
  for (const auto& [slot, steps] : reserved_.steps()) {
    const NodeState& node = index_.nodes[slot];
    for (const Reserved::Step& step : steps) {
      FreeCapacity then = free_of(node);
      JobId last;
      for (JobId id : node.jobs) {
        if (std::exchange(last, id) == id)
          continue;
        const RunningJob& job = index_.running.at(id);
        const WallTime end = surely_over(job, now_);
        if (((!end || end > step.from) && !gives_way(job.request)) ||
            holds_for_its_own(index_, job.request, step.from))
          continue;
        for (const Placement& p : job.placements) {
          if (p.node == node.shape.id)
            shift_free(then, node.shape, p, job.request, +1);
        }
      }
      holds_->keep(step.used, nobody(), std::move(then), step.from, Holds::For::reservation);
    }
  }
}

// A reservation has begun and other jobs still use its capacity: asks as many preemptible jobs as
// necessary to leave, cheapest first.
void Pass::clear_for(const Placement& left, Slot slot) {
  const NodeState& node = index_.nodes[slot];
  FreeCapacity free = holds_->true_free(slot);
  const auto shift = [&](const RunningJob& job) {
    for (const Placement& p : job.placements)
      if (p.node == node.shape.id)
        shift_free(free, node.shape, p, job.request, +1);
  };
  std::vector<std::pair<double, JobId>> jobs;
  JobId last;
  for (JobId id : node.jobs) {
    if (std::exchange(last, id) == id)
      continue;
    const RunningJob& job = index_.running.at(id);
    // Already counted, or frees nothing here.
    if (holds_for_its_own(index_, job.request, now_))
      continue;
    if (job.leaving || asked_.contains(id))
      shift(job);
    else if (gives_way(job.request))
      jobs.emplace_back(cost_of(job, now_, mode_of(job.request)), id);
  }
  std::ranges::sort(jobs);
  const auto lacks = [&](std::int32_t gpu) {
    const auto wanted = std::ranges::find(left.gpus, gpu, &GpuShare::gpu);
    if (wanted == left.gpus.end() || static_cast<std::size_t>(gpu) >= free.gpus.size())
      return false;
    const GpuState& state = free.gpus[static_cast<std::size_t>(gpu)];
    return state.free_milli < wanted->share.milli || state.free_mem_mib < wanted->share.mem_mib;
  };
  for (const auto& [cost, id] : jobs) {
    const RunningJob& job = index_.running.at(id);
    const Yields mode = mode_of(job.request);
    bool helps = false;
    for (const Placement& p : job.placements) {
      if (p.node != node.shape.id)
        continue;
      helps = helps || std::ranges::any_of(p.gpus, [&](const GpuShare& g) { return lacks(g.gpu); });
      helps = helps || (free.cpu_milli < left.cpu_milli && p.cpu_milli > 0);
      // The memory stays with the suspended image.
      helps = helps || (free.mem_mib < left.mem_mib && p.mem_mib > 0 && mode != Yields::by_suspend);
    }
    if (!helps)
      continue;
    shift(job);
    asked_.insert(id);
    plan_.preempts.push_back({id, mode, PreemptCause::reservation, {}});
  }
}

}  // namespace billow::sched
