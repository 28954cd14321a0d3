// From a command to its decision, and from the scheduler's plan to events; what makes a job
// acceptable; whom a token speaks for.
#include "core/control/decide/decider.h"

#include <fmt/format.h>
#include <csignal>

#include "base/limits.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "core/control/money.h"
#include "core/wire/text_fields.h"

namespace billow::control {

Decision decide(const State& state, const Command& command, const Context& context) {
  return std::visit(Decider{state, context}, command);
}

namespace {

// One attempt of one rank, on the place the scheduler chose, with the price of today (or of its
// reservation) written into it.
Task make_task(const State& state,
               const Job& job,
               TaskId id,
               std::uint32_t rank,
               std::uint32_t attempt,
               const sched::Placement& placement,
               const Context& context) {
  const Node& node = state.nodes.at(placement.node);
  Task task;
  task.id = id;
  task.job = job.id;
  task.rank = rank;
  task.attempt = attempt;
  task.node = placement.node;
  task.boot_id = node.offer.boot_id;
  for (const sched::GpuShare& share : placement.gpus)
    task.gpus.push_back({share.gpu, share.share, share.mig_start});
  task.cpu_milli = placement.cpu_milli;
  task.mem_mib = placement.mem_mib;
  task.lease_from = context.billed;
  task.price_class = job.spec->spot ? PriceClass::spot : PriceClass::on_demand;
  if (const Reservation* r = reservation_of(state, job)) {
    task.reservation = r->id;
    task.price_class = PriceClass::reserved;
    task.rate = r->rate;
  } else if (!task.gpus.empty() && context.prices) {
    task.rate = charge_rate(
        state, node, node.offer.gpus.at(static_cast<std::size_t>(task.gpus.front().gpu)).type,
        task.price_class, context.prices);
  }
  return task;
}

}  // namespace

std::vector<EventBody> carry_out(const State& state,
                                 const sched::Plan& plan,
                                 const Context& context) {
  Events events;
  std::uint64_t next_task = state.next_task;
  Purse purse(state, context.billed);
  for (const sched::Start& start : plan.starts) {
    const Job& job = state.jobs.at(start.job);
    if (job.state == JobState::suspended) {
      JobResuming resuming = resume_event(state, job, start.placements.front(), context);
      std::int64_t milli = 0;
      for (const GpuGrant& grant : resuming.gpus)
        milli += grant.share.milli;
      if (const Status paid = purse.take(job, Rate{resuming.rate.nano_usd_per_s * milli / 1000});
          !paid)
        events.push_back(SuspensionChanged{job.id, SuspendCause::budget,
                                           fmt::format("budget: {}", paid.error().message), false});
      else
        events.push_back(std::move(resuming));
      continue;
    }
    JobPlaced placed{.job = job.id, .tasks = {}};
    for (std::size_t rank = 0; rank < start.placements.size(); ++rank)
      placed.tasks.push_back(make_task(state, job, TaskId(next_task++),
                                       static_cast<std::uint32_t>(rank), job.attempt + 1,
                                       start.placements[rank], context));
    if (const Status paid = purse.take(job, placed.tasks); !paid) {
      events.push_back(
          JobHeld{job.id, fmt::format("budget: {}", paid.error().message), rate_of(placed.tasks)});
      continue;
    }
    events.push_back(std::move(placed));
  }
  for (const sched::Repair& repair : plan.repairs) {
    const Job& job = state.jobs.at(repair.job);
    events.push_back(MemberReplaced{job.id, make_task(state, job, TaskId(next_task++),
                                                      static_cast<std::uint32_t>(repair.task_index),
                                                      job.attempt, repair.placement, context)});
  }
  for (const sched::Preempt& preempt : plan.preempts) {
    const Job& victim = state.jobs.at(preempt.victim);
    // One that is between two states is asked when it has arrived.
    if (victim.stopping != StopCause::none || victim.suspension.phase != SuspendPhase::none)
      continue;
    if (preempt.cause == sched::PreemptCause::consolidation &&
        (!victim.checkpoint.path.empty() || !victim.spec->spot)) {
      if (victim.checkpoint.path.empty())
        continue;  // it has nothing to go on from yet
      events.push_back(
          JobStopping{preempt.victim,
                      fmt::format("moves, so that {} fits; goes on from its newest checkpoint",
                                  other_job(state, victim, preempt.for_job)),
                      StopCause::moved, false, preempt.for_job});
      continue;
    }
    const std::string reason = preempt.for_job
                                   ? "preempted by " + other_job(state, victim, preempt.for_job)
                                   : "preempted by a reservation";
    if (suspendable(state, victim))
      events.push_back(suspend_event(victim, reason, SuspendCause::preempted, SuspendMode::warm,
                                     preempt.for_job));
    else
      events.push_back(
          JobStopping{preempt.victim, reason, StopCause::preempted, false, preempt.for_job});
  }
  return events;
}

std::string other_job(const State& state, const Job& job, JobId other) {
  const Job* found = state.find_job(other);
  return found && found->project == job.project ? fmt::format("job {}", other.value)
                                                : "another project's job";
}

Status Decider::check_priority(const JobSpec& spec, UserId user) {
  const auto found = state.users.find(user);
  if (found != state.users.end() && found->second.role == Role::admin)
    return {};
  if (spec.priority >= -priority_members_max && spec.priority <= priority_members_max)
    return {};
  return fail(
      Code::forbidden,
      fmt::format(
          "priority {} is for an admin of the installation: others choose between -{} and {}",
          spec.priority, priority_members_max, priority_members_max));
}

Status validate(const JobSpec& spec) {
  const auto bad = [](std::string message, std::string hint = {}) {
    return fail(Code::invalid, std::move(message), std::move(hint));
  };
  if (spec.argv.empty() || spec.argv.front().empty())
    return bad("no command to run", "write it after --, as in: billow run -- python train.py");
  std::size_t bytes = 0;
  for (const auto& word : spec.argv) {
    bytes += word.size() + 1;
    if (word.find('\0') != std::string::npos || !valid_utf8(word))
      return bad("the command has a word that is not UTF-8 text");
  }
  if (bytes > limits::argv_bytes_max)
    return fail(Code::too_large, fmt::format("the command has {} bytes, more than {}", bytes,
                                             limits::argv_bytes_max));
  if (const std::size_t all = wire::text_bytes(spec); all > limits::job_texts_bytes_max)
    return fail(
        Code::too_large,
        fmt::format(
            "the job's texts (its command, hooks, paths, labels) have {} in all, more than {}",
            format_bytes(all), format_bytes(limits::job_texts_bytes_max)),
        "put long scripts into files that the job reads");
  if (!spec.name.empty())
    BILLOW_TRY_VOID(check_spoken_name("job", spec.name));
  if (spec.cwd.find('\0') != std::string::npos || !valid_utf8(spec.cwd))
    return bad("the working directory is not UTF-8 text");
  if (!spec.cwd.empty() && spec.cwd.front() != '/')
    return bad(fmt::format("the working directory \"{}\" is not absolute", spec.cwd));
  const Resources& r = spec.resources;
  if (r.gpus < 0 || r.gpus > static_cast<std::int32_t>(limits::gpus_per_node_max))
    return bad(fmt::format("{} GPUs per node are out of range", r.gpus),
               "more than one node's GPUs are asked for with --nodes N --gpus M");
  // Memory alone is a share too: the scheduler gives compute in proportion to it.
  if (r.gpus > 0 &&
      (r.share.milli < (r.share.mem_mib > 0 ? 0 : 1) || r.share.milli > whole_gpu_milli))
    return bad("a share of a GPU is between 0.001 and 1");
  if (r.gpus > 1 && !r.share.whole() && r.mig_profile.empty())
    return bad("a fraction is of one GPU; several GPUs are whole ones",
               "ask for --gpus 0.5 or --gpus 2");
  if (r.gpus == 0 && (!r.gpu_types.empty() || r.share.mem_mib > 0))
    return bad("a GPU type or GPU memory was given, but no GPU asked for", "add --gpus 1");
  if (r.cpu_milli < 0 || r.mem_mib < 0 || r.share.mem_mib < 0)
    return bad("resources cannot be negative");
  if (spec.nodes < 1 || spec.nodes > limits::nodes_per_job_max)
    return bad(fmt::format("--nodes must be between 1 and {}", limits::nodes_per_job_max));
  if (spec.procs < 1 || spec.procs > limits::procs_per_node_max)
    return bad(fmt::format("--procs must be between 1 and {}", limits::procs_per_node_max));
  if (spec.pty && spec.procs > 1)
    return bad("several processes cannot share a terminal", "leave --procs or the terminal away");
  if (spec.time_limit.ns < 0)
    return bad("the time limit cannot be negative");
  if (spec.time_limit > limits::time_named_max)
    return bad("the time limit is at most ten years", "without --time there is none");
  if (spec.retries > limits::retries_max)
    return bad(fmt::format("--retries is at most {}", limits::retries_max));
  if (spec.retry_backoff.ns < 0 || spec.retry_backoff > hours(24))
    return bad("the retry back-off must be between 0 and 24 h");
  if (spec.stop_grace.ns < 0 || spec.stop_grace > limits::stop_grace_max)
    return bad("the stop grace must be between 0 and 1 h");
  const bool slice =
      r.gpus > 0 && (!r.share.whole() || r.share.mem_mib > 0) && r.mig_profile.empty();
  if (!r.mig_profile.empty() && r.share.mem_mib > 0)
    return bad("a MIG instance has the memory of its profile", "leave --gpu-mem out, or --mig");
  if (spec.strict && !slice)
    return bad("--strict caps the share of a slice, and this job asks for none",
               "ask for a part of a GPU: --gpus 0.5 --strict");
  if (spec.time_sliced && !slice)
    return bad("--share time is about a slice of a GPU, and this job asks for none",
               "ask for a part of a GPU: --gpus 0.5 --share time");
  if (spec.strict && spec.time_sliced)
    return bad("--strict caps a share that --share time does not enforce", "give one of the two");
  if (spec.checkpoint_every.ns != 0) {
    if (spec.checkpoint_every > limits::time_named_max)
      return bad("the checkpoint interval is at most ten years");
    if (spec.checkpoint_every < seconds(1))
      return bad("the checkpoint interval is at least a second");
    if (spec.checkpoint_cmd.empty() == (spec.checkpoint_signal == 0))
      return bad("--checkpoint-every needs to know how to ask for one",
                 "give --checkpoint-cmd CMD or --checkpoint-signal USR1");
    if (spec.checkpoint_dir.empty() || spec.checkpoint_dir.front() != '/')
      return bad(
          "--checkpoint-every needs a place that outlives the node",
          "give --checkpoint-dir with the absolute path of a directory that every node sees");
    if (spec.nodes > 1)
      return bad("Billow keeps checkpoints of jobs on one node",
                 "let a job of several nodes write its own to shared storage");
  }
  if (spec.checkpoint_signal < 0 || spec.checkpoint_signal > 64)
    return bad("--checkpoint-signal is a signal's name or number");
  if (spec.checkpoint_signal == SIGKILL || spec.checkpoint_signal == SIGSTOP)
    return bad(
        fmt::format("no job can answer signal {} with a checkpoint: it {} it",
                    spec.checkpoint_signal, spec.checkpoint_signal == SIGKILL ? "kills" : "stops"),
        "use one that it can catch: --checkpoint-signal USR1");
  if (spec.after.size() > limits::dependencies_max)
    return bad(fmt::format("more than {} dependencies", limits::dependencies_max));
  for (std::size_t i = 0; i < spec.after.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (spec.after[i].job == spec.after[k].job)
        return bad(fmt::format("--after names job {} twice", spec.after[i].job.value));
  if (spec.labels.size() > limits::labels_max)
    return bad(fmt::format("more than {} labels", limits::labels_max));
  for (const auto& [key, value] : spec.labels) {
    BILLOW_TRY_VOID(check_name("label", key));
    if (key.starts_with(label_prefix))
      return bad(fmt::format("the label {} is one of Billow's own", key),
                 "choose a name that does not begin with \"billow.\"");
    if (value.size() > 256 || !valid_utf8(value))
      return bad(fmt::format("the value of label {} is not text of at most 256 bytes", key));
  }
  if (spec.node_labels.size() > limits::labels_max)
    return bad(fmt::format("more than {} node labels", limits::labels_max));
  for (const auto* names :
       {&spec.place.regions, &spec.place.zones, &spec.place.pools, &spec.place.fabrics}) {
    if (names->size() > limits::labels_max)
      return bad(fmt::format("more than {} places are named", limits::labels_max));
    for (const std::string& name : *names)
      BILLOW_TRY_VOID(check_name("place", name));
  }
  if (!spec.place.placement_group.empty())
    BILLOW_TRY_VOID(check_name("placement group", spec.place.placement_group));
  if (spec.elastic && spec.nodes < 2)
    return bad("an elastic job has at least two nodes", "add --nodes 2");
  if (spec.elastic && !spec.rerun_if_lost)
    return bad("an elastic job starts members again when a node is lost, so it must allow that",
               "add --rerun-if-lost");
  if (spec.reservation && spec.spot)
    return bad(
        "a job inside a reservation is not spot: nobody takes its room, and it pays the reserved "
        "price",
        "leave --spot out, or --reservation");
  if (spec.resources.takes_node() && !spec.resources.mig_profile.empty())
    return bad("a whole node is not given in MIG instances");
  if (spec.array) {
    const ArraySpec& a = *spec.array;
    if (a.step == 0 || a.last < a.first || a.last > 1'000'000'000 ||
        a.count() > limits::array_elements_max)
      return bad(fmt::format("an array has between 1 and {} elements", limits::array_elements_max));
    if (a.running_max > static_cast<std::uint64_t>(INT32_MAX))
      return bad("the array's limit of running elements is out of range");
    if (spec.pty)
      return bad("an array cannot have a terminal");
  }
  return {};
}

Status validate(const std::map<std::string, std::string>& env) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : env) {
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos)
      return fail(Code::invalid,
                  "the name of an environment variable is empty, or has = or a zero byte in it");
    if (value.find('\0') != std::string::npos)
      return fail(Code::invalid, fmt::format("the value of {} has a zero byte in it", name));
    bytes += name.size() + value.size() + 2;
  }
  if (bytes > limits::env_bytes_max)
    return fail(Code::too_large, fmt::format("the environment has {} bytes, more than {}", bytes,
                                             limits::env_bytes_max));
  return {};
}

Status admissible(const State& state, const JobSpec& spec, ProjectId project) {
  // Before the first node has joined nothing is known to be impossible; the job waits, and
  // `explain` says for what.
  if (state.nodes.empty())
    return {};
  Job job;
  job.id = JobId(state.next_job);
  job.spec = std::make_shared<const JobSpec>(spec);
  job.project = project;
  if (spec.array)
    job.array = job.id;
  const Status here = sched::feasible(state.index, request_of(state, job));
  // What no machine here could run, one that a pool brings may.
  if (!here && !spec.reservation && !state.pools.empty() && some_pool_could_run(state, spec))
    return {};
  return here;
}

Result<Principal> authenticate(const State& state, std::string_view token_hash, WallTime now) {
  const auto refused = [] {
    return fail(
        Code::unauthorized, "the token is not valid",
        "use the token that `billow up` wrote, or ask an admin for one: billow token create");
  };
  const auto found = state.token_by_hash.find(std::string(token_hash));
  if (found == state.token_by_hash.end())
    return refused();
  return principal_of(state, found->second, now);
}

Result<Principal> principal_of(const State& state, TokenId id, WallTime now) {
  const auto refused = [] {
    return fail(
        Code::unauthorized, "the token is not valid any more",
        "use the token that `billow up` wrote, or ask an admin for one: billow token create");
  };
  const auto found = state.tokens.find(id);
  if (found == state.tokens.end())
    return refused();
  const Token& token = found->second;
  // A session lives no longer than the token it came from.
  if (const auto parent = session_parent(token); parent && !principal_of(state, *parent, now))
    return fail(Code::unauthorized, "the session has ended with the token it came from",
                "sign in again: billow dashboard");
  if (token.expires_at && token.expires_at <= now)
    return fail(
        Code::unauthorized,
        fmt::format("the token \"{}\" expired at {}", token.name, format_utc(token.expires_at)),
        "ask an admin for a new one: billow token create");
  const auto user = state.users.find(token.user);
  if (user == state.users.end())
    return refused();
  return Principal{.user = token.user,
                   .name = user->second.name,
                   .role = user->second.role,
                   .scope = token.scope,
                   .project = token.project,
                   .token = token.id,
                   .pool = token.pool};
}

namespace {
constexpr std::string_view session_mark = "session:";
}
std::string session_hash(TokenId parent, std::string_view hash) {
  return fmt::format("{}{}:{}", session_mark, parent.value, hash);
}
std::optional<TokenId> session_parent(const Token& token) {
  const std::string_view text = token.hash;
  if (!text.starts_with(session_mark))
    return std::nullopt;
  const auto number = parse_int(
      text.substr(session_mark.size(), text.rfind(':') - session_mark.size()), 1, INT64_MAX);
  return number ? std::optional(TokenId(static_cast<std::uint64_t>(*number))) : std::nullopt;
}

std::optional<Role> role_in(const State& state, const Principal& principal, ProjectId project) {
  if (principal.scope == TokenScope::submit && principal.project != project)
    return std::nullopt;
  if (principal.role == Role::admin)
    return Role::admin;
  const auto found = state.projects.find(project);
  if (found == state.projects.end())
    return std::nullopt;
  const auto member = found->second.members.find(principal.name);
  if (member == found->second.members.end())
    return std::nullopt;
  return member->second;
}

}  // namespace billow::control
