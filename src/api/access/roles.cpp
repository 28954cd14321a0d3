// The routes of roles, and of what holders of tokens do with them: revoke and rotate.
#include <fmt/format.h>

#include <algorithm>

#include "api/call.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/wire/codec.h"

namespace billow::api::people {
namespace {

const Json done = Json::object({{"ok", true}});

struct RoleBody {
  std::vector<std::string> allow;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("allow", s.allow);
  }
};
struct RotateBody {
  std::int64_t grace_s = 3600;
  std::int64_t life_s = 0;  // 0: the default, -1: never expires
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("grace_s", s.grace_s);
    v("life_s", s.life_s);
  }
};

Json role_document(std::string_view name, const std::vector<Permission>& allow) {
  Json permissions = Json::array();
  for (const Permission each : allow)
    permissions.push(enum_name(each));
  return Json::object({{"name", std::string(name)}, {"allow", std::move(permissions)}});
}

// A token that the caller may end or replace: its own, or that of a user it may act for.
const Token* token_to_change(const CallPtr& call) {
  const auto id = parse_int(call->parts[0], 1, INT64_MAX);
  if (!id) {
    call->fail({Code::invalid, fmt::format("\"{}\" is not a token number", call->parts[0]),
                "see `billow token list`"});
    return nullptr;
  }
  const auto& state = call->host.state();
  const auto found = state.tokens.find(TokenId(static_cast<std::uint64_t>(*id)));
  const bool own = found != state.tokens.end() && found->second.user == call->principal.user;
  if (found == state.tokens.end() || (!own && !call->may(Permission::users_change))) {
    call->fail(
        {Code::not_found, fmt::format("there is no token {}", *id), "see `billow token list`"});
    return nullptr;
  }
  return &found->second;
}

// How long the new value is valid: as long as that of a new token, and no longer than the token
// that created it, or than the one that rotates it. A token that never expires stays so.
Result<Duration> life_after(const Call& call, const Token& token, const RotateBody& body) {
  const auto& state = call.host.state();
  if (body.life_s < -1 || seconds(body.life_s) > limits::time_named_max)
    return fail(Code::invalid, "life_s must be between 1 and ten years, or -1: never expires");
  Duration life;
  if (body.life_s > 0)
    life = seconds(body.life_s);
  else if (body.life_s == 0 && token.expires_at)
    life = token.scope == TokenScope::agent ? limits::agent_token_life_default
                                            : limits::token_life_default;
  if (body.life_s < 0 && token.expires_at && !call.may(Permission::users_change))
    return fail(Code::forbidden, "only users with users.change can have tokens that never expire",
                "add --expires 90d");
  for (const TokenId id : {token.parent, call.principal.token}) {
    const auto other = state.tokens.find(id);
    if (other == state.tokens.end() || !other->second.expires_at || id == token.id)
      continue;
    const Duration left = other->second.expires_at - call.host.now();
    if (left.ns <= 0)
      return fail(Code::conflict, "the token that created this one has expired");
    life = life.ns == 0 ? left : std::min(life, left);
  }
  return life;
}

}  // namespace

void roles(CallPtr call) {
  const auto& state = call->host.state();
  Json list = Json::array();
  for (const control::BuiltInRole& each : control::built_in_roles()) {
    Json document = role_document(each.name, control::list_of(each.allow));
    document.set("built_in", true);
    document.set("description", each.description);
    list.push(std::move(document));
  }
  for (const auto& [name, role] : state.roles) {
    Json document = role_document(name, role.allow);
    document.set("built_in", false);
    document.set("set_by", role.by);
    document.set("set_at", format_utc(role.at));
    list.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"roles", std::move(list)}}));
}

void set_role(CallPtr call) {
  const auto body = read_body<RoleBody>(call);
  if (!body)
    return;
  SetRole command{call->parts[0], {}, call->principal.user};
  for (const std::string& name : body->allow) {
    const auto permission = control::parse_permission(name);
    if (!permission)
      return call->fail(permission.error());
    command.allow.push_back(*permission);
  }
  call->execute(std::move(command), 200, [](const std::vector<Event>&) { return done; });
}

void remove_role(CallPtr call) {
  call->execute(RemoveRole{call->parts[0]}, 200, [](const std::vector<Event>&) { return done; });
}

void revoke_token(CallPtr call) {
  const Token* token = token_to_change(call);
  if (!token)
    return;
  call->execute(RevokeToken{token->id}, 200, [](const std::vector<Event>& events) {
    return Json::object({{"ok", true}, {"tokens_revoked", events.size()}});
  });
}

// Rotating another user's token gives the caller that user's rights, as a new token would.
void rotate_token(CallPtr call) {
  const Token* token = token_to_change(call);
  if (!token)
    return;
  const auto body = read_body<RotateBody>(call);
  if (!body)
    return;
  const auto& state = call->host.state();
  const auto owner = state.users.find(token->user);
  if (owner != state.users.end() && token->user != call->principal.user) {
    Status ok = control::check_may_act_as(state, call->principal.user, owner->second);
    if (owner->second.starts_heads || control::runs_as_root(owner->second))
      ok = fail(Code::forbidden,
                fmt::format("nobody else can rotate the tokens of {}", owner->second.name));
    if (!ok)
      return call->fail(ok.error());
  }
  const auto life = life_after(*call, *token, *body);
  if (!life)
    return call->fail(life.error());
  std::string secret = "bw_" + random_token(30);
  RotateToken command{token->id, sha256_hex(secret), *life, seconds(body->grace_s)};
  if (const std::string pin = call->host.authority_fingerprint(); !pin.empty())
    secret += "." + pin;
  call->execute(std::move(command), 200,
                [secret, id = token->id](const std::vector<Event>& events) {
                  Json document = Json::object({{"token", secret}, {"id", id.value}});
                  for (const Event& event : events)
                    if (const auto* made = get_if<TokenRotated>(&event.body)) {
                      document.set("expires_at",
                                   made->expires_at ? Json(format_utc(made->expires_at)) : Json());
                      document.set("old_until", format_utc(made->previous_until));
                    }
                  return document;
                });
}

}  // namespace billow::api::people
