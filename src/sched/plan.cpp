// One planning pass: projects in order of fairness, their kinds in order of priority and age, each tried once per state of
// the nodes. What the pass decides is taken from the index while it goes on and given back at the end, so that the caller
// sees an unchanged index.
#include "sched/plan.h"

#include <algorithm>
#include <queue>

#include "sched/index.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

// Running work counts as if it went on for this long: fairness answers to a start at once, not when usage has grown.
constexpr double foresight_s = 3600;

struct Front {
  std::int32_t priority_down;
  double share;            // usage over weight: the least served project first
  std::uint64_t rank;
  JobId job;
  Kind* kind;
  std::set<ReadyKey>::const_iterator at;
  bool operator>(const Front& o) const {
    return std::tie(priority_down, share, rank, job) > std::tie(o.priority_down, o.share, o.rank, o.job);
  }
};

class Pass {
 public:
  Pass(Impl& index, WallTime now, PlanLimits limits) : index_(index), now_(now), limits_(limits) {}

  Plan run() {
    index_.wake(now_);
    repair();
    fill();
    for (const auto& [placement, request] : taken_) index_.give(placement, request);
    if (!index_.sleeping.empty()) plan_.wake_at = WallTime{index_.sleeping.begin()->first};
    return std::move(plan_);
  }

 private:
  void take(const Placement& placement, const JobRequest& request) {
    index_.take(placement, request);
    taken_.emplace_back(placement, request);
  }

  void repair() {
    for (JobId id : index_.repairs) {
      const RunningJob& job = index_.running.at(id);
      if (job.leaving) continue;
      JobRequest request = job.request;
      for (const Placement& p : job.placements) {
        if (p.node) request.constraints.avoid_nodes.push_back(p.node);  // members of a gang are on different nodes
      }
      const PlacementClass c = class_of(index_, request);
      for (std::size_t i = 0; i < job.placements.size(); ++i) {
        if (job.placements[i].node) continue;
        std::vector<Placement> found = place(index_, c, 1);
        if (found.empty()) break;
        take(found[0], job.request);
        plan_.repairs.push_back({id, static_cast<std::int32_t>(i), std::move(found[0])});
        break;  // one member a pass: the next one must see where this one went
      }
    }
  }

  double share_of(const ProjectState& p) const {
    ProjectState copy;
    copy.usage = p.usage;
    copy.rate_milli = p.rate_milli;
    index_.accrue(copy, now_);
    const double running = static_cast<double>(p.rate_milli + (started_milli_.contains(p.settings.id) ? started_milli_.at(p.settings.id) : 0));
    return (copy.usage.milli_seconds + running * foresight_s) / static_cast<double>(std::max<std::int64_t>(1, p.settings.weight));
  }

  bool within_limits(const Kind& kind) const {
    const ProjectState& p = index_.projects.at(kind.proto.project);
    const ProjectSettings& s = p.settings;
    if (s.budget_exhausted) return false;
    const std::int64_t milli = gpu_milli_of(kind.proto);
    const auto extra = started_gpu_.find(s.id);
    const std::int64_t used = p.running_milli + (extra == started_gpu_.end() ? 0 : extra->second);
    if (s.limit_milli >= 0 && used + milli > s.limit_milli) return false;
    if (!s.may_borrow && used + milli > s.guaranteed_milli) return false;
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

  void start(const Front& front, std::vector<Placement> placements) {
    const JobRequest& proto = front.kind->proto;
    for (const Placement& p : placements) take(p, proto);
    started_milli_[proto.project] += index_.dominant_milli(proto);
    started_gpu_[proto.project] += gpu_milli_of(proto, placements);
    UserRunning& user = started_user_[{proto.project, proto.user}];
    user.milli += gpu_milli_of(proto, placements);
    ++user.jobs;
    if (proto.array) ++started_array_[proto.array];
    plan_.starts.push_back({front.job, std::move(placements), false});
  }

  void fill() {
    std::priority_queue<Front, std::vector<Front>, std::greater<>> fronts;
    for (const auto& [id, p] : index_.projects) {
      if (p.kinds.empty()) continue;
      const double share = share_of(p);
      for (const KindKey& k : p.kinds) {
        fronts.push({k.priority_down, share, k.rank, k.first, k.kind, k.kind->ready.begin()});
      }
    }
    std::int32_t tries = 0;
    while (!fronts.empty()) {
      Front front = fronts.top();
      fronts.pop();
      const double share = share_of(index_.projects.at(front.kind->proto.project));
      if (share > front.share) {  // something of its project started meanwhile
        front.share = share;
        fronts.push(front);
        continue;
      }
      if (static_cast<std::int32_t>(plan_.starts.size()) >= limits_.starts_max || tries >= limits_.tries_max) {
        plan_.more = true;
        return;
      }
      PlacementClass& c = *front.kind->placement;
      if (!within_limits(*front.kind) || no_room_.contains({&c, front.kind->proto.tasks})) continue;
      ++tries;
      std::vector<Placement> placements = place(index_, c, front.kind->proto.tasks);
      if (placements.empty()) {
        no_room_.insert({&c, front.kind->proto.tasks});  // the pass only takes room, so it stays so
        continue;
      }
      start(front, std::move(placements));
      if (++front.at != front.kind->ready.end()) {
        front.rank = front.at->first;
        front.job = front.at->second;
        fronts.push(front);
      }
    }
  }

  Impl& index_;
  WallTime now_;
  PlanLimits limits_;
  Plan plan_;
  std::vector<std::pair<Placement, JobRequest>> taken_;
  std::map<ProjectId, std::int64_t> started_milli_, started_gpu_;
  std::map<std::pair<ProjectId, UserId>, UserRunning> started_user_;
  std::map<JobId, std::int32_t> started_array_;
  std::set<std::pair<const PlacementClass*, std::int32_t>> no_room_;
};

}  // namespace

Plan plan(const SchedIndex& index, WallTime now, PlanLimits limits) { return Pass(index.impl(), now, limits).run(); }

}  // namespace billow::sched
