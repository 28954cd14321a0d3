// Endpoints: deployed revisions, and their replicas, which are jobs with a label of Billow's.
//
// The head keeps what must survive (revisions, keys, calls) and creates the jobs. The gateway
// decides how many there should be, which are healthy and whether a revision may take over, because
// only it sees the requests. A faulty gateway can start at most as many replicas as the endpoint's
// limit allows, and can stop only replicas.
#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/endpoint_policy.h"
#include "core/control/decide/front_door.h"
#include "core/control/decide/releases.h"
#include "core/control/quotas.h"
#include "core/model/endpoint_program.h"
#include "core/wire/codec.h"

namespace billow::control {
namespace {

// A client waits for an endpoint's answer, nobody for the start of a batch job.
constexpr std::int32_t replica_priority = 100;

}  // namespace

Result<const Endpoint*> Decider::endpoint_named(const std::string& name) {
  const auto found = state.endpoints.find(name);
  if (found != state.endpoints.end())
    return &found->second;
  std::vector<std::string> names;
  for (const auto& [n, e] : state.endpoints)
    names.push_back(n);
  const std::string near = nearest(name, names);
  return fail(Code::not_found, fmt::format("there is no endpoint \"{}\"", name),
              near.empty() ? "see `billow endpoints`" : fmt::format("did you mean \"{}\"?", near));
}

namespace {

Status check_replica(const JobSpec& spec) {
  if (spec.nodes != 1)
    return fail(Code::invalid, "a replica runs on one node", "drop --nodes");
  if (!spec.roles.empty())
    return fail(Code::invalid, "an endpoint cannot have roles",
                "submit the group as a job, or deploy each role as an endpoint");
  if (spec.array || !spec.after.empty() || spec.pty || spec.use_stdin)
    return fail(Code::invalid, "an endpoint cannot be an array, depend on jobs or have a terminal");
  if (spec.time_limit.ns > 0)
    return fail(Code::invalid, "an endpoint has no time limit",
                "drop --time; --timeout limits a request, --idle and --keep limit idle replicas");
  if (spec.reservation)
    return fail(Code::invalid,
                "an endpoint cannot use a reservation: its replicas could not restart after it",
                "drop --reservation");
  return {};
}

Status check_no_canary(const Endpoint& e, const ReleasePlan& plan) {
  if (const Revision* canary = canary_of(e))
    return fail(
        Code::conflict, fmt::format("revision {} of {} is a canary", canary->number, e.name),
        fmt::format("end it first: billow promote {}, or billow rollback {}", e.name, e.name));
  if (plan.any() && (e.serving == 0 || e.rolling != 0))
    return fail(
        Code::conflict,
        e.rolling != 0
            ? fmt::format("revision {} of endpoint {} is still starting", e.rolling, e.name)
            : fmt::format("endpoint {} has no serving revision to compare a canary with", e.name),
        "try again when `billow endpoints` shows it as serving");
  return {};
}

}  // namespace

namespace {

// Changes the settings of the revision in force; its program goes on.
Decision scaled(const Endpoint& e, EndpointPolicy policy) {
  const Revision* current = e.current();
  if (!current)
    return fail(Code::conflict, fmt::format("no revision of endpoint {} has been healthy", e.name),
                "deploy a revision that becomes healthy");
  BILLOW_TRY_VOID(check_policy(policy));
  return policy == current->policy ? Events{} : Events{EndpointScaled{e.name, std::move(policy)}};
}

}  // namespace

// Without a command there is no program to start, so no revision is made: only settings change.
Decision Decider::operator()(const DeployEndpoint& c) {
  if (c.spec.argv.empty())
    return scaled(*BILLOW_TRY(endpoint_named(c.name)), c.policy);
  BILLOW_TRY_VOID(check_spoken_name("endpoint", c.name));
  EndpointPolicy policy = c.policy;
  BILLOW_TRY_VOID(tidy_origins(policy.cors));
  BILLOW_TRY_VOID(check_policy(policy));
  BILLOW_TRY_VOID(check_release(c.release));
  JobSpec spec = c.spec;
  spec.env_digest.clear();
  BILLOW_TRY_VOID(validate(spec));
  if (c.agent)
    BILLOW_TRY_VOID(check_agent_priority(spec));
  BILLOW_TRY_VOID(check_replica(spec));
  BILLOW_TRY_VOID(admissible(state, spec));
  ProjectId project;
  UserId owner = c.user;
  std::uint32_t number = 1;
  if (const auto found = state.endpoints.find(c.name); found != state.endpoints.end()) {
    project = found->second.project;
    number = found->second.next_revision;
    owner = found->second.user;
    BILLOW_TRY_VOID(check_no_canary(found->second, c.release));
  } else {
    if (c.release.any())
      return fail(Code::conflict,
                  fmt::format("endpoint {} has no revision to compare a canary with", c.name),
                  "drop --traffic and --mirror");
    if (state.endpoints.size() >= limits::endpoints_max)
      return fail(Code::exhausted, fmt::format("{} endpoints exist already, which is the limit",
                                               state.endpoints.size()));
    if (state.replicas.contains(c.name))
      return fail(Code::conflict,
                  fmt::format("replicas of an earlier endpoint \"{}\" are still ending", c.name),
                  "try again in a moment");
    project = BILLOW_TRY(project_for(c.project, c.user));
    BILLOW_TRY_VOID(check_endpoint_name(state, c.name, project, context.now));
    BILLOW_TRY_VOID(check_objects(state, c.user, project, context.now));
  }
  BILLOW_TRY_VOID(check_priority(spec, c.user, project));
  BILLOW_TRY_VOID(check_surroundings(spec, project, c.user));
  if (spec.surroundings.network != ContainerNetwork::host)
    return fail(Code::invalid, "an endpoint needs the network of its node",
                "drop --network and --isolation strict");
  BILLOW_TRY_VOID(validate(c.env));
  const std::uint64_t bytes = spec_bytes(spec) + env_bytes(c.env);
  BILLOW_TRY_VOID(check_quotas(state, {c.user, project, 0, bytes}));
  Events events;
  if (!c.env.empty()) {
    spec.env_digest = sha256_hex(wire::to_json_text(c.env)).substr(0, 32);
    if (!state.environments.contains(spec.env_digest))
      events.push_back(EnvironmentStored{spec.env_digest, c.env});
  }
  if (spec.name.empty())
    spec.name = c.name;
  events.push_back(EndpointDeployed{c.name,
                                    project,
                                    owner,
                                    {.number = number,
                                     .spec = std::make_shared<const JobSpec>(std::move(spec)),
                                     .policy = std::move(policy),
                                     .made_at = context.now,
                                     .state = RevisionState::rolling,
                                     .reason = "",
                                     .failed_job = {},
                                     .user = c.user,
                                     .agent = c.agent,
                                     .release = c.release}});
  return events;
}

Decision Decider::operator()(const JudgeRevision& c) {
  const Endpoint* e = BILLOW_TRY(endpoint_named(c.endpoint));
  if (!c.healthy && e->canary != 0 && e->canary == c.revision)
    return Events{ReleaseEnded{c.endpoint, c.revision, true, c.reason, c.job}};
  if (e->rolling != c.revision)
    return Events{};  // another revision was deployed meanwhile
  return Events{RevisionJudged{c.endpoint, c.revision, c.healthy, c.reason, c.job}};
}

Decision Decider::operator()(const ScaleEndpoint& c) {
  const Endpoint* e = BILLOW_TRY(endpoint_named(c.endpoint));
  EndpointPolicy policy = e->current() ? e->current()->policy : EndpointPolicy{};
  const ScaleChange change{.min = c.min, .max = c.max, .concurrency = c.concurrency};
  change.apply(policy);
  return scaled(*e, std::move(policy));
}

// A rollback is a new revision with the program of an old one: history only grows, and the revision
// starts like any other. It changes neither who may call the endpoint nor its limits: those were
// set for a reason that has nothing to do with the program.
Decision Decider::operator()(const RollbackEndpoint& c) {
  const Endpoint* e = BILLOW_TRY(endpoint_named(c.endpoint));
  if (const Revision* canary = canary_of(*e)) {
    if (c.revision != 0 && c.revision != e->serving)
      return fail(Code::conflict,
                  fmt::format("revision {} of {} is a canary", canary->number, c.endpoint),
                  fmt::format("end it first: billow rollback {}", c.endpoint));
    return Events{ReleaseEnded{c.endpoint, canary->number, false, "ended by its owner", {}}};
  }
  const Revision* to = nullptr;
  for (const Revision& r : e->revisions) {
    const bool asked = c.revision != 0 && r.state == RevisionState::rolled_back;
    if (r.state != RevisionState::retired && !asked)
      continue;
    if (c.revision == 0 || r.number == c.revision)
      to = &r;
  }
  if (!to) {
    if (c.revision != 0 && e->revision(c.revision))
      return fail(Code::conflict, fmt::format("revision {} of {} never served, or is serving now",
                                              c.revision, c.endpoint));
    return fail(Code::not_found,
                c.revision == 0
                    ? fmt::format("endpoint {} has no earlier revision that served", c.endpoint)
                    : fmt::format("endpoint {} has no revision {}", c.endpoint, c.revision),
                "see `billow endpoints " + c.endpoint + "`");
  }
  // Something it was deployed with may have been removed since: report that now, not through
  // replicas that cannot start.
  JobSpec wants = *to->spec;
  Revision again = *to;
  if (const Revision* current = e->current()) {
    again.policy = current->policy;
    take_program_settings(again.policy, to->policy);
  }
  if (!again.user)
    again.user = e->user;
  BILLOW_TRY_VOID(check_surroundings(wants, e->project, again.user));
  again.number = e->next_revision;
  again.made_at = context.now;
  again.state = RevisionState::rolling;
  again.reason = fmt::format("as revision {}", to->number);
  again.release = {};
  again.failed_job = {};
  return Events{EndpointDeployed{c.endpoint, e->project, e->user, std::move(again)}};
}

Decision Decider::operator()(const DeleteEndpoint& c) {
  const Endpoint* e = BILLOW_TRY(endpoint_named(c.endpoint));
  Events events;
  for (const auto& [id, call] : state.calls)
    if (call.endpoint == c.endpoint && call.state == CallState::waiting)
      events.push_back(CallEnded{id, CallState::failed, 0, {}, "", "its endpoint was deleted"});
  if (const auto found = state.replicas.find(c.endpoint); found != state.replicas.end())
    for (JobId id : found->second)
      stop_one(events, state.jobs.at(id), {id, "its endpoint was deleted", false});
  // Its host names stay with the project: DNS still leads them here, and nobody else may get them.
  for (const auto& [name, domain] : state.front_door.domains)
    if (domain.endpoint == c.endpoint) {
      Domain kept = domain;
      kept.endpoint.clear();
      events.push_back(DomainSet{std::move(kept), false});
    }
  // So do its own name, and those of the models that nothing else serves.
  HeldNames held{e->project, e->user, {c.endpoint}};
  for (const auto& [name, route] : state.front_door.models)
    if (route.project == e->project && route.to.size() == 1 &&
        route.to.front().endpoint == c.endpoint)
      held.names.push_back(name);
  hold_names(state, held, context.now, events);
  events.push_back(EndpointDeleted{c.endpoint});
  return events;
}

Decision Decider::operator()(const SetEndpointKey& c) {
  const Endpoint* e = BILLOW_TRY(endpoint_named(c.endpoint));
  BILLOW_TRY_VOID(check_name("key", c.name));
  const bool there = std::any_of(e->keys.begin(), e->keys.end(),
                                 [&](const EndpointKey& k) { return k.name == c.name; });
  if (c.hash.empty()) {
    if (!there)
      return fail(Code::not_found, fmt::format("endpoint {} has no key \"{}\"", c.endpoint, c.name),
                  "see `billow endpoints " + c.endpoint + "`");
    return Events{EndpointKeySet{c.endpoint, {.name = c.name}, true}};
  }
  if (there)
    return fail(Code::conflict,
                fmt::format("endpoint {} already has a key \"{}\"", c.endpoint, c.name),
                "use another --name, or remove the old key");
  if (e->keys.size() >= limits::endpoint_keys_max)
    return fail(Code::exhausted, fmt::format("endpoint {} already has {} keys, which is the limit",
                                             c.endpoint, e->keys.size()));
  BILLOW_TRY_VOID(check_objects(state, e->user, e->project, context.now));
  BILLOW_TRY_VOID(check_key_limits(c.limits, *e));
  if (c.expires_at && c.expires_at <= context.now)
    return fail(Code::invalid, "--expires must be in the future");
  return Events{EndpointKeySet{
      c.endpoint, {c.name, c.hash, context.now, c.project, c.expires_at, c.limits}, false}};
}

Decision Decider::operator()(const StartReplica& c) {
  const Endpoint* e = BILLOW_TRY(endpoint_named(c.endpoint));
  const Revision* revision = e->revision(c.revision);
  if (!revision ||
      (c.revision != e->serving && c.revision != e->rolling && c.revision != e->canary))
    return fail(Code::conflict,
                fmt::format("revision {} of {} is not in use", c.revision, c.endpoint));
  if (c.port < 1024)
    return fail(Code::invalid, "a replica's port must be above 1023");
  JobSpec spec = *revision->spec;
  if (const auto& regions = spec.place.regions;
      !c.region.empty() && std::find(regions.begin(), regions.end(), c.region) == regions.end())
    return fail(Code::conflict,
                fmt::format("endpoint {} is not served in region {}", c.endpoint, c.region));
  // The limit applies to each region, because each follows its own demand.
  const auto mine = state.replicas.find(c.endpoint);
  std::uint32_t live = 0;
  if (mine != state.replicas.end())
    for (JobId id : mine->second) {
      const Job& job = state.jobs.at(id);
      const auto region = job.spec->labels.find(label_region);
      const bool here =
          (region == job.spec->labels.end() ? std::string() : region->second) == c.region;
      // A replica that its agent is ending (another process had its port) counts as leaving, like
      // one ordered to stop.
      const bool leaving =
          job.stopping != StopCause::none ||
          (!job.tasks.empty() && state.tasks.at(job.tasks.front()).state == TaskState::stopping);
      live += here && job.spec->labels.at(label_revision) == std::to_string(c.revision) && !leaving;
    }
  if (live >= revision->policy.max)
    return fail(Code::exhausted,
                fmt::format("endpoint {} has {} replicas{}, its maximum", c.endpoint, live,
                            c.region.empty() ? "" : " in region " + c.region));
  if (!c.region.empty()) {
    spec.place.regions = {c.region};
    spec.labels[label_region] = c.region;
  }
  spec.labels[label_endpoint] = c.endpoint;
  spec.labels[label_revision] = std::to_string(c.revision);
  spec.labels[label_port] = std::to_string(c.port);
  if (!revision->agent)  // agents cannot raise priorities
    spec.priority = std::max(spec.priority, replica_priority);
  spec.spot = c.spot;
  spec.retries = 0;
  spec.rerun_if_lost = true;
  if (spec.suspendable == Suspendable::automatic && revision->policy.keep_suspended.ns > 0)
    spec.suspendable = Suspendable::yes;
  Events events;
  const UserId user = revision->user ? revision->user : e->user;
  const JobId first(state.next_job);
  std::optional<Commitment> limit;
  if (revision->agent)
    limit = BILLOW_TRY(commitment(
        state, {.token = revision->agent, .spec = spec, .project = e->project, .taken = {}},
        context));
  submit_events(events, first, std::move(spec), {}, e->project, user, 0, "", revision->agent);
  if (limit)
    commit_events(events, first, revision->agent, *limit);
  return events;
}

// ---- folding

Endpoint& Applier::endpoint(const std::string& name) {
  const auto found = state.endpoints.find(name);
  BILLOW_CHECK(found != state.endpoints.end(), "an event names an endpoint that is not there");
  return found->second;
}

void Applier::drop_revision(Endpoint& e, std::size_t at) {
  const std::string digest = e.revisions[at].spec->env_digest;
  release(state, {e.revisions[at].user, e.project, 0, e.revisions[at].spec.get()});
  e.revisions.erase(e.revisions.begin() + static_cast<std::ptrdiff_t>(at));
  if (!digest.empty())
    release_environment(digest, 1);
}

void Applier::operator()(const EndpointDeployed& d) {
  Endpoint& e = state.endpoints[d.endpoint];
  if (e.name.empty()) {
    e.name = d.endpoint;
    e.project = d.project;
    e.made_at = event.at;
  }
  e.user = d.user;
  for (Revision& r : e.revisions)
    if (r.number == e.rolling) {
      r.state = RevisionState::failed;
      r.reason = "another was deployed before it was healthy";
    }
  e.revisions.push_back(d.revision);
  if (!d.revision.spec->env_digest.empty())
    ++state.environments[d.revision.spec->env_digest].uses;
  hold(state, {d.revision.user, e.project, 0, d.revision.spec.get()});
  e.rolling = d.revision.number;
  e.next_revision = d.revision.number + 1;
  for (std::size_t at = 0;
       e.revisions.size() > limits::endpoint_revisions_max && at < e.revisions.size();) {
    if (const auto number = e.revisions[at].number;
        number == e.serving || number == e.rolling || number == e.canary)
      ++at;
    else
      drop_revision(e, at);
  }
}

void Applier::operator()(const RevisionJudged& j) {
  Endpoint& e = endpoint(j.endpoint);
  if (const Revision* found = e.revision(j.revision);
      found && j.healthy && found->release.any() && e.canary == 0) {
    for (Revision& r : e.revisions)
      if (r.number == j.revision)
        r.state = RevisionState::canary;
    e.canary = j.revision;
    e.rolling = 0;
    return;
  }
  for (Revision& r : e.revisions) {
    if (j.healthy && r.number == e.serving)
      r.state = RevisionState::retired;
    if (r.number != j.revision)
      continue;
    r.state = j.healthy ? RevisionState::serving : RevisionState::failed;
    r.reason = j.reason;
    r.failed_job = j.job;
  }
  if (j.healthy)
    e.serving = j.revision;
  e.rolling = 0;
  e.canary = 0;  // it has taken over
}

void Applier::operator()(const EndpointScaled& s) {
  Endpoint& e = endpoint(s.endpoint);
  for (Revision& r : e.revisions)
    if (r.number == (e.serving != 0 ? e.serving : e.rolling) ||
        (e.canary != 0 && r.number == e.canary)) {
      // A canary keeps its own probes: they belong to its program.
      EndpointPolicy policy = s.policy;
      take_program_settings(policy, r.policy);
      r.policy = std::move(policy);
    }
}

void Applier::operator()(const EndpointKeySet& k) {
  Endpoint& e = endpoint(k.endpoint);
  std::erase_if(e.keys, [&](const EndpointKey& old) { return old.name == k.key.name; });
  if (!k.removed)
    e.keys.push_back(k.key);
}

void Applier::operator()(const EndpointDeleted& d) {
  Endpoint& e = endpoint(d.endpoint);
  while (!e.revisions.empty())
    drop_revision(e, 0);
  state.endpoints.erase(d.endpoint);
  close_front_door(d.endpoint);
}

void Applier::replica_ended(const Job& j) {
  const auto of = j.spec->labels.find(label_endpoint);
  if (of == j.spec->labels.end())
    return;
  if (const auto mine = state.replicas.find(of->second); mine != state.replicas.end()) {
    mine->second.erase(j.id);
    if (mine->second.empty())
      state.replicas.erase(mine);
  }
  const auto found = state.endpoints.find(of->second);
  if (found == state.endpoints.end())
    return;
  found->second.replicas_cost += j.cost;
  if (j.state == JobState::stopped)
    return;
  found->second.failed_job = j.id;
  found->second.failed_port_taken = j.exit.port_taken;
  found->second.failed_reason = fmt::format("its replica (job {}) ended: {}", j.id.value,
                                            j.reason.empty() ? j.exit.text() : j.reason);
}

}  // namespace billow::control
