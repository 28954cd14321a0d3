// Decisions about identities: the first start, users, projects, members, tokens.
#include "core/control/decide/decider.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"

namespace billow::control {

Decision Decider::operator()(const StartHead& c) {
  Events events;
  // Ids are assigned here one by one, because none of these events has been applied yet.
  std::uint64_t next_token = state.next_token;
  UserId admin;
  if (const User* found = state.user_by_name(c.admin))
    admin = found->id;
  events.push_back(HeadStarted{c.version, c.epoch, admin});
  if (!admin) {
    admin = UserId(state.next_user);
    events.push_back(UserAdded{{.id = admin,
                                .name = c.admin,
                                .unix_name = c.admin,
                                .role = Role::admin,
                                .starts_heads = true}});
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
  token("local-gateway" + c.token_suffix, c.gateway_token_hash, TokenScope::gateway);
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

namespace {

// Whoever has a token of the user who started the head, or of root, has the head's own rights on
// its machine and root's on the nodes. Both have a token in the head's data directory.
Status check_impersonation(const User& user) {
  if (user.starts_heads || user.unix_name == "root" || user.unix_name == "0")
    return fail(Code::forbidden,
                fmt::format("nobody can create tokens for {}, who {}", user.name,
                            user.starts_heads ? "started this head" : "runs jobs as root"),
                "this user creates tokens with the token in the head's data directory");
  return {};
}

}  // namespace

Decision Decider::operator()(const CreateToken& c) {
  BILLOW_TRY_VOID(check_name("token", c.name));
  const User* user = state.user_by_name(c.user);
  if (!user)
    return fail(Code::not_found, fmt::format("no user is named \"{}\"", c.user));
  if (user->state != UserState::active)
    return fail(Code::conflict, fmt::format("user {} is disabled", c.user),
                fmt::format("enable it first: billow user set {} --enable", c.user));
  if (!c.made_by.empty() && c.made_by != c.user)
    BILLOW_TRY_VOID(check_impersonation(*user));
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
  if (c.scope == TokenScope::node && c.node.empty())
    return fail(Code::invalid, "a node's token needs the name of the node that it is for",
                "add --node-name NAME, or let the machine join: billow token create --node");
  if (!c.node.empty()) {
    if (c.scope != TokenScope::node && c.scope != TokenScope::join)
      return fail(Code::invalid, "only tokens of the scopes node and join are for one node");
    BILLOW_TRY_VOID(check_name("node", c.node));
    token.node = c.node;
  }
  token.once = c.scope == TokenScope::join && c.once;
  if (c.made_by != c.user)
    token.made_by = c.made_by;
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

Decision Decider::operator()(const SetUser& c) {
  const User* user = state.user_by_name(c.name);
  if (!user)
    return fail(Code::not_found, fmt::format("no user is named \"{}\"", c.name),
                "see `billow user list`");
  UserChanged changed{user->id, c.role.value_or(user->role), c.state.value_or(user->state)};
  if (changed.role == user->role && changed.state == user->state)
    return Events{};
  if (user->starts_heads && (changed.role != Role::admin || changed.state != UserState::active))
    return fail(Code::forbidden,
                fmt::format("user {} started this head and stays an active admin", c.name));
  Events events{changed};
  if (changed.state == UserState::active)
    return events;
  for (const auto& [id, token] : state.tokens)
    if (token.user == user->id && token.scope != TokenScope::node)
      events.push_back(TokenRevoked{id});
  if (changed.state == UserState::removed) {
    for (const auto& [id, project] : state.projects)
      if (project.members.contains(user->name))
        events.push_back(MemberSet{id, user->name, std::nullopt});
    for (const auto& [id, schedule] : state.schedules)
      if (schedule.user == user->id)
        events.push_back(ScheduleRemoved{id});
  }
  if (c.jobs == JobsOfUser::keep)
    return events;
  // Waiting jobs end first, so that none starts in the capacity that a running one leaves.
  // Replicas stay: an endpoint belongs to its project.
  const StopJob stop{{}, fmt::format("user {} was {}", c.name, enum_name(changed.state))};
  std::set<JobId> replicas;
  for (const auto& [endpoint, jobs] : state.replicas)
    replicas.insert(jobs.begin(), jobs.end());
  for (const bool running : {false, true})
    for (const auto& [id, job] : state.jobs)
      if (job.user == user->id && (job.state == JobState::running) == running &&
          !replicas.contains(id))
        stop_one(events, job, stop);
  return events;
}

}  // namespace billow::control
