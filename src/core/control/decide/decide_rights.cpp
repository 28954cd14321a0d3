// Decisions about roles that admins make, and about new secrets for tokens.
#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/permissions.h"

namespace billow::control {

Decision Decider::operator()(const SetRole& c) {
  BILLOW_TRY_VOID(check_name("role", c.name));
  for (const BuiltInRole& each : built_in_roles())
    if (c.name == each.name)
      return fail(Code::conflict, fmt::format("the role {} is built in", c.name),
                  "choose another name");
  if (c.allow.empty())
    return fail(Code::invalid, fmt::format("role {} would allow nothing", c.name),
                "name its permissions: --allow jobs.read,jobs.run; see `billow help --rights`");
  if (!state.roles.contains(c.name) && state.roles.size() >= limits::custom_roles_max)
    return fail(Code::exhausted,
                fmt::format("{} roles exist already, which is the limit", state.roles.size()));
  PermissionSet allow;
  for (const Permission each : c.allow)
    allow = allow | each;
  const auto maker = state.users.find(c.by);
  if (maker != state.users.end())
    if (const PermissionSet more = allow.without(permissions_of(state, maker->second));
        !more.empty())
      return fail(Code::forbidden,
                  fmt::format("you cannot create a role with permissions that you do not have: {}",
                              names_of(more)),
                  "ask an admin who may do that");
  return Events{RoleSet{{.name = c.name,
                         .allow = list_of(allow),
                         .by = maker == state.users.end() ? "" : maker->second.name,
                         .at = context.now}}};
}

Decision Decider::operator()(const RemoveRole& c) {
  if (!state.roles.contains(c.name))
    return fail(Code::not_found, fmt::format("there is no role \"{}\"", c.name),
                "see `billow role list`; built-in roles stay");
  std::vector<std::string> users;
  for (const auto& [id, user] : state.users)
    if (user.role == c.name && user.state != UserState::removed)
      users.push_back(user.name);
  for (const auto& [id, project] : state.projects)
    for (const auto& [name, role] : project.members)
      if (role == c.name)
        users.push_back(fmt::format("{} in project {}", name, project.name));
  if (!users.empty())
    return fail(Code::conflict,
                fmt::format("{} user{} the role {}: {}", users.size(),
                            users.size() == 1 ? " has" : "s have", c.name, join(users, ", ")),
                "give these users another role first: billow user set, billow project member");
  return Events{RoleRemoved{c.name}};
}

Decision Decider::operator()(const RotateToken& c) {
  const auto found = state.tokens.find(c.token);
  if (found == state.tokens.end())
    return fail(Code::not_found, "no such token", "see `billow token list`");
  const Token& token = found->second;
  switch (token.scope) {
    case TokenScope::full:
    case TokenScope::read:
    case TokenScope::submit:
    case TokenScope::gateway:
    case TokenScope::agent:
      break;
    case TokenScope::node:
      // Its agent asks for this, with a key that only the agent has.
      if (c.hash.starts_with(node_key_hash("")))
        break;
      [[fallthrough]];
    case TokenScope::join:
      return fail(Code::invalid, "tokens of machines cannot be rotated",
                  "on the machine, run: billow join --rotate-key");
  }
  if (session_parent(token))
    return fail(Code::invalid, "a browser's session cannot be rotated", "sign in again");
  if (state.token_by_hash.contains(c.hash))
    return fail(Code::conflict, "this token exists already");
  if (token.expires_at && token.expires_at <= context.now)
    return fail(Code::conflict, fmt::format("the token \"{}\" has expired", token.name),
                "create a new one: billow token create NAME");
  if (c.life > limits::time_named_max || c.grace > hours(24 * 30) || c.grace.ns < 0)
    return fail(Code::invalid,
                "a token can be valid for at most ten years, its old value for 30 days");
  WallTime until = context.now + c.grace;
  if (token.expires_at)
    until = std::min(until, token.expires_at);
  return Events{TokenRotated{.token = token.id,
                             .hash = c.hash,
                             .expires_at = c.life.ns > 0 ? context.now + c.life : WallTime{},
                             .previous_until = until}};
}

}  // namespace billow::control
