// Decisions about identities: the first start, users, projects, members, tokens.
#include "core/control/decide/decider.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"

namespace billow::control {

Decision Decider::operator()(const StartHead& c) {
  Events events;
  events.push_back(HeadStarted{c.version, c.epoch});
  // Ids are assigned here one by one, because none of these events has been applied yet.
  std::uint64_t next_token = state.next_token;
  UserId admin;
  if (const User* found = state.user_by_name(c.admin))
    admin = found->id;
  if (!admin) {
    admin = UserId(state.next_user);
    events.push_back(
        UserAdded{{.id = admin, .name = c.admin, .unix_name = c.admin, .role = Role::admin}});
  }
  if (state.projects.empty()) {
    Project project{.id = ProjectId(state.next_project),
                    .name = "default",
                    .members = {{c.admin, Role::admin}}};
    events.push_back(ProjectAdded{project});
  }
  const auto token = [&](const std::string& name, const std::string& hash, TokenScope scope) {
    if (hash.empty() || state.token_by_hash.contains(hash))
      return;
    for (const auto& [id, old] : state.tokens)
      if (old.name == name)
        events.push_back(TokenRevoked{id});
    events.push_back(TokenCreated{{.id = TokenId(next_token++),
                                   .name = name,
                                   .hash = hash,
                                   .user = admin,
                                   .scope = scope,
                                   .project = {},
                                   .created_at = context.now,
                                   .expires_at = {}}});
  };
  token("local" + c.token_suffix, c.admin_token_hash, TokenScope::full);
  token("local-node" + c.token_suffix, c.node_token_hash, TokenScope::node);
  // No agent has said hello to this head yet. A node that does so takes jobs again; one that is
  // gone gets none meanwhile.
  for (const auto& [id, node] : state.nodes)
    if (node.reachable)
      events.push_back(NodeUnreachable{id});
  return events;
}

Decision Decider::operator()(const AddUser& c) {
  BILLOW_TRY_VOID(check_name("user", c.name));
  if (state.user_by_name(c.name))
    return fail(Code::conflict, fmt::format("user \"{}\" already exists", c.name));
  const std::string& unix_name = c.unix_name.empty() ? c.name : c.unix_name;
  // Only the user who started Billow as root may run jobs as root, and nobody added later.
  if (unix_name == "root" || unix_name == "0")
    return fail(Code::invalid, fmt::format("user {} may not run jobs as root", c.name),
                "use an ordinary account of the nodes: --unix-name NAME");
  return Events{UserAdded{
      {.id = UserId(state.next_user), .name = c.name, .unix_name = unix_name, .role = c.role}}};
}

Decision Decider::operator()(const AddProject& c) {
  BILLOW_TRY_VOID(check_name("project", c.name));
  if (state.project_by_name(c.name))
    return fail(Code::conflict, fmt::format("project \"{}\" already exists", c.name));
  if (c.weight == 0 || c.weight > 1'000'000)
    return fail(Code::invalid, "a project's weight must be between 1 and 1000000");
  Project project{.id = ProjectId(state.next_project), .name = c.name, .members = {}};
  project.weight = c.weight;
  return Events{ProjectAdded{std::move(project)}};
}

Decision Decider::operator()(const SetMember& c) {
  const Project* project = state.project_by_name(c.project);
  if (!project)
    return fail(Code::not_found, fmt::format("no project is named \"{}\"", c.project));
  if (!state.user_by_name(c.user))
    return fail(Code::not_found, fmt::format("no user is named \"{}\"", c.user));
  return Events{MemberSet{project->id, c.user, c.role}};
}

Decision Decider::operator()(const CreateToken& c) {
  BILLOW_TRY_VOID(check_name("token", c.name));
  const User* user = state.user_by_name(c.user);
  if (!user)
    return fail(Code::not_found, fmt::format("no user is named \"{}\"", c.user));
  Token token{.id = TokenId(state.next_token),
              .name = c.name,
              .hash = c.hash,
              .user = user->id,
              .scope = c.scope,
              .project = {},
              .created_at = context.now,
              .expires_at = {}};
  if (c.life > limits::time_named_max)
    return fail(Code::invalid, "a token can be valid for at most ten years",
                "drop the duration for a token that does not expire");
  if (c.life.ns > 0)
    token.expires_at = context.now + c.life;
  // A session has the rights of its token, ends no later, and cannot create tokens.
  if (const auto from = session_parent(token)) {
    const auto parent = state.tokens.find(*from);
    if (parent == state.tokens.end() || session_parent(parent->second))
      return fail(Code::unauthorized, "a session needs a token", "sign in again: billow dashboard");
    token.user = parent->second.user;
    token.scope = parent->second.scope;
    token.project = parent->second.project;
    if (parent->second.expires_at)
      token.expires_at = token.expires_at ? std::min(token.expires_at, parent->second.expires_at)
                                          : parent->second.expires_at;
  } else if (c.scope == TokenScope::submit) {
    token.project = BILLOW_TRY(project_for(c.project, user->id));
  }
  return Events{TokenCreated{std::move(token)}};
}

Decision Decider::operator()(const RevokeToken& c) {
  if (!state.tokens.contains(c.token))
    return fail(Code::not_found, "no such token");
  Events events{TokenRevoked{c.token}};
  for (const auto& [id, token] : state.tokens)
    if (session_parent(token) == c.token)
      events.push_back(TokenRevoked{id});
  return events;
}

}  // namespace billow::control
