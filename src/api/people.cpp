// The routes of users and their tokens.
#include <fmt/format.h>
#include <pwd.h>

#include <algorithm>
#include <set>

#include "api/call.h"
#include "api/sign_in/sign_ins.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/control/money.h"
#include "core/wire/codec.h"

namespace billow::api {

// Nodes have their own list, and their own policy.
bool is_system_account(const std::string& unix_name) {
  constexpr uid_t first_person = 1000, nobody = 65534;
  const passwd* entry = ::getpwnam(unix_name.c_str());
  return entry && (entry->pw_uid < first_person || entry->pw_uid == nobody);
}

}  // namespace billow::api

namespace billow::api::people {
namespace {

constexpr std::int64_t life_s_max = 3650ll * 86400;

const Json ok = Json::object({{"ok", true}});

struct TokenBody {
  std::string name, user, project, node;
  TokenScope scope = TokenScope::full;
  std::int64_t life_s = 0;  // -1: never expires
  bool reusable = false;
  AgentLimits agent;  // for scope agent
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("user", s.user);
    v("scope", s.scope);
    v("project", s.project);
    v("life_s", s.life_s);
    v("node", s.node);
    v("reusable", s.reusable);
    v("agent", s.agent);
  }
};
struct UserBody {
  std::string name, unix_name;
  std::string role = billow::roles::member;
  bool service = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("unix_name", s.unix_name);
    v("role", s.role);
    v("service", s.service);
  }
};
struct SetUserBody {
  std::optional<std::string> role;
  std::optional<bool> disabled;
  JobsOfUser jobs = JobsOfUser::stop;
  std::optional<std::string> login;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("login", s.login);
    v("role", s.role);
    v("disabled", s.disabled);
    v("jobs", s.jobs);
  }
};

struct DefaultProjectBody {
  std::string project;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
  }
};

// Whether the account has root's number under another name.
bool is_root_account(const std::string& unix_name) {
  const passwd* entry = ::getpwnam(unix_name.c_str());
  return entry && entry->pw_uid == 0;
}

// The token that a new one ends with. A session's end is a sign-out, which ends no tokens.
TokenId parent_of(const control::State& state, TokenId maker) {
  const auto token = state.tokens.find(maker);
  return token == state.tokens.end() ? maker
                                     : control::session_parent(token->second).value_or(maker);
}

// Whether the caller shares a project with the user.
bool shares_project(const Call& call, const User& user) {
  for (const auto& [id, project] : call.host.state().projects)
    if (project.members.contains(user.name) && control::sees(call.host.state(), call.principal, id))
      return true;
  return false;
}

// When the token that makes another one ends; 0: never. A browser's session ends by itself, however
// long the token it came from is valid.
WallTime end_of(const control::State& state, TokenId id) {
  const auto token = state.tokens.find(id);
  return token == state.tokens.end() ? WallTime{} : token->second.expires_at;
}

// The life of a new token in seconds, 0: never expires. The default has an end, and no token
// outlives the one that made it.
Result<std::int64_t> life_of(const Call& call, const TokenBody& body) {
  if (body.life_s < -1 || body.life_s > life_s_max)
    return fail(Code::invalid, "life_s must be between 1 and ten years, or -1: never expires");
  const bool joins = body.scope == TokenScope::join;
  if (joins && body.life_s == -1)
    return fail(Code::invalid, "a join token must expire", "add --expires 7d");
  const bool machine = body.scope == TokenScope::node || body.scope == TokenScope::gateway;
  if (body.life_s == -1 && !machine && !call.may(Permission::users_change))
    return fail(Code::forbidden, "only users with users.change can create tokens that never expire",
                "add --expires 90d, or ask an admin");
  std::int64_t life = body.life_s;
  if (life == 0)
    life = joins                             ? limits::join_token_life_default.ns / 1'000'000'000
           : machine                         ? -1
           : body.scope == TokenScope::agent ? limits::agent_token_life_default.ns / 1'000'000'000
                                             : limits::token_life_default.ns / 1'000'000'000;
  const WallTime end = end_of(call.host.state(), call.principal.token);
  if (!end)
    return life == -1 ? 0 : life;
  const std::int64_t left = std::max<std::int64_t>(1, (end - call.host.now()).ns / 1'000'000'000);
  if (body.life_s > left || body.life_s == -1)
    return fail(
        Code::forbidden,
        fmt::format("your {} expires {}; tokens created with it cannot outlive it",
                    control::session_parent(call.host.state().tokens.at(call.principal.token))
                        ? "session"
                        : "token",
                    relative_time(end, call.host.now(), Zone::utc)),
        "use a shorter --expires, or create it with a token that does not expire");
  return life == -1 ? left : std::min(life, left);
}

void issue_token(const CallPtr& call, TokenBody body) {
  const bool other = body.user != call->principal.name;
  const bool machine = body.scope == TokenScope::node || body.scope == TokenScope::join ||
                       body.scope == TokenScope::gateway;
  if (machine && !call->may(Permission::nodes_change))
    return call->fail({Code::forbidden,
                       "creating tokens for machines needs the permission nodes.change",
                       "an admin can give you a role that includes it: billow role list"});
  if (other)
    if (const User* user = call->host.state().user_by_name(body.user);
        user && is_root_account(user->unix_name))
      return call->fail(
          {Code::forbidden,
           fmt::format("nobody can create tokens for {}, who runs jobs as root", body.user),
           "this user creates tokens with the token in the head's data directory"});
  const auto life = life_of(*call, body);
  if (!life)
    return call->fail(life.error());
  std::string secret = (body.scope == TokenScope::join ? "bwj_" : "bw_") + random_token(30);
  CreateToken command{.name = body.name,
                      .hash = sha256_hex(secret),
                      .user = body.user,
                      .scope = body.scope,
                      .project = body.project,
                      .life = seconds(*life),
                      .node = body.node,
                      .once = !body.reusable,
                      .made_by = call->principal.name,
                      .parent = parent_of(call->host.state(), call->principal.token),
                      .agent = body.agent};
  // If the head is its own authority, the token carries the fingerprint to trust.
  if (const std::string pin = call->host.authority_fingerprint(); !pin.empty())
    secret += "." + pin;
  call->execute(std::move(command), 201, [secret](const std::vector<Event>& events) {
    Json document = Json::object({{"token", secret}});
    for (const Event& event : events)
      if (const auto* made = get_if<TokenCreated>(&event.body)) {
        document.set("id", made->token.id.value);
        document.set("expires_at",
                     made->token.expires_at ? Json(format_utc(made->token.expires_at)) : Json());
      }
    return document;
  });
}

// The limits of an agent token, and what is left of them: what its jobs may still cost is
// committed.
Json agent_document(const control::State& state,
                    const Token& token,
                    const std::map<BudgetKey, ledger::BudgetUse>& uses) {
  const auto use = uses.find(control::token_budget(token.id));
  const NanoUsd spent = use == uses.end() ? NanoUsd{} : use->second.spent,
                committed = use == uses.end() ? NanoUsd{} : use->second.reserved,
                left = token.agent.budget - spent - committed;
  const auto jobs = state.agent_jobs.find(token.id);
  Json document =
      Json::object({{"gpus", static_cast<double>(token.agent.gpus_milli) / 1000},
                    {"at_expiry", token.agent.keep_jobs ? "keep" : "stop"},
                    {"jobs", jobs == state.agent_jobs.end() ? 0 : jobs->second.size()}});
  for (const auto& [name, value] :
       {std::pair("budget", token.agent.budget), std::pair("per_job", token.agent.per_job),
        std::pair("spent", spent), std::pair("committed", committed), std::pair("left", left)}) {
    document.set(name, format_usd(value));
    document.set(fmt::format("{}_nano_usd", name), value.value);
  }
  return document;
}

std::set<std::string> tokens_made_by(const control::State& state, const std::string& maker) {
  std::set<std::string> users;
  for (const auto& [id, token] : state.tokens)
    if (const auto user = state.users.find(token.user);
        token.made_by == maker && user != state.users.end())
      users.insert(user->second.name);
  return users;
}

void change_user(const CallPtr& call, SetUser command) {
  const std::set<std::string> made_for = tokens_made_by(call->host.state(), call->parts[0]);
  call->execute(std::move(command), 200, [call, made_for](const std::vector<Event>& events) {
    std::uint64_t tokens = 0, jobs = 0, webhooks = 0;
    for (const Event& event : events) {
      tokens += holds_alternative<TokenRevoked>(event.body);
      webhooks += holds_alternative<WebhookRemoved>(event.body);
      jobs += holds_alternative<JobStopping>(event.body) || holds_alternative<JobEnded>(event.body);
    }
    // Users whose tokens this one had created.
    Json others = Json::array();
    for (const std::string& name : made_for)
      if (!tokens_made_by(call->host.state(), call->parts[0]).contains(name))
        others.push(name);
    Json endpoints = Json::array();
    for (const auto& [name, endpoint] : call->host.state().endpoints)
      if (const auto user = call->host.state().users.find(endpoint.user);
          user != call->host.state().users.end() && user->second.name == call->parts[0])
        endpoints.push(name);
    return Json::object({{"ok", true},
                         {"tokens_revoked", tokens},
                         {"jobs_stopped", jobs},
                         {"webhooks_removed", webhooks},
                         {"lost_tokens", std::move(others)},
                         {"endpoints", std::move(endpoints)}});
  });
}

// The user that an account of this machine is. None: there is nobody yet, so one may be made. Root
// is the user who started the head; nobody else becomes that user, or one whose jobs run as root.
Result<const User*> user_of_account(const control::State& state,
                                    unsigned uid,
                                    const std::string& account) {
  const auto refused = [&](std::string why, std::string hint) {
    return fail(Code::forbidden, fmt::format("account {}: {}", account, why), std::move(hint));
  };
  const User* found = nullptr;
  const User* known = nullptr;
  for (const auto& [id, user] : state.users) {
    if (user.unix_name == account) {
      if (user.state != UserState::active) {
        known = &user;
        continue;
      }
      if (found)
        return refused("several Billow users run jobs as this account",
                       "log in with your own token: billow login");
      found = &user;
    } else if (user.name == account) {
      known = &user;
    }
  }
  if (found && found->service)
    return refused("this Billow user is a service account and cannot sign in",
                   "use one of its tokens");
  if (found && uid != 0 && (found->starts_heads || control::runs_as_root(*found)))
    return refused("this Billow user cannot sign in by account", "log in with a token");
  if (!found && known && known->state != UserState::active)
    return refused(
        fmt::format("user {} is {}", known->name, enum_name(known->state)),
        known->state == UserState::removed
            ? fmt::format("ask an admin to create the user again: billow user create {}{}",
                          known->name, known->name == account ? "" : " --unix-name " + account)
            : fmt::format("ask an admin: billow user set {} --enable", known->name));
  if (!found && (known || uid == 0))
    return refused(fmt::format("the Billow user {} runs jobs as another account", account),
                   "ask an admin for a token: billow token create first --user NAME");
  return found;
}

void reply_with_account_token(const CallPtr& call,
                              const User& user,
                              const AccountTokens::Given& given) {
  call->reply(201, Json::object({{"token", given.secret},
                                 {"user", user.name},
                                 {"expires_at", format_utc(given.until)}}));
}

void give_account_token(const CallPtr& call, UserId id) {
  const control::State& state = call->host.state();
  const User& user = state.users.at(id);
  if (const auto* given = call->accounts->usable(state, id, call->host.now()))
    return reply_with_account_token(call, user, *given);
  const std::string secret = "bw_" + random_token(30);
  CreateToken command{.name = "this-machine",
                      .hash = sha256_hex(secret),
                      .user = user.name,
                      .project = {},
                      .life = AccountTokens::life,
                      .node = {},
                      .made_by = user.name,
                      .parent = {}};
  call->host.execute(
      std::move(command), {"user:" + user.name, call->request().request_id},
      [call, id, secret](Result<std::vector<Event>> events) {
        if (!events)
          return call->fail(events.error());
        for (const Event& event : *events)
          if (const auto* made = get_if<TokenCreated>(&event.body))
            call->accounts->keep(id, {made->token.id, secret, made->token.expires_at});
        const auto* given = call->accounts->usable(call->host.state(), id, call->host.now());
        const auto user = call->host.state().users.find(id);
        if (!given || user == call->host.state().users.end())
          return call->fail({Code::unavailable, "the sign-in was revoked", ""});
        reply_with_account_token(call, user->second, *given);
      });
}

// A new user is a member of the project that every head begins with, if it still exists.
void join_first_project(const CallPtr& call, const std::string& name) {
  constexpr const char* first = "default";
  const auto done = [call, name](const Result<std::vector<Event>>&) {
    if (const User* user = call->host.state().user_by_name(name))
      return give_account_token(call, user->id);
    call->fail({Code::unavailable, fmt::format("user {} was removed meanwhile", name), ""});
  };
  call->host.execute(SetMember{first, name, billow::roles::member},
                     {"head", call->request().request_id}, done);
}

void sign_in_account(const CallPtr& call, unsigned uid, const std::string& account) {
  const auto user = user_of_account(call->host.state(), uid, account);
  if (!user)
    return call->fail(user.error());
  if (*user)
    return give_account_token(call, (*user)->id);
  call->host.execute(AddUser{account, account, billow::roles::member, {}},
                     {"head", call->request().request_id},
                     [call, account](const Result<std::vector<Event>>& events) {
                       if (!events)
                         return call->fail(events.error());
                       join_first_project(call, account);
                     });
}

}  // namespace

void users(CallPtr call) {
  Json list = Json::array();
  const bool all = call->may(Permission::users_read);
  for (const auto& [id, user] : call->host.state().users) {
    if (user.state == UserState::removed)
      continue;
    if (!all && id != call->principal.user && !shares_project(*call, user))
      continue;
    Json document = Json::object({{"id", id.value}, {"name", user.name}});
    if (all || id == call->principal.user) {
      document.set("unix_name", user.unix_name);
      document.set("role", user.role);
      document.set("state", enum_name(user.state));
      document.set("service", user.service);
    }
    list.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"users", std::move(list)}}));
}

void add_user(CallPtr call) {
  const auto body = read_body<UserBody>(call);
  if (!body)
    return;
  const std::string& account = body->unix_name.empty() ? body->name : body->unix_name;
  if (is_root_account(account))
    return call->fail(
        {Code::invalid,
         fmt::format(
             "user {} may not run jobs as root, and \"{}\" is the root account of the nodes",
             body->name, account),
         "use an ordinary account of the nodes: --unix-name NAME"});
  if (!control::is_founder(call->host.state(), call->principal.user) && is_system_account(account))
    return call->fail(
        {Code::forbidden,
         fmt::format("{} is a system account; only the user who started the head can give it to a "
                     "user",
                     account),
         "use an ordinary account of the nodes: --unix-name NAME"});
  call->execute(
      AddUser{body->name, body->unix_name, body->role, call->principal.user, body->service}, 201,
      [](const std::vector<Event>&) { return ok; });
}

void set_user(CallPtr call) {
  const auto body = read_body<SetUserBody>(call);
  if (!body)
    return;
  if (body->login && (body->role || body->disabled))
    return call->fail({Code::invalid, "the login cannot change together with the role or the state",
                       "send it in a request of its own"});
  if (body->login)
    return sign_in::link_user(call, *body->login);
  SetUser command{
      .name = call->parts[0], .role = body->role, .jobs = body->jobs, .by = call->principal.user};
  if (body->disabled)
    command.state = *body->disabled ? UserState::disabled : UserState::active;
  change_user(call, std::move(command));
}

void remove_user(CallPtr call) {
  SetUser command{.name = call->parts[0], .state = UserState::removed, .by = call->principal.user};
  if (const auto given = call->request().param("jobs"); !given.empty()) {
    const auto jobs = enum_value<JobsOfUser>(given);
    if (!jobs)
      return call->fail({Code::invalid, "jobs must be stop or keep", ""});
    command.jobs = *jobs;
  }
  change_user(call, std::move(command));
}

void tokens(CallPtr call) {
  const auto& state = call->host.state();
  const auto uses = control::budget_uses(state, call->host.billed());
  Json list = Json::array();
  for (const auto& [id, token] : state.tokens) {
    if (token.user != call->principal.user && !call->may(Permission::users_read))
      continue;
    if (call->principal.agent && id != call->principal.agent)
      continue;
    Json document = Json::object({{"id", id.value},
                                  {"name", token.name},
                                  {"user", state.users.at(token.user).name},
                                  {"scope", enum_name(token.scope)},
                                  {"created_at", format_utc(token.created_at)}});
    document.set("expires_at", token.expires_at ? Json(format_utc(token.expires_at)) : Json());
    if (const auto project = state.projects.find(token.project); project != state.projects.end())
      document.set("project", project->second.name);
    if (!token.node.empty())
      document.set("node", token.node);
    if (!token.made_by.empty())
      document.set("made_by", token.made_by);
    if (token.parent)
      document.set("parent", token.parent.value);
    if (const auto used = call->sign_ins->last_use(id))
      document.set("last_used_at", format_utc(*used));
    if (token.once && !token.joined.empty())
      document.set("used_by", token.joined.begin()->first);
    if (token.scope == TokenScope::agent)
      document.set("agent", agent_document(state, token, uses));
    list.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"tokens", std::move(list)}}));
}

void create_token(CallPtr call) {
  auto body = read_body<TokenBody>(call);
  if (!body)
    return;
  if (!body->user.empty() && body->user != call->principal.name)
    return call->fail({Code::forbidden, "you can create tokens only for yourself",
                       fmt::format("an admin can: POST /v1/users/{}/tokens", body->user)});
  body->user = call->principal.name;
  issue_token(call, std::move(*body));
}

// The first token of a new user. It lets its maker act as that user, so it is an admin's act, named
// in the token and in the journal.
void create_token_for(CallPtr call) {
  auto body = read_body<TokenBody>(call);
  if (!body)
    return;
  if (!body->user.empty() && body->user != call->parts[0])
    return call->fail({Code::invalid, "the body and the path name different users", ""});
  body->user = call->parts[0];
  issue_token(call, std::move(*body));
}

// By users for themselves: where their submissions go that name no project.
void set_default_project(CallPtr call) {
  const auto body = read_body<DefaultProjectBody>(call);
  if (!body)
    return;
  const auto project = visible_project(*call, body->project);
  if (!project)
    return call->fail(project.error());
  call->execute(SetDefaultProject{call->principal.user, body->project}, 200,
                [](const std::vector<Event>&) { return ok; });
}

// The kernel says which account a program on the other end of a Unix socket has; nothing that the
// program sends counts.
void sign_in_by_account(CallPtr call) {
  constexpr std::string_view local_peer = "unix:uid=";
  const std::string& peer = call->request().peer;
  const auto uid = peer.starts_with(local_peer)
                       ? parse_int(peer.substr(local_peer.size()), 0, UINT32_MAX)
                       : Result<std::int64_t>(fail(Code::invalid, "no account"));
  if (!uid)
    return call->fail({Code::forbidden,
                       "only programs on the head's machine can sign in by their account",
                       "log in with a token: billow login"});
  call->host.local_account(static_cast<unsigned>(*uid),
                           [call, uid = static_cast<unsigned>(*uid)](Result<std::string> account) {
                             if (!account)
                               return call->fail(account.error());
                             sign_in_account(call, uid, *account);
                           });
}

}  // namespace billow::api::people
