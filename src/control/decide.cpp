// Each command's decision, one function each. They read the state, add up the events, and change nothing.
#include "control/decide.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/text.h"
#include "control/cron.h"
#include "wire/codec.h"

namespace billow::control {
namespace {

using Events = std::vector<EventBody>;
using Decision = Result<Events>;

// A TaskEnded with the lease closed at a time that both sides' clocks allow: not before it began, not in the future.
TaskEnded end_task(const Task& task, ExitStatus exit, TaskUsage usage, WallTime ended_at, WallTime now) {
  WallTime to = ended_at ? std::min(ended_at, now) : now;
  to = std::max(to, task.lease_from);
  return {.task = task.id, .exit = std::move(exit), .usage = usage, .lease_to = to, .cost = ledger::lease_cost(task, to)};
}

ExitStatus lost(std::string why) { return {.kind = ExitKind::lost, .code = 0, .signal = 0, .message = std::move(why)}; }

struct Decider {
  const State& state;
  const Context& context;

  Decision operator()(const StartHead& c) {
    Events events;
    events.push_back(HeadStarted{c.version, c.epoch});
    // Ids are handed out here one after the other, because none of these events has been applied yet.
    std::uint64_t next_token = state.next_token;
    UserId admin;
    if (const User* found = state.user_by_name(c.admin)) admin = found->id;
    if (!admin) {
      admin = UserId(state.next_user);
      events.push_back(UserAdded{{.id = admin, .name = c.admin, .unix_name = c.admin, .role = Role::admin}});
    }
    if (state.projects.empty()) {
      Project project{.id = ProjectId(state.next_project), .name = "default", .members = {{c.admin, Role::admin}}};
      events.push_back(ProjectAdded{project});
    }
    const auto token = [&](const std::string& name, const std::string& hash, TokenScope scope) {
      if (hash.empty() || state.token_by_hash.contains(hash)) return;
      for (const auto& [id, old] : state.tokens) if (old.name == name) events.push_back(TokenRevoked{id});
      events.push_back(TokenCreated{{.id = TokenId(next_token++), .name = name, .hash = hash, .user = admin, .scope = scope,
                                     .project = {}, .created_at = context.now, .expires_at = {}}});
    };
    token("local", c.admin_token_hash, TokenScope::full);
    token("local-node", c.node_token_hash, TokenScope::node);
    return events;
  }

  // ---- jobs
  Result<ProjectId> project_for(const std::string& name, UserId user) {
    if (!name.empty()) {
      const Project* project = state.project_by_name(name);
      if (!project) {
        std::vector<std::string> names;
        for (const auto& [id, p] : state.projects) names.push_back(p.name);
        const std::string near = nearest(name, names);
        return fail(Code::not_found, fmt::format("there is no project \"{}\"", name),
                    near.empty() ? "see `billow project list`" : fmt::format("did you mean \"{}\"?", near));
      }
      return project->id;
    }
    // Of several the first one may submit to; one may look at more of them than one may use.
    const auto& user_name = state.users.at(user).name;
    bool looks = false;
    for (const auto& [id, project] : state.projects) {
      const auto member = project.members.find(user_name);
      if (member == project.members.end()) continue;
      if (member->second != Role::viewer || state.users.at(user).role == Role::admin) return id;
      looks = true;
    }
    if (looks) return fail(Code::forbidden, fmt::format("user {} may only look", user_name), "an admin can change that: billow project member PROJECT USER --role member");
    return fail(Code::forbidden, fmt::format("user {} belongs to no project", user_name),
                "an admin can add you: billow project member PROJECT USER --role member");
  }

  // The events of a submission that takes the numbers from `first` on. `spec` is checked already.
  void submit_events(Events& events, JobId first, JobSpec spec, const Environment& env, ProjectId project, UserId user,
                     std::uint32_t waiting_for, std::string key) {
    if (!env.empty()) {
      spec.env_digest = sha256_hex(wire::to_json_text(env)).substr(0, 32);
      if (!state.environments.contains(spec.env_digest)) events.push_back(EnvironmentStored{spec.env_digest, env});
    }
    const std::uint64_t count = spec.array ? spec.array->count() + 1 : 1;
    events.push_back(JobsSubmitted{.first = first, .count = count, .spec = std::make_shared<const JobSpec>(std::move(spec)),
                                   .project = project, .user = user, .waiting_for = waiting_for, .idempotency_key = std::move(key)});
  }

  Decision operator()(const SubmitJob& c) {
    const auto user = state.users.find(c.user);
    if (user == state.users.end()) return fail(Code::unauthorized, "the submitting user is not known");
    std::string key;
    if (!c.idempotency_key.empty()) {
      key = fmt::format("{}:{}", user->second.name, c.idempotency_key);
      if (state.job_by_key.contains(key)) return Events{};  // the shell answers with the first submission's number
    }
    const ProjectId project = BILLOW_TRY(project_for(c.project, c.user));
    JobSpec spec = c.spec;
    spec.env_digest.clear();  // ours to give: one that was sent could name somebody else's environment
    BILLOW_TRY_VOID(validate(spec));
    BILLOW_TRY_VOID(admissible(state, spec));
    std::size_t env_bytes = 0;
    for (const auto& [name, value] : c.env) env_bytes += name.size() + value.size() + 2;
    if (env_bytes > limits::env_bytes_max)
      return fail(Code::too_large, fmt::format("the environment has {} bytes, more than {}", env_bytes, limits::env_bytes_max));
    if (state.jobs.size() + (spec.array ? spec.array->count() : 1) > limits::queued_jobs_max)
      return fail(Code::exhausted, fmt::format("the queue is full ({} jobs)", state.jobs.size()), "wait for some to finish");

    std::uint32_t waiting_for = 0;
    for (const Dependency& d : spec.after) {
      if (state.jobs.contains(d.job) || state.arrays.contains(d.job)) { ++waiting_for; continue; }
      const auto done = c.finished.find(d.job);
      if (done == c.finished.end())
        return fail(Code::not_found, fmt::format("--after {}: there is no such job", d.job.value), "see `billow ps -a`");
      const bool ok = done->second == JobState::succeeded;
      if (d.kind != AfterKind::any && (d.kind == AfterKind::ok) != ok)
        return fail(Code::conflict, fmt::format("--after {}: that job has ended {}, so this one could never start", d.job.value, enum_name(done->second)),
                    "use --after any:ID to start whatever its end");
    }
    Events events;
    submit_events(events, JobId(state.next_job), std::move(spec), c.env, project, c.user, waiting_for, std::move(key));
    return events;
  }

  void stop_one(Events& events, const Job& job, const StopJob& c) {
    const std::string reason = c.reason.empty() ? "stopped by request" : c.reason;
    switch (job.state) {
      case JobState::held:
      case JobState::queued:
      case JobState::suspended:
        events.push_back(JobEnded{job.id, JobState::stopped, {.kind = ExitKind::stopped}, reason});
        return;
      case JobState::running:
        // Asking again is how one escalates: a forced stop goes out even when a gentle one is under way.
        if (job.stopping == StopCause::request && !c.force) return;
        events.push_back(JobStopping{job.id, reason, StopCause::request, c.force});
        return;
      case JobState::succeeded:
      case JobState::failed:
      case JobState::stopped:
      case JobState::lost: return;
    }
  }
  Decision operator()(const StopJob& c) {
    Events events;
    if (const Job* job = state.find_job(c.job)) {
      stop_one(events, *job, c);
      return events;
    }
    const auto array = state.arrays.find(c.job);
    if (array == state.arrays.end()) return fail(Code::not_found, fmt::format("there is no live job {}", c.job.value));
    // Waiting elements end first, so that none starts in the room its sibling leaves.
    const auto begin = state.jobs.lower_bound(JobId(c.job.value + 1));
    const auto end = state.jobs.upper_bound(JobId(c.job.value + array->second.count));
    for (auto at = begin; at != end; ++at) if (at->second.state != JobState::running) stop_one(events, at->second, c);
    for (auto at = begin; at != end; ++at) if (at->second.state == JobState::running) stop_one(events, at->second, c);
    return events;
  }

  // ---- agents
  void report_events(Events& events, const Task& task, const TaskStatus& status) {
    if (task.state == TaskState::ended) return;
    switch (status.state) {
      case TaskState::ended:
        events.push_back(end_task(task, status.exit, status.usage, status.ended_at, context.now));
        std::get<TaskEnded>(events.back()).never_began = status.never_began;
        return;
      case TaskState::running:
        if (!task.started_at) events.push_back(TaskStarted{task.id, status.started_at ? status.started_at : context.now});
        return;
      case TaskState::starting:
      case TaskState::suspending:
      case TaskState::suspended:
      case TaskState::resuming:
      case TaskState::stopping:
      case TaskState::unreachable: return;
    }
  }
  Decision operator()(const AgentReport& c) {
    Events events;
    const Task* task = state.find_task(c.status.task);
    if (!task) return events;  // settled long ago; the shell acknowledges it
    if (task->node != c.node) return fail(Code::forbidden, fmt::format("a node reported task {} which is not its own", c.status.task.value));
    report_events(events, *task, c.status);
    return events;
  }
  Decision operator()(const AgentHello& c) {
    BILLOW_TRY_VOID(check_name("node", c.offer.name));
    Events events;
    const Node* node = state.node_by_name(c.offer.name);
    if (!node) {
      events.push_back(NodeJoined{{.id = NodeId(state.next_node), .offer = c.offer, .joined_at = context.now}});
      return events;
    }
    if (node->offer != c.offer) events.push_back(NodeOfferChanged{node->id, c.offer});
    if (!node->reachable) events.push_back(NodeReachable{node->id});
    const auto on = state.tasks_on.find(node->id);
    if (on == state.tasks_on.end()) return events;
    for (TaskId id : on->second) {
      const Task& task = state.tasks.at(id);
      const auto known = std::find_if(c.tasks.begin(), c.tasks.end(), [&](const TaskStatus& s) { return s.task == id; });
      if (known != c.tasks.end()) report_events(events, task, *known);
      else if (task.boot_id != c.offer.boot_id) {
        events.push_back(end_task(task, lost("its node restarted"), {}, {}, context.now));
        // A process leaves a directory, which the hello would have listed: without one, there was none.
        std::get<TaskEnded>(events.back()).never_began = !task.started_at;
      }
      else if (task.started_at) events.push_back(end_task(task, lost("its node no longer knows it"), {}, {}, context.now));
      // Placed and never seen: the start is sent again, which the task's directory makes safe.
    }
    return events;
  }
  Decision operator()(const NodeSilent& c) {
    const auto node = state.nodes.find(c.node);
    if (node == state.nodes.end() || !node->second.reachable) return Events{};
    return Events{NodeUnreachable{c.node}};
  }
  Decision operator()(const NodeFenced& c) {
    Events events;
    const auto node = state.nodes.find(c.node);
    const auto on = state.tasks_on.find(c.node);
    if (node == state.nodes.end() || node->second.reachable || on == state.tasks_on.end()) return events;
    for (TaskId id : on->second) {
      const Task& task = state.tasks.at(id);
      if (state.jobs.at(task.job).spec->rerun_if_lost) events.push_back(end_task(task, lost("its node does not answer"), {}, {}, context.now));
    }
    return events;
  }
  Decision operator()(const DrainNode& c) {
    const auto node = state.nodes.find(c.node);
    if (node == state.nodes.end()) return fail(Code::not_found, "there is no such node");
    if (node->second.drained == c.reason) return Events{};
    return Events{NodeDrained{c.node, c.reason}};
  }
  Decision operator()(const RemoveNode& c) {
    const auto node = state.nodes.find(c.node);
    if (node == state.nodes.end()) return fail(Code::not_found, "there is no such node");
    if (node->second.reachable) return fail(Code::conflict, fmt::format("node {} is connected", node->second.offer.name), "end its agent first");
    Events events;
    if (const auto on = state.tasks_on.find(c.node); on != state.tasks_on.end())
      for (TaskId id : on->second) events.push_back(end_task(state.tasks.at(id), lost("its node was removed"), {}, {}, context.now));
    events.push_back(NodeRemoved{c.node});
    return events;
  }

  // ---- time
  Decision operator()(const Tick&) {
    Events events;
    for (const auto& [at_ns, id] : state.backing_off) {
      if (at_ns > context.now.ns) break;
      events.push_back(JobReady{id});
    }
    std::uint64_t next_job = state.next_job;
    for (const auto& [id, schedule] : state.schedules) {
      if (!schedule.next_at || schedule.next_at > context.now) continue;
      const auto cron = parse_cron(schedule.cron);
      const WallTime next = cron ? next_match(*cron, context.now) : WallTime{};
      if (schedule.last_job && (state.jobs.contains(schedule.last_job) || state.arrays.contains(schedule.last_job))) {
        events.push_back(ScheduleFired{id, {}, next, fmt::format("job {} of the run before is still there", schedule.last_job.value)});
        continue;
      }
      events.push_back(ScheduleFired{id, JobId(next_job), next, ""});
      JobSpec spec = *schedule.spec;
      spec.labels["schedule"] = schedule.name;
      const std::uint64_t count = spec.array ? spec.array->count() + 1 : 1;
      submit_events(events, JobId(next_job), std::move(spec), {}, schedule.project, schedule.user, 0, "");
      next_job += count;
    }
    return events;
  }

  // ---- identity
  Decision operator()(const AddUser& c) {
    BILLOW_TRY_VOID(check_name("user", c.name));
    if (state.user_by_name(c.name)) return fail(Code::conflict, fmt::format("there is a user \"{}\" already", c.name));
    const std::string& unix_name = c.unix_name.empty() ? c.name : c.unix_name;
    // Root's jobs belong to whoever started Billow as root, and to nobody who is added later.
    if (unix_name == "root" || unix_name == "0")
      return fail(Code::invalid, fmt::format("user {} may not run jobs as root", c.name), "name an ordinary account of the nodes: --unix-name NAME");
    return Events{UserAdded{{.id = UserId(state.next_user), .name = c.name, .unix_name = unix_name, .role = c.role}}};
  }
  Decision operator()(const AddProject& c) {
    BILLOW_TRY_VOID(check_name("project", c.name));
    if (state.project_by_name(c.name)) return fail(Code::conflict, fmt::format("there is a project \"{}\" already", c.name));
    if (c.weight == 0 || c.weight > 1'000'000) return fail(Code::invalid, "a project's weight is between 1 and 1000000");
    Project project{.id = ProjectId(state.next_project), .name = c.name, .members = {}};
    project.weight = c.weight;
    return Events{ProjectAdded{std::move(project)}};
  }
  Decision operator()(const SetMember& c) {
    const Project* project = state.project_by_name(c.project);
    if (!project) return fail(Code::not_found, fmt::format("there is no project \"{}\"", c.project));
    if (!state.user_by_name(c.user)) return fail(Code::not_found, fmt::format("there is no user \"{}\"", c.user));
    return Events{MemberSet{project->id, c.user, c.role}};
  }
  Decision operator()(const CreateToken& c) {
    BILLOW_TRY_VOID(check_name("token", c.name));
    const User* user = state.user_by_name(c.user);
    if (!user) return fail(Code::not_found, fmt::format("there is no user \"{}\"", c.user));
    Token token{.id = TokenId(state.next_token), .name = c.name, .hash = c.hash, .user = user->id, .scope = c.scope, .project = {},
                .created_at = context.now, .expires_at = {}};
    if (c.scope == TokenScope::submit) token.project = BILLOW_TRY(project_for(c.project, user->id));
    if (c.life.ns > 0) token.expires_at = context.now + c.life;
    return Events{TokenCreated{std::move(token)}};
  }
  Decision operator()(const RevokeToken& c) {
    if (!state.tokens.contains(c.token)) return fail(Code::not_found, "there is no such token");
    return Events{TokenRevoked{c.token}};
  }

  // ---- schedules
  Decision operator()(const AddSchedule& c) {
    BILLOW_TRY_VOID(check_name("schedule", c.name));
    for (const auto& [id, s] : state.schedules)
      if (s.name == c.name) return fail(Code::conflict, fmt::format("there is a schedule \"{}\" already", c.name), "remove it first: billow schedule rm " + c.name);
    const Cron cron = BILLOW_TRY(parse_cron(c.cron));
    const WallTime next = next_match(cron, context.now);
    if (!next) return fail(Code::invalid, fmt::format("cron \"{}\" never matches", c.cron));
    BILLOW_TRY_VOID(validate(c.job.spec));
    BILLOW_TRY_VOID(admissible(state, c.job.spec));
    const ProjectId project = BILLOW_TRY(project_for(c.job.project, c.job.user));
    Events events;
    JobSpec spec = c.job.spec;
    spec.env_digest.clear();  // as for a job
    if (!c.job.env.empty()) {
      spec.env_digest = sha256_hex(wire::to_json_text(c.job.env)).substr(0, 32);
      if (!state.environments.contains(spec.env_digest)) events.push_back(EnvironmentStored{spec.env_digest, c.job.env});
    }
    events.push_back(ScheduleAdded{{.id = ScheduleId(state.next_schedule), .name = c.name, .cron = c.cron,
                                    .spec = std::make_shared<const JobSpec>(std::move(spec)), .project = project, .user = c.job.user,
                                    .next_at = next, .last_job = {}}});
    return events;
  }
  Decision operator()(const RemoveSchedule& c) {
    if (!state.schedules.contains(c.schedule)) return fail(Code::not_found, "there is no such schedule");
    return Events{ScheduleRemoved{c.schedule}};
  }
};

}  // namespace

Decision decide(const State& state, const Command& command, const Context& context) {
  return std::visit(Decider{state, context}, command);
}

std::vector<EventBody> carry_out(const State& state, const sched::Plan& plan, const Context& context) {
  Events events;
  std::uint64_t next_task = state.next_task;
  for (const sched::Start& start : plan.starts) {
    const Job& job = state.jobs.at(start.job);
    JobPlaced placed{.job = job.id, .tasks = {}};
    for (std::size_t rank = 0; rank < start.placements.size(); ++rank) {
      const sched::Placement& placement = start.placements[rank];
      const Node& node = state.nodes.at(placement.node);
      Task task;
      task.id = TaskId(next_task++);
      task.job = job.id;
      task.rank = static_cast<std::uint32_t>(rank);
      task.attempt = job.attempt + 1;
      task.node = placement.node;
      task.boot_id = node.offer.boot_id;
      for (const sched::GpuShare& share : placement.gpus) task.gpus.push_back({share.gpu, share.share, share.mig_start});
      task.cpu_milli = placement.cpu_milli;
      task.mem_mib = placement.mem_mib;
      task.lease_from = context.now;
      task.price_class = job.spec->spot ? PriceClass::spot : PriceClass::on_demand;
      if (!task.gpus.empty() && context.prices)
        task.rate = context.prices->rate(node.offer.gpus.at(static_cast<std::size_t>(task.gpus.front().gpu)).type, task.price_class);
      placed.tasks.push_back(std::move(task));
    }
    events.push_back(std::move(placed));
  }
  for (const sched::Preempt& preempt : plan.preempts) {
    if (state.jobs.at(preempt.victim).stopping != StopCause::none) continue;
    const std::string reason = preempt.for_job ? fmt::format("preempted by job {}", preempt.for_job.value) : "preempted by a reservation";
    events.push_back(JobStopping{preempt.victim, reason, StopCause::preempted, false, preempt.for_job});
  }
  return events;
}

Status validate(const JobSpec& spec) {
  const auto bad = [](std::string message, std::string hint = {}) { return fail(Code::invalid, std::move(message), std::move(hint)); };
  if (spec.argv.empty() || spec.argv.front().empty()) return bad("no command to run", "write it after --, as in: billow run -- python train.py");
  std::size_t bytes = 0;
  for (const auto& word : spec.argv) {
    bytes += word.size() + 1;
    if (word.find('\0') != std::string::npos || !valid_utf8(word)) return bad("the command has a word that is not UTF-8 text");
  }
  if (bytes > limits::argv_bytes_max) return fail(Code::too_large, fmt::format("the command has {} bytes, more than {}", bytes, limits::argv_bytes_max));
  if (!spec.name.empty()) BILLOW_TRY_VOID(check_name("job", spec.name));
  if (!spec.cwd.empty() && spec.cwd.front() != '/') return bad(fmt::format("the working directory \"{}\" is not absolute", spec.cwd));
  const Resources& r = spec.resources;
  if (r.gpus < 0 || r.gpus > 1024) return bad(fmt::format("{} GPUs per node are out of range", r.gpus));
  // Memory alone is a share too: the scheduler gives compute in proportion to it.
  if (r.gpus > 0 && (r.share.milli < (r.share.mem_mib > 0 ? 0 : 1) || r.share.milli > whole_gpu_milli)) return bad("a share of a GPU is between 0.001 and 1");
  if (r.gpus > 1 && !r.share.whole() && r.mig_profile.empty()) return bad("a fraction is of one GPU; several GPUs are whole ones", "ask for --gpus 0.5 or --gpus 2");
  if (r.gpus == 0 && (!r.gpu_types.empty() || r.share.mem_mib > 0)) return bad("a GPU type or GPU memory was given, but no GPU asked for", "add --gpus 1");
  if (r.cpu_milli < 0 || r.mem_mib < 0 || r.share.mem_mib < 0) return bad("resources cannot be negative");
  if (spec.nodes < 1 || spec.nodes > limits::nodes_per_job_max) return bad(fmt::format("--nodes must be between 1 and {}", limits::nodes_per_job_max));
  if (spec.time_limit.ns < 0) return bad("the time limit cannot be negative");
  if (spec.retries > limits::retries_max) return bad(fmt::format("--retries is at most {}", limits::retries_max));
  if (spec.retry_backoff.ns < 0 || spec.retry_backoff > hours(24)) return bad("the retry back-off must be between 0 and 24 h");
  if (spec.stop_grace.ns < 0 || spec.stop_grace > limits::stop_grace_max) return bad("the stop grace must be between 0 and 1 h");
  if (spec.after.size() > limits::dependencies_max) return bad(fmt::format("more than {} dependencies", limits::dependencies_max));
  for (std::size_t i = 0; i < spec.after.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (spec.after[i].job == spec.after[k].job) return bad(fmt::format("--after names job {} twice", spec.after[i].job.value));
  if (spec.labels.size() > limits::labels_max) return bad(fmt::format("more than {} labels", limits::labels_max));
  for (const auto& [key, value] : spec.labels) {
    BILLOW_TRY_VOID(check_name("label", key));
    if (value.size() > 256 || !valid_utf8(value)) return bad(fmt::format("the value of label {} is not text of at most 256 bytes", key));
  }
  if (spec.array) {
    const ArraySpec& a = *spec.array;
    if (a.step == 0 || a.last < a.first || a.last > 1'000'000'000 || a.count() > limits::array_elements_max)
      return bad(fmt::format("an array has between 1 and {} elements", limits::array_elements_max));
    if (a.running_max > static_cast<std::uint64_t>(INT32_MAX)) return bad("the array's limit of running elements is out of range");
    if (spec.pty) return bad("an array cannot have a terminal");
  }
  return {};
}

Status admissible(const State& state, const JobSpec& spec) {
  // Before the first node has joined nothing is known to be impossible; the job waits, and `explain` says for what.
  if (state.nodes.empty()) return {};
  Job job;
  job.id = JobId(state.next_job);
  job.spec = std::make_shared<const JobSpec>(spec);
  return sched::feasible(state.index, request_of(job));
}

Result<Principal> authenticate(const State& state, std::string_view token_hash, WallTime now) {
  const auto refused = [] {
    return fail(Code::unauthorized, "the token is not valid", "use the token that `billow up` wrote, or ask an admin for one: billow token create");
  };
  const auto found = state.token_by_hash.find(std::string(token_hash));
  if (found == state.token_by_hash.end()) return refused();
  const Token& token = state.tokens.at(found->second);
  if (token.expires_at && token.expires_at <= now)
    return fail(Code::unauthorized, fmt::format("the token \"{}\" expired at {}", token.name, format_utc(token.expires_at)), "ask an admin for a new one: billow token create");
  const auto user = state.users.find(token.user);
  if (user == state.users.end()) return refused();
  return Principal{.user = token.user, .name = user->second.name, .role = user->second.role, .scope = token.scope,
                   .project = token.project, .token = token.id};
}

std::optional<Role> role_in(const State& state, const Principal& principal, ProjectId project) {
  if (principal.scope == TokenScope::submit && principal.project != project) return std::nullopt;
  if (principal.role == Role::admin) return Role::admin;
  const auto found = state.projects.find(project);
  if (found == state.projects.end()) return std::nullopt;
  const auto member = found->second.members.find(principal.name);
  if (member == found->second.members.end()) return std::nullopt;
  return member->second;
}

}  // namespace billow::control
