#include "pool/oauth/api_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace billow::pool {
namespace {

constexpr Duration api_pause_max = minutes(2);
constexpr Duration api_pause_default = seconds(2);
constexpr std::size_t error_text_max = 300;

// How long an answer asks to wait; zero: it does not say.
Duration retry_after(const ApiAnswer& answer) {
  const auto given = parse_int(answer.headers.get("retry-after"), 0, 86400);
  return given ? seconds(*given) : Duration{};
}

}  // namespace

Json json_list(Json item) {
  Json out = Json::array();
  out.push(std::move(item));
  return out;
}

Refusal refusal_of_error(const Error& error) {
  const bool silent = error.code == Code::unavailable || error.code == Code::timed_out;
  return {silent ? RefusalKind::no_answer : RefusalKind::settings,
          error.hint.empty() ? error.message : error.message + ": " + error.hint};
}

Result<ApiAnswer> ApiClient::send(const ApiCall& call, const std::string& url, const Login& login) {
  WebCall request{.method = call.method, .url = url, .headers = call.headers, .body = {}};
  request.headers.set("authorization", "Bearer " + login.token);
  request.headers.set("accept", "application/json");
  request.timeout = call.timeout;
  if (call.body) {
    request.headers.set("content-type", "application/json");
    request.body = call.body->dump();
  }
  net::Response response = BILLOW_TRY(web_.send(request));
  ApiAnswer answer{.status = response.status, .body = {}, .text = {}, .headers = response.headers};
  if (response.body.empty())
    return answer;
  auto body = parse_json(response.body);
  if (body)
    answer.body = std::move(*body);
  else if (answer.ok())
    return fail(Code::unavailable,
                fmt::format("{} gave an answer that is not JSON: {}", name_, body.error().message));
  else
    answer.text = utf8_prefix(repaired_utf8(trim(response.body)), error_text_max);
  return answer;
}

Result<ApiAnswer> ApiClient::call(const ApiCall& call) {
  const SteadyTime now = clock_.steady();
  if (const SteadyTime until = *quiet_until_.lock(); now < until)
    return fail(Code::unavailable,
                fmt::format("{} asked us to wait another {}", name_, format_duration(until - now)));
  std::string url = call.target;
  if (url.starts_with('/'))
    url = server_ + url;
  const net::Url theirs = BILLOW_TRY(net::parse_url(url));
  const net::Url ours = BILLOW_TRY(net::parse_url(server_ + "/"));
  if (theirs.endpoint != ours.endpoint)
    return fail(Code::unavailable,
                fmt::format("{} answered with a link to another server: {}", name_, url));
  const Login login = BILLOW_TRY(logins_.get());
  ApiAnswer answer = BILLOW_TRY(send(call, url, login));
  if (answer.status == 401) {
    logins_.forget(login.token);
    const Login fresh = BILLOW_TRY(logins_.get());
    answer = BILLOW_TRY(send(call, url, fresh));
  }
  if (answer.status == 429 || (answer.status == 503 && answer.headers.has("retry-after"))) {
    const Duration asked = retry_after(answer);
    *quiet_until_.lock() =
        clock_.steady() + std::min(asked.ns > 0 ? asked : api_pause_default, api_pause_max);
  }
  return answer;
}

}  // namespace billow::pool
