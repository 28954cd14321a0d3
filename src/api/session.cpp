#include "api/session.h"

#include "api/call.h"
#include "base/crypto.h"
#include "base/text.h"

namespace billow::api {
namespace {

constexpr Duration code_life = minutes(2);
constexpr Duration session_life = hours(12);
constexpr std::size_t codes_max = 256;

std::string cookie(const std::string& value, bool tls, std::int64_t life_s) {
  return std::string(session_cookie) + "=" + value + "; Path=/; HttpOnly; SameSite=Strict; Max-Age=" + std::to_string(life_s) + (tls ? "; Secure" : "");
}

}  // namespace

std::string SignInCodes::make(UserId user, SteadyTime now) {
  std::erase_if(codes_, [&](const auto& entry) { return entry.second.until < now; });
  if (codes_.size() >= codes_max) codes_.erase(codes_.begin());
  const std::string code = random_token(18);
  codes_[sha256_hex(code)] = {user, now + code_life};
  return code;
}

UserId SignInCodes::take(const std::string& code, SteadyTime now) {
  const auto found = codes_.find(sha256_hex(code));
  if (found == codes_.end()) return {};
  const Code taken = found->second;
  codes_.erase(found);
  return taken.until >= now ? taken.user : UserId{};
}

std::string session_token(const net::Request& request) {
  for (const std::string& part : split(request.headers.get("Cookie"), ';')) {
    const std::string_view pair = trim(part);
    const auto equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == session_cookie) return std::string(pair.substr(equals + 1));
  }
  return "";
}

bool asked_by_our_page(const net::Request& request) {
  const bool safe = request.method == net::Method::get || request.method == net::Method::head;
  if (request.headers.has_token("Connection", "upgrade")) {
    const std::string_view origin = request.headers.get("Origin"), host = request.headers.get("Host");
    return origin == "http://" + std::string(host) || origin == "https://" + std::string(host);
  }
  return safe || request.headers.get("X-Billow-Request") == "1";
}

namespace session {

void create(CallPtr call) {
  const auto body = call->body();
  if (!body) return call->fail(body.error());
  const auto& state = call->host.state();
  control::Principal who;
  if (const std::string code((*body)["code"].str_or("")); !code.empty()) {
    const auto user = state.users.find(call->codes->take(code, call->host.loop().steady()));
    if (user == state.users.end()) return call->fail({Code::unauthorized, "that code is used up or too old", "run `billow dashboard` again"});
    who = {.user = user->first, .name = user->second.name, .role = user->second.role, .scope = TokenScope::full, .project = {}, .token = {}};
  } else {
    auto known = control::authenticate(state, sha256_hex(trim((*body)["token"].str_or(""))), call->host.now());
    if (!known) return call->fail(known.error());
    if (known->scope == TokenScope::node || known->scope == TokenScope::join) return call->fail({Code::forbidden, "a node's credential may do nothing but join", ""});
    who = std::move(*known);
  }
  const std::string secret = "bw_" + random_token(30);
  CreateToken command{"dashboard", sha256_hex(secret), who.name, who.scope, "", session_life};
  if (const auto project = state.projects.find(who.project); project != state.projects.end()) command.project = project->second.name;
  call->host.execute(std::move(command), {"user:" + who.name, call->request().request_id}, [call, secret](Result<std::vector<Event>> events) {
    if (!events) return call->fail(events.error());
    net::Response response = net::Response::json(201, "{\"ok\":true}");
    response.headers.add("Set-Cookie", cookie(secret, call->request().tls, session_life.ns / 1'000'000'000));
    call->exchange->respond(std::move(response));
  });
}

void end(CallPtr call) {
  call->host.execute(RevokeToken{call->principal.token}, call->cause(), [call](Result<std::vector<Event>> events) {
    if (!events) return call->fail(events.error());
    net::Response response = net::Response::json(200, "{\"ok\":true}");
    response.headers.add("Set-Cookie", cookie("", call->request().tls, 0));
    call->exchange->respond(std::move(response));
  });
}

void code(CallPtr call) {
  if (call->principal.scope != TokenScope::full) return call->fail({Code::forbidden, "only a full token may open a session", ""});
  call->reply(201, Json::object({{"code", call->codes->make(call->principal.user, call->host.loop().steady())}}));
}

}  // namespace session
}  // namespace billow::api
