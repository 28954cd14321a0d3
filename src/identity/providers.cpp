#include "identity/providers.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "net/address.h"
#include "net/guard.h"

namespace billow::identity {
namespace {

constexpr Duration discovery_life = minutes(10), keys_life = minutes(10);
// A key that is not known makes the keys be fetched again, but not more often than this.
constexpr Duration refetch_after = seconds(10);
constexpr std::size_t answer_bytes_max = 512 << 10;
constexpr Duration answer_within = seconds(15);
constexpr std::string_view form_type = "application/x-www-form-urlencoded";

// What a provider says is shown to people: one line, not too long.
std::string shown(std::string_view text) {
  std::string out(utf8_prefix(repaired_utf8(text), 200));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = ' ';
  return out;
}

Result<Json> oauth_answer(const net::Response& response) {
  auto json = parse_json(response.body);
  if (!json || !json->is_object())
    return fail(Code::unavailable,
                fmt::format("the identity provider answered with status {}", response.status));
  const std::string_view error = (*json)["error"].str_or("");
  if (error.empty() && response.status < 300)
    return std::move(*json);
  const std::string why = shown((*json)["error_description"].str_or(error));
  if (error == "authorization_pending" || error == "slow_down")
    return fail(Code::conflict, std::string(error));
  if (error == "invalid_grant" || error == "access_denied" || error == "expired_token")
    return fail(Code::unauthorized, fmt::format("the identity provider refused: {}", why));
  return fail(Code::unavailable, fmt::format("the identity provider reported an error: {}", why));
}

}  // namespace

Result<std::unique_ptr<Providers>> Providers::create(net::Loop& loop, Options options) {
  auto out = std::unique_ptr<Providers>(new Providers(loop));
  out->anywhere_ = BILLOW_TRY(net::HttpClient::create(loop, {}));
  out->outwards_ = BILLOW_TRY(net::HttpClient::create(
      loop, {.check_address = net::only_outwards(std::move(options.hosts_allowed))}));
  return out;
}

Providers::~Providers() {
  *here_ = false;
}

void Providers::get(const Trusted& who,
                    const std::string& url,
                    std::function<void(Result<std::string>)> done) {
  const auto parsed = net::parse_url(url);
  if (!parsed)
    return done(pass(parsed.error()));
  net::ClientRequest request{.endpoint = parsed->endpoint, .target = parsed->target};
  request.headers.add("Accept", "application/json");
  request.timeout = answer_within;
  request.body_bytes_max = answer_bytes_max;
  client(who).fetch(std::move(request), [url, done](Result<net::Response> response) {
    if (!response)
      return done(fail(Code::unavailable, fmt::format("the identity provider cannot be reached: {}",
                                                      response.error().message)));
    if (response->status != 200)
      return done(fail(Code::unavailable,
                       fmt::format("{} answered with status {}", url, response->status)));
    done(std::move(response->body));
  });
}

void Providers::discover(const Trusted& who, OnDiscovery done) {
  const Known& it = known(who);
  if (it.discovery && loop_.steady() - it.discovered_at < discovery_life)
    return done(*it.discovery);
  if (const Status good = check_provider_url(who.issuer, "the issuer"); !good)
    return done(pass(good.error()));
  get(who, discovery_url(who.issuer), [this, here = here_, who, done](Result<std::string> text) {
    if (!*here)
      return;
    auto found = text ? parse_discovery(*text, who.issuer) : Result<Discovery>(pass(text.error()));
    if (found) {
      known(who).discovery = *found;
      known(who).discovered_at = loop_.steady();
    }
    done(std::move(found));
  });
}

void Providers::keys_came(const Trusted& who, Result<std::string> text) {
  Known& it = known(who);
  Status got;
  if (auto keys = text ? KeySet::parse(*text) : Result<KeySet>(pass(text.error())); keys)
    it.keys = std::make_shared<const KeySet>(std::move(*keys));
  else
    got = pass(keys.error());
  it.keys_at = loop_.steady();
  const auto waiting = std::exchange(it.waiting, {});
  for (const auto& done : waiting)
    done(got);
}

void Providers::fetch_keys(const Trusted& who, std::function<void(Status)> done) {
  known(who).waiting.push_back(std::move(done));
  if (known(who).waiting.size() > 1)
    return;  // they are on their way
  discover(who, [this, here = here_, who](Result<Discovery> found) {
    if (!*here)
      return;
    if (!found)
      return keys_came(who, pass(found.error()));
    get(who, found->jwks_uri, [this, here, who](Result<std::string> text) {
      if (*here)
        keys_came(who, std::move(text));
    });
  });
}

void Providers::check_signature(const Trusted& who, const std::string& token, OnClaims done) {
  auto parsed = parse_jwt(token);
  if (!parsed)
    return done(fail(Code::unauthorized, parsed.error().message));
  const auto jwt = std::make_shared<const Jwt>(std::move(*parsed));
  const auto finish = [this, who, jwt, done]() {
    const Status good = known(who).keys->check(*jwt);
    if (good)
      return done(jwt->claims);
    done(fail(Code::unauthorized, good.error().message));
  };
  const Known& it = known(who);
  const Duration age = loop_.steady() - it.keys_at;
  if (it.keys && age < keys_life) {
    const Status good = it.keys->check(*jwt);
    if (good || good.error().code != Code::not_found || age < refetch_after)
      return finish();
  }
  fetch_keys(who, [this, finish, who, done](const Status& got) {
    // Keys that could be fetched before are better than none while the provider is away.
    if (known(who).keys)
      return finish();
    done(pass(got.error()));
  });
}

void Providers::post(const Trusted& who, Form form, OnClaims done) {
  const auto parsed = net::parse_url(form.url);
  if (!parsed)
    return done(pass(parsed.error()));
  net::ClientRequest request{
      .endpoint = parsed->endpoint, .method = net::Method::post, .target = parsed->target};
  request.headers.add("Accept", "application/json");
  request.headers.add("Content-Type", std::string(form_type));
  request.timeout = answer_within;
  request.body_bytes_max = answer_bytes_max;
  if (form.client_secret.empty())
    form.fields.emplace_back("client_id", form.client_id);
  else
    request.headers.add("Authorization",
                        "Basic " + base64(net::percent_encode(form.client_id) + ":" +
                                          net::percent_encode(form.client_secret)));
  for (const auto& [name, value] : form.fields)
    request.body += (request.body.empty() ? "" : "&") + name + "=" + net::percent_encode(value);
  client(who).fetch(std::move(request), [done](Result<net::Response> response) {
    if (!response)
      return done(fail(Code::unavailable, fmt::format("the identity provider cannot be reached: {}",
                                                      response.error().message)));
    done(oauth_answer(*response));
  });
}

}  // namespace billow::identity
