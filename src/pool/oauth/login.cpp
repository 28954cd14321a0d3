#include "pool/oauth/login.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace billow::pool {
namespace {

constexpr Duration renewed_before = minutes(5);

}  // namespace

LoginCache::LoginCache(Fetch fetch, const Clock& clock) : fetch_(std::move(fetch)), clock_(clock) {}

Result<Login> LoginCache::get() {
  auto last = last_.lock();  // held during the fetch: the other threads need its result too
  const WallTime now = clock_.wall();
  if (!last->token.empty() && now + renewed_before < last->expires_at)
    return *last;
  auto fresh = fetch_();
  if (fresh)
    *last = std::move(*fresh);
  else if (last->token.empty() || last->expires_at <= now)
    return pass(std::move(fresh.error()));
  return *last;
}

void LoginCache::forget(const std::string& token) {
  auto last = last_.lock();
  if (last->token == token)
    last->token.clear();
}

std::int64_t number_of(const Json& value, std::int64_t fallback) {
  if (!value.is_string())
    return value.int_or(fallback);
  const auto number = parse_int(value.str_or(""), INT64_MIN, INT64_MAX);
  return number ? *number : fallback;
}

Result<Login> read_token(const net::Response& response, std::string_view from, WallTime now) {
  const auto body = parse_json(response.body);
  if (response.status != 200) {
    const Json problem = body ? *body : Json();
    const std::string_view code = problem["error"].str_or("");
    const std::string_view text = problem["error_description"].str_or("");
    const bool later = response.status == 429 || response.status >= 500;
    return fail(later ? Code::unavailable : Code::unauthorized,
                fmt::format("{} gave no token: HTTP {} {} {}", from, response.status, code,
                            text.substr(0, text.find_first_of("\r\n"))),
                later ? "" : "check the credentials; they may have been revoked or have expired");
  }
  const std::string_view token = body ? (*body)["access_token"].str_or("") : "";
  if (token.empty() || !net::valid_field_value(token))
    return fail(Code::unavailable, fmt::format("{} gave an answer without a token", from));
  const std::int64_t life_s =
      std::clamp<std::int64_t>(number_of((*body)["expires_in"], 300), 0, 24 * 3600);
  Login login;
  login.token = token;
  login.expires_at = now + seconds(life_s);
  return login;
}

}  // namespace billow::pool
