// What happens when a job finds no free capacity. First, running jobs may be asked to leave or to
// move for it (preempt.cpp). Otherwise the job gets a hold on the capacity that it can have
// soonest, so that later jobs only fill the time until then (backfill).
#include <algorithm>

#include "core/sched/pass.h"

namespace billow::sched {
namespace {

// Bounds on the work of one pass.
constexpr std::size_t releases_max = 2048;  // running jobs whose ends are considered
constexpr int holds_tried_max = 4;          // blocked jobs that may get a hold
constexpr int preemptors_max = 16;          // blocked jobs for which victims are sought
constexpr std::size_t moments_max = 256;    // start times tried beside reservations

}  // namespace

// When running jobs and those just started free their capacity, soonest first, as far as that is
// known. A job inside a reservation frees it only when the reservation ends. For a job that may
// preempt spot jobs (`asks_spot`), these free it at once, or after their minimum run time.
const std::vector<std::pair<WallTime, const RunningJob*>>& Pass::releases(bool asks_spot) {
  releases_.clear();
  const auto leaves_when_asked = [&](const RunningJob& job) {
    return asks_spot && job.request.spot && !job.leaving;
  };
  const auto add = [&](WallTime end, const RunningJob& job) {
    const auto own = index_.reservations.find(job.request.reservation);
    releases_.emplace_back(
        own == index_.reservations.end() ? end : std::max(end, own->second.until), &job);
  };
  const auto add_spot = [&](const RunningJob& job) {
    add(std::max(job.started + job.request.run_min, now_ + seconds(1)), job);
  };
  for (const RunningJob& job : started_now_) {
    if (leaves_when_asked(job))
      add_spot(job);
    else if (const WallTime end = end_of(job))
      add(end, job);
  }
  std::size_t looked = 0;
  for (auto it = index_.ending.begin(); it != index_.ending.end() && looked < releases_max;
       ++it, ++looked) {
    const RunningJob& job = index_.running.at(it->second);
    if (!leaves_when_asked(job))
      add(std::max(WallTime{it->first}, now_ + seconds(1)), job);
  }
  const auto order = [](const auto& a, const auto& b) {
    return std::tuple(a.first, a.second->request.id) < std::tuple(b.first, b.second->request.id);
  };
  std::ranges::sort(releases_, order);
  if (releases_.size() > releases_max)
    releases_.resize(releases_max);
  if (!asks_spot || index_.yielding == 0)
    return releases_;
  for (const auto& [id, job] : index_.running)
    if (leaves_when_asked(job))
      add_spot(job);
  std::ranges::sort(releases_, order);
  return releases_;
}

// Holds the capacity that the job can get soonest: after how many ends of running jobs does it fit?
// More ends never hurt, so the number is found by doubling and bisection. False if no known end is
// enough.
bool Pass::hold_soonest(const JobRequest& request, const PlacementClass& c) {
  if (reserved_.any())
    return hold_beside_reservations(request, c);
  return hold_after(request, c, releases());
}

// …after the fewest of these ends, which come in this order.
bool Pass::hold_after(const JobRequest& request,
                      const PlacementClass& c,
                      const std::vector<std::pair<WallTime, const RunningJob*>>& ends) {
  if (ends.empty())
    return false;
  Holds::Truth truth(*holds_);
  std::size_t ended = 0;
  const auto move_to = [&](std::size_t count) {
    for (; ended < count; ++ended)
      each_placement(*ends[ended].second,
                     [&](const Placement& p, const JobRequest& r) { index_.give(p, r); });
    for (; ended > count; --ended)
      each_placement(*ends[ended - 1].second,
                     [&](const Placement& p, const JobRequest& r) { index_.take(p, r); });
  };
  const auto fits_after = [&](std::size_t count) {
    move_to(count);
    return !place(index_, c, request.tasks).empty();
  };
  std::size_t too_few = 0;
  std::size_t enough = 0;
  for (std::size_t step = 1; enough == 0; step *= 2) {
    const std::size_t count = std::min(too_few + step, ends.size());
    if (fits_after(count))
      enough = count;
    else if (count == ends.size())
      break;
    else
      too_few = count;
  }
  while (enough > too_few + 1) {
    const std::size_t middle = (too_few + enough) / 2;
    if (fits_after(middle))
      enough = middle;
    else
      too_few = middle;
  }
  if (enough > 0) {
    move_to(enough);
    hold_for(request, place(index_, c, request.tasks), ends[enough - 1].first);
  }
  move_to(0);
  return enough > 0;
}

// With reservations, capacity that is free now may be taken later, so every end of something is
// tried. If the job waits for the end of a reservation, spot jobs may run meanwhile: they leave
// when asked, so they do not delay it.
bool Pass::hold_beside_reservations(const JobRequest& request, const PlacementClass& c) {
  const bool asks_spot = !request.spot && index_.settings.preemption;
  const auto& ends = releases(asks_spot);
  const std::vector<WallTime> over = reserved_.ends();
  std::vector<WallTime> moments = over;
  for (const auto& [end, job] : ends)
    moments.push_back(end);
  std::ranges::sort(moments);
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  if (moments.size() > moments_max)
    moments.resize(moments_max);
  const WallTime end_if_now = end_if_started(request.id);
  Holds::Truth truth(*holds_);
  std::size_t given = 0;
  bool found = false;
  for (const WallTime at : moments) {
    for (; given < ends.size() && ends[given].first <= at; ++given)
      each_placement(*ends[given].second,
                     [&](const Placement& p, const JobRequest& r) { index_.give(p, r); });
    std::vector<Placement> placements;
    {
      const ReservedView view(index_, reserved_, stay_of(request, at, end_if_now));
      placements = place(index_, c, request.tasks);
    }
    if (placements.empty())
      continue;
    hold_for(request, std::move(placements), at, asks_spot && std::ranges::binary_search(over, at));
    found = true;
    break;
  }
  while (given > 0)
    each_placement(*ends[--given].second,
                   [&](const Placement& p, const JobRequest& r) { index_.take(p, r); });
  return found;
}

// It is unknown when capacity will be free, so some nodes are left to run empty (holds.h explains
// which ones, and why this terminates).
void Pass::hold_drained(const JobRequest& request, const PlacementClass& c) {
  if (!c.members.empty())
    return hold_after_oldest(request, c);
  Holds::Truth truth(*holds_);
  pending_.clear();
  std::vector<Placement> placements;
  const Stay stay = stay_of(request, now_, end_if_started(request.id));
  const CutCapacity cut = [&](FreeCapacity& free, Slot slot) {
    reserved_.cut(free, slot, index_.nodes[slot].shape, stay);
  };
  for (Drain& d : drain_oldest(index_, c, static_cast<std::size_t>(request.tasks), now_, cut)) {
    placements.push_back(d.placement);
    pending_.emplace_back(std::move(d.placement), std::move(d.then));
  }
  if (placements.empty())
    return;
  own_[request.id] = std::move(placements);
  commit_ = {request, now_, false};
}

// The same for a group: the jobs that started first are expected to end first, wherever they run.
// It terminates for the same reason: the newest job that must end never gets newer.
void Pass::hold_after_oldest(const JobRequest& request, const PlacementClass& c) {
  if (reserved_.any())
    return;  // hold_beside_reservations() has looked at all that is known
  std::vector<std::pair<WallTime, const RunningJob*>> by_start;
  for (const auto& [id, job] : index_.running)
    if (!holds_for_its_own(index_, job.request, now_))
      by_start.emplace_back(job.started, &job);
  for (const RunningJob& job : started_now_)
    by_start.emplace_back(job.started, &job);
  std::ranges::sort(by_start, {}, [](const auto& entry) {
    return std::pair(entry.first, entry.second->request.id);
  });
  if (by_start.size() > releases_max)
    by_start.resize(releases_max);
  if (hold_after(request, c, by_start) && commit_)
    commit_->from = now_;
}

void Pass::no_capacity(const Front& front) {
  blocked_ = true;
  const QueuedJob& queued = index_.queued.at(front.job);
  const PlacementClass& c = *front.kind->placement;
  if (waits_for_leavers_.contains(front.job))
    return;  // its victims are leaving
  const JobRequest request = index_.request_of(front.job, queued);
  if (index_.settings.preemption && preemptors_++ < preemptors_max &&
      static_cast<std::int32_t>(plan_.preempts.size()) < limits_.preempts_max) {
    if (ask_to_leave(request, c))
      return;
  }
  if (head_held_ || holds_tried_ >= holds_tried_max)
    return;
  ++holds_tried_;
  const bool known = hold_soonest(request, c);
  if (!known && starved(queued.submitted))
    hold_drained(request, c);
  if (pending_.empty())
    return;
  Reserve reserve{
      .job = front.job, .expected_start = known ? commit_->from : WallTime{}, .nodes = {}};
  for (const auto& [p, free] : pending_)
    reserve.nodes.push_back(p.node);
  plan_.reserves.push_back(std::move(reserve));
  head_held_ = true;
  commit_hold();
  forget_tries();  // the hold has taken capacity, so earlier results are no longer valid
}

}  // namespace billow::sched
