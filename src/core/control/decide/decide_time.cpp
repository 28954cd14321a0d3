// Decisions triggered by time: back-offs that end, schedules that fire; and commands on schedules.
#include "core/control/decide/decider.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "core/control/decide/cron.h"
#include "core/control/decide/roles.h"
#include "core/control/quotas.h"
#include "core/wire/codec.h"

namespace billow::control {
namespace {

// The creator of a schedule may have been removed from the project since.
bool may_still_submit(const State& state, const Schedule& schedule) {
  const auto user = state.users.find(schedule.user);
  return user != state.users.end() && user->second.state == UserState::active &&
         may_submit(state, user->second, schedule.project);
}

}  // namespace

Decision Decider::operator()(const Tick&) {
  Events events;
  for (const auto& [at_ns, id] : state.backing_off) {
    if (at_ns > context.now.ns)
      break;
    events.push_back(JobReady{id});
  }
  forget_calls(events);
  std::uint64_t next_job = state.next_job;
  std::map<TokenId, NanoUsd> committed;  // by schedules that fire in this tick
  for (const auto& [id, schedule] : state.schedules) {
    if (!schedule.next_at || schedule.next_at > context.now)
      continue;
    const auto cron = parse_cron(schedule.cron);
    const WallTime next = cron ? next_match(*cron, context.now) : WallTime{};
    if (schedule.last_job &&
        (state.jobs.contains(schedule.last_job) || state.arrays.contains(schedule.last_job))) {
      events.push_back(ScheduleFired{
          id,
          {},
          next,
          fmt::format("job {} of the previous run has not ended", schedule.last_job.value)});
      continue;
    }
    if (!may_still_submit(state, schedule)) {
      events.push_back(ScheduleFired{id, {}, next, "its user may no longer submit to the project"});
      continue;
    }
    JobSpec spec = *schedule.spec;
    const auto limit = schedule_limit(schedule, committed[schedule.agent]);
    if (!limit) {
      events.push_back(ScheduleFired{id, {}, next, limit.error().message});
      continue;
    }
    if (*limit)
      spec.time_limit = (*limit)->time_limit;
    if (const Status fits = check_quotas(state, {.user = schedule.user,
                                                 .project = schedule.project,
                                                 .jobs = spec.array ? spec.array->count() : 1,
                                                 .spec_bytes = spec_bytes(spec)});
        !fits) {
      events.push_back(ScheduleFired{id, {}, next, fits.error().message});
      continue;
    }
    events.push_back(ScheduleFired{id, JobId(next_job), next, ""});
    spec.labels["schedule"] = schedule.name;
    const std::uint64_t count = spec.array ? spec.array->count() + 1 : 1;
    submit_events(events, JobId(next_job), std::move(spec), {}, schedule.project, schedule.user, 0,
                  "", schedule.agent);
    if (*limit) {
      commit_events(events, JobId(next_job), schedule.agent, **limit);
      committed[schedule.agent] += (*limit)->amount;
    }
    next_job += count;
  }
  tick_reservations(events);
  tick_elastic(events);
  tick_agents(events);
  return events;
}

Decision Decider::operator()(const AddSchedule& c) {
  BILLOW_TRY_VOID(check_spoken_name("schedule", c.name));
  const ProjectId project = BILLOW_TRY(project_for(c.job.project, c.job.user));
  for (const auto& [id, s] : state.schedules)
    if (s.project == project && s.name == c.name)
      return fail(Code::conflict, fmt::format("schedule \"{}\" already exists", c.name),
                  "remove it first: billow schedule rm " + c.name);
  const Cron cron = BILLOW_TRY(parse_cron(c.cron));
  const WallTime next = next_match(cron, context.now);
  if (!next)
    return fail(Code::invalid, fmt::format("cron \"{}\" never matches", c.cron));
  JobSpec spec = c.job.spec;
  complete_roles(spec);
  if (spec.elastic)
    spec.rerun_if_lost = true;
  if (spec.reservation)
    return fail(Code::invalid,
                "a scheduled job cannot use a reservation, because later runs would start after it "
                "has ended");
  BILLOW_TRY_VOID(validate(spec));
  BILLOW_TRY_VOID(validate(c.job.env));
  BILLOW_TRY_VOID(check_priority(spec, c.job.user, project));
  BILLOW_TRY_VOID(check_surroundings(spec, project, c.job.user));
  BILLOW_TRY_VOID(admissible(state, spec, project));
  BILLOW_TRY_VOID(check_objects(state, c.job.user, project, context.now));
  BILLOW_TRY_VOID(check_quotas(state, {.user = c.job.user,
                                       .project = project,
                                       .jobs = 0,
                                       .spec_bytes = spec_bytes(spec) + env_bytes(c.job.env)}));
  if (c.job.agent) {
    BILLOW_TRY_VOID(check_agent_priority(spec));
    const Commitment limit = BILLOW_TRY(commitment(
        state, {.token = c.job.agent, .spec = spec, .project = project, .taken = {}}, context));
    if (needs_approval(state, c.job.agent, spec, limit))
      return fail(Code::forbidden,
                  "an agent's schedule cannot use secrets or cost more than the token allows for "
                  "one job",
                  "submit the job itself, which asks for approval; or let a person schedule it");
  }
  Events events;
  spec.env_digest.clear();  // as for a job
  if (!c.job.env.empty()) {
    spec.env_digest = sha256_hex(wire::to_json_text(c.job.env)).substr(0, 32);
    if (!state.environments.contains(spec.env_digest))
      events.push_back(EnvironmentStored{spec.env_digest, c.job.env});
  }
  events.push_back(ScheduleAdded{{.id = ScheduleId(state.next_schedule),
                                  .name = c.name,
                                  .cron = c.cron,
                                  .spec = std::make_shared<const JobSpec>(std::move(spec)),
                                  .project = project,
                                  .user = c.job.user,
                                  .next_at = next,
                                  .last_job = {},
                                  .agent = c.job.agent}});
  return events;
}

Decision Decider::operator()(const RemoveSchedule& c) {
  if (!state.schedules.contains(c.schedule))
    return fail(Code::not_found, "no such schedule");
  return Events{ScheduleRemoved{c.schedule}};
}

}  // namespace billow::control
