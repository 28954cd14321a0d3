#include "container/registry.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "container/registry_login.h"
#include "net/address.h"
#include "net/http/blocking_client.h"

namespace billow::container {
namespace {

constexpr std::size_t answer_bytes_max = 4 << 20;
constexpr int redirects_max = 5;
constexpr const char* manifest_kinds =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json";

Result<std::string> login_for(const std::string& host, const std::string& file) {
  if (file.empty())
    return std::string();
  return login_in(BILLOW_TRY(parse_json(BILLOW_TRY(read_file(file, 1 << 20)))), host);
}

bool may_be_called(const net::Url& url) {
  return url.endpoint.tls || url.endpoint.address.is_loopback();
}

}  // namespace

Challenge Challenge::parse(std::string_view text) {
  Challenge out;
  const std::size_t space = text.find(' ');
  out.scheme = lower(text.substr(0, space));
  if (space == text.npos)
    return out;
  text.remove_prefix(space + 1);
  while (!text.empty()) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos)
      break;
    const std::string name = lower(trim(text.substr(0, equals)));
    text.remove_prefix(equals + 1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const bool quoted = text.starts_with('"');
    text.remove_prefix(quoted);
    const std::size_t end = std::min(text.find(quoted ? '"' : ','), text.size());
    const std::string value(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of("\", "), text.size()));
    if (name == "realm")
      out.realm = value;
    else if (name == "service")
      out.service = value;
    else if (name == "scope")
      out.scope = value;
  }
  return out;
}

Result<Registry> Registry::of(const ImageName& image, const std::string& logins) {
  const auto full = BILLOW_TRY(parse_image_name(image.qualified()));
  Registry out;
  out.host_ = full.registry;
  // The name that people use for Docker's registry is not that of its server.
  out.base_ = fmt::format("{}://{}/v2/", full.on_loopback() ? "http" : "https",
                          full.registry == "docker.io" ? "registry-1.docker.io" : full.registry);
  out.repository_ = full.repository;
  out.login_ = BILLOW_TRY(login_for(full.registry, logins));
  return out;
}

Result<net::Response> Registry::ask(const std::string& url, const net::Headers& headers) const {
  const net::Url parsed = BILLOW_TRY(net::parse_url(url));
  if (!may_be_called(parsed))
    return fail(Code::forbidden,
                fmt::format("registry {} refers to an address without TLS", host_));
  net::BlockingClient client({.endpoint = parsed.endpoint, .tls = {}});
  auto answer = client.request({.target = parsed.target,
                                .headers = headers,
                                .timeout = seconds(30),
                                .body_bytes_max = answer_bytes_max});
  if (!answer)
    return pass(Error(answer.error()).in(fmt::format("registry {}", host_)));
  return answer;
}

// Either the name and password themselves, or a token that a server gives for them.
Status Registry::sign_in(std::string_view challenge) {
  const Challenge asked = Challenge::parse(challenge);
  if (asked.scheme == "basic" && !login_.empty()) {
    authorization_ = "Basic " + login_;
    return {};
  }
  if (asked.scheme != "bearer" || asked.realm.empty())
    return fail(Code::forbidden, fmt::format("registry {} needs a login", host_), login_hint({}));
  net::Headers headers;
  if (!login_.empty())
    headers.add("Authorization", "Basic " + login_);
  const auto answer = BILLOW_TRY(
      ask(fmt::format("{}{}service={}&scope={}", asked.realm,
                      asked.realm.find('?') == std::string::npos ? '?' : '&',
                      net::percent_encode(asked.service), net::percent_encode(asked.scope)),
          headers));
  const auto document = parse_json(answer.body);
  const Json none;
  const Json& given = document ? *document : none;
  const std::string token(given["token"].str_or(given["access_token"].str_or("")));
  if (answer.status != 200 || token.empty())
    return fail(Code::forbidden,
                fmt::format("registry {} gave no token (HTTP {})", host_, answer.status),
                login_hint({}));
  authorization_ = "Bearer " + token;
  return {};
}

Result<std::string> Registry::get(const std::string& path, const std::string& accept) {
  std::string url = base_ + repository_ + "/" + path;
  bool signed_in = false, own = true;
  for (int hops = 0; hops <= redirects_max; ++hops) {
    net::Headers headers{{"Accept", accept}};
    if (own && !authorization_.empty())
      headers.add("Authorization", authorization_);
    auto answer = BILLOW_TRY(ask(url, headers));
    if (answer.status == 200)
      return std::move(answer.body);
    if (answer.status == 404)
      return fail(Code::not_found, fmt::format("registry {} has no {}", host_, path));
    if (answer.status == 401 && own && !signed_in) {
      BILLOW_TRY_VOID(sign_in(answer.headers.get("WWW-Authenticate")));
      signed_in = true;
      continue;
    }
    const std::string next(answer.headers.get("Location"));
    if (answer.status < 300 || answer.status >= 400 || next.find("://") == std::string::npos)
      return fail(answer.status < 500 ? Code::forbidden : Code::unavailable,
                  fmt::format("registry {} answered HTTP {}", host_, answer.status));
    url = next;
    own = false;  // a store of another company: it gets no login
  }
  return fail(Code::unavailable, fmt::format("registry {} refers in a circle", host_));
}

Result<Registry::Manifest> Registry::manifest(const std::string& reference) {
  const std::string text = BILLOW_TRY(get("manifests/" + reference, manifest_kinds));
  Manifest out{"sha256:" + sha256_hex(text), BILLOW_TRY(parse_json(text))};
  if (is_image_digest(reference) && out.digest != reference)
    return fail(Code::invalid, fmt::format("registry {} answered with another manifest", host_));
  return out;
}

Result<std::string> Registry::blob(const std::string& digest) {
  if (!is_image_digest(digest))
    return fail(Code::invalid, fmt::format("\"{}\" is not a digest", digest.substr(0, 100)));
  std::string content = BILLOW_TRY(get("blobs/" + digest, "*/*"));
  if ("sha256:" + sha256_hex(content) != digest)
    return fail(Code::invalid, fmt::format("registry {} answered with another blob", host_));
  return content;
}

}  // namespace billow::container
