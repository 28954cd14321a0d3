// When there is no room for a job: who could be asked to leave or to move for it, when there will
// be room by itself, and what is held for it until then.
#include <algorithm>

#include "core/sched/pass.h"

namespace billow::sched {
namespace {

constexpr std::size_t releases_max = 2048;  // running jobs looked at for the earliest room
constexpr int holds_tried_max = 4;          // blocked jobs for which the earliest room is sought
constexpr int preemptors_max = 16;          // blocked jobs for which victims are sought
constexpr std::size_t moments_max = 256;    // looked at, where reservations make room come and go

}  // namespace

// When the running jobs and those just started make room for others, soonest first, as far as is
// known: when they end, and what stands inside a reservation not before that ends. For a job that
// asks spot work to leave, that is room at once, or as soon as it may be asked.
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

// The soonest time at which the job fits, and a hold on that room. False where the ends of running
// jobs do not tell.
bool Pass::hold_soonest(const JobRequest& request, const PlacementClass& c) {
  if (reserved_.any())
    return hold_beside_reservations(request, c);
  const auto& ends = releases();
  if (ends.empty())
    return false;
  Holds::Truth truth(*holds_);
  std::size_t given = 0;
  const auto move_to = [&](std::size_t k) {
    for (; given < k; ++given)
      each_placement(*ends[given].second,
                     [&](const Placement& p, const JobRequest& r) { index_.give(p, r); });
    for (; given > k; --given)
      each_placement(*ends[given - 1].second,
                     [&](const Placement& p, const JobRequest& r) { index_.take(p, r); });
  };
  std::size_t too_few = 0, enough = 0;
  for (std::size_t step = 1; enough == 0; step *= 2) {
    const std::size_t k = std::min(too_few + step, ends.size());
    move_to(k);
    if (!place(index_, c, request.tasks).empty())
      enough = k;
    else if (k == ends.size())
      break;
    else
      too_few = k;
  }
  if (enough > 0) {
    while (enough - too_few > 1) {
      const std::size_t middle = (too_few + enough) / 2;
      move_to(middle);
      (place(index_, c, request.tasks).empty() ? too_few : enough) = middle;
    }
    move_to(enough);
    hold_for(request, place(index_, c, request.tasks), ends[enough - 1].first);
  }
  move_to(0);
  return enough > 0;
}

// With reservations more room later does not follow from room now: one by one the moments at which
// something ends. Where it is a reservation's end that it waits for, spot work may run meanwhile:
// it leaves when it is asked to, so it is no obstacle then.
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

// Nobody says when room will be: some is left to run empty (holds.h says which, and why that ends).
void Pass::hold_drained(const JobRequest& request, const PlacementClass& c) {
  Holds::Truth truth(*holds_);
  pending_.clear();
  std::vector<Placement> placements;
  const Stay stay = stay_of(request, now_, end_if_started(request.id));
  const CutRoom cut = [&](Room& room, Slot slot) {
    reserved_.cut(room, slot, index_.nodes[slot].shape, stay);
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

void Pass::no_room(const Front& front) {
  blocked_ = true;
  const QueuedJob& queued = index_.queued.at(front.job);
  const PlacementClass& c = *front.kind->placement;
  if (waits_for_leavers_.contains(front.job))
    return;  // its room is on the way
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
      .job = front.job, .expected_start = known ? commit_.from : WallTime{}, .nodes = {}};
  for (const auto& [p, room] : pending_)
    reserve.nodes.push_back(p.node);
  plan_.reserves.push_back(std::move(reserve));
  head_held_ = true;
  commit_hold();
  forget_tries();  // less is free now, but what is remembered must not outlive the hold's rooms
}

bool Pass::ask_to_leave(const JobRequest& request, const PlacementClass& c) {
  // Behind a hold nobody is asked to leave: the room would be the holder's, and the victim might be
  // back first.
  if (head_held_)
    return false;
  VictimPlan v;
  {
    const Holds::Met jobs_only = Holds::Met::of_jobs(*holds_);
    const VictimSearch search{index_, reserved_, now_, asked_};
    const Stay stay = stay_of(request, now_, end_if_started(request.id));
    if (index_.settings.consolidation)
      v = find_moves(search, c, request, stay);  // nobody loses his GPUs by it
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
