#include "api/session.h"

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "base/crypto.h"
#include "base/text.h"

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
    return origin == "http://" + std::string(host) || origin == "https://" + std::string(host);
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
