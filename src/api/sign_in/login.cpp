// The routes by which people and CI systems sign in at an identity provider. None needs a token.
#include <fmt/format.h>

#include "api/call.h"
#include "api/sign_in/sign_ins.h"
#include "base/crypto.h"
#include "base/text.h"
#include "net/address.h"

namespace billow::api::sign_in {
namespace {

constexpr char login_cookie[] = "billow_login";
constexpr std::size_t challenge_bytes = 43;  // of a SHA-256, in base64url

// What programs send. Members that a route does not have are refused.
struct StartBody {
  std::string provider, redirect, challenge;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("provider", s.provider);
    v("redirect", s.redirect);
    v("challenge", s.challenge);
  }
};
struct FinishBody {
  std::string state, code, iss, verifier;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("state", s.state);
    v("code", s.code);
    v("iss", s.iss);
    v("verifier", s.verifier);
  }
};
struct DeviceBody {
  std::string provider;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("provider", s.provider);
  }
};
struct DevicePollBody {
  std::string device;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("device", s.device);
  }
};
struct ExchangeBody {
  std::string token;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("token", s.token);
  }
};

SignIns::Caller caller_of(const CallPtr& call) {
  return {call->request().request_id, peer_host(call->request().peer)};
}

// A program listens for the browser on this machine only, at any port (RFC 8252). Nothing else is
// an address that a browser is sent to with a code.
bool is_loopback_redirect(std::string_view text) {
  for (const std::string_view host : {"http://127.0.0.1:", "http://[::1]:"}) {
    if (!text.starts_with(host) || !text.ends_with("/callback"))
      continue;
    const auto port = text.substr(host.size(), text.size() - host.size() - 9);
    return parse_int(port, 1, 65535).has_value();
  }
  return false;
}

struct Asked {
  const IdentityProvider& provider;
  const identity::Discovery& discovery;
  std::string state, nonce, redirect, challenge;
};
std::string authorization_url(const Asked& a) {
  std::string url = a.discovery.authorization_endpoint;
  url += url.find('?') == std::string::npos ? '?' : '&';
  const auto add = [&](const char* name, std::string_view value) {
    url += fmt::format("{}={}&", name, net::percent_encode(value));
  };
  add("response_type", "code");
  add("client_id", a.provider.client_id);
  add("redirect_uri", a.redirect);
  add("scope", scopes_of(a.discovery));
  add("state", a.state);
  add("nonce", a.nonce);
  add("code_challenge", a.challenge);
  add("code_challenge_method", "S256");
  // A provider gives what renews a sign-in only to people who agree to it.
  if (a.discovery.offers_offline)
    add("prompt", "consent");
  url.pop_back();
  return url;
}

std::string challenge_of(const std::string& verifier) {
  const Sha256 digest = sha256(verifier);
  std::string text = base64({reinterpret_cast<const char*>(digest.data()), digest.size()});
  while (text.ends_with('='))
    text.pop_back();
  for (char& c : text)
    c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

std::string cookie_of(const net::Request& request, std::string_view name) {
  for (const std::string& part : split(request.headers.get("Cookie"), ';')) {
    const std::string_view pair = trim(part);
    const auto equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name)
      return std::string(pair.substr(equals + 1));
  }
  return "";
}

void reply_token(const CallPtr& call, const Result<SignIns::Given>& given) {
  if (!given)
    return call->fail(given.error());
  std::string secret = given->secret;
  if (const std::string pin = call->host.authority_fingerprint(); !pin.empty())
    secret += "." + pin;
  call->reply(201, Json::object({{"token", secret},
                                 {"user", given->user},
                                 {"expires_at", format_utc(given->expires_at)}}));
}

// Begins a sign-in and passes on where the browser must go.
void begin(const CallPtr& call,
           const std::string& name,
           SignIns::Begun begun,
           std::string challenge,
           std::function<void(Result<std::pair<std::string, std::string>>)> done) {
  const auto provider = call->sign_ins->provider(name, ProviderKind::oidc);
  const auto ask = call->sign_ins->asker();
  if (!provider || !ask)
    return done(pass(provider ? ask.error() : provider.error()));
  begun.provider = name;
  begun.nonce = random_token(24);
  begun.peer = peer_host(call->request().peer);
  (*ask)->discover(
      call->sign_ins->trusted(*provider),
      [call, provider = *provider, begun = std::move(begun), challenge = std::move(challenge),
       done](Result<identity::Discovery> found) mutable {
        if (!found)
          return done(pass(found.error()));
        if (found->authorization_endpoint.empty())
          return done(fail(Code::unsupported,
                           fmt::format("{} offers no sign-in by browser", provider.name)));
        begun.names_itself = found->names_itself;
        const auto state = call->sign_ins->begin(begun);
        if (!state)
          return done(pass(state.error()));
        done(std::pair(*state, authorization_url({provider, *found, *state, begun.nonce,
                                                  begun.redirect, challenge})));
      });
}

// The code of a sign-in that has begun, for a token.
void complete(const CallPtr& call,
              const SignIns::Begun& begun,
              const std::string& code,
              const std::string& verifier,
              std::function<void(Result<SignIns::Given>)> done) {
  const auto provider = call->sign_ins->provider(begun.provider, ProviderKind::oidc);
  if (!provider)
    return done(pass(provider.error()));
  call->sign_ins->prove(*provider,
                        {{"grant_type", "authorization_code"},
                         {"code", code},
                         {"redirect_uri", begun.redirect},
                         {"code_verifier", verifier}},
                        begun.nonce,
                        [call, provider = *provider, done](Result<SignIns::Proof> proof) {
                          if (!proof)
                            return done(pass(proof.error()));
                          call->sign_ins->sign_in(provider, *proof, caller_of(call), done);
                        });
}

// An answer of another provider than the one that was asked must not end this sign-in (mix-up).
Status check_answerer(const CallPtr& call, const SignIns::Begun& begun, std::string_view issuer) {
  const auto provider = BILLOW_TRY(call->sign_ins->provider(begun.provider, ProviderKind::oidc));
  if ((begun.names_itself || !issuer.empty()) && issuer != provider.issuer)
    return fail(Code::unauthorized, "the answer did not come from the provider that was asked",
                "sign in again");
  return {};
}

const Error unknown_state{Code::unauthorized,
                          "this sign-in has already ended, or took longer than ten minutes",
                          "sign in again"};

// What a person sees in the browser if a sign-in fails.
void show(const CallPtr& call, const Error& error) {
  net::Response page = net::Response::text(
      net::http_status(error.code),
      fmt::format("You are not signed in: {}\n{}\n", error.message, error.hint));
  page.headers.add("X-Content-Type-Options", "nosniff");
  page.headers.add("Cache-Control", "no-store");
  record_denied(call->host, *call->denied, call->request(), "", error);
  call->exchange->respond(std::move(page));
}

net::Response go_to(const std::string& url) {
  net::Response out;
  out.status = 302;
  out.headers = {
      {"Location", url}, {"Cache-Control", "no-store"}, {"Referrer-Policy", "no-referrer"}};
  return out;
}

}  // namespace

std::string scopes_of(const identity::Discovery& discovery) {
  std::string scopes = "openid profile email";
  if (discovery.offers_groups)
    scopes += " groups";
  if (discovery.offers_offline)
    scopes += " offline_access";
  return scopes;
}

// Which providers there are: what `billow login` and the dashboard offer.
void offered(CallPtr call) {
  Json list = Json::array();
  for (const IdentityProvider& provider : call->sign_ins->providers()) {
    Json document = Json::object({{"name", provider.name}, {"kind", enum_name(provider.kind)}});
    if (provider.kind == ProviderKind::workload)
      document.set("audience", provider.client_id);
    list.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"providers", std::move(list)}}));
}

// A program begins: it has made a verifier, and listens for the browser.
void start(CallPtr call) {
  const auto body = read_body<StartBody>(call);
  if (!body)
    return;
  SignIns::Begun begun;
  begun.redirect = body->redirect;
  const std::string challenge = body->challenge;
  if (!is_loopback_redirect(begun.redirect))
    return call->fail({Code::invalid, "a sign-in can only lead back to this machine",
                       "redirect must be http://127.0.0.1:PORT/callback"});
  if (challenge.size() != challenge_bytes)
    return call->fail(
        {Code::invalid, "challenge must be the SHA-256 of a verifier in base64url", ""});
  begin(call, body->provider, std::move(begun), challenge,
        [call](Result<std::pair<std::string, std::string>> begun) {
          if (!begun)
            return call->fail(begun.error());
          call->reply(200, Json::object({{"state", begun->first}, {"url", begun->second}}));
        });
}

void finish(CallPtr call) {
  const auto body = read_body<FinishBody>(call);
  if (!body)
    return;
  const auto begun = call->sign_ins->take(body->state);
  if (!begun || !begun->cookie_hash.empty())
    return call->fail(unknown_state);
  if (const Status good = check_answerer(call, *begun, body->iss); !good)
    return call->fail(good.error());
  complete(call, *begun, body->code, body->verifier,
           [call](const Result<SignIns::Given>& given) { reply_token(call, given); });
}

// ---- by device code (RFC 8628)

void device(CallPtr call) {
  const auto body = read_body<DeviceBody>(call);
  if (!body)
    return;
  const auto provider = call->sign_ins->provider(body->provider, ProviderKind::oidc);
  const auto ask = call->sign_ins->asker();
  if (!provider || !ask)
    return call->fail(provider ? ask.error() : provider.error());
  const auto who = call->sign_ins->trusted(*provider);
  const auto came = [call, name = provider->name](Result<Json> answer) {
    if (!answer)
      return call->fail(answer.error());
    const Json& a = *answer;
    const std::int64_t interval_s = std::clamp<std::int64_t>(a["interval"].int_or(5), 1, 60);
    const std::int64_t life_s = std::clamp<std::int64_t>(a["expires_in"].int_or(600), 30, 1800);
    const SteadyTime now = call->host.loop().steady();
    const auto handle =
        call->sign_ins->begin_device({.provider = name,
                                      .code = std::string(a["device_code"].str_or("")),
                                      .interval = seconds(interval_s),
                                      .next_at = now,
                                      .until = now + seconds(life_s),
                                      .peer = peer_host(call->request().peer)});
    if (!handle)
      return call->fail(handle.error());
    const std::string_view where = a["verification_uri"].str_or("");
    if (const Status good = identity::check_provider_url(where, "the provider's page"); !good)
      return call->fail(good.error());
    Json document = Json::object({{"device", *handle},
                                  {"user_code", a["user_code"]},
                                  {"verification_uri", where},
                                  {"interval_s", interval_s},
                                  {"expires_s", life_s}});
    call->reply(200, document);
  };
  (*ask)->discover(who, [call, who, provider = *provider, came](Result<identity::Discovery> found) {
    if (!found)
      return call->fail(found.error());
    if (found->device_endpoint.empty())
      return call->fail({Code::unsupported,
                         fmt::format("{} offers no sign-in by device code", provider.name),
                         "sign in with a browser: billow login HEAD"});
    (*call->sign_ins->asker())
        ->post(who,
               {found->device_endpoint,
                {{"scope", scopes_of(*found)}},
                provider.client_id,
                provider.client_secret},
               came);
  });
}

void device_poll(CallPtr call) {
  const auto body = read_body<DevicePollBody>(call);
  if (!body)
    return;
  const std::string handle = body->device;
  SignIns::Device* device = call->sign_ins->device(handle);
  if (!device)
    return call->fail(unknown_state);
  const auto pending = [call](Duration interval) {
    call->reply(202,
                Json::object({{"pending", true}, {"interval_s", interval.ns / 1'000'000'000}}));
  };
  const SteadyTime now = call->host.loop().steady();
  if (device->busy || now < device->next_at)
    return pending(device->interval);
  const auto provider = call->sign_ins->provider(device->provider, ProviderKind::oidc);
  if (!provider)
    return call->fail(provider.error());
  device->busy = true;
  device->next_at = now + device->interval;
  call->sign_ins->prove(
      *provider,
      {{"grant_type", "urn:ietf:params:oauth:grant-type:device_code"},
       {"device_code", device->code}},
      "", [call, handle, pending, provider = *provider](Result<SignIns::Proof> proof) {
        SignIns::Device* still = call->sign_ins->device(handle);
        if (!still)
          return call->fail(unknown_state);
        still->busy = false;
        if (!proof && proof.error().code == Code::conflict) {
          if (proof.error().message == "slow_down")
            still->interval = still->interval + seconds(5);
          return pending(still->interval);
        }
        call->sign_ins->end_device(handle);
        if (!proof)
          return call->fail(proof.error());
        call->sign_ins->sign_in(
            provider, *proof, caller_of(call),
            [call](const Result<SignIns::Given>& given) { reply_token(call, given); });
      });
}

// ---- in the dashboard

void browser(CallPtr call) {
  const net::Request& request = call->request();
  const std::string verifier = random_token(48), cookie = random_token(24);
  SignIns::Begun begun;
  begun.redirect = fmt::format("{}://{}/v1/auth/callback", request.tls ? "https" : "http",
                               request.headers.get("Host"));
  begun.verifier = verifier;
  begun.cookie_hash = sha256_hex(cookie);
  begin(call, std::string(request.param("provider")), std::move(begun), challenge_of(verifier),
        [call, cookie](Result<std::pair<std::string, std::string>> begun) {
          if (!begun)
            return show(call, begun.error());
          net::Response out = go_to(begun->second);
          // Not Strict: the browser comes back from the provider's page.
          out.headers.add("Set-Cookie",
                          fmt::format("{}={}; Path=/v1/auth; HttpOnly; SameSite=Lax; Max-Age=600{}",
                                      login_cookie, cookie, call->request().tls ? "; Secure" : ""));
          call->exchange->respond(std::move(out));
        });
}

void callback(CallPtr call) {
  const net::Request& request = call->request();
  const auto begun = call->sign_ins->take(std::string(request.param("state")));
  // The browser that began it, and no other: nobody signs another person in as themselves.
  if (!begun || begun->cookie_hash.empty() ||
      !equal_constant_time(begun->cookie_hash, sha256_hex(cookie_of(request, login_cookie))))
    return show(call, unknown_state);
  if (const Status good = check_answerer(call, *begun, request.param("iss")); !good)
    return show(call, good.error());
  if (request.has_param("error"))
    return show(call, {Code::unauthorized, "the identity provider refused", "sign in again"});
  complete(call, *begun, std::string(request.param("code")), begun->verifier,
           [call](const Result<SignIns::Given>& given) {
             if (!given)
               return show(call, given.error());
             // Behind the #, where no server and no log sees it; the page makes a session of it.
             net::Response out =
                 go_to("/#code=" + call->codes->make(given->id, call->host.loop().steady()));
             out.headers.add("Set-Cookie",
                             fmt::format("{}=; Path=/v1/auth; HttpOnly; Max-Age=0", login_cookie));
             call->exchange->respond(std::move(out));
           });
}

void exchange(CallPtr call) {
  const auto body = read_body<ExchangeBody>(call);
  if (!body)
    return;
  call->sign_ins->exchange(
      body->token, caller_of(call),
      [call](const Result<SignIns::Given>& given) { reply_token(call, given); });
}

}  // namespace billow::api::sign_in
