// Decisions about identities: the first start, users, projects, members, tokens.
#include "core/control/decide/decider.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/notices.h"
#include "core/control/decide/permissions.h"
#include "core/control/quotas.h"

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
                                .role = roles::admin,
                                .starts_heads = true}});
  }
  if (state.projects.empty()) {
    Project project{.id = ProjectId(state.next_project),
                    .name = "default",
                    .members = {{c.admin, roles::admin}}};
    events.push_back(ProjectAdded{project});
    events.push_back(DefaultProjectSet{admin, project.id});
  }
  // Of users of earlier versions, whose default was the first project they could submit to.
  for (const auto& [id, user] : state.users)
    if (!user.default_project && user.state != UserState::removed)
      if (const ProjectId project = first_project(state, user))
        events.push_back(DefaultProjectSet{id, project});
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
  BILLOW_TRY_VOID(check_grant(state, c.by, c.role, {}));
  const std::string& unix_name = c.unix_name.empty() ? c.name : c.unix_name;
  // Only the user who started Billow as root may run jobs as root, and nobody added later.
  if (unix_name == "root" || unix_name == "0")
    return fail(Code::invalid, fmt::format("user {} may not run jobs as root", c.name),
                "use an ordinary account of the nodes: --unix-name NAME");
  // Nobody takes over another person's account, also not that of a user who was removed.
  if (!is_founder(state, c.by))
    for (const auto& [id, other] : state.users)
      if (other.unix_name == unix_name &&
          (other.state != UserState::removed || other.name != c.name))
        return fail(Code::forbidden,
                    fmt::format("the account {} belongs to user {}", unix_name, other.name),
                    "use another account of the nodes: --unix-name NAME; only the user who started "
                    "the head can share one");
  return Events{UserAdded{{.id = UserId(state.next_user),
                           .name = c.name,
                           .unix_name = unix_name,
                           .role = c.role,
                           .service = c.service}}};
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
    return fail(Code::not_found, fmt::format("there is no project \"{}\"", c.project),
                "see `billow project list`");
  if (!state.user_by_name(c.user))
    return fail(Code::not_found, fmt::format("there is no user \"{}\"", c.user),
                "see `billow user list`");
  if (c.role)
    BILLOW_TRY_VOID(check_grant(state, c.by, *c.role, project->id));
  Events events{MemberSet{project->id, c.user, c.role}};
  // The first project becomes the user's default. Being added to others never changes it.
  const User& user = *state.user_by_name(c.user);
  if (c.role && allowed_in_project(state, *c.role).has(Permission::jobs_run) &&
      !user.default_project)
    events.push_back(DefaultProjectSet{user.id, project->id});
  return events;
}

Decision Decider::operator()(const SetDefaultProject& c) {
  const ProjectId project = BILLOW_TRY(project_for(c.project, c.user));
  const User& user = state.users.at(c.user);
  if (!may_submit(state, user, project))
    return fail(Code::forbidden, fmt::format("you may not submit to project {}", c.project),
                "ask one of its admins to make you a member");
  if (user.default_project == project)
    return Events{};
  return Events{DefaultProjectSet{c.user, project}};
}

namespace {

// A token of the user who started the head, or of root, gives the head's own rights on its machine
// and root's on the nodes. Both have a token in the head's data directory.
Status check_impersonation(const User& user) {
  if (user.starts_heads || runs_as_root(user))
    return fail(Code::forbidden,
                fmt::format("nobody can create tokens for {}, who {}", user.name,
                            user.starts_heads ? "started this head" : "runs jobs as root"),
                "this user creates tokens with the token in the head's data directory");
  return {};
}

// Whether this user may create tokens for that one; empty: the head does.
Status check_maker(const State& state, const std::string& made_by, const User& user) {
  if (made_by.empty() || made_by == user.name)
    return {};
  BILLOW_TRY_VOID(check_impersonation(user));
  const User* maker = state.user_by_name(made_by);
  return maker ? check_may_act_as(state, maker->id, user) : Status{};
}

constexpr Duration expired_token_kept = hours(24 * 7);  // listed for as long, sessions not at all
constexpr std::size_t expired_tokens_at_once = 100;

// Tokens of the user that expired long ago, so that they do not add up.
void forget_expired(const State& state, UserId user, WallTime now, Events& events) {
  for (const auto& [id, token] : state.tokens) {
    if (token.user != user || !token.expires_at)
      continue;
    if (token.expires_at + (session_parent(token) ? Duration{} : expired_token_kept) < now)
      events.push_back(TokenRevoked{id});
    if (events.size() == expired_tokens_at_once)
      return;
  }
}

// The head knows only the hash of a token, so nobody but the head can ask for the same one again:
// it renews the token of a sign-in while the identity provider still knows the person.
Decision renewed(const Token& token, const User& user, const CreateToken& c, WallTime now) {
  if (token.user != user.id || token.name != c.name || token.scope != c.scope ||
      !token.expires_at || session_parent(token) || c.life.ns <= 0)
    return fail(Code::conflict, "this token exists already");
  Token longer = token;
  longer.expires_at = std::max(token.expires_at, now + c.life);
  return Events{TokenCreated{std::move(longer)}};
}

}  // namespace

Decision Decider::operator()(const CreateToken& c) {
  BILLOW_TRY_VOID(check_name("token", c.name));
  const User* user = state.user_by_name(c.user);
  if (!user)
    return fail(Code::not_found, fmt::format("there is no user \"{}\"", c.user),
                "see `billow user list`");
  if (user->state != UserState::active)
    return fail(Code::conflict, fmt::format("user {} is disabled", c.user),
                fmt::format("enable it first: billow user set {} --enable", c.user));
  BILLOW_TRY_VOID(check_maker(state, c.made_by, *user));
  if (const auto same = state.token_by_hash.find(c.hash); same != state.token_by_hash.end())
    return renewed(state.tokens.at(same->second), *user, c, context.now);
  Token token{.id = TokenId(state.next_token),
              .name = c.name,
              .hash = c.hash,
              .user = user->id,
              .scope = c.scope,
              .project = {},
              .created_at = context.now,
              .expires_at = {}};
  BILLOW_TRY_VOID(check_objects(state, user->id, {}, context.now));
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
  } else if (c.scope == TokenScope::submit || c.scope == TokenScope::agent) {
    token.project = BILLOW_TRY(project_for(c.project, user->id));
  }
  if (token.scope == TokenScope::agent)
    BILLOW_TRY_VOID(limit_agent(state, c, token));
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
  token.parent = c.parent;
  Events events;
  forget_expired(state, user->id, context.now, events);
  const bool agent = token.scope == TokenScope::agent;
  const Budget budget{
      .scope = BudgetScope::token,
      .of = token.id.value,
      .period = BudgetPeriod::total,
      .limit = token.agent.budget,
      .stops = false};  // what its jobs may cost is set aside when they are submitted
  events.push_back(TokenCreated{std::move(token)});
  if (agent)
    events.push_back(BudgetSet{budget, {}});
  return events;
}

namespace {

// A credential that its machine made itself and nobody else has seen.
bool is_node_key(const Token& token) {
  return token.scope == TokenScope::node && token.hash.starts_with(node_key_hash(""));
}

// The tokens with everything that was created with them, in order and each once. Machines that have
// joined stay: their keys were never anybody else's.
void revoke_all(const State& state, std::set<TokenId> tokens, Events& events) {
  for (bool more = true; more;) {
    more = false;
    for (const auto& [id, token] : state.tokens) {
      const TokenId parent = session_parent(token).value_or(token.parent);
      if (parent && tokens.contains(parent) && !is_node_key(token))
        more |= tokens.insert(id).second;
    }
  }
  for (const TokenId id : tokens)
    events.push_back(TokenRevoked{id});
}

// What only an admin may create, and an admin who is none any more still knows: tokens for machines
// and for other users.
bool needs_admin(const Token& token, const User& maker) {
  if (token.made_by == maker.name)
    return true;
  return token.user == maker.id && !is_node_key(token) &&
         (token.scope == TokenScope::join || token.scope == TokenScope::node ||
          token.scope == TokenScope::gateway);
}

}  // namespace

Decision Decider::operator()(const RevokeToken& c) {
  if (!state.tokens.contains(c.token))
    return fail(Code::not_found, "no such token");
  Events events;
  revoke_all(state, {c.token}, events);
  return events;
}

Decision Decider::operator()(const SetUser& c) {
  const User* user = state.user_by_name(c.name);
  if (!user)
    return fail(Code::not_found, fmt::format("there is no user \"{}\"", c.name),
                "see `billow user list`");
  UserChanged changed{user->id, c.role.value_or(user->role), c.state.value_or(user->state)};
  if (changed.role == user->role && changed.state == user->state)
    return Events{};
  BILLOW_TRY_VOID(check_may_change(state, c.by, *user));
  if (changed.role != user->role)
    BILLOW_TRY_VOID(check_grant(state, c.by, changed.role, {}));
  if (user->starts_heads && (changed.role != roles::admin || changed.state != UserState::active))
    return fail(Code::forbidden,
                fmt::format("user {} started this head and stays an active admin", c.name));
  Events events{changed};
  const bool leaves = changed.state != UserState::active;
  const PermissionSet had = permissions_of(state, *user);
  const bool no_admin =
      leaves ? !had.empty() : !allowed_on_installation(state, changed.role).contains(had);
  std::set<TokenId> ended;
  for (const auto& [id, token] : state.tokens)
    if ((leaves && token.user == user->id && token.scope != TokenScope::node) ||
        (no_admin && needs_admin(token, *user)))
      ended.insert(id);
  revoke_all(state, std::move(ended), events);
  if (no_admin)
    for (const auto& [id, webhook] : state.money.webhooks)
      if (webhook.by == user->id)
        remove_webhook(state, id, events);
  if (!leaves)
    return events;
  for (const auto& [id, target] : state.notices.targets)
    if (target.user == user->id)
      remove_target(state, id, events);
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
