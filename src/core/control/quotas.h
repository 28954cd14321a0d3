// Quotas: how many jobs, and how many bytes of descriptions and files one user and one
// project may hold, and how hard a user may use the head. The lookup goes from the quota of the
// user or project, to the default an admin has set for all of them, to the built-in default.
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

// ---- what is held, kept up to date by `apply`
std::uint64_t spec_bytes(const JobSpec& spec);
std::uint64_t env_bytes(const Environment& env);
void hold(State& state, UserId user, ProjectId project, std::uint64_t jobs, std::uint64_t bytes);
void release(State& state, UserId user, ProjectId project, std::uint64_t jobs, std::uint64_t bytes);
void derive_holdings(State& state);
bool holdings_agree(const State& state);

}  // namespace billow::control
