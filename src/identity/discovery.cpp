#include "identity/discovery.h"

#include <fmt/format.h>

#include "base/json.h"
#include "net/address.h"

namespace billow::identity {

Status check_provider_url(std::string_view url, std::string_view what) {
  const auto parsed = net::parse_url(url);
  const bool web = url.starts_with("https://") || url.starts_with("http://");
  if (!parsed || !web || url.find_first_of("#@ \t\r\n\"'<>\\") != std::string_view::npos)
    return fail(Code::invalid, fmt::format("{} is not an address: {}", what, url),
                "write https://HOST/PATH");
  if (!parsed->endpoint.tls && !parsed->endpoint.address.is_loopback())
    return fail(Code::invalid, fmt::format("{} must use https: {}", what, url),
                "plain http is only accepted to this machine");
  return {};
}

std::string discovery_url(std::string_view issuer) {
  std::string url(issuer);
  while (url.ends_with('/'))
    url.pop_back();
  return url + "/.well-known/openid-configuration";
}

Result<Discovery> parse_discovery(std::string_view text, std::string_view issuer) {
  const Json json = BILLOW_TRY(parse_json(text));
  if (json["issuer"].str_or("") != issuer)
    return fail(Code::invalid,
                fmt::format("the provider calls itself \"{}\", not \"{}\"",
                            json["issuer"].str_or(""), issuer),
                "use exactly the issuer that the provider names");
  Discovery out;
  const auto read = [&](const char* name, std::string& into) -> Status {
    into = json[name].str_or("");
    if (into.empty())
      return {};
    BILLOW_TRY_VOID(check_provider_url(into, name));
    const bool plain = into.starts_with("http://");
    if (plain && !issuer.starts_with("http://"))
      return fail(Code::invalid, fmt::format("the provider's {} does not use https", name));
    return {};
  };
  BILLOW_TRY_VOID(read("authorization_endpoint", out.authorization_endpoint));
  BILLOW_TRY_VOID(read("token_endpoint", out.token_endpoint));
  BILLOW_TRY_VOID(read("jwks_uri", out.jwks_uri));
  BILLOW_TRY_VOID(read("device_authorization_endpoint", out.device_endpoint));
  if (out.jwks_uri.empty())
    return fail(Code::invalid, "the provider does not say where its keys are");
  out.names_itself = json["authorization_response_iss_parameter_supported"].bool_or(false);
  for (const Json& scope : json["scopes_supported"].items()) {
    out.offers_offline |= scope.str_or("") == "offline_access";
    out.offers_groups |= scope.str_or("") == "groups";
  }
  return out;
}

}  // namespace billow::identity
