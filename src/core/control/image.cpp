// The image of the state: what a snapshot stores and replay starts from. It holds the facts as
// plain tables without derived data (the scheduler's index, look-ups, counts), which `restore`
// rebuilds.
#include <algorithm>

#include "base/check.h"
#include "core/control/applier.h"
#include "core/control/decide/front_door.h"
#include "core/control/decide/notices.h"
#include "core/control/elastic.h"
#include "core/control/image.h"
#include "core/control/quotas.h"
#include "core/wire/codec.h"
#include "core/wire/text_reader.h"

namespace billow::control {
namespace {

struct EnvironmentImage {
  std::string digest;
  Environment env;
  std::uint64_t uses = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("digest", s.digest);
    v("env", s.env);
    v("uses", s.uses);
  }
};
// The elements of an array share one description, stored once; jobs refer to it by its index in the
// table.
struct JobImage {
  Job job;
  std::uint64_t spec = 0;
  // For a running job, from the scheduler: its weight in fair share, fixed when it started, and its
  // start by the wall clock. (Leases use the billing clock, and replaced members began later.)
  std::int64_t dominant_milli = 0;
  WallTime placed_at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("spec", s.spec);
    v("dominant_milli", s.dominant_milli);
    v("placed_ns", s.placed_at);
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
  std::vector<MachineBill> bills;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("next_pool", s.next_pool);
    v("next_machine", s.next_machine);
    v("pools", s.pools);
    v("machines", s.machines);
    v("bills", s.bills);
  }
};
struct LearnedKind {
  Resources resources;
  double weight = 0, window = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("resources", s.resources);
    v("weight", s.weight);
    v("window", s.window);
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
  std::vector<KeyUse> key_uses;
  std::vector<EnvironmentImage> environments;
  std::vector<IdempotencyKey> idempotency;
  std::vector<sched::Usage> usage;
  PoolImage pools;
  MoneyImage money;
  std::vector<Secret> secrets;
  std::vector<SavedEnvironment> saved_environments;
  std::vector<Volume> volumes;
  std::vector<HeadQuota> quotas;
  std::vector<Approval> approvals;
  std::uint64_t next_approval = 1;
  std::vector<CustomRole> roles;
  std::vector<Reservation> reservations;
  std::uint64_t next_reservation = 1;
  std::vector<Durations::Runs> durations;
  std::uint64_t durations_learned = 0;
  std::vector<LearnedKind> recent,
      typical;  // the typical workload, as learned by the scheduler's placement
  std::int64_t learned_tasks = 0, learned_next_at = 0;
  NoticeImage notices;
  FrontDoorImage front_door;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("seq", s.seq);
    v("at_ns", s.at);
    v("epoch", s.epoch);
    v("next", s.next);
    v("specs", s.specs);
    v("jobs", s.jobs);
    v("arrays", s.arrays);
    v("tasks", s.tasks);
    v("nodes", s.nodes);
    v("users", s.users);
    v("projects", s.projects);
    v("tokens", s.tokens);
    v("schedules", s.schedules);
    v("environments", s.environments);
    v("idempotency", s.idempotency);
    v("usage", s.usage);
    v("pools", s.pools);
    v("billed_ns", s.billed);
    v("money", s.money);
    v("reservations", s.reservations);
    v("next_reservation", s.next_reservation);
    v("durations", s.durations);
    v("durations_learned", s.durations_learned);
    v("recent", s.recent);
    v("typical", s.typical);
    v("learned_starts", s.learned_tasks);
    v("learned_next_at", s.learned_next_at);
    v("endpoints", s.endpoints);
    v("calls", s.calls);
    v("secrets", s.secrets);
    v("saved_environments", s.saved_environments);
    v("volumes", s.volumes);
    v("quotas", s.quotas);
    v("approvals", s.approvals);
    v("next_approval", s.next_approval);
    v("roles", s.roles);
    v("key_uses", s.key_uses);
    v("notices", s.notices);
    v("front_door", s.front_door);
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

template <class Key, class Value>
std::vector<Value> sorted_values_of(const std::unordered_map<Key, Value>& map) {
  std::vector<std::pair<Key, const Value*>> order;
  order.reserve(map.size());
  for (const auto& [key, value] : map)
    order.emplace_back(key, &value);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Value> out;
  out.reserve(map.size());
  for (const auto& [key, value] : order)
    out.push_back(*value);
  return out;
}

// A running job as the scheduler's index holds it; nothing if none of its tasks lives.
std::optional<sched::RunningJob> running_of(const State& state, const Job& job) {
  sched::RunningJob running;
  running.request = request_of(state, job);
  bool live = false;
  for (TaskId task_id : job.tasks) {
    const Task& task = state.tasks.at(task_id);
    sched::Placement placement;
    if (task.state != TaskState::ended) {
      live = true;
      placement = {.node = task.node,
                   .gpus = {},
                   .cpu_milli = task.cpu_milli,
                   .mem_mib = task.mem_mib,
                   .disk_mib = task.disk_mib};
      for (const GpuGrant& g : task.gpus)
        placement.gpus.push_back({g.gpu, g.share, g.mig_start});
    } else {
      placement.was = task.node;
      if (!is_replaceable(state, job, task))
        running.done.push_back(static_cast<std::int32_t>(task.rank));
    }
    running.started = task.lease_from;
    running.placements.push_back(std::move(placement));
  }
  running.leaving =
      job.stopping != StopCause::none || job.suspension.phase == SuspendPhase::suspending;
  running.leaving_for = job.gives_way_to;
  if (!live && !awaits_member(state, job))
    return std::nullopt;
  return running;
}

// Look-ups of one job, and its place in the scheduler's index.
void derive_job(State& state, const Job& job, const std::unordered_map<JobId, Placed>& placed) {
  ++state.count[job.state];
  if (const auto of = job.spec->labels.find(label_endpoint); of != job.spec->labels.end())
    state.replicas[of->second].insert(job.id);
  if (job.agent)
    state.agent_jobs[job.agent].insert(job.id);
  if (job.not_before)
    state.backing_off.insert({job.not_before.ns, job.id});
  const bool resumes = job.state == JobState::suspended && job.suspension.resume_wanted &&
                       job.stopping == StopCause::none;
  if (job.state == JobState::queued || resumes)
    state.index.enqueue(request_of(state, job));
  if (job.state == JobState::suspended)
    state.index.asleep(sleeper_of(state, job));
  if (job.state == JobState::running) {
    if (auto running = running_of(state, job)) {
      if (const auto then = placed.find(job.id); then != placed.end()) {
        running->dominant_milli = then->second.dominant_milli;
        if (then->second.at)  // older images do not have it
          running->started = then->second.at;
      }
      state.index.restore_running(*running);
    }
  }
  if (job.waiting_for == 0)
    return;
  for (const Dependency& d : job.spec->after)
    if (state.jobs.contains(d.job) || state.arrays.contains(d.job))
      state.dependents.add(d.job, job.id);
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
  for (const auto& [id, token] : state.tokens) {
    state.token_by_hash[token.hash] = id;
    if (!token.previous_hash.empty())
      state.token_by_hash[token.previous_hash] = id;
  }
  for (const auto& key : state.idempotency)
    state.job_by_key[key.key] = key.first;
  for (const auto& [id, job] : state.jobs)
    derive_job(state, job, placed);
  derive_holdings(state);
  for (const auto& u : usage)
    state.index.set_usage(u);
}

void image_jobs(const State& state, StateImage& out) {
  out.jobs.reserve(state.jobs.size());
  const Job* before = nullptr;
  for (const auto& [id, job] : state.jobs) {
    // Elements of an array follow one another. One whose labels were changed has its own.
    if (!before || !job.array || before->array != job.array || before->spec != job.spec)
      out.specs.push_back(*job.spec);
    const std::uint64_t spec = out.specs.size() - 1;
    before = &job;
    const sched::RunningJob* running = state.index.running(id);
    out.jobs.push_back({job, spec, running ? running->dominant_milli : 0,
                        running ? running->started : WallTime{}});
    out.jobs.back().job.spec.reset();
  }
}

Status restore_jobs(StateImage& in, State& state, std::unordered_map<JobId, Placed>& placed) {
  std::vector<std::shared_ptr<const JobSpec>> specs;
  for (JobSpec& spec : in.specs)
    specs.push_back(std::make_shared<const JobSpec>(std::move(spec)));
  for (JobImage& image : in.jobs) {
    if (image.dominant_milli != 0 || image.placed_at)
      placed[image.job.id] = {image.dominant_milli, image.placed_at};
    if (image.spec >= specs.size())
      return fail(Code::invalid, "the snapshot names a job description that it does not hold");
    image.job.spec = specs[image.spec];
    state.jobs.emplace_hint(state.jobs.end(), image.job.id, std::move(image.job));
  }
  return {};
}

// Tables whose rows know their own key.
void restore_tables(StateImage& in, State& state) {
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
  for (auto& x : in.endpoints)
    state.endpoints[x.name] = std::move(x);
  for (auto& x : in.calls)
    state.calls[x.id] = std::move(x);
  state.key_uses.insert(in.key_uses.begin(), in.key_uses.end());
  for (auto& x : in.secrets)
    state.secrets[{x.project, x.name}] = std::move(x);
  for (auto& x : in.saved_environments)
    state.saved_environments[{x.project, x.name}] = std::move(x);
  for (auto& x : in.volumes)
    state.volumes[x.name] = std::move(x);
  for (const auto& x : in.quotas)
    state.quotas[x.key] = x.limit;
  for (auto& x : in.approvals)
    state.approvals[x.id] = std::move(x);
  state.next_approval = in.next_approval;
  for (auto& x : in.roles)
    state.roles[x.name] = std::move(x);
  for (auto& x : in.environments)
    state.environments[x.digest] = {std::make_shared<const Environment>(std::move(x.env)), x.uses};
  for (auto& x : in.pools.pools) {
    complete(x);
    state.pools[x.id] = std::move(x);
  }
  for (auto& x : in.pools.machines)
    state.machines[x.name] = std::move(x);
}

sched::Learned learned_of(const StateImage& in) {
  sched::Learned learned;
  for (const LearnedKind& x : in.recent)
    learned.recent.push_back({x.resources, x.weight, x.window});
  for (const LearnedKind& x : in.typical)
    learned.typical.emplace_back(x.resources, x.weight);
  learned.tasks = in.learned_tasks;
  if (in.learned_next_at > 0)
    learned.next_at = in.learned_next_at;
  return learned;
}

Result<StateImage> read(std::string_view text) {
  auto in = BILLOW_TRY(wire::from_written_text<StateImage>(text));
  if (in.next.size() != 7)
    return fail(Code::invalid, "the snapshot's counters are not readable");
  return in;
}

Result<State> state_of(StateImage in, Money money) {
  State state;
  state.seq = in.seq;
  state.at = in.at;
  state.billed = in.billed ? in.billed : in.at;
  state.epoch = in.epoch;
  state.money = std::move(money);
  state.next_job = in.next[0];
  state.next_task = in.next[1];
  state.next_node = in.next[2];
  state.next_user = in.next[3];
  state.next_project = in.next[4];
  state.next_token = in.next[5];
  state.next_schedule = in.next[6];
  std::unordered_map<JobId, Placed> placed;
  BILLOW_TRY_VOID(restore_jobs(in, state, placed));
  restore_tables(in, state);
  state.next_reservation = in.next_reservation;
  state.next_pool = in.pools.next_pool;
  state.next_machine = in.pools.next_machine;
  state.machine_bills.assign(in.pools.bills.begin(), in.pools.bills.end());
  state.durations.restore(std::move(in.durations), in.durations_learned);
  state.idempotency.assign(in.idempotency.begin(), in.idempotency.end());
  rebuild_derived(state, in.usage, placed);
  state.index.set_learned(learned_of(in));
  state.notices = restore_notices(std::move(in.notices));
  state.front_door = restore_front_door(std::move(in.front_door));
  return state;
}

}  // namespace

std::string image(const State& state) {
  StateImage out;
  out.seq = state.seq;
  out.at = state.at;
  out.billed = state.billed;
  out.epoch = state.epoch;
  out.next = {state.next_job,     state.next_task,  state.next_node,    state.next_user,
              state.next_project, state.next_token, state.next_schedule};
  image_jobs(state, out);
  out.arrays = values_of(state.arrays);
  out.tasks = sorted_values_of(state.tasks);
  out.nodes = values_of(state.nodes);
  out.users = values_of(state.users);
  out.projects = values_of(state.projects);
  out.tokens = values_of(state.tokens);
  out.schedules = values_of(state.schedules);
  out.endpoints = values_of(state.endpoints);
  out.calls = values_of(state.calls);
  out.key_uses.assign(state.key_uses.begin(), state.key_uses.end());
  out.secrets = values_of(state.secrets);
  out.saved_environments = values_of(state.saved_environments);
  out.volumes = values_of(state.volumes);
  for (const auto& [key, limit] : state.quotas)
    out.quotas.push_back({key, limit});
  out.approvals = values_of(state.approvals);
  out.next_approval = state.next_approval;
  out.roles = values_of(state.roles);
  for (const auto& [digest, stored] : std::map<std::string, StoredEnvironment>(
           state.environments.begin(), state.environments.end()))
    out.environments.push_back({digest, stored.env ? *stored.env : Environment{}, stored.uses});
  out.idempotency.assign(state.idempotency.begin(), state.idempotency.end());
  out.pools = {state.next_pool,
               state.next_machine,
               values_of(state.pools),
               values_of(state.machines),
               {state.machine_bills.begin(), state.machine_bills.end()}};
  out.usage = state.index.contents().usage;
  out.money = image_of(state.money);
  out.reservations = values_of(state.reservations);
  out.next_reservation = state.next_reservation;
  out.durations = state.durations.contents();
  out.durations_learned = state.durations.learned();
  const sched::Learned& learned = state.index.learned();
  for (const auto& [resources, past, window] : learned.recent)
    out.recent.push_back({resources, past, window});
  for (const auto& [resources, weight] : learned.typical)
    out.typical.push_back({.resources = resources, .weight = weight});
  out.learned_tasks = learned.tasks;
  out.learned_next_at = learned.next_at;
  out.notices = image_of(state.notices);
  out.front_door = image_of(state.front_door);
  return wire::to_json_text(out, wire::Omit::zeros);
}

Result<State> restore(std::string_view text) {
  StateImage in = BILLOW_TRY(read(text));
  Money money = restore_money(std::move(in.money));
  return state_of(std::move(in), std::move(money));
}

Result<std::function<Result<State>()>> read_image(std::string_view text) {
  StateImage in = BILLOW_TRY(read(text));
  // Most of an image is money, of which a copy costs less than to make it from its image again.
  const auto money = std::make_shared<const Money>(restore_money(std::exchange(in.money, {})));
  return [in = std::make_shared<const StateImage>(std::move(in)), money] {
    return state_of(*in, *money);
  };
}

}  // namespace billow::control
