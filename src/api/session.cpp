#include "api/session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "api/call.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"
#include "net/address.h"
#include "net/http/node_credential.h"

namespace billow::api {
namespace {

constexpr Duration code_life = minutes(2);
constexpr Duration session_life = hours(12);
constexpr std::size_t codes_max = 256;
constexpr std::string_view session_prefix = "bws_";  // bws_NUMBER_SECRET

std::string cookie(const std::string& value, bool tls, std::int64_t life_s) {
  return std::string(session_cookie) + "=" + value +
         "; Path=/; HttpOnly; SameSite=Strict; Max-Age=" + std::to_string(life_s) +
         (tls ? "; Secure" : "");
}

}  // namespace

std::string SignInCodes::make(TokenId from, SteadyTime now) {
  std::erase_if(codes_, [&](const auto& entry) { return entry.second.until < now; });
  if (codes_.size() >= codes_max)
    codes_.erase(codes_.begin());
  const std::string code = random_token(18);
  codes_[sha256_hex(code)] = {from, now + code_life};
  return code;
}

TokenId SignInCodes::take(const std::string& code, SteadyTime now) {
  const auto found = codes_.find(sha256_hex(code));
  if (found == codes_.end())
    return {};
  const Code taken = found->second;
  codes_.erase(found);
  return taken.until >= now ? taken.from : TokenId{};
}

const AccountTokens::Given* AccountTokens::usable(const control::State& state,
                                                  UserId user,
                                                  WallTime now) const {
  const auto found = given_.find(user);
  if (found == given_.end() || found->second.until - now < life / 2)
    return nullptr;
  return control::principal_of(state, found->second.id, now) ? &found->second : nullptr;
}

namespace {

constexpr Duration denied_every = minutes(1);
constexpr std::size_t denied_peers_max = 1000;
constexpr std::size_t signatures_max = 200'000;
// A clock that is further ahead is corrected by the agent. What was signed for the future could be
// used again after a restart of the head.
constexpr std::int64_t ahead_s_max = 5;

}  // namespace

std::string peer_host(const std::string& peer) {
  return peer.starts_with("unix") ? peer : peer.substr(0, peer.rfind(':'));
}

// As a record of its own, or as part of the one for all others.
void DeniedCalls::record(Table& table,
                         AccessDenied event,
                         std::vector<AccessDenied>& due,
                         bool own) {
  if (own && table.this_minute < table.records_max) {
    ++table.this_minute;
    return due.push_back(std::move(event));
  }
  event.count += table.others.count;
  event.peer = "other addresses";
  event.user.clear();
  table.others = std::move(event);
}

// What was counted earlier and not recorded yet.
void DeniedCalls::flush(Table& table, SteadyTime now, std::vector<AccessDenied>& due) {
  if (now - table.minute >= denied_every) {
    table.minute = now;
    table.this_minute = 0;
    if (table.others.count > 0) {
      due.push_back(std::exchange(table.others, nothing()));
      ++table.this_minute;
    }
  }
  for (auto at = table.peers.begin(); at != table.peers.end();) {
    if (now - at->second.recorded_at < denied_every) {
      ++at;
      continue;
    }
    if (at->second.last.count > 0)
      record(table, std::move(at->second.last), due);
    at = table.peers.erase(at);
  }
}

std::vector<AccessDenied> DeniedCalls::note(const net::Request& request,
                                            const std::string& user,
                                            const Error& error,
                                            SteadyTime now) {
  const bool showed = request.headers.has("Authorization") || !session_token(request).empty() ||
                      request.path == "/v1/session" || request.path == "/v1/session/account" ||
                      request.path.starts_with("/v1/auth/");
  if (!showed || (error.code != Code::forbidden && error.code != Code::unauthorized))
    return {};
  std::vector<AccessDenied> due;
  flush(users_, now, due);
  flush(strangers_, now, due);
  Table& table = user.empty() ? strangers_ : users_;
  AccessDenied event{.peer = peer_host(request.peer),
                     .user = user,
                     .what = fmt::format("{} {}", net::method_name(request.method),
                                         utf8_prefix(repaired_utf8(request.path), 200)),
                     .reason = error.message,
                     .count = 1};
  const std::string from =
      request.peer.starts_with("unix") ? request.peer : net::network_of_peer(request.peer);
  const auto known = table.peers.find(from + " " + user);
  if (known != table.peers.end()) {
    event.count = known->second.last.count + 1;
    known->second.last = std::move(event);
    return due;
  }
  if (table.this_minute >= table.records_max || table.peers.size() >= denied_peers_max) {
    record(table, std::move(event), due, false);
    return due;
  }
  log_warn("refused: {} from {}{}: {}", event.what, event.peer, user.empty() ? "" : " as " + user,
           event.reason);
  record(table, event, due);
  event.count = 0;
  table.peers.emplace(from + " " + user, Peer{std::move(event), now});
  return due;
}

Result<control::Principal> NodeSignatures::authenticate(const control::State& state,
                                                        const net::Request& request,
                                                        WallTime now,
                                                        Use use) {
  const auto signature = BILLOW_TRY(net::read_node_signature(request.headers.get("Authorization"),
                                                             request.method, request.target));
  auto who = BILLOW_TRY(control::authenticate(state, control::node_key_hash(signature.key), now));
  const std::int64_t life_s = net::node_signature_life.ns / 1'000'000'000;
  const std::int64_t now_s = now.ns / 1'000'000'000;
  // Not "unauthorized": an agent that hears that for long believes that its node was removed.
  if (signature.time_s < now_s - life_s || signature.time_s > now_s + ahead_s_max)
    return fail(
        Code::invalid,
        fmt::format("the node's clock differs from the head's by {} s", signature.time_s - now_s),
        "the agent corrects this by itself and tries again");
  if (signature.time_s <= since_s_)
    return fail(Code::invalid, "the node's signature was made before this head started",
                "the agent makes another and tries again");
  used_.erase(used_.begin(), used_.lower_bound({now_s - life_s, ""}));
  const std::pair one(signature.time_s, signature.key + signature.nonce);
  if (used_.contains(one))
    return fail(Code::unauthorized, "the node's signature was used before");
  if (use == Use::look)
    return who;
  if (used_.size() >= signatures_max)
    used_.erase(used_.begin());
  used_.insert(one);
  return who;
}

std::string_view secret_of(std::string_view token) {
  token = trim(token);
  return token.substr(0, token.find('.'));
}

std::optional<TokenId> session_from(std::string_view value) {
  if (!value.starts_with(session_prefix))
    return std::nullopt;
  value.remove_prefix(session_prefix.size());
  const auto number = parse_int(value.substr(0, value.find('_')), 1, INT64_MAX);
  return number ? std::optional(TokenId(static_cast<std::uint64_t>(*number))) : std::nullopt;
}

std::string session_token(const net::Request& request) {
  for (const std::string& part : split(request.headers.get("Cookie"), ';')) {
    const std::string_view pair = trim(part);
    const auto equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == session_cookie)
      return std::string(pair.substr(equals + 1));
  }
  return "";
}

bool asked_by_our_page(const net::Request& request) {
  const bool safe = request.method == net::Method::get || request.method == net::Method::head;
  if (request.headers.has_token("Connection", "upgrade")) {
    const std::string_view origin = request.headers.get("Origin"),
                           host = request.headers.get("Host");
    return !host.empty() &&
           (origin == "http://" + std::string(host) || origin == "https://" + std::string(host));
  }
  return safe || request.headers.get("X-Billow-Request") == "1";
}

namespace session {

void create(CallPtr call) {
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  const auto& state = call->host.state();
  Result<control::Principal> who =
      fail(Code::unauthorized, "the sign-in code was already used or has expired",
           "run `billow dashboard` again");
  if (const std::string code((*body)["code"].str_or("")); !code.empty()) {
    if (const TokenId from = call->codes->take(code, call->host.loop().steady()))
      who = control::principal_of(state, from, call->host.now());
  } else {
    who = control::authenticate(state, sha256_hex(secret_of((*body)["token"].str_or(""))),
                                call->host.now());
  }
  if (!who)
    return call->fail(who.error());
  if (const Status ok = allowed(*who, Need::look); !ok)
    return call->fail(ok.error());
  if (state.users.at(who->user).service)
    return call->fail({Code::forbidden,
                       fmt::format("user {} is a service account and cannot sign in", who->name),
                       "sign in as a person"});
  const Token& parent = state.tokens.at(who->token);
  const Duration life = parent.expires_at
                            ? std::min(session_life, parent.expires_at - call->host.now())
                            : session_life;
  const std::string secret =
      fmt::format("{}{}_{}", session_prefix, who->token.value, random_token(30));
  CreateToken command{"dashboard", control::session_hash(who->token, sha256_hex(secret)),
                      who->name,   who->scope,
                      "",          life};
  call->host.execute(std::move(command), {"user:" + who->name, call->request().request_id},
                     [call, secret, life](Result<std::vector<Event>> events) {
                       if (!events)
                         return call->fail(events.error());
                       net::Response response = net::Response::json(201, "{\"ok\":true}");
                       response.headers.add("Set-Cookie", cookie(secret, call->request().tls,
                                                                 life.ns / 1'000'000'000));
                       call->exchange->respond(std::move(response));
                     });
}

void end(CallPtr call) {
  call->host.execute(RevokeToken{call->principal.token}, call->cause(),
                     [call](Result<std::vector<Event>> events) {
                       if (!events)
                         return call->fail(events.error());
                       net::Response response = net::Response::json(200, "{\"ok\":true}");
                       response.headers.add("Set-Cookie", cookie("", call->request().tls, 0));
                       call->exchange->respond(std::move(response));
                     });
}

void code(CallPtr call) {
  const Token& own = call->host.state().tokens.at(call->principal.token);
  if (control::session_parent(own))
    return call->fail({Code::forbidden, "a browser session cannot create another session",
                       "use a token: billow dashboard"});
  call->reply(201, Json::object({{"code", call->codes->make(own.id, call->host.loop().steady())}}));
}

}  // namespace session
}  // namespace billow::api
