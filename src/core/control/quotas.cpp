#include "core/control/quotas.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
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
  }
  return -1;
}

bool is_admin(const State& state, UserId user) {
  const auto found = state.users.find(user);
  return found != state.users.end() && found->second.role == Role::admin;
}

template <class Map, class Key>
void take_away(Map& map, const Key& key, std::uint64_t jobs, std::uint64_t bytes) {
  const auto found = map.find(key);
  BILLOW_CHECK(
      found != map.end() && found->second.jobs >= jobs && found->second.spec_bytes >= bytes,
      "released more than was held");
  found->second.jobs -= jobs;
  found->second.spec_bytes -= bytes;
  if (found->second == Holding{})
    map.erase(found);
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
      return true;
    case QuotaKind::file_bytes:
    case QuotaKind::connections:
    case QuotaKind::requests_per_s:
      return scope == QuotaScope::user;
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

Status check_quotas(const State& state, const Submission& s) {
  // An admin's work in a project is held to what was set, not to the built-in defaults.
  const bool admin = is_admin(state, s.user);
  const auto check = [&](QuotaScope scope, std::uint64_t of, const Holding& held) -> Status {
    for (const auto& [kind, used] :
         {std::pair(QuotaKind::queued_jobs, held.jobs + s.jobs),
          std::pair(QuotaKind::spec_bytes, held.spec_bytes + s.spec_bytes)}) {
      const QuotaLimit quota = quota_of(state, scope, of, kind);
      const auto now = static_cast<std::int64_t>(used);
      if (quota.limit >= 0 && now > quota.limit && (quota.set_by_admin || !admin))
        return pass(quota_error(quota_owner(state, scope, of), kind, now, quota.limit));
    }
    return {};
  };
  const auto user = state.held_by_user.find(s.user);
  const auto project = state.held_by_project.find(s.project);
  BILLOW_TRY_VOID(check(QuotaScope::user, s.user.value,
                        user == state.held_by_user.end() ? Holding{} : user->second));
  return check(QuotaScope::project, s.project.value,
               project == state.held_by_project.end() ? Holding{} : project->second);
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

Holdings counted(const State& state) {
  Holdings out;
  const auto add = [&out](UserId user, ProjectId project, std::uint64_t jobs, std::uint64_t bytes) {
    for (Holding* held : {&out.by_user[user], &out.by_project[project]}) {
      held->jobs += jobs;
      held->spec_bytes += bytes;
    }
  };
  for (const auto& [id, job] : state.jobs)
    add(job.user, job.project, 1, job.array ? 0 : spec_bytes(*job.spec));
  for (const auto& [id, array] : state.arrays)
    add(array.user, array.project, 0, spec_bytes(*array.spec));
  return out;
}
}  // namespace

void hold(State& state, UserId user, ProjectId project, std::uint64_t jobs, std::uint64_t bytes) {
  for (Holding* held : {&state.held_by_user[user], &state.held_by_project[project]}) {
    held->jobs += jobs;
    held->spec_bytes += bytes;
  }
}

void release(
    State& state, UserId user, ProjectId project, std::uint64_t jobs, std::uint64_t bytes) {
  take_away(state.held_by_user, user, jobs, bytes);
  take_away(state.held_by_project, project, jobs, bytes);
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
  // Whoever started the head must always be able to repair it.
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
