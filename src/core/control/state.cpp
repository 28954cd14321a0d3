// Look-ups, the scheduler's view, and the image of the state: what a snapshot stores and replay
// starts from.
#include "core/control/state.h"

#include "base/check.h"
#include "base/limits.h"
#include "core/control/decide/decide.h"
#include "core/control/elastic.h"
#include "core/sched/key.h"
#include "core/sched/mig.h"
#include "core/wire/codec.h"

namespace billow::control {
namespace {

// The state as plain tables. Derived parts are left out: `restore` rebuilds them.
struct EnvironmentImage {
  std::string digest;
  Environment env;
  std::uint64_t uses = 0;
  template <class V>
  void fields(V& v) {
    v("digest", digest);
    v("env", env);
    v("uses", uses);
  }
};
// Array elements share one spec, so an image names specs by their place in a table instead of
// writing each 100,000 times.
struct JobImage {
  Job job;
  std::uint64_t spec = 0;
  // Of a running one, as the scheduler knows it:
  std::int64_t dominant_milli =
      0;               // its weight in fair share, fixed by the installation as it was at its start
  WallTime placed_at;  // by the wall's clock, where leases go by that of bills; and members
                       // replaced since came later
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("spec", spec);
    v("dominant_milli", dominant_milli);
    v("placed_ns", placed_at);
  }
};
struct Placed {
  std::int64_t dominant_milli = 0;
  WallTime at;
};
struct PoolImage {
  std::uint64_t next_pool = 1, next_machine = 1;
  std::vector<Pool> pools;
  std::vector<Machine> machines;
  template <class V>
  void fields(V& v) {
    v("next_pool", next_pool);
    v("next_machine", next_machine);
    v("pools", pools);
    v("machines", machines);
  }
};
struct LearnedKind {
  Resources resources;
  double weight = 0;
  template <class V>
  void fields(V& v) {
    v("resources", resources);
    v("weight", weight);
  }
};
struct StateImage {
  Seq seq = 0;
  WallTime at;
  WallTime billed;
  Epoch epoch = 0;
  std::vector<std::uint64_t> next;
  std::vector<JobSpec> specs;
  std::vector<JobImage> jobs;
  std::vector<ArrayState> arrays;
  std::vector<Task> tasks;
  std::vector<Node> nodes;
  std::vector<User> users;
  std::vector<Project> projects;
  std::vector<Token> tokens;
  std::vector<Schedule> schedules;
  std::vector<Endpoint> endpoints;
  std::vector<AsyncCall> calls;
  std::vector<EnvironmentImage> environments;
  std::vector<IdempotencyKey> idempotency;
  std::vector<sched::Usage> usage;
  PoolImage pools;
  MoneyImage money;
  std::vector<Secret> secrets;
  std::vector<SavedEnvironment> saved_environments;
  std::vector<Volume> volumes;
  std::vector<Reservation> reservations;
  std::uint64_t next_reservation = 1;
  std::vector<Durations::Runs> durations;
  std::uint64_t durations_learned = 0;
  std::vector<LearnedKind> recent,
      typical;  // of the workload, as the scheduler's placement knows it
  std::int64_t learned_starts = 0, learned_next_at = 0;
  template <class V>
  void fields(V& v) {
    v("seq", seq);
    v("at_ns", at);
    v("epoch", epoch);
    v("next", next);
    v("specs", specs);
    v("jobs", jobs);
    v("arrays", arrays);
    v("tasks", tasks);
    v("nodes", nodes);
    v("users", users);
    v("projects", projects);
    v("tokens", tokens);
    v("schedules", schedules);
    v("environments", environments);
    v("idempotency", idempotency);
    v("usage", usage);
    v("pools", pools);
    v("billed_ns", billed);
    v("money", money);
    v("reservations", reservations);
    v("next_reservation", next_reservation);
    v("durations", durations);
    v("durations_learned", durations_learned);
    v("recent", recent);
    v("typical", typical);
    v("learned_starts", learned_starts);
    v("learned_next_at", learned_next_at);
    v("endpoints", endpoints);
    v("calls", calls);
    v("secrets", secrets);
    v("saved_environments", saved_environments);
    v("volumes", volumes);
  }
};

template <class Map>
auto values_of(const Map& map) {
  std::vector<typename Map::mapped_type> out;
  out.reserve(map.size());
  for (const auto& [key, value] : map)
    out.push_back(value);
  return out;
}

void rebuild_derived(State& state,
                     const std::vector<sched::Usage>& usage,
                     const std::unordered_map<JobId, Placed>& placed) {
  for (const auto& [id, project] : state.projects)
    state.index.upsert_project(settings_of(project));
  for (const auto& [id, reservation] : state.reservations) {
    state.index.upsert_reservation(reserved_of(reservation));
    state.reservation_ends.insert({reservation.until.ns, id});
  }
  for (const auto& [id, task] : state.tasks)
    if (task.state != TaskState::ended)
      state.tasks_on[task.node].insert(id);
  for (const auto& [id, node] : state.nodes)
    state.index.upsert_node(shape_of(state, node));
  for (const auto& [id, token] : state.tokens)
    state.token_by_hash[token.hash] = id;
  for (const auto& key : state.idempotency)
    state.job_by_key[key.key] = key.first;
  for (const auto& [id, job] : state.jobs) {
    ++state.count[job.state];
    if (const auto of = job.spec->labels.find(label_endpoint); of != job.spec->labels.end())
      state.replicas[of->second].insert(id);
    if (job.not_before)
      state.backing_off.insert({job.not_before.ns, id});
    const bool resumes = job.state == JobState::suspended && job.suspension.resume_wanted &&
                         job.stopping == StopCause::none;
    if (job.state == JobState::queued || resumes)
      state.index.enqueue(request_of(state, job));
    if (job.state == JobState::suspended)
      state.index.asleep(sleeper_of(state, job));
    if (job.state == JobState::running) {
      sched::RunningJob running;
      running.request = request_of(state, job);
      bool live = false;
      WallTime since;
      for (TaskId task_id : job.tasks) {
        const Task& task = state.tasks.at(task_id);
        sched::Placement placement;
        if (task.state != TaskState::ended) {
          live = true;
          placement = {
              .node = task.node, .gpus = {}, .cpu_milli = task.cpu_milli, .mem_mib = task.mem_mib};
          for (const GpuGrant& g : task.gpus)
            placement.gpus.push_back({g.gpu, g.share, g.mig_start});
        } else if (!is_replaceable(state, job, task)) {
          running.done.push_back(static_cast<std::int32_t>(task.rank));
        }
        since = task.lease_from;
        running.placements.push_back(std::move(placement));
      }
      running.started = since;
      if (const auto then = placed.find(id); then != placed.end()) {
        running.dominant_milli = then->second.dominant_milli;
        if (then->second.at)
          running.started = then->second.at;  // images written before this was kept do not say
      }
      running.leaving =
          job.stopping != StopCause::none || job.suspension.phase == SuspendPhase::suspending;
      running.leaving_for = job.gives_way_to;
      if (live)
        state.index.restore_running(running);
    }
    if (job.waiting_for == 0)
      continue;
    for (const Dependency& d : job.spec->after)
      if (state.jobs.contains(d.job) || state.arrays.contains(d.job))
        state.dependents.add(d.job, id);
  }
  for (const auto& u : usage)
    state.index.set_usage(u);
}

}  // namespace

const Job* State::find_job(JobId id) const {
  const auto found = jobs.find(id);
  return found == jobs.end() ? nullptr : &found->second;
}
const Task* State::find_task(TaskId id) const {
  const auto found = tasks.find(id);
  return found == tasks.end() ? nullptr : &found->second;
}
const User* State::user_by_name(std::string_view name) const {
  for (const auto& [id, user] : users)
    if (user.name == name)
      return &user;
  return nullptr;
}
const Project* State::project_by_name(std::string_view name) const {
  for (const auto& [id, project] : projects)
    if (project.name == name)
      return &project;
  return nullptr;
}
const Node* State::node_by_name(std::string_view name) const {
  for (const auto& [id, node] : nodes)
    if (node.offer.name == name)
      return &node;
  return nullptr;
}
const Environment& State::environment(const std::string& digest) const {
  static const Environment none;
  const auto found = environments.find(digest);
  return found == environments.end() || !found->second.env ? none : *found->second.env;
}

sched::Constraints constraints_of(const PlaceWish& wish) {
  sched::Constraints c;
  c.regions = wish.regions;
  c.zones = wish.zones;
  c.pools = wish.pools;
  c.fabrics = wish.fabrics;
  c.placement_group = wish.placement_group;
  c.close = wish.close;
  c.close_required = wish.close_required;
  c.nvlink_required = wish.nvlink_required;
  c.spread = wish.spread;
  return c;
}

sched::ProjectSettings settings_of(const Project& project) {
  const Quota& q = project.quota;
  sched::ProjectSettings s;
  s.id = project.id;
  s.name = project.name;
  s.weight = project.weight;
  s.guaranteed_milli = q.guaranteed_milli;
  s.limit_milli = q.limit_milli;
  s.user_limit_milli = q.user_limit_milli;
  s.user_running_max = q.user_running_max;
  s.may_borrow = q.may_borrow;
  s.policy = q.policy;
  s.regions = q.regions;
  s.pools = q.pools;
  return s;
}

sched::Sleeper sleeper_of(const State& state, const Job& job) {
  const Task& task = state.tasks.at(job.tasks.front());
  sched::Sleeper sleeper{.job = job.id, .node = task.node, .gpus = {}};
  for (const GpuGrant& g : task.gpus)
    sleeper.gpus.push_back(g.gpu);
  return sleeper;
}

const Reservation* reservation_of(const State& state, const Job& job) {
  const auto found = state.reservations.find(job.spec->reservation);
  return job.left_reservation || found == state.reservations.end() ? nullptr : &found->second;
}

sched::Reservation reserved_of(const Reservation& reservation) {
  sched::Reservation r{.id = reservation.id,
                       .project = reservation.project,
                       .from = reservation.from,
                       .until = reservation.until,
                       .placements = {}};
  for (const ReservedPlace& p : reservation.places) {
    sched::Placement placement{
        .node = p.node, .gpus = {}, .cpu_milli = p.cpu_milli, .mem_mib = p.mem_mib};
    for (const GpuGrant& g : p.gpus)
      placement.gpus.push_back({g.gpu, g.share, g.mig_start});
    r.placements.push_back(std::move(placement));
  }
  return r;
}

constexpr Duration move_after_min = minutes(10);  // a job is not moved more often than this

sched::JobRequest request_of(const State& state, const Job& job) {
  const JobSpec& spec = *job.spec;
  sched::JobRequest request;
  request.id = job.id;
  request.project = job.project;
  request.user = job.user;
  request.priority = spec.priority;
  request.submitted = job.submitted_at;
  request.order = job.id.value;
  request.resources = spec.resources;
  if (request.resources.cpu_milli == 0 && !request.resources.takes_node())
    request.resources.cpu_milli = limits::task_cpu_milli_assumed;
  request.tasks = static_cast<std::int32_t>(spec.nodes);
  request.constraints = constraints_of(spec.place);
  request.constraints.labels = spec.node_labels;
  // Elements of one array that spread keep apart from each other.
  if (job.array && spec.place.spread == Spread::spread)
    request.constraints.spread_key = job.array.value;
  // Replicas of an endpoint too: one lost node must not take them all.
  if (const auto of = spec.labels.find(label_endpoint); of != spec.labels.end()) {
    request.constraints.spread = Spread::spread;
    request.constraints.spread_key =
        sched::hash_text(of->second) | (std::uint64_t{1} << 63);  // apart from the keys of arrays
  }
  request.time_limit = spec.time_limit;
  request.expected = job.expected.likely;
  request.expected_max = job.expected.at_most;
  request.spot = spec.spot;
  if (job.spec->spot) {
    request.yields =
        could_be_suspended(*job.spec) ? sched::Yields::by_suspend : sched::Yields::by_requeue;
  }
  // A suspended image stays on its node; a checkpoint is seen by every node. So what checkpoints
  // can be moved, if it gives way anyway or was said to bear an interruption; when it has run long
  // enough to have one and not to be moved about all the time.
  if (spec.checkpoint_every.ns > 0 && spec.nodes == 1 &&
      (spec.spot || spec.suspendable == Suspendable::yes))
    request.moves_after = std::max(move_after_min, spec.checkpoint_every * 2);
  if (job.state == JobState::suspended) {
    const Task& task = state.tasks.at(job.tasks.front());
    request.constraints.only_nodes = {task.node};
    for (const GpuGrant& grant : task.gpus)
      request.constraints.only_gpus.push_back(grant.gpu);
    request.resources.mem_mib = 0;  // it holds that already
  }
  request.moves =
      job.stopping == StopCause::moved || (job.gives_way_to && job.state != JobState::running);
  request.array = job.array;
  request.array_running_max = job.array ? static_cast<std::int32_t>(spec.array->running_max) : 0;
  request.elastic = spec.elastic;
  if (!job.left_reservation)
    request.reservation = spec.reservation;  // also one that is over: it does not become another
                                             // kind of job by itself
  return request;
}

TaskState state_by_orders(const Job& job, const Task& task) {
  if (job.stopping != StopCause::none)
    return TaskState::stopping;
  switch (job.suspension.phase) {
    case SuspendPhase::none:
      return task.started_at ? TaskState::running : TaskState::starting;
    case SuspendPhase::suspending:
      return TaskState::suspending;
    case SuspendPhase::suspended:
      return TaskState::suspended;
    case SuspendPhase::resuming:
      return TaskState::resuming;
  }
  return TaskState::running;
}

std::string pool_name(const State& state, const Node& node) {
  if (const auto pool = state.pools.find(node.pool); pool != state.pools.end())
    return pool->second.name;
  const auto label = node.offer.labels.find("pool");
  return label == node.offer.labels.end() ? std::string() : label->second;
}

sched::NodeShape shape_of(const State& state, const Node& node) {
  sched::NodeShape shape;
  shape.id = node.id;
  shape.name = node.offer.name;
  for (const NodeGpu& gpu : node.offer.gpus) {
    sched::MigOffer mig = sched::parse_mig_offer(gpu.mig);
    shape.gpus.push_back({.type = gpu.type,
                          .memory_mib = gpu.mem_mib,
                          .nvlink_domain = gpu.nvlink_domain,
                          .healthy = node.gpu_trouble(gpu).empty(),
                          .mig_enabled = !gpu.mig.empty(),
                          .mig_any = mig.any,
                          .mig_places = std::move(mig.places)});
  }
  shape.cpu_milli = node.offer.cpu_milli;
  shape.mem_mib = node.offer.mem_mib;
  if (const auto on = state.tasks_on.find(node.id); on != state.tasks_on.end()) {
    for (TaskId id : on->second) {
      const Task& task = state.tasks.at(id);
      if (!task.holds_gpus())
        shape.mem_mib -= state.jobs.at(task.job).spec->resources.mem_mib;
    }
    shape.mem_mib = std::max<std::int64_t>(shape.mem_mib, 0);
  }
  shape.labels = node.offer.labels;
  const auto label = [&](const char* name) {
    const auto found = node.offer.labels.find(name);
    return found == node.offer.labels.end() ? std::string() : found->second;
  };
  shape.place = {.region = label("region"),
                 .zone = label("zone"),
                 .rack = label("rack"),
                 .switch_name = label("switch"),
                 .placement_group = label("placement-group"),
                 .fabric = label("fabric")};
  shape.pool = pool_name(state, node);
  if (!node.reachable)
    shape.use = sched::NodeUse::unreachable;
  else if (!node.drained.empty())
    shape.use = sched::NodeUse::draining;
  return shape;
}

std::string image(const State& state) {
  StateImage out;
  out.seq = state.seq;
  out.at = state.at;
  out.billed = state.billed;
  out.epoch = state.epoch;
  out.next = {state.next_job,     state.next_task,  state.next_node,    state.next_user,
              state.next_project, state.next_token, state.next_schedule};
  std::map<const JobSpec*, std::uint64_t> specs;
  out.jobs.reserve(state.jobs.size());
  for (const auto& [id, job] : state.jobs) {
    const auto [at, fresh] = specs.try_emplace(job.spec.get(), specs.size());
    if (fresh)
      out.specs.push_back(*job.spec);
    const sched::RunningJob* running = state.index.running(id);
    out.jobs.push_back({job, at->second, running ? running->dominant_milli : 0,
                        running ? running->started : WallTime{}});
    out.jobs.back().job.spec.reset();
  }
  out.arrays = values_of(state.arrays);
  for (const auto& [id, task] : std::map<TaskId, Task>(state.tasks.begin(), state.tasks.end()))
    out.tasks.push_back(task);
  out.nodes = values_of(state.nodes);
  out.users = values_of(state.users);
  out.projects = values_of(state.projects);
  out.tokens = values_of(state.tokens);
  out.schedules = values_of(state.schedules);
  out.endpoints = values_of(state.endpoints);
  out.calls = values_of(state.calls);
  out.secrets = values_of(state.secrets);
  out.saved_environments = values_of(state.saved_environments);
  out.volumes = values_of(state.volumes);
  for (const auto& [digest, stored] : std::map<std::string, StoredEnvironment>(
           state.environments.begin(), state.environments.end()))
    out.environments.push_back({digest, stored.env ? *stored.env : Environment{}, stored.uses});
  out.idempotency.assign(state.idempotency.begin(), state.idempotency.end());
  out.pools = {state.next_pool, state.next_machine, values_of(state.pools),
               values_of(state.machines)};
  out.usage = state.index.contents().usage;
  out.money = image_of(state.money);
  out.reservations = values_of(state.reservations);
  out.next_reservation = state.next_reservation;
  out.durations = state.durations.contents();
  out.durations_learned = state.durations.learned();
  const sched::Learned& learned = state.index.learned();
  for (const auto& [resources, weight] : learned.recent)
    out.recent.push_back({resources, weight});
  for (const auto& [resources, weight] : learned.typical)
    out.typical.push_back({resources, weight});
  out.learned_starts = learned.starts;
  out.learned_next_at = learned.next_at;
  return wire::to_json_text(out);
}

Result<State> restore(std::string_view text) {
  auto in = BILLOW_TRY(wire::from_json_text<StateImage>(text));
  if (in.next.size() != 7)
    return fail(Code::invalid, "the snapshot's counters are not readable");
  State state;
  state.seq = in.seq;
  state.at = in.at;
  state.billed = in.billed ? in.billed : in.at;
  state.epoch = in.epoch;
  state.money = restore_money(std::move(in.money));
  state.next_job = in.next[0];
  state.next_task = in.next[1];
  state.next_node = in.next[2];
  state.next_user = in.next[3];
  state.next_project = in.next[4];
  state.next_token = in.next[5];
  state.next_schedule = in.next[6];
  std::vector<std::shared_ptr<const JobSpec>> specs;
  for (JobSpec& spec : in.specs)
    specs.push_back(std::make_shared<const JobSpec>(std::move(spec)));
  std::unordered_map<JobId, Placed> placed;
  for (JobImage& image : in.jobs) {
    if (image.dominant_milli != 0 || image.placed_at)
      placed[image.job.id] = {image.dominant_milli, image.placed_at};
    if (image.spec >= specs.size())
      return fail(Code::invalid, "the snapshot names a job description it does not hold");
    image.job.spec = specs[image.spec];
    state.jobs.emplace_hint(state.jobs.end(), image.job.id, std::move(image.job));
  }
  for (auto& x : in.arrays)
    state.arrays[x.id] = std::move(x);
  for (auto& x : in.tasks)
    state.tasks[x.id] = std::move(x);
  for (auto& x : in.nodes)
    state.nodes[x.id] = std::move(x);
  for (auto& x : in.users)
    state.users[x.id] = std::move(x);
  for (auto& x : in.projects)
    state.projects[x.id] = std::move(x);
  for (auto& x : in.tokens)
    state.tokens[x.id] = std::move(x);
  for (auto& x : in.schedules)
    state.schedules[x.id] = std::move(x);
  for (auto& x : in.reservations)
    state.reservations[x.id] = std::move(x);
  state.next_reservation = in.next_reservation;
  state.durations.restore(std::move(in.durations), in.durations_learned);
  for (auto& x : in.endpoints)
    state.endpoints[x.name] = std::move(x);
  for (auto& x : in.calls)
    state.calls[x.id] = std::move(x);
  for (auto& x : in.secrets)
    state.secrets[{x.project, x.name}] = std::move(x);
  for (auto& x : in.saved_environments)
    state.saved_environments[{x.project, x.name}] = std::move(x);
  for (auto& x : in.volumes)
    state.volumes[x.name] = std::move(x);
  for (auto& x : in.environments)
    state.environments[x.digest] = {std::make_shared<const Environment>(std::move(x.env)), x.uses};
  state.next_pool = in.pools.next_pool;
  state.next_machine = in.pools.next_machine;
  for (auto& x : in.pools.pools)
    state.pools[x.id] = std::move(x);
  for (auto& x : in.pools.machines)
    state.machines[x.name] = std::move(x);
  state.idempotency.assign(in.idempotency.begin(), in.idempotency.end());
  rebuild_derived(state, in.usage, placed);
  sched::Learned learned;
  for (const LearnedKind& x : in.recent)
    learned.recent.emplace_back(x.resources, x.weight);
  for (const LearnedKind& x : in.typical)
    learned.typical.emplace_back(x.resources, x.weight);
  learned.starts = in.learned_starts;
  if (in.learned_next_at > 0)
    learned.next_at = in.learned_next_at;
  state.index.set_learned(learned);
  return state;
}

}  // namespace billow::control
