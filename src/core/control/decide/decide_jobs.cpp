// Decisions about jobs: submitting and stopping them.
#include "core/control/decide/decider.h"
#include "core/control/decide/permissions.h"
#include "core/control/decide/roles.h"
#include "core/control/quotas.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/wire/codec.h"

namespace billow::control {

Result<ProjectId> Decider::project_for(const std::string& name, UserId user) {
  if (!name.empty()) {
    const Project* project = state.project_by_name(name);
    if (!project) {
      std::vector<std::string> names;
      const User& asks = state.users.at(user);  // errors name only projects this user may see
      for (const auto& [id, p] : state.projects)
        if (p.members.contains(asks.name) || !permissions_in(state, asks, id).empty())
          names.push_back(p.name);
      const std::string near = nearest(name, names);
      return fail(
          Code::not_found, fmt::format("there is no project \"{}\"", name),
          near.empty() ? "see `billow project list`" : fmt::format("did you mean \"{}\"?", near));
    }
    return project->id;
  }
  return default_project(state, user);
}

// The events of a submission that takes the numbers from `first` on. `spec` has been checked.
void Decider::submit_events(Events& events,
                            JobId first,
                            JobSpec spec,
                            const Environment& env,
                            ProjectId project,
                            UserId user,
                            std::uint32_t waiting_for,
                            std::string key,
                            TokenId agent) {
  if (!env.empty()) {
    spec.env_digest = sha256_hex(wire::to_json_text(env)).substr(0, 32);
    if (!state.environments.contains(spec.env_digest))
      events.push_back(EnvironmentStored{spec.env_digest, env});
  }
  const std::uint64_t count = spec.array ? spec.array->count() + 1 : 1;
  const Expectation expected = state.durations.expect(project, spec);
  events.push_back(JobsSubmitted{.first = first,
                                 .count = count,
                                 .spec = std::make_shared<const JobSpec>(std::move(spec)),
                                 .project = project,
                                 .user = user,
                                 .waiting_for = waiting_for,
                                 .idempotency_key = std::move(key),
                                 .expected = expected,
                                 .agent = agent});
}

Result<std::uint32_t> Decider::unmet_dependencies(const JobSpec& spec,
                                                  const std::map<JobId, JobState>& finished) {
  std::uint32_t waiting_for = 0;
  for (const Dependency& d : spec.after) {
    if (state.jobs.contains(d.job) || state.arrays.contains(d.job)) {
      ++waiting_for;
      continue;
    }
    const auto done = finished.find(d.job);
    if (done == finished.end())
      return fail(Code::not_found, fmt::format("--after {}: there is no such job", d.job.value),
                  "see `billow ps -a`");
    const bool ok = done->second == JobState::succeeded;
    if (d.kind != AfterKind::any && (d.kind == AfterKind::ok) != ok)
      return fail(Code::conflict,
                  fmt::format("--after {}: that job has already {}, so this one could never start",
                              d.job.value, enum_name(done->second)),
                  "use --after any:ID to start however it ends");
  }
  return waiting_for;
}

namespace {

// "h100" is the type H100 of a node here. Jobs are many and so are nodes: the first node with the
// type ends the search, and others are told apart by the length of their names.
std::string spelled_here(const State& state, std::string type) {
  const std::string wanted = lower(type);
  for (const auto& [id, node] : state.nodes)
    for (const NodeGpu& gpu : node.offer.gpus)
      if (gpu.type.size() == type.size() && (gpu.type == type || lower(gpu.type) == wanted))
        return gpu.type;
  return type;
}

}  // namespace

Decision Decider::operator()(const SubmitJob& c) {
  const auto user = state.users.find(c.user);
  if (user == state.users.end())
    return fail(Code::unauthorized, "the submitting user does not exist");
  std::string key;
  if (!c.idempotency_key.empty()) {
    key = c.agent
              ? fmt::format("{} (agent {}):{}", user->second.name, c.agent.value, c.idempotency_key)
              : fmt::format("{}:{}", user->second.name, c.idempotency_key);
    // The shell answers with the number of the first submission.
    if (state.job_by_key.contains(key))
      return Events{};
  }
  const ProjectId project = BILLOW_TRY(project_for(c.project, c.user));
  JobSpec spec = c.spec;
  // Set by us alone: a submitted one could name another user's environment.
  spec.env_digest.clear();
  complete_roles(spec);
  for (std::string& type : spec.resources.gpu_types)
    type = spelled_here(state, type);
  for (RoleSpec& role : spec.roles)
    for (std::string& type : role.resources.gpu_types)
      type = spelled_here(state, type);
  if (spec.elastic)
    spec.rerun_if_lost = true;  // its members do restart
  // Far too many GPUs: naming the fleet's size is a better answer than a node's limit.
  if (spec.resources.gpus > static_cast<std::int32_t>(limits::gpus_per_node_max))
    BILLOW_TRY_VOID(admissible(state, spec, project));
  BILLOW_TRY_VOID(validate(spec));
  BILLOW_TRY_VOID(check_priority(spec, c.user, project));
  if (spec.checkpoint_every.ns > 0)
    spec.rerun_if_lost = true;  // the purpose of checkpoints
  if (spec.reservation) {
    const auto r = state.reservations.find(spec.reservation);
    if (r == state.reservations.end() || r->second.project != project)
      return fail(Code::not_found,
                  fmt::format("project {} has no reservation {}", state.projects.at(project).name,
                              spec.reservation.value),
                  "see `billow reserve list`");
  }
  BILLOW_TRY_VOID(check_surroundings(spec, project, c.user));
  BILLOW_TRY_VOID(admissible(state, spec, project));
  BILLOW_TRY_VOID(validate(c.env));
  if (state.jobs.size() + (spec.array ? spec.array->count() : 1) > limits::queued_jobs_max)
    return fail(Code::exhausted, fmt::format("the queue is full ({} jobs)", state.jobs.size()),
                "wait for some to finish");
  BILLOW_TRY_VOID(check_quotas(state, {.user = c.user,
                                       .project = project,
                                       .jobs = spec.array ? spec.array->count() : 1,
                                       .spec_bytes = spec_bytes(spec) + env_bytes(c.env)}));

  const std::uint32_t waiting_for = BILLOW_TRY(unmet_dependencies(spec, c.finished));
  Events events;
  std::optional<Commitment> limit;
  if (c.agent) {
    limit = BILLOW_TRY(agent_limit(events, c, spec, project));
    if (!limit)
      return events;  // a person was asked
    spec.time_limit = limit->time_limit;
  }
  const JobId first(state.next_job);
  submit_events(events, first, std::move(spec), c.env, project, c.user, waiting_for, std::move(key),
                c.agent);
  if (limit)
    commit_events(events, first, c.agent, *limit);
  return events;
}

void Decider::stop_one(Events& events, const Job& job, const StopJob& c) {
  const std::string reason = c.reason.empty() ? "stopped by request" : c.reason;
  switch (job.state) {
    case JobState::held:
    case JobState::queued:
      events.push_back(JobEnded{job.id, JobState::stopped, {.kind = ExitKind::stopped}, reason});
      return;
    case JobState::suspended:  // its frozen processes are stopped like running ones
    case JobState::running:
      // A second request escalates: a forced stop is sent even while a gentle one is under way.
      if (job.stopping != StopCause::request || c.force)
        events.push_back(JobStopping{job.id, reason, StopCause::request, c.force});
      // A silent node gets the order when it comes back; nobody waits for that, and nothing is
      // charged meanwhile.
      for (TaskId id : job.tasks) {
        const Task& task = state.tasks.at(id);
        // The node of a member that has ended may have been removed.
        if (task.state != TaskState::ended && !state.nodes.at(task.node).reachable)
          events.push_back(end_task(
              state, task,
              {.kind = ExitKind::stopped,
               .code = 143,
               .signal = 0,
               .message = "its node does not answer; the stop is sent when the node reconnects"},
              {}, {}, context));
      }
      return;
    case JobState::succeeded:
    case JobState::failed:
    case JobState::stopped:
    case JobState::lost:
      return;
  }
}

Decision Decider::operator()(const StopJob& c) {
  Events events;
  if (const Job* job = state.find_job(c.job)) {
    stop_one(events, *job, c);
    return events;
  }
  const auto array = state.arrays.find(c.job);
  if (array == state.arrays.end())
    return fail(Code::not_found, fmt::format("job {} has ended, or does not exist", c.job.value),
                "see `billow ps -a`");
  // Waiting elements end first, so that none starts in the capacity that its sibling frees.
  const auto begin = state.jobs.lower_bound(JobId(c.job.value + 1));
  const auto end = state.jobs.upper_bound(JobId(c.job.value + array->second.count));
  std::uint64_t waiting = 0;
  for (auto at = begin; at != end; ++at) {
    if (at->second.state == JobState::running)
      continue;
    stop_one(events, at->second, c);
    if (++waiting == c.elements_max)
      return events;
  }
  for (auto at = begin; at != end; ++at)
    if (at->second.state == JobState::running)
      stop_one(events, at->second, c);
  return events;
}

}  // namespace billow::control
