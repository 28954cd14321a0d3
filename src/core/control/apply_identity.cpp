// Folding the events of users, projects, tokens and schedules.
#include "base/restored.h"
#include "core/control/applier.h"
#include "core/control/quotas.h"

namespace billow::control {

void Applier::operator()(const HeadStarted& e) {
  if (state.epoch > 0 && e.epoch >= state.epoch + static_cast<Epoch>(restored_epoch_leap)) {
    for (std::uint64_t* next :
         {&state.next_job, &state.next_task, &state.next_node, &state.next_machine})
      *next += restored_number_leap;
  }
  state.epoch = e.epoch;
  if (const auto by = state.users.find(e.by); by != state.users.end())
    by->second.starts_heads = true;
}

void Applier::operator()(const UserAdded& e) {
  state.users[e.user.id] = e.user;
  state.next_user = std::max(state.next_user, e.user.id.value + 1);
}

void Applier::operator()(const ProjectAdded& e) {
  state.projects[e.project.id] = e.project;
  state.next_project = std::max(state.next_project, e.project.id.value + 1);
  state.index.upsert_project(settings_of(e.project));
}

void Applier::operator()(const MemberSet& e) {
  auto& members = state.projects.at(e.project).members;
  if (e.role)
    members[e.user] = *e.role;
  else
    members.erase(e.user);
}

void Applier::operator()(const DefaultProjectSet& e) {
  state.users.at(e.user).default_project = e.project;
}

void Applier::operator()(const TokenCreated& e) {
  state.tokens[e.token.id] = e.token;
  state.token_by_hash[e.token.hash] = e.token.id;
  state.next_token = std::max(state.next_token, e.token.id.value + 1);
}

void Applier::operator()(const TokenRevoked& e) {
  const auto found = state.tokens.find(e.token);
  if (found == state.tokens.end())
    return;
  state.token_by_hash.erase(found->second.hash);
  state.token_by_hash.erase(found->second.previous_hash);
  state.tokens.erase(found);
  state.money.budgets.erase({BudgetScope::token, e.token.value, BudgetPeriod::total});
}

// Of several rotations in a row only the last old secret is still accepted.
void Applier::operator()(const TokenRotated& e) {
  const auto found = state.tokens.find(e.token);
  if (found == state.tokens.end())
    return;
  Token& token = found->second;
  state.token_by_hash.erase(token.previous_hash);
  token.previous_hash = std::move(token.hash);
  token.previous_until = e.previous_until;
  token.hash = e.hash;
  token.expires_at = e.expires_at;
  state.token_by_hash[token.hash] = token.id;
}

void Applier::operator()(const RoleSet& e) {
  state.roles[e.role.name] = e.role;
}

void Applier::operator()(const RoleRemoved& e) {
  state.roles.erase(e.name);
}

void Applier::operator()(const UserChanged& e) {
  User& user = state.users.at(e.user);
  user.role = e.role;
  user.state = e.state;
}

void Applier::operator()(const TokenBound& e) {
  if (const auto found = state.tokens.find(e.token); found != state.tokens.end())
    found->second.node = e.node;
}

void Applier::operator()(const TokenUsed& e) {
  if (const auto found = state.tokens.find(e.token); found != state.tokens.end())
    found->second.joined[e.node] = e.key;
}

void Applier::operator()(const ScheduleAdded& e) {
  state.schedules[e.schedule.id] = e.schedule;
  state.next_schedule = std::max(state.next_schedule, e.schedule.id.value + 1);
  if (!e.schedule.spec->env_digest.empty())
    ++state.environments[e.schedule.spec->env_digest].uses;
  hold(state, {e.schedule.user, e.schedule.project, 0, e.schedule.spec.get()});
}

void Applier::operator()(const ScheduleRemoved& e) {
  const auto found = state.schedules.find(e.schedule);
  if (found == state.schedules.end())
    return;
  const std::string digest = found->second.spec->env_digest;
  release(state, {found->second.user, found->second.project, 0, found->second.spec.get()});
  state.schedules.erase(found);
  if (!digest.empty())
    release_environment(digest, 1);
}

void Applier::operator()(const ScheduleFired& e) {
  Schedule& s = state.schedules.at(e.schedule);
  s.next_at = e.next_at;
  if (e.job)
    s.last_job = e.job;
}

}  // namespace billow::control
