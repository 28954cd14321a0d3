#include "net/http/http.h"

#include "base/append_format.h"
#include "base/json.h"
#include "base/text.h"

namespace billow::net {
namespace {

constexpr char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c)
    table[static_cast<std::size_t>(c)] = true;
  for (int c = 'a'; c <= 'z'; ++c)
    table[static_cast<std::size_t>(c)] = table[static_cast<std::size_t>(c - 32)] = true;
  for (char c : std::string_view("!#$%&'*+-.^_`|~"))
    table[static_cast<unsigned char>(c)] = true;
  return table;
}
constexpr auto token_table = make_token_table();

int hex_value(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  c = lower_ascii(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Decodes the path of a target. An encoded slash stays encoded, so that routing and decoding agree.
Result<std::string> decode_path(std::string_view text) {
  if (text.find('%') == text.npos)
    return std::string(text);
  std::string kept;
  std::size_t from = 0;
  for (std::size_t at = 0; (at = text.find('%', at)) != text.npos; ++at) {
    if (!equal_nocase(text.substr(at, 3), "%2f"))
      continue;
    kept += BILLOW_TRY(percent_decode(text.substr(from, at - from)));
    kept += "%2F";
    from = at + 3;
  }
  kept += BILLOW_TRY(percent_decode(text.substr(from)));
  return kept;
}

}  // namespace

bool equal_nocase(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (lower_ascii(a[i]) != lower_ascii(b[i]))
      return false;
  return true;
}

bool valid_token(std::string_view text) {
  for (char c : text)
    if (!token_table[static_cast<unsigned char>(c)])
      return false;
  return !text.empty();
}

bool valid_field_value(std::string_view text) {
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if ((u < 0x20 && u != '\t') || u == 0x7f)
      return false;
  }
  return true;
}

std::string_view method_name(Method method) {
  switch (method) {
    case Method::get:
      return "GET";
    case Method::head:
      return "HEAD";
    case Method::post:
      return "POST";
    case Method::put:
      return "PUT";
    case Method::patch:
      return "PATCH";
    case Method::del:
      return "DELETE";
    case Method::options:
      return "OPTIONS";
  }
  return "GET";
}

std::optional<Method> parse_method(std::string_view name) {
  for (Method m : {Method::get, Method::post, Method::put, Method::del, Method::head, Method::patch,
                   Method::options})
    if (method_name(m) == name)
      return m;
  return std::nullopt;
}

std::string_view Headers::get(std::string_view name) const {
  for (const auto& [n, v] : fields_)
    if (equal_nocase(n, name))
      return v;
  return {};
}
bool Headers::has(std::string_view name) const {
  for (const auto& field : fields_)
    if (equal_nocase(field.first, name))
      return true;
  return false;
}
std::size_t Headers::count(std::string_view name) const {
  std::size_t n = 0;
  for (const auto& field : fields_)
    n += equal_nocase(field.first, name);
  return n;
}
void Headers::remove(std::string_view name) {
  std::erase_if(fields_, [&](const Field& f) { return equal_nocase(f.first, name); });
}
void Headers::set(std::string_view name, std::string_view value) {
  remove(name);
  fields_.emplace_back(name, value);
}
bool Headers::has_token(std::string_view name, std::string_view token) const {
  for (const auto& [n, v] : fields_) {
    if (!equal_nocase(n, name))
      continue;
    std::string_view rest = v;
    while (!rest.empty()) {
      const auto comma = std::min(rest.find(','), rest.size());
      if (equal_nocase(trim(rest.substr(0, comma)), token))
        return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

std::string_view Request::param(std::string_view name) const {
  for (const auto& [n, v] : query)
    if (n == name)
      return v;
  return {};
}
bool Request::has_param(std::string_view name) const {
  for (const auto& p : query)
    if (p.first == name)
      return true;
  return false;
}

Response Response::json(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}
Response Response::text(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body)};
}

std::string_view status_text(int status) {
  static constexpr std::pair<int, std::string_view> phrases[] = {
      {100, "Continue"},
      {101, "Switching Protocols"},
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {206, "Partial Content"},
      {301, "Moved Permanently"},
      {302, "Found"},
      {303, "See Other"},
      {304, "Not Modified"},
      {307, "Temporary Redirect"},
      {308, "Permanent Redirect"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {406, "Not Acceptable"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {410, "Gone"},
      {411, "Length Required"},
      {412, "Precondition Failed"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {416, "Range Not Satisfiable"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {422, "Unprocessable Content"},
      {426, "Upgrade Required"},
      {428, "Precondition Required"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {507, "Insufficient Storage"},
  };
  const auto* found = std::find_if(std::begin(phrases), std::end(phrases),
                                   [&](const auto& phrase) { return phrase.first == status; });
  return found == std::end(phrases) ? "Status" : found->second;
}

int http_status(Code code) {
  switch (code) {
    case Code::invalid:
      return 400;
    case Code::unauthorized:
      return 401;
    case Code::forbidden:
      return 403;
    case Code::not_found:
      return 404;
    case Code::conflict:
      return 409;
    case Code::infeasible:
      return 422;
    case Code::exhausted:
      return 429;
    case Code::unavailable:
      return 503;
    case Code::storage_full:
      return 507;
    case Code::unsupported:
      return 501;
    case Code::too_large:
      return 413;
    case Code::timed_out:
      return 504;
    case Code::internal:
      return 500;
  }
  return 500;
}

Code code_of_status(int status) {
  switch (status) {
    case 401:
      return Code::unauthorized;
    case 403:
      return Code::forbidden;
    case 404:
    case 410:
      return Code::not_found;
    case 409:
    case 412:
    case 428:
      return Code::conflict;
    case 422:
      return Code::infeasible;
    case 429:
      return Code::exhausted;
    case 413:
    case 431:
      return Code::too_large;
    case 408:
    case 504:
      return Code::timed_out;
    case 502:
    case 503:
      return Code::unavailable;
    case 501:
    case 505:
      return Code::unsupported;
    case 507:
      return Code::storage_full;
    default:
      return status >= 500 ? Code::internal : Code::invalid;
  }
}

namespace {
std::string quote_json(std::string_view text) {
  return Json(std::string(text)).dump();
}

Response problem_of(int status,
                    std::string_view code,
                    std::string_view detail,
                    std::string_view hint,
                    std::string_view request_id) {
  std::string body =
      fmt::format(R"({{"type":"about:blank","title":{},"status":{},"code":{},"detail":{})",
                  quote_json(status_text(status)), status, quote_json(code), quote_json(detail));
  if (!hint.empty())
    body += fmt::format(R"(,"hint":{})", quote_json(hint));
  if (!request_id.empty())
    body += fmt::format(R"(,"request_id":{})", quote_json(request_id));
  body += '}';
  return {status, {{"Content-Type", "application/problem+json"}}, std::move(body)};
}
}  // namespace

Response problem(int status,
                 std::string_view detail,
                 std::string_view hint,
                 std::string_view request_id) {
  return problem_of(status, code_name(code_of_status(status)), detail, hint, request_id);
}
Response problem(const Error& error, std::string_view request_id) {
  return problem_of(http_status(error.code), code_name(error.code), error.message, error.hint,
                    request_id);
}

Result<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0)
        return fail(Code::invalid, "the URL contains an invalid percent escape",
                    "write % itself as %25");
      if (high == 0 && low == 0)
        return fail(Code::invalid, "the URL contains an encoded NUL character");
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

std::string percent_encode(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain)
      out += c;
    else
      append_format(out, "%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Status parse_target(std::string_view target, Request& into) {
  into.target = target;
  into.query.clear();
  const auto question = target.find('?');
  into.path = BILLOW_TRY(decode_path(target.substr(0, question)));
  if (question == target.npos)
    return {};
  std::string_view rest = target.substr(question + 1);
  while (!rest.empty()) {
    const auto end = std::min(rest.find('&'), rest.size());
    const auto pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (pair.empty())
      continue;
    const auto equals = std::min(pair.find('='), pair.size());
    auto name = BILLOW_TRY(percent_decode(pair.substr(0, equals), true));
    auto value = BILLOW_TRY(percent_decode(pair.substr(std::min(equals + 1, pair.size())), true));
    into.query.emplace_back(std::move(name), std::move(value));
  }
  return {};
}

}  // namespace billow::net
