// Which user a token belongs to, and what that user may do in a project.
#include <fmt/format.h>

#include "base/relative_time.h"
#include "base/text.h"
#include "core/control/decide/permissions.h"

namespace billow::control {

Result<Principal> authenticate(const State& state, std::string_view token_hash, WallTime now) {
  const auto refused = [] {
    return fail(
        Code::unauthorized, "the token is not valid",
        "use the token that `billow up` wrote, or ask an admin for one: billow token create");
  };
  const auto found = state.token_by_hash.find(std::string(token_hash));
  if (found == state.token_by_hash.end())
    return refused();
  // A secret that was replaced is accepted for a while, so that its holders can change over.
  const Token& token = state.tokens.at(found->second);
  if (token.previous_hash == token_hash && token.previous_until <= now)
    return fail(Code::unauthorized,
                fmt::format("the token \"{}\" was rotated, and the time for its old value is over",
                            token.name),
                "use the value that `billow token rotate` showed");
  return principal_of(state, found->second, now);
}

Result<Principal> principal_of(const State& state, TokenId id, WallTime now) {
  const auto refused = [] {
    return fail(
        Code::unauthorized, "the token is not valid any more",
        "use the token that `billow up` wrote, or ask an admin for one: billow token create");
  };
  const auto found = state.tokens.find(id);
  if (found == state.tokens.end())
    return refused();
  const Token& token = found->second;
  // A session never outlives the token that created it.
  if (const auto parent = session_parent(token); parent && !principal_of(state, *parent, now))
    return fail(Code::unauthorized,
                "the session has ended, because the token that it was made from is no longer valid",
                "sign in again: billow dashboard");
  if (token.expires_at && token.expires_at <= now)
    return fail(Code::unauthorized,
                fmt::format("the token \"{}\" expired {}", token.name,
                            relative_time(token.expires_at, now, Zone::utc)),
                "ask an admin for a new one: billow token create");
  const auto user = state.users.find(token.user);
  if (user == state.users.end())
    return refused();
  // A node goes on when the admin who let it join has left.
  if (user->second.state != UserState::active && token.scope != TokenScope::node)
    return fail(Code::unauthorized,
                fmt::format("user {} is {}", user->second.name, enum_name(user->second.state)),
                "ask an admin: billow user set NAME --enable");
  return Principal{.user = token.user,
                   .name = user->second.name,
                   // An agent never has admin rights, even if its user has.
                   .role = token.scope == TokenScope::agent ? roles::member : user->second.role,
                   .scope = token.scope,
                   .project = token.project,
                   .token = token.id,
                   .pool = token.pool,
                   .agent = token.scope == TokenScope::agent ? token.id : TokenId{},
                   .token_name = token.name};
}

namespace {
constexpr std::string_view session_mark = "session:";
}  // namespace
std::string session_hash(TokenId parent, std::string_view hash) {
  return fmt::format("{}{}:{}", session_mark, parent.value, hash);
}
std::optional<TokenId> session_parent(const Token& token) {
  const std::string_view text = token.hash;
  if (!text.starts_with(session_mark))
    return std::nullopt;
  const auto number = parse_int(
      text.substr(session_mark.size(), text.rfind(':') - session_mark.size()), 1, INT64_MAX);
  return number ? std::optional(TokenId(static_cast<std::uint64_t>(*number))) : std::nullopt;
}

std::string node_key_hash(std::string_view public_key) {
  return fmt::format("key:{}", public_key);
}

bool is_founder(const State& state, UserId user) {
  const auto found = state.users.find(user);
  return !user || (found != state.users.end() && found->second.starts_heads);
}

bool runs_as_root(const User& user) {
  return user.unix_name == "root" || user.unix_name == "0";
}

bool may_submit(const State& state, const User& user, ProjectId project) {
  return state.projects.contains(project) &&
         permissions_in(state, user, project).has(Permission::jobs_run);
}

ProjectId first_project(const State& state, const User& user) {
  for (const auto& [id, project] : state.projects)
    if (project.members.contains(user.name) && may_submit(state, user, id))
      return id;
  return {};
}

Result<ProjectId> default_project(const State& state, UserId id) {
  const User& user = state.users.at(id);
  const std::string hint = "choose one: --project NAME, or billow project default NAME";
  if (const auto chosen = state.projects.find(user.default_project);
      chosen != state.projects.end()) {
    if (may_submit(state, user, chosen->first))
      return chosen->first;
    return fail(Code::forbidden,
                fmt::format("user {} may no longer submit to project {}, which is the default",
                            user.name, chosen->second.name),
                hint);
  }
  std::size_t usable = 0, member = 0;
  for (const auto& [project, each] : state.projects) {
    member += each.members.contains(user.name);
    usable += each.members.contains(user.name) && may_submit(state, user, project);
  }
  if (usable == 1)
    return first_project(state, user);
  if (usable > 1)
    return fail(Code::invalid, fmt::format("user {} has no default project", user.name), hint);
  return fail(Code::forbidden,
              member > 0 ? fmt::format("user {} has read-only access", user.name)
                         : fmt::format("user {} belongs to no project", user.name),
              "an admin can change that: billow project member PROJECT USER --role member");
}

}  // namespace billow::control
