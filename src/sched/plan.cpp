// One planning pass: jobs in order of what they are owed, each kind tried once per state of the nodes. What the pass decides is
// taken from the index while it goes on and given back at the end, so that the caller sees an unchanged index.
//
// The order is that of lines.h. The first job that finds no room gets a hold (holds.h) on the room it will have soonest, and the
// rest of the pass is backfill around it.
#include "sched/plan.h"

#include <algorithm>

#include "sched/holds.h"
#include "sched/index.h"
#include "sched/lines.h"
#include "sched/victims.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

// Running work counts as if it went on for this long: fairness answers to a start at once, not when usage has grown.
constexpr double foresight_s = 3600;
constexpr std::size_t releases_max = 2048;     // running jobs looked at for the earliest room
constexpr int holds_tried_max = 4;             // blocked jobs for which the earliest room is sought
constexpr int preemptors_max = 16;             // blocked jobs for which victims are sought
constexpr Duration look_again = seconds(30);   // while something waits, time alone may help (minimum run times, starvation)

class Pass {
 public:
  Pass(Impl& index, WallTime now, PlanLimits limits) : index_(index), now_(now), limits_(limits), holds_(std::in_place, index), pass_(++index.passes) {}

  Plan run() {
    index_.wake(now_);
    if (index_.planned_version == index_.version && (!index_.planned.wake_at || now_ < index_.planned.wake_at)) return index_.planned;
    const std::uint64_t version = index_.version;
    sum_guarantees();
    keep_reservations();
    keep_for_waiting();
    repair();
    fill();
    holds_.reset();
    for (const auto& [placement, request] : taken_) index_.give(placement, *request);
    index_.version = version;  // nothing happened
    if (!index_.sleeping.empty()) wake_at(WallTime{index_.sleeping.begin()->first});
    if (blocked_) wake_at(now_ + look_again);
    if (plan_.empty() && !plan_.more) {
      index_.planned_version = version;
      index_.planned = plan_;
    }
    return std::move(plan_);
  }

 private:
  void wake_at(WallTime t) {
    if (t > now_ && (!plan_.wake_at || t < plan_.wake_at)) plan_.wake_at = t;
  }

  // ---- What is promised already

  Placement remainder(const Reservation& r, const Placement& reserved) const { return left_of(index_, r, reserved, started_now_); }

  void keep_reservations() {
    static const JobRequest nobody;
    for (const auto& [id, r] : index_.reservations) {
      if (r.until <= now_) continue;
      wake_at(r.from);
      wake_at(r.until);
      for (const Placement& reserved : r.placements) {
        const NodeState* node = index_.find(reserved.node);
        if (!node) continue;
        const Placement left = remainder(r, reserved);
        if (r.from <= now_ && !holds_->truly_free(left, nobody)) clear_for(r, left, *node);
        Room then = room_of(*node);
        JobId last;
        for (JobId job_id : node->jobs) {
          if (std::exchange(last, job_id) == job_id) continue;
          const RunningJob& job = index_.running.at(job_id);
          const WallTime end = end_of(job);
          if (!end || end > r.from) continue;
          for (const Placement& p : job.placements) {
            if (p.node == reserved.node) shift_room(then, node->shape, p, job.request, +1);
          }
        }
        holds_->keep(left, nobody, std::move(then), std::max(r.from, now_));
      }
    }
  }

  // A reservation has begun and others are still there: those that can give way are asked to.
  void clear_for(const Reservation& r, const Placement& left, const NodeState& node) {
    for (JobId id : node.jobs) {
      const RunningJob& job = index_.running.at(id);
      if (job.leaving || asked_.contains(id) || job.request.reservation == r.id) continue;
      if (job.request.yields == Yields::never && !job.request.spot) continue;
      const bool overlaps = std::ranges::any_of(job.placements, [&](const Placement& p) {
        return p.node == node.shape.id && (left.gpus.empty() || std::ranges::any_of(p.gpus, [&](const GpuShare& a) {
                 return std::ranges::any_of(left.gpus, [&](const GpuShare& b) { return a.gpu == b.gpu && b.share.milli > 0; });
               }));
      });
      if (!overlaps) continue;
      asked_.insert(id);
      plan_.preempts.push_back({id, job.request.yields == Yields::never ? Yields::by_requeue : job.request.yields, PreemptCause::reservation, {}});
    }
  }

  // Victims of an earlier plan are on their way out: their room is for the one they were asked for.
  void keep_for_waiting() {
    for (const auto& [id, leavers] : index_.leaving_for) {
      auto it = index_.queued.find(id);
      if (it == index_.queued.end()) continue;
      const JobRequest request = index_.request_of(id, it->second);
      std::vector<std::pair<Placement, const JobRequest*>> given;
      for (JobId leaver : leavers) {
        const RunningJob& job = index_.running.at(leaver);
        for (const Placement& p : job.placements) {
          if (!p.node) continue;
          index_.give(p, job.request);
          given.emplace_back(p, &job.request);
        }
      }
      hold_for(request, place(index_, *it->second.kind->placement, request.tasks), now_);
      for (const auto& [p, r] : given) index_.take(p, *r);
      commit_hold();
      waits_for_leavers_.insert(id);
    }
  }

  // Keeps `placements`, chosen on the rooms the index shows now, for the job from `from` on.
  void hold_for(const JobRequest& request, std::vector<Placement> placements, WallTime from) {
    if (placements.empty()) return;
    pending_.clear();
    for (const Placement& p : placements) pending_.emplace_back(p, room_of(*index_.find(p.node)));
    own_[request.id] = std::move(placements);
    commit_ = {request, from};
  }
  void commit_hold() {
    for (auto& [p, room] : pending_) holds_->keep(p, commit_.first, std::move(room), commit_.second);
    pending_.clear();
  }

  // ---- Starting

  void take(const Placement& placement, const JobRequest& request, WallTime end, bool own = false) {
    if (own) holds_->take_own(placement, request);
    else holds_->take(placement, request, end);
    taken_.emplace_back(placement, &request);
  }

  void repair() {
    for (JobId id : index_.repairs) {
      const RunningJob& job = index_.running.at(id);
      if (job.leaving) continue;
      JobRequest request = job.request;
      for (const Placement& p : job.placements) {
        if (p.node) request.constraints.avoid_nodes.push_back(p.node);  // members of a gang are on different nodes
      }
      for (std::size_t i = 0; i < job.placements.size(); ++i) {
        if (job.placements[i].node || std::ranges::find(job.done, static_cast<std::int32_t>(i)) != job.done.end()) continue;
        std::optional<Placement> found = place_beside(index_, request, job);
        if (!found) {
          blocked_ = true;
          break;
        }
        take(*found, job.request, end_of(job));
        plan_.repairs.push_back({id, static_cast<std::int32_t>(i), std::move(*found)});
        break;  // one member a pass: the next one must see where this one went
      }
    }
  }

  struct Started {
    std::int64_t dominant = 0, gpu = 0, covered = 0, firm = 0;
  };
  const Started& started(ProjectId id) const {
    static const Started none;
    auto it = started_.find(id);
    return it == started_.end() ? none : it->second;
  }

  double had(Usage usage, std::int64_t rate_milli, std::int64_t more_milli) const {
    index_.accrue(usage, rate_milli, now_);
    return usage.milli_seconds + static_cast<double>(rate_milli + more_milli) * foresight_s;
  }
  double share_of(const ProjectState& p) const {
    return had(p.usage, p.rate_milli, started(p.settings.id).dominant) / static_cast<double>(std::max<std::int64_t>(1, p.settings.weight));
  }
  // Between its users only a fair project looks at what each has had.
  static UserId part_of(const ProjectState& p, const Kind& kind) { return p.settings.policy == OrderPolicy::fair ? kind.proto.user : UserId{}; }
  double share_of(const ProjectState& p, UserId user) const {
    if (!user) return 0;
    const auto it = p.had.find(user);
    const auto more = started_dominant_.find({p.settings.id, user});
    const std::int64_t more_milli = more == started_dominant_.end() ? 0 : more->second;
    return it == p.had.end() ? had({}, 0, more_milli) : had(it->second.usage, it->second.rate_milli, more_milli);
  }
  int tier_down(const ProjectState& p, const Kind& kind) const {
    if (p.settings.guaranteed_milli <= 0) return -static_cast<int>(kind.proto.spot ? Tier::spot : Tier::borrowed);
    return -static_cast<int>(tier_of_queued(index_, kind.proto, p.covered_milli() + started(p.settings.id).covered));
  }

  void sum_guarantees() {
    for (const auto& [id, p] : index_.projects) {
      guaranteed_ += p.settings.guaranteed_milli;
      firm_borrowed_ += std::max<std::int64_t>(0, p.firm_milli - p.settings.guaranteed_milli);
    }
  }

  bool within_limits(const Kind& kind) const {
    const ProjectState& p = index_.projects.at(kind.proto.project);
    const ProjectSettings& s = p.settings;
    if (s.budget_exhausted) return false;
    const std::int64_t milli = asked_milli(index_, kind.proto);
    const Started& extra = started(s.id);
    const std::int64_t used = p.running_milli + extra.gpu;
    if (s.limit_milli >= 0 && used + milli > s.limit_milli) return false;
    if (!s.may_borrow && used + milli > s.guaranteed_milli) return false;
    // What could not be taken back is not lent: work that cannot give way borrows only what nobody is guaranteed.
    if (guaranteed_ > 0 && kind.proto.yields == Yields::never && !kind.proto.spot) {
      const std::int64_t firm = p.firm_milli + extra.firm;
      const std::int64_t more = std::max<std::int64_t>(0, firm + milli - s.guaranteed_milli) - std::max<std::int64_t>(0, firm - s.guaranteed_milli);
      if (more > 0 && firm_borrowed_ + more > std::max<std::int64_t>(0, index_.total_milli - guaranteed_)) return false;
    }
    UserRunning user;
    if (auto it = p.users.find(kind.proto.user); it != p.users.end()) user = it->second;
    if (auto it = started_user_.find({s.id, kind.proto.user}); it != started_user_.end()) {
      user.milli += it->second.milli;
      user.jobs += it->second.jobs;
    }
    if (s.user_limit_milli >= 0 && user.milli + milli > s.user_limit_milli) return false;
    if (s.user_running_max >= 0 && user.jobs + 1 > s.user_running_max) return false;
    if (kind.proto.array && kind.proto.array_running_max > 0) {
      std::int32_t running = 0;
      if (auto it = index_.array_running.find(kind.proto.array); it != index_.array_running.end()) running += it->second;
      if (auto it = started_array_.find(kind.proto.array); it != started_array_.end()) running += it->second;
      if (running >= kind.proto.array_running_max) return false;
    }
    return true;
  }

  // By its limit; or, where its project goes by learned durations, by what hardly any run like it exceeded.
  WallTime end_if_started(JobId id) const {
    const QueuedJob& job = index_.queued.at(id);
    if (job.time_limit.ns > 0) return now_ + job.time_limit;
    if (job.expected_max.ns <= 0) return {};
    return index_.projects.at(job.kind->proto.project).settings.policy == OrderPolicy::shortest ? now_ + job.expected_max : WallTime{};
  }

  void start(const Front& front, JobId job, std::vector<Placement> placements, bool own = false) {
    const JobRequest& proto = front.kind->proto;
    const WallTime end = end_if_started(job);
    for (const Placement& p : placements) take(p, proto, end, own);
    Started& s = started_[proto.project];
    const std::int64_t milli = gpu_milli_of(proto, placements);
    const std::int64_t dominant = index_.dominant_milli(proto);
    s.dominant += dominant;
    started_dominant_[{proto.project, proto.user}] += dominant;
    s.gpu += milli;
    if (!proto.spot) s.covered += milli;
    if (proto.yields == Yields::never && !proto.spot) {
      const ProjectState& p = index_.projects.at(proto.project);
      const std::int64_t before = p.firm_milli + s.firm - p.settings.guaranteed_milli;
      s.firm += milli;
      firm_borrowed_ += std::max<std::int64_t>(0, before + milli) - std::max<std::int64_t>(0, before);
    }
    UserRunning& user = started_user_[{proto.project, proto.user}];
    user.milli += milli;
    ++user.jobs;
    if (proto.array) ++started_array_[proto.array];
    started_now_.push_back({.request = index_.request_of(job, index_.queued.at(job)), .placements = placements, .started = now_});
    plan_.starts.push_back({job, std::move(placements), head_held_ && !own});
  }

  // Inside its advance reservation a job sees only what is left of that.
  std::vector<Placement> place_reserved(const Kind& kind) const {
    auto it = index_.reservations.find(kind.proto.reservation);
    if (it == index_.reservations.end() || it->second.from > now_ || it->second.until <= now_) return {};
    std::vector<Placement> found;
    for (const Placement& reserved : it->second.placements) {
      const NodeState* node = index_.find(reserved.node);
      if (!node || std::ranges::any_of(found, [&](const Placement& p) { return p.node == reserved.node; })) continue;
      const Placement left = remainder(it->second, reserved);
      Room room{.gpus = std::vector<GpuState>(node->gpus.size()), .cpu_milli = left.cpu_milli, .mem_mib = left.mem_mib};
      for (const GpuShare& g : left.gpus) {
        room.gpus[static_cast<std::size_t>(g.gpu)].free_milli = g.share.milli;
        room.gpus[static_cast<std::size_t>(g.gpu)].free_mem_mib = g.share.mem_mib;
      }
      auto p = fit_room(*kind.placement, *node, room);
      if (p && holds_->truly_free(*p, kind.proto)) found.push_back(std::move(*p));
      if (found.size() == static_cast<std::size_t>(kind.proto.tasks)) return found;
    }
    return {};
  }

  // ---- When there is no room

  // How the running jobs and those just started end, soonest first, as far as is known.
  const std::vector<std::pair<WallTime, const RunningJob*>>& releases() {
    releases_.clear();
    for (const RunningJob& job : started_now_) {
      if (const WallTime end = end_of(job)) releases_.emplace_back(end, &job);
    }
    std::size_t looked = 0;
    for (auto it = index_.ending.begin(); it != index_.ending.end() && looked < releases_max; ++it, ++looked)
      releases_.emplace_back(std::max(WallTime{it->first}, now_ + seconds(1)), &index_.running.at(it->second));
    const auto order = [](const auto& a, const auto& b) { return std::tuple(a.first, a.second->request.id) < std::tuple(b.first, b.second->request.id); };
    std::ranges::sort(releases_, order);
    if (releases_.size() > releases_max) releases_.resize(releases_max);
    return releases_;
  }

  // The soonest time at which the job fits, and a hold on that room. False where the ends of running jobs do not tell.
  bool hold_soonest(const JobRequest& request, const PlacementClass& c) {
    const auto& ends = releases();
    if (ends.empty()) return false;
    Holds::Truth truth(*holds_);
    std::size_t given = 0;
    const auto move_to = [&](std::size_t k) {
      for (; given < k; ++given) each_placement(*ends[given].second, [&](const Placement& p, const JobRequest& r) { index_.give(p, r); });
      for (; given > k; --given) each_placement(*ends[given - 1].second, [&](const Placement& p, const JobRequest& r) { index_.take(p, r); });
    };
    std::size_t too_few = 0, enough = 0;
    for (std::size_t step = 1; enough == 0; step *= 2) {
      const std::size_t k = std::min(too_few + step, ends.size());
      move_to(k);
      if (!place(index_, c, request.tasks).empty()) enough = k;
      else if (k == ends.size()) break;
      else too_few = k;
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
  template <class F>
  static void each_placement(const RunningJob& job, F f) {
    for (const Placement& p : job.placements) {
      if (p.node) f(p, job.request);
    }
  }

  // Nobody says when room will be: some is left to run empty (holds.h says which, and why that ends).
  void hold_drained(const JobRequest& request, const PlacementClass& c) {
    Holds::Truth truth(*holds_);
    pending_.clear();
    std::vector<Placement> placements;
    for (Drain& d : drain_oldest(index_, c, static_cast<std::size_t>(request.tasks))) {
      placements.push_back(d.placement);
      pending_.emplace_back(std::move(d.placement), std::move(d.then));
    }
    if (placements.empty()) return;
    own_[request.id] = std::move(placements);
    commit_ = {request, now_};
  }

  bool starved(WallTime submitted) const {
    return submitted.ns > 0 && index_.settings.starve_after.ns > 0 && now_ - submitted >= index_.settings.starve_after;
  }

  void no_room(const Front& front) {
    blocked_ = true;
    const QueuedJob& queued = index_.queued.at(front.job);
    const PlacementClass& c = *front.kind->placement;
    if (waits_for_leavers_.contains(front.job)) return;  // its room is on the way
    const JobRequest request = index_.request_of(front.job, queued);
    if (index_.settings.preemption && preemptors_++ < preemptors_max && static_cast<std::int32_t>(plan_.preempts.size()) < limits_.preempts_max) {
      if (ask_to_leave(request, c)) return;
    }
    if (head_held_ || holds_tried_ >= holds_tried_max) return;
    ++holds_tried_;
    if (hold_soonest(request, c)) {
      Reserve reserve{.job = front.job, .expected_start = commit_.second, .nodes = {}};
      for (const auto& [p, room] : pending_) reserve.nodes.push_back(p.node);
      plan_.reserves.push_back(std::move(reserve));
    } else if (starved(queued.submitted)) {
      hold_drained(request, c);
      Reserve reserve{.job = front.job, .expected_start = {}, .nodes = {}};
      for (const auto& [p, room] : pending_) reserve.nodes.push_back(p.node);
      if (!reserve.nodes.empty()) plan_.reserves.push_back(std::move(reserve));
    }
    if (pending_.empty()) return;
    head_held_ = true;
    commit_hold();
    forget_tries();   // less is free now, but what is remembered must not outlive the hold's rooms
  }

  bool ask_to_leave(const JobRequest& request, const PlacementClass& c) {
    // Behind a hold nobody is asked to leave: the room would be the holder's, and the victim might be back first.
    if (head_held_) return false;
    VictimPlan v;
    if (index_.settings.consolidation) v = find_moves(index_, c, request, now_, asked_);   // nobody loses his GPUs by it
    if (!v.found()) v = find_victims(index_, c, request, now_, asked_);
    if (!v.found() || v.victims.empty()) return false;
    std::vector<std::pair<Placement, const JobRequest*>> given;
    for (const Preempt& p : v.victims) {
      each_placement(index_.running.at(p.victim), [&](const Placement& placement, const JobRequest& r) {
        index_.give(placement, r);
        given.emplace_back(placement, &r);
      });
    }
    hold_for(request, v.placements, now_);
    for (const auto& [p, r] : given) index_.take(p, *r);
    commit_hold();
    for (const Preempt& p : v.victims) {
      asked_.insert(p.victim);
      plan_.preempts.push_back(p);
    }
    forget_tries();
    return true;
  }

  // What was tried in this pass, as far as it still tells.
  PlacementClass::Tried& tried(const PlacementClass& c) const {
    if (c.tried.pass != pass_) c.tried = {.pass = pass_};
    return c.tried;
  }
  void forget_tries() { pass_ = ++index_.passes; }

  // Behind a hold: a job of the kind that is surely gone before the holder comes.
  bool may_be_short(const Front& front) const { return front.kind->proto.tasks == 1 && holds_->any(); }
  bool start_short(Front& front) {
    PlacementClass::Tried& tried = this->tried(*front.kind->placement);
    std::int32_t looked = 0;
    const std::int32_t depth = in_order(*front.kind) ? 1 : index_.settings.backfill_depth;
    for (auto at = front.at; at != front.kind->ready.end() && looked < depth; ++at, ++looked) {
      const WallTime end = end_if_started(at->second);
      if (!end || started_jobs_.contains(at->second)) continue;
      if (tried.short_end_ns != 0 && end.ns >= tried.short_end_ns) continue;  // who stays longer meets no fewer holds
      auto p = holds_->place_short(*front.kind->placement, end);
      if (!p) {
        tried.short_end_ns = end.ns;
        continue;
      }
      started_jobs_.insert(at->second);
      start(front, at->second, {std::move(*p)});
      return true;
    }
    return false;
  }

  // ---- The pass

  // Of a project that starts its jobs strictly as they were submitted: who finds no room stops those behind it. Not so jobs that have
  // a place of their own (a reservation, or the node of a suspended image): nobody else could use it.
  bool in_order(const Kind& kind) const {
    return index_.projects.at(kind.proto.project).settings.policy == OrderPolicy::fifo && !kind.proto.reservation && kind.proto.constraints.only_nodes.empty();
  }

  Front front_of(Kind* kind, const ProjectState& p, WallTime submitted, std::set<ReadyKey>::const_iterator at) const {
    return {.tier_down = tier_down(p, *kind), .priority_down = -kind->proto.priority, .fed = !starved(submitted),
            .since_ns = starved(submitted) ? submitted.ns : 0, .rank = at->first, .job = at->second, .kind = kind, .at = at};
  }

  void fill() {
    Lines lines;
    for (const auto& [id, p] : index_.projects) {
      if (p.kinds.empty() || p.settings.budget_exhausted) continue;
      Line& line = lines.open(p, share_of(p));
      for (const KindKey& k : p.kinds) {
        const UserId user = part_of(p, *k.kind);
        line.part(user, [&] { return share_of(p, user); }).add(front_of(k.kind, p, k.submitted, k.kind->ready.begin()));
      }
    }
    lines.form();
    while (!lines.empty()) {
      Line& line = lines.take();
      if (static_cast<std::int32_t>(plan_.starts.size()) >= limits_.starts_max || tries_ >= limits_.tries_max) {
        plan_.more = true;
        return;
      }
      look_at(line, line.take_first());
      lines.put_back(line);
    }
  }

  void look_at(Line& line, Front front) {
    if (started_jobs_.contains(front.job)) return next_of(front, line);
    // What started meanwhile may have used up the guarantee it counted on: it stands further back now.
    const int tier = tier_down(line.project(), *front.kind);
    if (tier != front.tier_down) {
      front.tier_down = tier;
      return line.taken().add_again(front);
    }
    const std::size_t before = plan_.starts.size();
    stuck_ = false;
    if (try_start(front)) next_of(front, line);
    else if (stuck_ && in_order(*front.kind)) return line.close();
    if (plan_.starts.size() == before) return;
    line.set_share(share_of(line.project()));
    line.taken().set_share(share_of(line.project(), part_of(line.project(), *front.kind)));
  }

  // False: nothing more of this kind starts in this pass.
  bool try_start(Front& front) {
    const Kind& kind = *front.kind;
    const PlacementClass& c = *kind.placement;
    const bool hopeless = c.tried.pass == pass_ && c.tried.tasks != 0 && kind.proto.tasks >= c.tried.tasks && !own_.contains(front.job) && !may_be_short(front);
    if (hopeless && !kind.proto.reservation) {
      stuck_ = in_order(kind) && within_limits(kind);
      return false;
    }
    if (!within_limits(kind)) return false;
    if (kind.proto.reservation) {
      std::vector<Placement> placements = place_reserved(kind);
      if (placements.empty()) return false;
      start(front, front.job, std::move(placements), true);
      return true;
    }
    if (auto it = own_.find(front.job); it != own_.end()) {
      const bool ready = std::ranges::all_of(it->second, [&](const Placement& p) { return holds_->truly_free(p, kind.proto); });
      if (ready) {
        start(front, front.job, it->second, true);
        return true;
      }
    }
    const auto known = [&] { const auto& t = tried(c); return t.tasks != 0 && kind.proto.tasks >= t.tasks; };
    if (!known()) {
      ++tries_;
      std::vector<Placement> placements = place(index_, c, kind.proto.tasks);
      if (!placements.empty()) {
        start(front, front.job, std::move(placements));
        return true;
      }
      no_room(front);
      auto& t = tried(c);   // the pass only takes room, so it stays so
      t.tasks = t.tasks == 0 ? kind.proto.tasks : std::min(t.tasks, kind.proto.tasks);
    }
    while (static_cast<std::int32_t>(plan_.starts.size()) < limits_.starts_max && may_be_short(front) && within_limits(kind) && start_short(front)) {
      if (in_order(kind)) return true;
    }
    stuck_ = true;
    return false;
  }

  void next_of(Front front, Line& line) {
    if (++front.at == front.kind->ready.end()) return;
    line.taken().add_again(front_of(front.kind, line.project(), index_.queued.at(front.at->second).submitted, front.at));
  }

  Impl& index_;
  WallTime now_;
  PlanLimits limits_;
  std::optional<Holds> holds_;
  Plan plan_;
  std::vector<std::pair<Placement, const JobRequest*>> taken_;
  std::map<ProjectId, Started> started_;
  std::map<std::pair<ProjectId, UserId>, UserRunning> started_user_;
  std::map<std::pair<ProjectId, UserId>, std::int64_t> started_dominant_;
  std::map<JobId, std::int32_t> started_array_;
  std::set<JobId> started_jobs_;                    // out of turn, by backfill
  std::set<JobId> asked_, waits_for_leavers_;
  std::map<JobId, std::vector<Placement>> own_;     // room held for these jobs
  std::vector<std::pair<Placement, Room>> pending_; // a hold found, not yet kept
  std::pair<JobRequest, WallTime> commit_;
  std::vector<std::pair<WallTime, const RunningJob*>> releases_;
  std::deque<RunningJob> started_now_;              // by this pass: they end too
  std::int64_t guaranteed_ = 0, firm_borrowed_ = 0;
  std::int32_t tries_ = 0;
  std::uint64_t pass_ = 0;
  int preemptors_ = 0, holds_tried_ = 0;
  bool head_held_ = false, blocked_ = false;
  bool stuck_ = false;                              // what was tried last found no room
};

}  // namespace

Plan plan(const SchedIndex& index, WallTime now, PlanLimits limits) { return Pass(index.impl(), now, limits).run(); }

}  // namespace billow::sched
