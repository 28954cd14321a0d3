// A provider's description of itself (OpenID Connect Discovery), and which addresses may be called.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace billow::identity {

struct Discovery {
  std::string authorization_endpoint, token_endpoint, jwks_uri;
  std::string device_endpoint;  // empty: no sign-in by device code
  bool names_itself = false;    // its answers carry `iss`, which must then be its own (RFC 9207)
  bool offers_offline = false;  // knows the scope offline_access…
  bool offers_groups = false;   // …and the scope groups
};

// https, or http to this machine. No user, no fragment.
Status check_provider_url(std::string_view url, std::string_view what);
// Of the issuer: the document must name exactly this issuer, and may lead to https addresses, or to
// this machine if the issuer itself is on this machine.
Result<Discovery> parse_discovery(std::string_view text, std::string_view issuer);
std::string discovery_url(std::string_view issuer);

}  // namespace billow::identity
