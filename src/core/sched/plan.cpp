// One planning pass: the walk over the queue and the starts. pass.h describes a pass.
#include "core/sched/plan.h"

#include <algorithm>

#include "core/sched/pass.h"

namespace billow::sched {
namespace {

constexpr Duration look_again =
    seconds(30);  // while something waits, time alone may help (minimum run times, starvation)
constexpr std::int32_t gang_depth = 16;  // gangs of one kind examined
// Gangs that search for capacity beside holds: each search visits every held node.
constexpr int gangs_tried_max = 16;

}  // namespace

Plan Pass::run() {
  index_.wake(now_);
  if (index_.planned_version == index_.version &&
      (!index_.planned.wake_at || now_ < index_.planned.wake_at))
    return index_.planned;
  const std::uint64_t version = index_.version;
  keep_for_waiting();
  keep_for_moving();
  keep_reservations();
  repair();
  fill();
  holds_.reset();
  for (const auto& [placement, request] : taken_)
    index_.give(placement, *request);
  index_.version = version;  // nothing happened
  if (!index_.sleeping.empty())
    wake_at(WallTime{index_.sleeping.begin()->first});
  if (blocked_)
    wake_at(now_ + look_again);
  if (plan_.empty() && !plan_.more) {
    index_.planned_version = version;
    index_.planned = plan_;
  }
  return std::move(plan_);
}

void Pass::wake_at(WallTime t) {
  if (t > now_ && (!plan_.wake_at || t < plan_.wake_at))
    plan_.wake_at = t;
}

// ---- Starting

void Pass::take(const Placement& placement,
                const JobRequest& request,
                const Holds::Leaves& leaves,
                bool own) {
  if (own)
    holds_->take_own(placement, request);
  else
    holds_->take(placement, request, leaves);
  taken_.emplace_back(placement, &request);
}

// The capacity of the last start is taken when the next job is looked at: most plans of a busy head
// start one job, and then nobody looks.
void Pass::settle() {
  if (!starting_.request)
    return;
  count_start();
  const Start& last = plan_.starts.back();
  for (const Placement& p : last.placements)
    take(p, *starting_.request, starting_.leaves, starting_.own);
  started_now_.push_back({.request = index_.request_of(last.job, index_.queued.at(last.job)),
                          .placements = last.placements,
                          .started = now_});
  starting_.request = nullptr;
}

// Likewise it is counted when somebody asks for the usage of a project.
void Pass::count_start() {
  if (!starting_.request || starting_.counted)
    return;
  tally_.started(*starting_.request, plan_.starts.back().placements);
  starting_.counted = true;
}

void Pass::repair() {
  for (JobId id : index_.repairs) {
    const RunningJob& job = index_.running.at(id);
    if (job.leaving)
      continue;
    for (std::size_t i = 0; i < job.placements.size(); ++i) {
      if (job.placements[i].node ||
          std::ranges::find(job.done, static_cast<std::int32_t>(i)) != job.done.end())
        continue;
      JobRequest request = member_request(job.request, static_cast<std::int32_t>(i));
      for (const Placement& p : job.placements)
        if (p.node && job.request.parts.empty())
          request.constraints.avoid_nodes.push_back(
              p.node);  // members of a gang are on different nodes
      // A new member of a job in a reservation is placed inside the reservation, which pays for it.
      const bool own = index_.reservations.contains(request.reservation);
      std::optional<Placement> found;
      if (!own)
        found = place_beside(index_, request, job, job.placements[i].was);
      else if (auto inside = place_reserved(class_of(index_, request), request, 1); !inside.empty())
        found = std::move(inside[0]);
      if (!found) {
        blocked_ = true;
        break;
      }
      take(*found, job.request, leaves(job.request, end_of(job)), own);
      if (own)
        started_now_.push_back({.request = job.request, .placements = {*found}, .started = now_});
      plan_.repairs.push_back({id, static_cast<std::int32_t>(i), std::move(*found)});
      break;  // one member per pass: the next one must see where this one went
    }
  }
}

// By its time limit; or, if its project uses learned durations, by a duration that hardly any
// similar run exceeded.
WallTime Pass::end_if_started(JobId id) const {
  const QueuedJob& job = index_.queued.at(id);
  if (job.time_limit.ns > 0)
    return now_ + job.time_limit;
  if (job.expected_max.ns <= 0)
    return {};
  return index_.projects.at(job.kind->proto.project).settings.policy == OrderPolicy::shortest
             ? now_ + job.expected_max
             : WallTime{};
}

Holds::Leaves Pass::leaves(const JobRequest& request, WallTime end) const {
  return {.end = end,
          .asked_from = gives_way(request)
                            ? now_ + std::max(spot_before_reservation_min, request.run_min)
                            : WallTime{},
          .spot = request.spot};
}
Stay Pass::stay_of(const JobRequest& request, WallTime from, WallTime end_if_now) const {
  return {.from = from,
          .until = end_if_now ? from + (end_if_now - now_) : WallTime{},
          .gives_way = gives_way(request)};
}

void Pass::start(const Front& front, JobId job, std::vector<Placement> placements, bool own) {
  const JobRequest& proto = front.kind->proto;
  starting_ = {&proto, leaves(proto, end_if_started(job)), own};
  plan_.starts.push_back({job, std::move(placements), head_held_ && !own});
}

// A job in an advance reservation sees only what is left of the reservation.
std::vector<Placement> Pass::place_reserved(const Kind& kind) const {
  return place_reserved(*kind.placement, kind.proto, static_cast<std::size_t>(kind.proto.tasks));
}
std::vector<Placement> Pass::place_reserved(const PlacementClass& c,
                                            const JobRequest& request,
                                            std::size_t tasks) const {
  auto it = index_.reservations.find(request.reservation);
  if (it == index_.reservations.end() || it->second.from > now_ || it->second.until <= now_)
    return {};
  std::vector<Placement> found;
  for (const Placement& reserved : it->second.placements) {
    const NodeState* node = index_.find(reserved.node);
    if (!node || !allowed(c, *node) ||
        std::ranges::any_of(found, [&](const Placement& p) { return p.node == reserved.node; }))
      continue;
    auto p = fit_reserved(c, *node, left_of(index_, it->second, reserved, started_now_),
                          node->free_disk_mib);
    if (p && holds_->truly_free({*p}, request))
      found.push_back(std::move(*p));
    if (found.size() == tasks)
      return found;
  }
  return {};
}

bool Pass::starved(WallTime submitted) const {
  return submitted.ns > 0 && index_.settings.starve_after.ns > 0 &&
         now_ - submitted >= index_.settings.starve_after;
}

PlacementClass::Tried& Pass::tried(const PlacementClass& c) const {
  if (c.tried.pass != pass_)
    c.tried = {.pass = pass_};
  return c.tried;
}

// Beside holds: whether a job of the kind certainly ends before the holder starts.
bool Pass::may_be_short(const Front& front) const {
  const bool one = front.kind->proto.tasks == 1 && front.kind->placement->members.empty();
  return holds_->any() && (one || gangs_tried_ < gangs_tried_max);
}

bool Pass::start_short(Front& front, std::int32_t depth) {
  settle();
  const JobRequest& proto = front.kind->proto;
  const PlacementClass& c = *front.kind->placement;
  const bool way = gives_way(proto);
  if (proto.tasks > 1 || !c.members.empty())
    depth = std::min(depth, gang_depth);
  std::int32_t looked = 0;
  for (auto at = front.at; at != front.kind->ready.end() && looked < depth; ++at, ++looked) {
    const WallTime end = end_if_started(at->second);
    if ((!end && !(way && reserved_.any())) || started_jobs_.contains(at->second))
      continue;
    PlacementClass::Tried::Short& failed = tried(c).shorter[way ? (proto.spot ? 2 : 1) : 0];
    const std::int64_t stays_ns = end ? end.ns : INT64_MAX;
    // A job with at least as many tasks and at least as long a stay meets the same holds.
    if (failed.tasks != 0 && proto.tasks >= failed.tasks && stays_ns >= failed.end_ns)
      continue;
    std::vector<Placement> placements;
    if (proto.tasks == 1 && c.members.empty()) {
      if (auto p = holds_->place_short(c, leaves(proto, end)))
        placements.push_back(std::move(*p));
    } else {
      if (gangs_tried_++ >= gangs_tried_max)
        return false;
      const Holds::Met met(*holds_, leaves(proto, end));
      placements = place(index_, c, proto.tasks);
    }
    if (placements.empty()) {
      if (failed.tasks == 0 || (proto.tasks <= failed.tasks && stays_ns <= failed.end_ns))
        failed = {proto.tasks, stays_ns};
      continue;
    }
    started_jobs_.insert(at->second);
    start(front, at->second, std::move(placements));
    return true;
  }
  return false;
}

// ---- The pass

// In a fifo project, a job that finds no free capacity blocks those behind it. Jobs with a fixed
// place (a reservation, or the node of a suspended image) block nobody, because no other job could
// use that place.
bool Pass::in_order(const Kind& kind) const {
  return index_.projects.at(kind.proto.project).settings.policy == OrderPolicy::fifo &&
         !kind.proto.reservation && kind.proto.constraints.only_nodes.empty();
}

Front Pass::front_of(Kind* kind,
                     const ProjectState& p,
                     WallTime submitted,
                     std::set<ReadyKey>::const_iterator at) const {
  // Preemptible jobs never rise: the job that preempted one must still come first when it is back.
  const Duration waited =
      starved(submitted) && !gives_way(kind->proto) ? now_ - submitted : Duration{};
  const double level = queue_level(kind->proto.priority, waited, index_.settings.starve_after);
  return {.tier_down = tally_.tier_down(p, *kind),
          .level_down = -level,
          .fed = !starved(submitted),
          .since_ns = starved(submitted) ? submitted.ns : 0,
          .rank = at->first,
          .job = at->second,
          .kind = kind,
          .at = at};
}

void Pass::fill() {
  Lines lines;
  for (const auto& [id, p] : index_.projects) {
    if (p.kinds.empty() || p.settings.budget_exhausted)
      continue;
    Line& line = lines.open(p, tally_.share_of(p));
    for (const KindKey& k : p.kinds) {
      const UserId user = Tally::part_of(p, *k.kind);
      line.part(user, [&] { return tally_.share_of(p, user); })
          .add(front_of(k.kind, p, k.submitted, k.kind->ready.begin()));
    }
  }
  lines.form();
  while (!lines.empty()) {
    Line& line = lines.take();
    if (static_cast<std::int32_t>(plan_.starts.size()) >= limits_.starts_max ||
        tries_ >= limits_.tries_max) {
      plan_.more = true;
      return;
    }
    look_at(line, line.take_first());
    lines.put_back(line);
  }
}

void Pass::look_at(Line& line, Front front) {
  count_start();
  if (started_jobs_.contains(front.job))
    return next_of(front, line);
  // Jobs started meanwhile may have used up the guarantee it relied on: it now ranks lower.
  const int tier = tally_.tier_down(line.project(), *front.kind);
  if (tier != front.tier_down) {
    front.tier_down = tier;
    return line.taken().add_again(front);
  }
  const std::size_t before = plan_.starts.size();
  stuck_ = false;
  if (try_start(front))
    next_of(front, line);
  else if (stuck_ && in_order(*front.kind))
    return line.close();
  if (plan_.starts.size() == before || line.done())
    return;
  count_start();
  line.set_share(tally_.share_of(line.project()));
  line.taken().set_share(
      tally_.share_of(line.project(), Tally::part_of(line.project(), *front.kind)));
}

// False: nothing more of this kind starts in this pass.
bool Pass::try_start(Front& front) {
  const Kind& kind = *front.kind;
  const PlacementClass& c = *kind.placement;
  const bool hopeless = c.tried.pass == pass_ && c.tried.tasks != 0 &&
                        kind.proto.tasks >= c.tried.tasks && !own_.contains(front.job) &&
                        !may_be_short(front);
  if (hopeless && !kind.proto.reservation) {
    stuck_ = in_order(kind) && tally_.within_limits(kind);
    return false;
  }
  if (!tally_.within_limits(kind))
    return false;
  settle();
  if (kind.proto.reservation) {
    std::vector<Placement> placements = place_reserved(kind);
    if (placements.empty())
      return false;
    start(front, front.job, std::move(placements), true);
    return true;
  }
  if (auto it = own_.find(front.job);
      it != own_.end() && holds_->truly_free(it->second, kind.proto)) {
    start(front, front.job, it->second, true);
    return true;
  }
  const auto known = [&] {
    const auto& t = tried(c);
    return t.tasks != 0 && kind.proto.tasks >= t.tasks;
  };
  if (!known()) {
    ++tries_;
    std::vector<Placement> placements = place(index_, c, kind.proto.tasks);
    if (!placements.empty()) {
      start(front, front.job, std::move(placements));
      return true;
    }
    if (may_be_short(front) && start_short(front, 1))
      return true;
    no_capacity(front);
    auto& t = tried(c);  // the pass only takes capacity, so this remains true
    t.tasks = t.tasks == 0 ? kind.proto.tasks : std::min(t.tasks, kind.proto.tasks);
  }
  while (static_cast<std::int32_t>(plan_.starts.size()) < limits_.starts_max &&
         may_be_short(front) && tally_.within_limits(kind) &&
         start_short(front, in_order(kind) ? 1 : index_.settings.backfill_depth)) {
    if (in_order(kind))
      return true;
    count_start();
  }
  stuck_ = true;
  return false;
}

void Pass::next_of(Front front, Line& line) {
  if (++front.at == front.kind->ready.end())
    return;
  line.taken().add_again(
      front_of(front.kind, line.project(), index_.queued.at(front.at->second).submitted, front.at));
}

Plan plan(const SchedIndex& index, WallTime now, PlanLimits limits) {
  return Pass(index.impl(), now, limits).run();
}

}  // namespace billow::sched
