#include "core/control/quotas.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/front_door.h"
#include "core/control/decide/permissions.h"
#include "core/wire/text_fields.h"

namespace billow::control {
namespace {

// What a description takes besides its texts.
constexpr std::uint64_t spec_base_bytes = 512;

std::int64_t built_in(QuotaScope scope, QuotaKind kind) {
  const bool user = scope == QuotaScope::user;
  switch (kind) {
    case QuotaKind::queued_jobs:
      return user ? limits::user_queued_jobs_max : limits::project_queued_jobs_max;
    case QuotaKind::spec_bytes:
      return user ? limits::user_spec_bytes_max : limits::project_spec_bytes_max;
    case QuotaKind::file_bytes:
      return user ? limits::user_file_bytes_max : -1;
    case QuotaKind::connections:
      return user ? static_cast<std::int64_t>(limits::http_connections_per_user_max) : -1;
    case QuotaKind::requests_per_s:
      return user ? static_cast<std::int64_t>(limits::http_requests_per_s_per_user_max) : -1;
    case QuotaKind::objects:
      return user ? limits::user_objects_max : limits::project_objects_max;
    case QuotaKind::priority:
      return user ? -1 : limits::priority_members_max;
    case QuotaKind::task_log_bytes:
      return user ? -1 : limits::task_log_bytes;
    case QuotaKind::kept_log_bytes:
      return user ? -1 : limits::kept_log_bytes;
  }
  return -1;
}

bool is_admin(const State& state, UserId user) {
  return may(state, user, Permission::projects_change);
}

Status check_key(const State& state, const QuotaKey& key) {
  if (!has_scope(key.kind, key.scope))
    return fail(
        Code::invalid,
        fmt::format("{} cannot be limited for a {}", enum_name(key.kind), enum_name(key.scope)),
        "see `billow quota list`");
  if (key.of == 0)
    return {};
  const bool known = key.scope == QuotaScope::user ? state.users.contains(UserId(key.of))
                                                   : state.projects.contains(ProjectId(key.of));
  if (!known)
    return fail(Code::not_found, fmt::format("no such {}", enum_name(key.scope)));
  return {};
}

}  // namespace

bool has_scope(QuotaKind kind, QuotaScope scope) {
  switch (kind) {
    case QuotaKind::queued_jobs:
    case QuotaKind::spec_bytes:
    case QuotaKind::objects:
      return true;
    case QuotaKind::file_bytes:
    case QuotaKind::connections:
    case QuotaKind::requests_per_s:
      return scope == QuotaScope::user;
    case QuotaKind::priority:
    case QuotaKind::task_log_bytes:
    case QuotaKind::kept_log_bytes:
      return scope == QuotaScope::project;
  }
  return false;
}

QuotaLimit quota_of(const State& state, QuotaScope scope, std::uint64_t of, QuotaKind kind) {
  for (const std::uint64_t owner : {of, std::uint64_t{0}})
    if (const auto found = state.quotas.find({scope, owner, kind}); found != state.quotas.end())
      return {found->second, true};
  if (scope == QuotaScope::user && is_admin(state, UserId(of)))
    return {};
  return {built_in(scope, kind), false};
}

std::string quota_owner(const State& state, QuotaScope scope, std::uint64_t of) {
  if (scope == QuotaScope::user) {
    const auto user = state.users.find(UserId(of));
    return fmt::format("user {}", user == state.users.end() ? "?" : user->second.name);
  }
  const auto project = state.projects.find(ProjectId(of));
  return fmt::format("project {}", project == state.projects.end() ? "?" : project->second.name);
}

Error quota_error(const std::string& owner,
                  QuotaKind kind,
                  std::int64_t wanted,
                  std::int64_t limit) {
  const bool bytes = kind == QuotaKind::spec_bytes || kind == QuotaKind::file_bytes;
  const auto text = [bytes](std::int64_t n) {
    return bytes ? format_bytes(static_cast<std::uint64_t>(n)) : fmt::format("{}", n);
  };
  return {Code::exhausted,
          fmt::format("the quota {} of {} is {}; this would make it {}", enum_name(kind), owner,
                      text(limit), text(wanted)),
          fmt::format("wait until some of it is free, or ask an admin: billow quota set --{} {} N",
                      owner, enum_name(kind))};
}

namespace {

// An admin's work in a project is held to what was set, not to the built-in defaults.
Status check_one(const State& state, const QuotaKey& key, UserId user, std::uint64_t used) {
  const QuotaLimit quota = quota_of(state, key.scope, key.of, key.kind);
  const auto now = static_cast<std::int64_t>(used);
  if (quota.limit < 0 || now <= quota.limit || (!quota.set_by_admin && is_admin(state, user)))
    return {};
  return pass(quota_error(quota_owner(state, key.scope, key.of), key.kind, now, quota.limit));
}

}  // namespace

// What is held can be a hundred thousand variables: it is looked at where it lies.
Status check_quotas(const State& state, const Submission& s) {
  const auto check = [&](QuotaScope scope, std::uint64_t of, const auto& holdings,
                         auto owner) -> Status {
    const auto held = holdings.find(owner);
    const bool nothing = held == holdings.end();
    BILLOW_TRY_VOID(check_one(state, {scope, of, QuotaKind::queued_jobs}, s.user,
                              (nothing ? 0 : held->second.jobs) + s.jobs));
    return check_one(state, {scope, of, QuotaKind::spec_bytes}, s.user,
                     (nothing ? 0 : held->second.spec_bytes) + s.spec_bytes);
  };
  BILLOW_TRY_VOID(check(QuotaScope::user, s.user.value, state.held_by_user, s.user));
  return check(QuotaScope::project, s.project.value, state.held_by_project, s.project);
}

std::uint64_t objects_of(const State& state, QuotaScope scope, std::uint64_t of, WallTime now) {
  const bool user = scope == QuotaScope::user;
  const auto owns = [&](UserId by, ProjectId project) {
    return user ? by.value == of : project.value == of;
  };
  const auto found = user ? state.users.find(UserId(of)) : state.users.end();
  const std::string name = found == state.users.end() ? "" : found->second.name;
  const auto named = [&](const std::string& by, ProjectId project) {
    return user ? !name.empty() && by == name : project.value == of;
  };
  std::uint64_t n = 0;
  for (const auto& [id, token] : state.tokens)
    n += owns(token.user, token.project) && !(token.expires_at && token.expires_at <= now);
  for (const auto& [id, schedule] : state.schedules)
    n += owns(schedule.user, schedule.project);
  for (const auto& [id, endpoint] : state.endpoints)
    n += owns(endpoint.user, endpoint.project) ? 1 + endpoint.keys.size() : 0;
  for (const auto& [id, reservation] : state.reservations)
    n += owns(reservation.user, reservation.project);
  for (const auto& [name, route] : state.front_door.models)
    n += owns(route.user, route.project);
  for (const auto& [name, domain] : state.front_door.domains)
    n += owns(domain.user, domain.project) && !is_held(domain);
  for (const auto& [key, secret] : state.secrets)
    n += named(secret.by, secret.project);
  for (const auto& [key, environment] : state.saved_environments)
    n += named(environment.by, environment.project);
  return n;
}

Status check_objects(const State& state, UserId user, ProjectId project, WallTime now) {
  if (user)
    BILLOW_TRY_VOID(check_one(state, {QuotaScope::user, user.value, QuotaKind::objects}, user,
                              objects_of(state, QuotaScope::user, user.value, now) + 1));
  if (!project)
    return {};
  return check_one(state, {QuotaScope::project, project.value, QuotaKind::objects}, user,
                   objects_of(state, QuotaScope::project, project.value, now) + 1);
}

// ---- what is held

std::uint64_t spec_bytes(const JobSpec& spec) {
  return spec_base_bytes + wire::text_bytes(spec);
}

std::uint64_t env_bytes(const Environment& env) {
  std::uint64_t bytes = 0;
  for (const auto& [name, value] : env)
    bytes += name.size() + value.size();
  return bytes;
}

namespace {

struct Holdings {
  std::map<UserId, Holding> by_user;
  std::map<ProjectId, Holding> by_project;
};

void add(const State& state, Holding& to, const Held& held) {
  to.jobs += held.jobs;
  if (!held.spec)
    return;
  to.spec_bytes += spec_bytes(*held.spec);
  const std::string& digest = held.spec->env_digest;
  if (!digest.empty() && ++to.environments[digest] == 1)
    to.spec_bytes += env_bytes(state.environment(digest));
}

template <class Map, class Key>
void take_away(const State& state, Map& map, const Key& key, const Held& held) {
  const auto found = map.find(key);
  BILLOW_CHECK(found != map.end(), "released what was not held");
  Holding& from = found->second;
  std::uint64_t bytes = held.spec ? spec_bytes(*held.spec) : 0;
  if (held.spec && !held.spec->env_digest.empty()) {
    const auto uses = from.environments.find(held.spec->env_digest);
    BILLOW_CHECK(uses != from.environments.end(), "released variables that were not held");
    if (--uses->second == 0) {
      bytes += env_bytes(state.environment(uses->first));
      from.environments.erase(uses);
    }
  }
  BILLOW_CHECK(from.jobs >= held.jobs && from.spec_bytes >= bytes, "released more than was held");
  from.jobs -= held.jobs;
  from.spec_bytes -= bytes;
  if (from == Holding{})
    map.erase(found);
}

Holdings counted(const State& state) {
  Holdings out;
  const auto count = [&](const Held& held) {
    if (held.user)
      add(state, out.by_user[held.user], held);
    if (held.project)
      add(state, out.by_project[held.project], held);
  };
  for (const auto& [id, job] : state.jobs)
    count({job.user, job.project, 1, job.array ? nullptr : job.spec.get()});
  for (const auto& [id, array] : state.arrays)
    count({array.user, array.project, 0, array.spec.get()});
  for (const auto& [id, schedule] : state.schedules)
    count({schedule.user, schedule.project, 0, schedule.spec.get()});
  for (const auto& [id, endpoint] : state.endpoints)
    for (const Revision& revision : endpoint.revisions)
      count({revision.user, endpoint.project, 0, revision.spec.get()});
  return out;
}

}  // namespace

void hold(State& state, const Held& held) {
  if (held.user)
    add(state, state.held_by_user[held.user], held);
  if (held.project)
    add(state, state.held_by_project[held.project], held);
}

void release(State& state, const Held& held) {
  if (held.user)
    take_away(state, state.held_by_user, held.user, held);
  if (held.project)
    take_away(state, state.held_by_project, held.project, held);
}

void derive_holdings(State& state) {
  Holdings all = counted(state);
  state.held_by_user = std::move(all.by_user);
  state.held_by_project = std::move(all.by_project);
}

bool holdings_agree(const State& state) {
  const Holdings all = counted(state);
  return all.by_user == state.held_by_user && all.by_project == state.held_by_project;
}

// ---- decisions and events

Decision Decider::operator()(const SetQuota& c) {
  BILLOW_TRY_VOID(check_key(state, c.quota.key));
  if (c.quota.limit < -1)
    return fail(Code::invalid, "a quota must not be negative", "use none for no limit");
  const bool of_requests =
      c.quota.key.kind == QuotaKind::connections || c.quota.key.kind == QuotaKind::requests_per_s;
  if (of_requests && c.quota.limit == 0)
    return fail(Code::invalid, "a quota of 0 would lock users out", "use at least 1");
  if (c.quota.key.kind == QuotaKind::task_log_bytes &&
      (c.quota.limit < limits::task_log_bytes_min || c.quota.limit > limits::task_log_bytes_max))
    return fail(Code::invalid, "task-log-bytes must be between 1M and 64G",
                "a log without a limit could fill the disk of its node");
  // The user who started the head must always be able to repair it.
  const auto user = state.users.find(UserId(c.quota.key.of));
  if (of_requests && user != state.users.end() && user->second.starts_heads)
    return fail(Code::forbidden, fmt::format("{} started the head, whose requests are not limited",
                                             user->second.name));
  const auto found = state.quotas.find(c.quota.key);
  if (found != state.quotas.end() && found->second == c.quota.limit)
    return Events{};
  return Events{QuotaSet{c.quota}};
}

Decision Decider::operator()(const RemoveQuota& c) {
  if (!state.quotas.contains(c.quota))
    return fail(Code::not_found,
                fmt::format("no quota {} is set for this {}", enum_name(c.quota.kind),
                            enum_name(c.quota.scope)),
                "see `billow quota list`");
  return Events{QuotaRemoved{c.quota}};
}

void Applier::operator()(const QuotaSet& e) {
  state.quotas[e.quota.key] = e.quota.limit;
}

void Applier::operator()(const QuotaRemoved& e) {
  state.quotas.erase(e.quota);
}

}  // namespace billow::control
