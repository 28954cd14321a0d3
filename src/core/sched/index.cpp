// The mutators of projects, queue and running jobs. Each folds one fact of the journal into the
// derived structures, in time independent of the number of nodes and jobs (except changed project
// settings, which touch the project's queued jobs).
#include "core/sched/index.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/sched/key.h"

namespace billow::sched {

std::int64_t gpu_milli_of(const JobRequest&, const std::vector<Placement>& placements) {
  std::int64_t milli = 0;
  for (const Placement& p : placements) {
    for (const GpuShare& g : p.gpus)
      milli += g.share.milli;
  }
  return milli;
}
std::int64_t gpu_milli_of(const JobRequest& request) {
  std::int64_t milli = 0;
  each_part(request, [&](const Resources& r, std::int32_t tasks) {
    milli += static_cast<std::int64_t>(tasks) * r.gpus * r.share.milli;
  });
  return milli;
}

std::int64_t asked_milli(const SchedIndex::Impl& index, const JobRequest& request) {
  if (!request.resources.takes_node())
    return gpu_milli_of(request);
  std::size_t gpus = 0;  // visits every node; few jobs ask for whole nodes
  for (const NodeState& n : index.nodes)
    gpus = std::max(gpus, n.shape.gpus.size());
  return static_cast<std::int64_t>(request.tasks) * static_cast<std::int64_t>(gpus) *
         whole_gpu_milli;
}

// ---- Projects

ProjectState& SchedIndex::Impl::project(ProjectId id) {
  ProjectState& p = projects[id];
  p.settings.id = id;
  p.usage.project = id;
  return p;
}

void SchedIndex::upsert_project(const ProjectSettings& settings) {
  Impl& x = *impl_;
  ProjectState& p = x.project(settings.id);
  const bool requeue = p.settings.policy != settings.policy ||
                       p.settings.regions != settings.regions || p.settings.pools != settings.pools;
  x.guaranteed_milli -= p.settings.guaranteed_milli;
  x.firm_borrowed_milli -= p.firm_borrowed_milli();
  p.settings = settings;
  x.guaranteed_milli += p.settings.guaranteed_milli;
  x.firm_borrowed_milli += p.firm_borrowed_milli();
  ++x.version;
  if (!requeue)
    return;
  std::vector<JobRequest> again;  // the class and rank of its jobs may have changed
  for (const auto& [id, job] : x.queued) {
    if (job.kind->proto.project == settings.id)
      again.push_back(x.request_of(id, job));
  }
  for (const JobRequest& job : again)
    x.enqueue(job);
}

void SchedIndex::set_usage(const Usage& usage) {
  ProjectState& p = impl_->project(usage.project);
  (usage.user ? p.had[usage.user].usage : p.usage) = usage;
  ++impl_->version;
}

void SchedIndex::Impl::accrue(Usage& usage, std::int64_t rate_milli, WallTime when) const {
  if (when <= usage.as_of)
    return;
  const double half = static_cast<double>(std::max<std::int64_t>(settings.usage_half_life.ns, 1));
  const double elapsed = static_cast<double>(when.ns - usage.as_of.ns);
  if (usage.as_of.ns == 0) {  // the first time: nothing ran before
    usage.as_of = when;
    return;
  }
  const double keep = std::exp2(-elapsed / half);
  const double tau_s = half / 1e9 / std::log(2.0);
  usage.milli_seconds =
      usage.milli_seconds * keep + static_cast<double>(rate_milli) * tau_s * (1.0 - keep);
  usage.as_of = when;
}

void SchedIndex::Impl::accrue(const JobRequest& request, WallTime when) {
  ProjectState& p = project(request.project);
  accrue(p.usage, p.rate_milli, when);
  UserHad& had = p.had[request.user];
  had.usage.project = request.project;
  had.usage.user = request.user;
  accrue(had.usage, had.rate_milli, when);
}

std::int64_t SchedIndex::Impl::dominant_milli(const JobRequest& r) const {
  // Resources are compared as fractions of the whole installation; the result is in GPU thousandths
  // (or node thousandths in an installation without GPUs).
  const double unit = total_milli > 0
                          ? static_cast<double>(total_milli)
                          : 1000.0 * static_cast<double>(std::max<std::size_t>(1, slot_of.size()));
  const auto part = [](std::int64_t asked, std::int64_t total) {
    return total > 0 ? static_cast<double>(asked) / static_cast<double>(total) : 0.0;
  };
  double sum = 0;
  each_part(r, [&](const Resources& each, std::int32_t tasks) {
    double share =
        part(static_cast<std::int64_t>(each.gpus) * std::max(each.share.milli, 1), total_milli);
    share = std::max(share, part(each.cpu_milli, total_cpu_milli));
    share = std::max(share, part(each.mem_mib, total_mem_mib));
    sum += share * unit * tasks;
  });
  return std::llround(sum);
}

void SchedIndex::Impl::account(const RunningJob& job, int sign) {
  ProjectState& p = project(job.request.project);
  const std::int64_t milli = gpu_milli_of(job.request, job.placements);
  p.rate_milli += sign * job.dominant_milli;
  p.had[job.request.user].rate_milli += sign * job.dominant_milli;
  p.running_milli += sign * milli;
  UserRunning& user = p.users[job.request.user];
  user.milli += sign * milli;
  user.jobs += sign;
  if (user.jobs == 0)
    p.users.erase(job.request.user);
  const bool gives_way = job.request.spot || job.request.yields != Yields::never;
  if (gives_way) {
    yielding += sign;
  } else {
    firm_borrowed_milli -= p.firm_borrowed_milli();
    p.firm_milli += sign * milli;
    firm_borrowed_milli += p.firm_borrowed_milli();
  }
  if (job.request.moves_after.ns > 0)
    movable += sign;
  if (job.request.spot)
    p.spot_milli += sign * milli;
  if (job.request.array) {
    if ((array_running[job.request.array] += sign) == 0)
      array_running.erase(job.request.array);
  }
}

WallTime end_of(const RunningJob& job) {
  const Duration d = job.request.time_limit.ns > 0 ? job.request.time_limit : job.request.expected;
  return d.ns > 0 ? job.started + d : WallTime{};
}
void SchedIndex::Impl::note_end(JobId id, const RunningJob& job) {
  if (const WallTime end = end_of(job); end || job.leaving)
    ending.emplace(job.leaving ? 0 : end.ns, id);
}
void SchedIndex::Impl::forget_end(JobId id, const RunningJob& job) {
  ending.erase({job.leaving ? 0 : end_of(job).ns, id});
}

// ---- Queue

std::uint64_t SchedIndex::Impl::rank_of(const JobRequest& job) {
  switch (project(job.project).settings.policy) {
    case OrderPolicy::fair:
    case OrderPolicy::fifo:
      return job.order;
    case OrderPolicy::shortest: {
      // The shorter job first, but no job waits without bound: a job may be passed only by jobs
      // submitted within `shortest_patience` times its own length after it. The rank does not
      // change with time, so nothing is sorted again.
      Duration d = job.expected.ns > 0 ? job.expected : job.time_limit;
      if (d.ns <= 0)
        d = limits::duration_assumed;
      d = std::min(d, limits::duration_ranked_max);
      return static_cast<std::uint64_t>(std::max<std::int64_t>(0, job.submitted.ns) +
                                        d.ns * limits::shortest_patience);
    }
  }
  return job.order;
}

PlacementClass class_of(const SchedIndex::Impl& index, const JobRequest& job) {
  PlacementClass c;
  c.resources = job.resources;
  c.constraints = job.constraints;
  if (auto it = index.projects.find(job.project); it != index.projects.end()) {
    c.home_regions = it->second.settings.regions;
    c.home_pools = it->second.settings.pools;
  }
  if (!job.resources.mig_profile.empty()) {
    if (auto profile = parse_mig_profile(job.resources.mig_profile))
      c.mig = *profile;
  }
  c.key = key_of(c.resources, c.constraints, c.home_regions, c.home_pools);
  std::int32_t first = 0;
  for (const RolePart& role : job.parts) {
    c.key += key_of(role);
    const auto member =
        std::make_shared<PlacementClass>(class_of(index, member_request(job, first)));
    c.members.insert(c.members.end(), static_cast<std::size_t>(std::max(role.tasks, 0)), member);
    first += role.tasks;
  }
  return c;
}

PlacementClass* SchedIndex::Impl::intern_class(const JobRequest& job) {
  PlacementClass c = class_of(*this, job);
  auto& held = classes[c.key];
  if (!held)
    held = std::make_unique<PlacementClass>(std::move(c));
  ++held->references;
  return held.get();
}

void SchedIndex::Impl::release_class(PlacementClass* c) {
  // An unused class keeps its node order for the next job like it. If too many are unused, all of
  // them are dropped at once.
  constexpr std::size_t classes_kept_max = 4096;
  --c->references;
  if (classes.size() > classes_kept_max)
    std::erase_if(classes, [](const auto& entry) { return entry.second->references == 0; });
}

Kind* SchedIndex::Impl::intern_kind(const JobRequest& job) {
  JobRequest proto = job;
  proto.id = {};
  proto.order = 0;
  proto.submitted = proto.eligible_at = {};
  proto.time_limit = proto.expected = proto.expected_max = {};
  const ProjectSettings& settings = project(job.project).settings;
  std::string key = key_of(proto, settings.regions, settings.pools);
  auto& held = kinds[key];
  if (!held) {
    held = std::make_unique<Kind>();
    held->proto = std::move(proto);
    held->key = std::move(key);
    held->placement = intern_class(job);
  }
  ++held->jobs;
  return held.get();
}

void SchedIndex::Impl::release_kind(Kind* kind) {
  if (--kind->jobs > 0)
    return;
  release_class(kind->placement);
  kinds.erase(std::string(kind->key));
}

void SchedIndex::Impl::make_ready(JobId id, const QueuedJob& job) {
  Kind& kind = *job.kind;
  const ReadyKey key{job.rank, id};
  if (!kind.ready.empty() && *kind.ready.begin() < key) {
    kind.ready.insert(kind.ready.end(), key);
    return;
  }
  auto& order = project(kind.proto.project).kinds;
  if (!kind.ready.empty())
    order.erase(KindKey{-kind.proto.priority, kind.ready.begin()->first, kind.ready.begin()->second,
                        &kind});
  kind.ready.insert(kind.ready.begin(), key);
  order.insert(KindKey{-kind.proto.priority, job.rank, id, &kind, job.submitted});
}

void SchedIndex::Impl::make_unready(JobId id, const QueuedJob& job) {
  Kind& kind = *job.kind;
  auto it = kind.ready.find({job.rank, id});
  BILLOW_CHECK(it != kind.ready.end(), "a ready job is in its kind's queue");
  const bool first = it == kind.ready.begin();
  kind.ready.erase(it);
  if (!first)
    return;
  auto& order = project(kind.proto.project).kinds;
  order.erase(KindKey{-kind.proto.priority, job.rank, id, &kind});
  if (kind.ready.empty())
    return;
  const auto& [rank, next] = *kind.ready.begin();
  order.insert(KindKey{-kind.proto.priority, rank, next, &kind, queued.at(next).submitted});
}

void SchedIndex::Impl::wake(WallTime now) {
  while (!sleeping.empty() && sleeping.begin()->first <= now.ns) {
    const JobId id = sleeping.begin()->second;
    sleeping.erase(sleeping.begin());
    make_ready(id, queued.at(id));
    ++version;
  }
}

JobRequest SchedIndex::Impl::request_of(JobId id, const QueuedJob& job) const {
  JobRequest r = job.kind->proto;
  r.id = id;
  r.order = job.order;
  r.submitted = job.submitted;
  r.eligible_at = job.eligible_at;
  r.time_limit = job.time_limit;
  r.expected = job.expected;
  r.expected_max = job.expected_max;
  return r;
}

void SchedIndex::enqueue(const JobRequest& job) {
  Impl& x = *impl_;
  const bool known = x.queued.contains(job.id);
  x.enqueue(job);
  if (known)
    return;
  bool changed = false;
  std::size_t seldom = 0;
  each_part(job, [&](const Resources& resources, std::int32_t tasks) {
    changed |= learn(x.learned, resources, tasks,
                     job.parts.empty() ? x.queued.at(job.id).kind->placement->learned_at : seldom);
  });
  if (changed && x.typical.empty())
    x.model.reset();
}
void SchedIndex::dequeue(JobId id) {
  impl_->dequeue(id);
}

void SchedIndex::Impl::enqueue(const JobRequest& job) {
  dequeue(job.id);
  QueuedJob q{.kind = intern_kind(job),
              .order = job.order,
              .rank = rank_of(job),
              .submitted = job.submitted,
              .eligible_at = job.eligible_at,
              .time_limit = job.time_limit,
              .expected = job.expected,
              .expected_max = job.expected_max};
  queued.emplace(job.id, q);
  if (job.eligible_at.ns > 0)
    sleeping.emplace(job.eligible_at.ns, job.id);  // plan() wakes it
  else
    make_ready(job.id, q);
  if (job.moves)
    moving.insert(job.id);
  ++version;
}

void SchedIndex::Impl::dequeue(JobId id) {
  auto it = queued.find(id);
  if (it == queued.end())
    return;
  if (sleeping.erase({it->second.eligible_at.ns, id}) == 0)
    make_unready(id, it->second);
  Kind* kind = it->second.kind;
  if (kind->proto.moves)
    moving.erase(id);
  queued.erase(it);
  release_kind(kind);
  ++version;
}

// ---- Running jobs

namespace {

void count_replica(SchedIndex::Impl& x, const JobRequest& request, NodeId node, int sign) {
  const std::uint64_t key = request.constraints.spread_key;
  if (key == 0)
    return;
  auto& nodes = x.spread_groups[key];
  if ((nodes[node] += sign) == 0)
    nodes.erase(node);
  if (nodes.empty())
    x.spread_groups.erase(key);
}

}  // namespace

void SchedIndex::started(JobId id, std::vector<Placement> placements, WallTime when) {
  Impl& x = *impl_;
  auto it = x.queued.find(id);
  if (it == x.queued.end())
    return;
  RunningJob job{.request = x.request_of(id, it->second),
                 .placements = std::move(placements),
                 .started = when};
  job.request.moves = false;  // it has arrived
  job.dominant_milli = x.dominant_milli(job.request);
  dequeue(id);
  restore_running(job);
}

void SchedIndex::restore_running(const RunningJob& job) {
  Impl& x = *impl_;
  const JobId id = job.request.id;
  BILLOW_CHECK(!x.running.contains(id), "a job starts once");
  x.accrue(job.request, job.started);
  x.account(job, +1);
  bool lost = false;
  for (std::size_t i = 0; i < job.placements.size(); ++i) {
    const Placement& p = job.placements[i];
    if (!p.node) {
      lost = lost || std::ranges::find(job.done, static_cast<std::int32_t>(i)) == job.done.end();
      continue;
    }
    x.take(p, job.request);
    count_replica(x, job.request, p.node, +1);
    if (NodeState* node = x.find(p.node))
      node->jobs.insert(std::upper_bound(node->jobs.begin(), node->jobs.end(), id), id);
  }
  if (lost && job.request.elastic)
    x.repairs.insert(id);
  if (job.leaving && job.leaving_for)
    x.leaving_for[job.leaving_for].insert(id);
  if (job.request.moves)
    x.moving.insert(id);
  x.note_end(id, job);
  x.running.emplace(id, job);
  ++x.version;
}

namespace {

void leave_node(SchedIndex::Impl& x, JobId id, const Placement& p, const JobRequest& request) {
  if (!p.node)
    return;
  x.give(p, request);
  count_replica(x, request, p.node, -1);
  if (NodeState* node = x.find(p.node)) {
    auto at = std::lower_bound(node->jobs.begin(), node->jobs.end(), id);
    if (at != node->jobs.end() && *at == id)
      node->jobs.erase(at);
  }
}

}  // namespace

void SchedIndex::member_lost(JobId id, std::int32_t task_index, WallTime when, bool replace) {
  Impl& x = *impl_;
  auto it = x.running.find(id);
  if (it == x.running.end())
    return;
  RunningJob& job = it->second;
  const auto i = static_cast<std::size_t>(task_index);
  if (task_index < 0 || i >= job.placements.size())
    return;
  const auto given_up = std::ranges::lower_bound(job.done, task_index);
  if (!job.placements[i].node) {  // already known; perhaps a replacement was due until now
    if (replace || (given_up != job.done.end() && *given_up == task_index))
      return;
    job.done.insert(given_up, task_index);
    if (static_cast<std::size_t>(std::ranges::count_if(
            job.placements, [](const Placement& p) { return !p.node; })) == job.done.size())
      x.repairs.erase(id);
    ++x.version;
    return;
  }
  x.accrue(job.request, when);
  x.account(job, -1);
  leave_node(x, id, job.placements[i], job.request);
  job.placements[i] = Placement{.node = {}, .was = job.placements[i].node};
  x.account(job, +1);
  // Sorted, whatever the order of ends: contents are canonical.
  if (!replace)
    job.done.insert(given_up, task_index);
  else if (job.request.elastic)
    x.repairs.insert(id);
  ++x.version;
}

void SchedIndex::member_replaced(JobId id, std::int32_t task_index, Placement placement) {
  Impl& x = *impl_;
  auto it = x.running.find(id);
  if (it == x.running.end())
    return;
  RunningJob& job = it->second;
  const auto i = static_cast<std::size_t>(task_index);
  if (task_index < 0 || i >= job.placements.size() || job.placements[i].node)
    return;
  x.account(job, -1);
  x.take(placement, job.request);
  count_replica(x, job.request, placement.node, +1);
  if (NodeState* node = x.find(placement.node))
    node->jobs.insert(std::upper_bound(node->jobs.begin(), node->jobs.end(), id), id);
  job.placements[i] = std::move(placement);
  x.account(job, +1);
  const auto gone = static_cast<std::size_t>(
      std::ranges::count_if(job.placements, [](const Placement& p) { return !p.node; }));
  if (gone == job.done.size())
    x.repairs.erase(id);
  ++x.version;
}

namespace {

void forget_leaving(SchedIndex::Impl& x, JobId id, const RunningJob& job) {
  auto it = x.leaving_for.find(job.leaving_for);
  if (it == x.leaving_for.end())
    return;
  it->second.erase(id);
  if (it->second.empty())
    x.leaving_for.erase(it);
}

}  // namespace

void SchedIndex::leaving(JobId id, JobId for_job, bool moves) {
  auto it = impl_->running.find(id);
  if (it == impl_->running.end())
    return;
  stays(id);
  impl_->forget_end(id, it->second);
  it->second.leaving = true;
  it->second.leaving_for = for_job;
  it->second.request.moves = moves;
  if (moves)
    impl_->moving.insert(id);
  impl_->note_end(id, it->second);
  if (for_job)
    impl_->leaving_for[for_job].insert(id);
  ++impl_->version;
}

void SchedIndex::expected(JobId id, Duration likely, Duration at_most) {
  Impl& x = *impl_;
  const auto it = x.running.find(id);
  if (it == x.running.end())
    return;
  x.forget_end(id, it->second);
  it->second.request.expected = likely;
  it->second.request.expected_max = at_most;
  x.note_end(id, it->second);
  ++x.version;
}
void SchedIndex::stays(JobId id) {
  auto it = impl_->running.find(id);
  if (it == impl_->running.end())
    return;
  forget_leaving(*impl_, id, it->second);
  impl_->forget_end(id, it->second);
  it->second.leaving = false;
  it->second.leaving_for = {};
  if (std::exchange(it->second.request.moves, false))
    impl_->moving.erase(id);
  impl_->note_end(id, it->second);
  ++impl_->version;
}

void SchedIndex::ended(JobId id, WallTime when) {
  Impl& x = *impl_;
  auto it = x.running.find(id);
  if (it == x.running.end())
    return;
  RunningJob& job = it->second;
  x.accrue(job.request, when);
  x.account(job, -1);
  for (const Placement& p : job.placements)
    leave_node(x, id, p, job.request);
  x.repairs.erase(id);
  forget_leaving(x, id, job);
  if (job.request.moves)
    x.moving.erase(id);
  x.forget_end(id, job);
  x.running.erase(it);
  ++x.version;
}

void SchedIndex::upsert_reservation(const Reservation& reservation) {
  impl_->reservations[reservation.id] = reservation;
  ++impl_->version;
}
void SchedIndex::remove_reservation(ReservationId id) {
  impl_->reservations.erase(id);
  ++impl_->version;
}
void SchedIndex::left_reservation(JobId id) {
  const auto it = impl_->running.find(id);
  if (it == impl_->running.end())
    return;
  it->second.request.reservation = {};
  ++impl_->version;
}
void SchedIndex::set_typical(std::vector<std::pair<Resources, double>> classes) {
  impl_->typical = std::move(classes);
  impl_->model.reset();
  ++impl_->version;
}

}  // namespace billow::sched
