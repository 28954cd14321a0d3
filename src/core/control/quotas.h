// Quotas: how many jobs and other objects, and how many bytes of descriptions and files one user
// and one project may hold, and how hard a user may use the head. The lookup goes from the quota of
// the user or project, to the default an admin has set for all of them, to the built-in default.
#pragma once

#include "core/control/state.h"

namespace billow::control {

struct QuotaLimit {
  std::int64_t limit = -1;    // -1: none
  bool set_by_admin = false;  // false: the built-in default
};
// Whether the kind can be limited for the scope: files, connections and requests belong to users.
bool has_scope(QuotaKind kind, QuotaScope scope);
QuotaLimit quota_of(const State& state, QuotaScope scope, std::uint64_t of, QuotaKind kind);
std::string quota_owner(const State& state, QuotaScope scope, std::uint64_t of);  // "user ana"
// The error of a quota that is used up: which one, whose, and who can raise it.
Error quota_error(const std::string& owner,
                  QuotaKind kind,
                  std::int64_t wanted,
                  std::int64_t limit);

struct Submission {
  UserId user;
  ProjectId project;
  std::uint64_t jobs = 1;
  std::uint64_t spec_bytes = 0;
};
Status check_quotas(const State& state, const Submission& submission);

// What a user or project has besides jobs: tokens that are valid, schedules, endpoints and their
// keys, reservations, secrets, environments.
std::uint64_t objects_of(const State& state, QuotaScope scope, std::uint64_t of, WallTime now);
// Whether the user may create one more; `project` is 0 for what belongs to no project.
Status check_objects(const State& state, UserId user, ProjectId project, WallTime now);

// ---- what is held, kept up to date by `apply`
std::uint64_t spec_bytes(const JobSpec& spec);
std::uint64_t env_bytes(const Environment& env);
// A description, with its variables, of jobs, a schedule or an endpoint's revision. The variables
// must be in the state. A user or project of number 0 holds nothing.
struct Held {
  UserId user;
  ProjectId project;
  std::uint64_t jobs = 0;
  const JobSpec* spec = nullptr;
};
void hold(State& state, const Held& held);
void release(State& state, const Held& held);
void derive_holdings(State& state);
bool holdings_agree(const State& state);

}  // namespace billow::control
