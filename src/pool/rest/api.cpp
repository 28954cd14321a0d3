#include "pool/rest/api.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/text.h"
#include "net/http/blocking_client.h"
#include "pool/rest/pacing.h"

namespace billow::pool::rest {
namespace {

constexpr Duration answer_timeout = seconds(30);
constexpr Duration create_timeout = seconds(90);  // some providers answer when the machine exists
constexpr Duration turn_wait_max = seconds(20);
constexpr Duration pause_default = seconds(5);
constexpr Duration pause_max = seconds(60);
constexpr std::size_t answer_bytes_max = 16 << 20;
constexpr std::size_t pages_max = 1'000;

// The client says so if no connection came about; then nothing was sent.
bool never_sent(const Error& error) {
  const std::string& words = error.message;
  return words.starts_with("cannot connect to ") || words.starts_with("cannot find the host ") ||
         words.find(": TLS: ") != std::string::npos ||
         words.ends_with("did not finish the TLS handshake");
}

void hide(std::string& text, const std::string& secret) {
  if (secret.size() < 8)
    return;
  for (auto at = text.find(secret); at != std::string::npos; at = text.find(secret, at))
    text.replace(at, secret.size(), "[secret]");
}

std::string url_base64(std::string_view bytes) {
  std::string out = base64(bytes);
  for (char& c : out)
    c = c == '+' ? '-' : c == '/' ? '_' : c;
  while (out.ends_with('='))
    out.pop_back();
  return out;
}

std::string from_url_base64(std::string text) {
  for (char& c : text)
    c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (text.size() % 4 != 0)
    text += '=';
  std::string out;
  return base64_decode(text, out) ? out : std::string();
}

std::string from_hex(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const auto digit = [](char c) {
      return c <= '9' ? c - '0' : c - 'a' + 10;
    };
    out += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  }
  return out;
}

bool code_matches(const std::string& rule, const std::string& code) {
  if (rule.ends_with('*'))
    return code.starts_with(std::string_view(rule).substr(0, rule.size() - 1));
  return rule == code;
}

bool rule_matches(const AnswerRule& rule,
                  int status,
                  const std::string& code,
                  const std::string& lower_text) {
  return (rule.status == 0 || rule.status == status) &&
         (rule.code.empty() || code_matches(rule.code, code)) &&
         (rule.text.empty() || lower_text.find(rule.text) != std::string::npos);
}

// What a status means if no rule of the file matches. A throttled or broken server has not decided;
// anything else that it refuses must be looked at by a person.
RefusalKind kind_of_status(int status) {
  return status == 408 || status == 425 || status == 429 || status >= 500 ? RefusalKind::no_answer
                                                                          : RefusalKind::settings;
}

// The text of an error: a string, or what strings there are in a list or an object of them.
std::string error_text(const Json& at) {
  if (at.is_string() || at.is_number() || at.is_bool())
    return scalar_text(at);
  std::vector<std::string> parts;
  for (const Json& item : at.items())
    parts.push_back(item.is_object() ? std::string(item["message"].str_or("")) : scalar_text(item));
  std::erase(parts, "");
  return parts.empty() && !at.is_null() ? at.dump() : join(parts, "; ");
}

}  // namespace

Result<std::unique_ptr<Api>> Api::create(const Provider& provider, Options options) {
  if (options.address.empty())
    options.address = provider.address;
  net::Url url = BILLOW_TRY(net::parse_url(options.address));
  if (!url.endpoint.tls && !url.endpoint.address.is_loopback())
    return fail(Code::invalid,
                fmt::format("{} is not encrypted, and every request carries the credential",
                            options.address),
                "use an address that begins with https://");
  while (url.target.ends_with('/'))
    url.target.pop_back();
  return std::unique_ptr<Api>(new Api(provider, std::move(options), std::move(url)));
}

Result<Api::Prepared> Api::prepare(const Call& call, const Values& values) const {
  Prepared out;
  out.method = call.method;
  const Template path = BILLOW_TRY(Template::parse(call.path));
  out.target = url_.target + BILLOW_TRY(path.text(values, Template::Escape::url));
  char separator = '?';
  for (const auto& [name, text] : call.query) {
    const Template one = BILLOW_TRY(Template::parse(text));
    const auto value = BILLOW_TRY(one.json(values));
    if (!value)
      continue;
    out.target += separator;
    out.target += net::percent_encode(name) + "=" + net::percent_encode(scalar_text(*value));
    separator = '&';
  }
  if (call.body.is_null())
    return out;
  out.has_body = true;
  out.body = BILLOW_TRY(fill(call.body, values)).dump();
  return out;
}

Result<std::string> Api::oauth2_token(std::vector<std::string>& secrets) {
  const std::string id = BILLOW_TRY(options_.credential(provider_.auth.key));
  const std::string secret = BILLOW_TRY(options_.credential(provider_.auth.secret));
  secrets.push_back(secret);
  auto token = token_.lock();
  const SteadyTime now = system_clock().steady();
  if (!token->value.empty() && now < token->until) {
    secrets.push_back(token->value);
    return token->value;
  }
  net::BlockingClient client({.endpoint = url_.endpoint, .tls = {}});
  const Json body = Json::object(
      {{"grant_type", "client_credentials"}, {"client_id", id}, {"client_secret", secret}});
  auto answer = client.request({.method = net::Method::post,
                                .target = url_.target + provider_.auth.path,
                                .headers = {{"Content-Type", "application/json"}},
                                .body = body.dump(),
                                .timeout = answer_timeout,
                                .body_bytes_max = answer_bytes_max});
  if (!answer)
    return pass(std::move(answer.error()), "sign in");
  const auto parsed = parse_json(answer->body);
  std::string value(parsed ? (*parsed)["access_token"].str_or("") : "");
  if (answer->status >= 500)
    return fail(Code::unavailable, fmt::format("sign in: HTTP {}", answer->status));
  if (answer->status != 200 || value.empty())
    return fail(Code::unauthorized,
                fmt::format("{} refused {} and {} (HTTP {})", provider_.title, provider_.auth.key,
                            provider_.auth.secret, answer->status),
                "check both values in the provider's console");
  const std::int64_t life_s =
      std::clamp<std::int64_t>((*parsed)["expires_in"].int_or(300), 30, 86'400);
  token->value = value;
  token->until = now + seconds(life_s * 4 / 5);
  secrets.push_back(value);
  return value;
}

// The recipe of Crusoe: path, sorted query, method and time, each followed by a newline; secret and
// signature in URL-safe base64.
std::string Api::signature(const Prepared& request,
                           const std::string& time,
                           const std::string& secret) const {
  const auto mark = request.target.find('?');
  const std::string path = request.target.substr(0, mark);
  std::vector<std::string> query;
  if (mark != std::string::npos)
    query = split(request.target.substr(mark + 1), '&');
  std::sort(query.begin(), query.end());
  const std::string payload = fmt::format("{}\n{}\n{}\n{}\n", path, join(query, "&"),
                                          net::method_name(request.method), time);
  return url_base64(from_hex(hmac_sha256_hex(from_url_base64(secret), payload)));
}

Status Api::authenticate(const Prepared& request,
                         net::Headers& headers,
                         std::vector<std::string>& secrets) {
  const Auth& auth = provider_.auth;
  if (auth.kind == AuthKind::oauth2) {
    headers.set("Authorization", "Bearer " + BILLOW_TRY(oauth2_token(secrets)));
    return {};
  }
  const std::string key = BILLOW_TRY(options_.credential(auth.key));
  secrets.push_back(key);
  if (!net::valid_field_value(key) || key.find_first_of(" \t") != std::string::npos)
    return fail(Code::unauthorized, fmt::format("{} is not a valid key", auth.key),
                "give the key alone, without quotes or line breaks");
  if (auth.kind == AuthKind::bearer) {
    headers.set("Authorization", "Bearer " + key);
  } else if (auth.kind == AuthKind::header) {
    headers.set(auth.header, key);
  } else {
    const std::string secret = BILLOW_TRY(options_.credential(auth.secret));
    secrets.push_back(secret);
    const std::string utc = format_utc(system_clock().wall());
    const std::string time = utc.substr(0, utc.size() - 1) + "+00:00";
    headers.set(auth.header, time);
    headers.set("Authorization",
                fmt::format("Bearer 1.0:{}:{}", key, signature(request, time, secret)));
  }
  return {};
}

std::expected<Answer, NoAnswer> Api::exchange(const Prepared& request,
                                              const Values& values,
                                              Use use,
                                              bool again) {
  net::Headers headers = {{"Accept", "application/json"}, {"User-Agent", "billow"}};
  if (request.has_body)
    headers.set("Content-Type", "application/json");
  std::vector<std::string> secrets;
  if (const Status signed_in = authenticate(request, headers, secrets); !signed_in)
    return std::unexpected(NoAnswer{signed_in.error(), false});
  const Pacer pacer(provider_.name + "/" + sha256_hex(secrets.front()), provider_.pace);
  if (!pacer.wait(use == Use::create, turn_wait_max))
    return std::unexpected(
        NoAnswer{Error{Code::unavailable,
                       fmt::format("{} limits the request rate, and this request is not due yet",
                                   provider_.title)},
                 false});
  // A new connection for each request: on a kept one, a request whose answer is lost could be sent
  // twice by the client.
  net::BlockingClient client({.endpoint = url_.endpoint, .tls = {}});
  auto response = client.request({.method = request.method,
                                  .target = request.target,
                                  .headers = headers,
                                  .body = request.body,
                                  .timeout = use == Use::create ? create_timeout : answer_timeout,
                                  .body_bytes_max = answer_bytes_max});
  if (!response)
    return std::unexpected(NoAnswer{response.error(), !never_sent(response.error())});
  if (response->status == 429) {
    const auto after = parse_int(response->headers.get("Retry-After"), 0, 3600);
    pacer.pause(std::min(after ? seconds(*after) : pause_default, pause_max));
  }
  if (response->status == 401 && provider_.auth.kind == AuthKind::oauth2 && !again) {
    token_.lock()->value.clear();
    return exchange(request, values, use, true);
  }
  if (response->status >= 400) {
    for (const std::string& secret : secrets)
      hide(response->body, secret);
    if (const auto token = values.find("token"); token != values.end())
      hide(response->body, token->second);
  }
  auto parsed = parse_json(response->body);
  // Some providers answer with the id alone, as plain text.
  Json body =
      parsed ? std::move(*parsed)
             : Json(repaired_utf8(
                   trim(std::string_view(response->body)
                            .substr(0, std::min<std::size_t>(response->body.size(), 64 << 10)))));
  return Answer{response->status, std::move(body)};
}

std::expected<Answer, NoAnswer> Api::send(const Call& call, const Values& values, Use use) {
  const auto request = prepare(call, values);
  if (!request)
    return std::unexpected(NoAnswer{request.error(), false});
  return exchange(*request, values, use, false);
}

bool Api::succeeded(const Answer& answer) const {
  if (answer.status < 200 || answer.status > 299)
    return false;
  if (provider_.errors.ok && provider_.errors.ok->first(answer.body) == Json(false))
    return false;
  if (!provider_.errors.errors)
    return true;
  const Json& errors = provider_.errors.errors->first(answer.body);
  return errors.is_null() || (errors.is_array() && errors.items().empty());
}

Refusal Api::refusal_of(const Answer& answer) const {
  const std::string code = error_text(provider_.errors.code.first(answer.body));
  std::string text = error_text(provider_.errors.text.first(answer.body));
  if (text.empty() && answer.body.is_string())
    text = answer.body.as_string();
  return refusal_of(answer.status, provider_.errors.code.empty() ? std::string() : code, text);
}

Refusal Api::refusal_of(int status, const std::string& code, const std::string& text) const {
  Refusal out{.kind = kind_of_status(status), .message = {}};
  const std::string low = lower(text);
  for (const AnswerRule& rule : provider_.errors.rules) {
    if (!rule_matches(rule, status, code, low))
      continue;
    out.kind = rule.kind;
    break;
  }
  std::string words = text.empty() ? std::string(net::status_text(status)) : text;
  if (!code.empty() && code != words)
    words = fmt::format("{}: {}", code, words);
  words = fmt::format("{}: {} (HTTP {})", provider_.title, words, status);
  out.message = std::string(utf8_prefix(words, limits::words_bytes_max));
  return out;
}

bool Api::matches(const std::vector<AnswerRule>& rules, const Answer& answer) const {
  const std::string code = error_text(provider_.errors.code.first(answer.body));
  std::string text = error_text(provider_.errors.text.first(answer.body));
  if (text.empty() && answer.body.is_string())
    text = answer.body.as_string();
  const std::string low = lower(text);
  return std::any_of(rules.begin(), rules.end(), [&](const AnswerRule& rule) {
    return rule_matches(rule, answer.status, code, low);
  });
}

// The value of the next page's parameter, or its target; empty: this was the last.
Result<std::string> Api::next_page(const ListCall& list,
                                   const Answer& answer,
                                   std::size_t items,
                                   int page) const {
  const Paging& paging = list.paging;
  switch (paging.kind) {
    case PagingKind::none:
      return std::string();
    case PagingKind::cursor:
      return scalar_text(paging.next.first(answer.body));
    case PagingKind::page:
      return items < static_cast<std::size_t>(paging.size) ? std::string()
                                                           : std::to_string(page + 1);
    case PagingKind::next_link:
      break;
  }
  std::string link = scalar_text(paging.next.first(answer.body));
  if (link.empty() || link.front() == '/')
    return link;
  const net::Url next = BILLOW_TRY(net::parse_url(link));
  // The credential goes to the provider's own address and nowhere else.
  if (next.endpoint.address.host != url_.endpoint.address.host &&
      options_.address == provider_.address)
    return fail(Code::unavailable, fmt::format("{} links to another host for the next page: {}",
                                               provider_.title, next.endpoint.text()));
  return next.target;
}

Result<std::vector<Json>> Api::list(const ListCall& list, const Values& values) {
  std::vector<Json> out;
  const Paging& paging = list.paging;
  const auto base = BILLOW_TRY(prepare(list.call, values));
  const auto with = [](std::string target, const std::string& name, const std::string& value) {
    target += target.find('?') == std::string::npos ? '?' : '&';
    return target + net::percent_encode(name) + "=" + net::percent_encode(value);
  };
  Prepared request = base;
  if (!paging.size_parameter.empty() && paging.size > 0)
    request.target = with(request.target, paging.size_parameter, std::to_string(paging.size));
  const std::string first_target = request.target;
  if (paging.kind == PagingKind::page)
    request.target = with(first_target, paging.parameter, std::to_string(paging.first));
  std::string before;
  int page = paging.first;
  for (std::size_t n = 0; n < pages_max; ++n, ++page) {
    auto answer = exchange(request, values, Use::read, false);
    if (!answer)
      return pass(std::move(answer.error().error));
    if (!succeeded(*answer)) {
      const Refusal refused = refusal_of(*answer);
      const Code code = refused.kind == RefusalKind::settings && answer->status < 404
                            ? Code::unauthorized
                            : Code::unavailable;
      return fail(code, refused.message);
    }
    if (!list.items.has_list(answer->body))
      return fail(Code::unavailable,
                  fmt::format("{} answered without the list that was asked for", provider_.title));
    const auto items = list.items.all(answer->body);
    for (const Json* item : items)
      out.push_back(*item);
    const std::string next = BILLOW_TRY(next_page(list, *answer, items.size(), page));
    if (next.empty())
      return out;
    if (next == before)
      return fail(Code::unavailable, fmt::format("{} repeats the same page", provider_.title));
    before = next;
    request.target =
        paging.kind == PagingKind::next_link ? next : with(first_target, paging.parameter, next);
  }
  return fail(Code::unavailable,
              fmt::format("{} lists more than {} pages", provider_.title, pages_max));
}

}  // namespace billow::pool::rest
