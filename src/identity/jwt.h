// Signed tokens in compact form (RFC 7519, RFC 7515): HEADER.CLAIMS.SIGNATURE in base64url.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace billow::identity {

inline constexpr std::size_t jwt_bytes_max = 16 << 10;

struct Jwt {
  Json header, claims;
  std::string signed_part;  // what the signature covers
  std::string signature;
};
// Takes it apart. It says nothing about the signature: see KeySet::check.
Result<Jwt> parse_jwt(std::string_view text);

// Without padding, and strict: each value has one form only.
bool base64url_decode(std::string_view text, std::string& out);

}  // namespace billow::identity
