#include "s3/sign.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "base/crypto.h"

namespace billow::s3 {
namespace {

std::string hmac(std::string_view key, std::string_view data) {
  const std::string text = hmac_sha256_hex(key, data);
  std::string out;
  const auto value = [](char c) {
    return c >= 'a' ? c - 'a' + 10 : c - '0';
  };
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out += static_cast<char>(value(text[i]) * 16 + value(text[i + 1]));
  return out;
}

}  // namespace

std::string encode_path(std::string_view path) {
  std::string out;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    out += net::percent_encode(path.substr(at, slash - at));
    if (slash < path.size())
      out += '/';
    at = slash + 1;
  }
  return out;
}

std::string encode_query(Query query) {
  for (auto& [name, value] : query) {
    name = net::percent_encode(name);
    value = net::percent_encode(value);
  }
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query)
    out += fmt::format("{}{}={}", out.empty() ? "" : "&", name, value);
  return out;
}

void sign(net::Headers& headers, const ToSign& request, const Access& access, WallTime now) {
  if (access.access_key.empty())
    return;
  const time_t seconds = static_cast<time_t>(now.ns / 1'000'000'000);
  struct tm utc {};
  ::gmtime_r(&seconds, &utc);
  char stamp[32];
  ::strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
  const std::string date(stamp, 8);
  const std::string payload = sha256_hex(request.body);
  headers.set("x-amz-date", stamp);
  headers.set("x-amz-content-sha256", payload);
  if (!access.session_token.empty())
    headers.set("x-amz-security-token", access.session_token);
  // The host and all x-amz headers are signed, in order of their names.
  std::vector<std::pair<std::string, std::string>> fields{{"host", request.host}};
  for (const auto& [name, value] : headers)
    if (name.starts_with("x-amz-"))
      fields.emplace_back(name, value);
  std::sort(fields.begin(), fields.end());
  std::string canonical, names;
  for (const auto& [name, value] : fields) {
    canonical += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string asked = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", net::method_name(request.method),
                                        request.path, request.query, canonical, names, payload);
  const std::string scope =
      fmt::format("{}/{}/{}/aws4_request", date, access.region, access.service);
  const std::string text =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, scope, sha256_hex(asked));
  const std::string key =
      hmac(hmac(hmac(hmac("AWS4" + access.secret_key, date), access.region), access.service),
           "aws4_request");
  headers.set("Authorization",
              fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                          access.access_key, scope, names, hmac_sha256_hex(key, text)));
}

}  // namespace billow::s3
