#include "core/control/decide/permissions.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/text.h"

namespace billow::control {
namespace {

using enum Permission;

constexpr auto all_permissions = std::to_array<PermissionInfo>({
    {jobs_read, true, true, "see jobs, logs, outputs, endpoints, schedules and reservations"},
    {jobs_run, true, false, "submit jobs, control your own jobs, save environments"},
    {jobs_any, true, false,
     "control jobs and endpoints of other users, approve requests of agents"},
    {endpoints_deploy, true, false, "deploy endpoints, control your own endpoints"},
    {reservations_make, true, false, "reserve GPUs"},
    {secrets_read, true, true, "see the names of secrets"},
    {secrets_set, true, false, "set and remove secrets"},
    {money_read, true, true, "see costs, budgets and invoices"},
    {money_set, true, false, "set budgets, idle rules and tags"},
    {members_change, true, false, "add, change and remove members"},
    {audit_read, false, true, "read the journal: who did what, and what was refused"},
    {users_read, false, true, "see all users, roles, tokens' names and identity providers"},
    {users_change, false, false, "create, change and remove users, roles and their tokens"},
    {logins_change, false, false, "add and remove identity providers, link logins"},
    {projects_change, false, false,
     "create projects, set shares, quotas and priorities, add domains"},
    {environments_publish, false, false, "publish environments for all projects"},
    {volumes_change, false, false, "declare and remove volumes"},
    {nodes_drain, false, false, "drain nodes and GPUs, measure the network"},
    {nodes_change, false, false, "remove nodes, create tokens for machines"},
    {pools_change, false, false, "add, check and remove pools, release machines"},
    {prices_set, false, false, "set prices, commitments, webhooks; import bills, close months"},
    {backends_change, false, false, "add and remove secret backends, rotate the key of secrets"},
    {head_control, false, false, "shut down the head, act as its gateway"},
});

constexpr PermissionSet viewer_may{jobs_read, money_read};
constexpr PermissionSet member_may =
    viewer_may | PermissionSet{jobs_run, endpoints_deploy, secrets_read};
constexpr PermissionSet operator_may{jobs_read,    jobs_any,     money_read, nodes_drain,
                                     nodes_change, pools_change, users_read, volumes_change};
constexpr PermissionSet auditor_may{jobs_read, money_read, audit_read, users_read, secrets_read};

constexpr PermissionSet all_that(bool (*fits)(const PermissionInfo&)) {
  PermissionSet out;
  for (const PermissionInfo& each : all_permissions)
    if (fits(each))
      out = out | each.permission;
  return out;
}
constexpr PermissionSet of_projects =
    all_that([](const PermissionInfo& each) { return each.of_project; });
constexpr PermissionSet that_read = all_that([](const PermissionInfo& each) { return each.reads; });
constexpr PermissionSet everything = all_that([](const PermissionInfo&) { return true; });

// What tokens for the jobs of one project allow, whatever else their user may do.
constexpr PermissionSet for_submitting = member_may | jobs_any;

constexpr auto roles_built_in = std::to_array<BuiltInRole>({
    {roles::viewer, viewer_may, false, "sees the jobs and costs of a project"},
    {roles::member, member_may, false, "runs jobs and endpoints in a project"},
    {roles::operate, operator_may, true, "keeps machines and the queue running"},
    {roles::auditor, auditor_may, true, "sees everything, changes nothing"},
    {roles::admin, everything, true, "may do everything; in a project: everything of the project"},
});

// Null: it is not built in.
const BuiltInRole* built_in_role(std::string_view name) {
  const auto found = std::ranges::find(roles_built_in, name, &BuiltInRole::name);
  return found == roles_built_in.end() ? nullptr : &*found;
}

PermissionSet allowed_by(const State& state, std::string_view role) {
  if (const BuiltInRole* found = built_in_role(role))
    return found->allow;
  const auto custom = state.roles.find(std::string(role));
  PermissionSet out;
  if (custom != state.roles.end())
    for (const Permission each : custom->second.allow)
      out = out | each;
  return out;
}

// What the scope of a token leaves, and in which projects.
PermissionSet left_by_scope(const Principal& who) {
  switch (who.scope) {
    case TokenScope::full:
      return everything;
    case TokenScope::read:
      return that_read;
    case TokenScope::submit:
      return for_submitting;
    case TokenScope::agent:
      return member_may;  // an agent never has admin rights, even if its user has
    case TokenScope::node:
    case TokenScope::join:
    case TokenScope::gateway:
      return {};
  }
  return {};
}

// Whose rights are their scope, not their user's.
bool is_machine(const Principal& who) {
  return who.scope == TokenScope::node || who.scope == TokenScope::join ||
         who.scope == TokenScope::gateway;
}

bool of_one_project(const Principal& who) {
  return who.scope == TokenScope::submit || who.scope == TokenScope::agent;
}

}  // namespace

std::span<const PermissionInfo> permission_table() {
  return all_permissions;
}

std::span<const BuiltInRole> built_in_roles() {
  return roles_built_in;
}

std::vector<Permission> list_of(PermissionSet set) {
  std::vector<Permission> out;
  for (const PermissionInfo& each : all_permissions)
    if (set.has(each.permission))
      out.push_back(each.permission);
  return out;
}

std::string names_of(PermissionSet set, std::string_view between) {
  std::vector<std::string> names;
  for (const Permission each : list_of(set))
    names.emplace_back(enum_name(each));
  return join(names, between);
}

Result<Permission> parse_permission(std::string_view name) {
  if (const auto found = enum_value<Permission>(name))
    return *found;
  std::vector<std::string> names;
  for (const PermissionInfo& each : all_permissions)
    names.emplace_back(enum_name(each.permission));
  const std::string near = nearest(name, names);
  return fail(Code::invalid, fmt::format("\"{}\" is not a permission", name),
              near.empty() ? "see `billow help --rights`"
                           : fmt::format("did you mean {}? see `billow help --rights`", near));
}

PermissionSet allowed_in_project(const State& state, std::string_view role) {
  return allowed_by(state, role) & of_projects;
}

PermissionSet allowed_on_installation(const State& state, std::string_view role) {
  const BuiltInRole* found = built_in_role(role);
  return found && !found->counts_on_installation ? PermissionSet{} : allowed_by(state, role);
}

PermissionSet permissions_of(const State& state, const User& user) {
  return allowed_on_installation(state, user.role);
}

PermissionSet permissions_in(const State& state, const User& user, ProjectId id) {
  const PermissionSet everywhere = permissions_of(state, user) & of_projects;
  const auto project = state.projects.find(id);
  if (project == state.projects.end())
    return everywhere;
  const auto member = project->second.members.find(user.name);
  return member == project->second.members.end()
             ? everywhere
             : everywhere | allowed_in_project(state, member->second);
}

PermissionSet permissions_of(const State& state, const Principal& who) {
  const auto user = state.users.find(who.user);
  if (user == state.users.end() || of_one_project(who))
    return {};
  return permissions_of(state, user->second) & left_by_scope(who);
}

PermissionSet permissions_in(const State& state, const Principal& who, ProjectId project) {
  const auto user = state.users.find(who.user);
  if (user == state.users.end() || (of_one_project(who) && who.project != project))
    return {};
  const PermissionSet has = permissions_in(state, user->second, project);
  // An agent works for somebody who may run jobs there.
  if (who.agent && !has.has(jobs_run))
    return {};
  return has & left_by_scope(who);
}

bool may(const State& state, const Principal& who, Permission permission) {
  return permissions_of(state, who).has(permission);
}

bool may(const State& state, const Principal& who, Permission permission, ProjectId project) {
  return permissions_in(state, who, project).has(permission);
}

bool may(const State& state, UserId id, Permission permission) {
  const auto user = state.users.find(id);
  return user != state.users.end() && permissions_of(state, user->second).has(permission);
}

bool sees(const State& state, const Principal& who, ProjectId id) {
  if (!permissions_in(state, who, id).empty())
    return true;
  const auto project = state.projects.find(id);
  return project != state.projects.end() && !of_one_project(who) &&
         project->second.members.contains(who.name);
}

Status permitted(const State& state, const Principal& who, PermissionSet any_of) {
  if (any_of.empty() || !(permissions_of(state, who) & any_of).empty())
    return {};
  if (is_machine(who))
    return {};
  if (!(any_of & of_projects).empty()) {
    bool in_some = false;
    for (const auto& [id, project] : state.projects) {
      const PermissionSet has = permissions_in(state, who, id);
      if (!(has & any_of).empty())
        return {};
      in_some = in_some || sees(state, who, id);
    }
    if (!in_some)
      return {};
  }
  const bool read_only = who.scope == TokenScope::read;
  return fail(Code::forbidden,
              fmt::format("this needs the permission {}, which {} does not include",
                          names_of(any_of, " or "), read_only ? "a read-only token" : "your role"),
              "an admin can give you a role that includes it: billow role list");
}

Status check_grant(const State& state, UserId by, std::string_view role, ProjectId project) {
  if (!built_in_role(role) && !state.roles.contains(std::string(role))) {
    std::vector<std::string> names;
    for (const BuiltInRole& each : roles_built_in)
      names.emplace_back(each.name);
    for (const auto& [name, custom] : state.roles)
      names.push_back(name);
    return fail(Code::invalid, fmt::format("there is no role \"{}\"", role),
                fmt::format("use one of: {}", join(names, ", ")));
  }
  if (!by)
    return {};
  const auto giver = state.users.find(by);
  if (giver == state.users.end())
    return {};  // the head itself, for somebody who signs in
  const PermissionSet gives =
      project ? allowed_in_project(state, role) : allowed_on_installation(state, role);
  const PermissionSet has = project ? permissions_in(state, giver->second, project)
                                    : permissions_of(state, giver->second);
  if (has.contains(gives))
    return {};
  return fail(Code::forbidden,
              fmt::format("the role {} has permissions that you do not have: {}", role,
                          names_of(gives.without(has))),
              "ask an admin who has them");
}

namespace {

Status not_more(const User& user, PermissionSet more) {
  if (more.empty())
    return {};
  return fail(
      Code::forbidden,
      fmt::format("user {} has permissions that you do not have: {}", user.name, names_of(more)),
      "ask an admin who has them");
}

}  // namespace

Status check_may_change(const State& state, UserId by, const User& user) {
  const auto giver = state.users.find(by);
  if (giver == state.users.end() || giver->first == user.id)
    return {};
  return not_more(user, permissions_of(state, user).without(permissions_of(state, giver->second)));
}

Status check_may_act_as(const State& state, UserId by, const User& user) {
  BILLOW_TRY_VOID(check_may_change(state, by, user));
  const auto giver = state.users.find(by);
  if (giver == state.users.end())
    return {};
  PermissionSet more;
  for (const auto& [id, project] : state.projects)
    more = more | permissions_in(state, user, id).without(permissions_in(state, giver->second, id));
  return not_more(user, more);
}

}  // namespace billow::control
