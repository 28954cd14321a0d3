// JSON Web Tokens signed with RSA: how a service account (Google) or a certificate (Azure) proves
// itself to a token endpoint.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace billow::pool {

enum class JwtAlgorithm {
  rs256,  // RSASSA-PKCS1-v1_5
  ps256,  // RSASSA-PSS, as Azure recommends
};

// `header` is completed with the algorithm. The key is PEM and may be followed or preceded by
// certificates.
Result<std::string> signed_jwt(JwtAlgorithm algorithm,
                               Json header,
                               const Json& claims,
                               const std::string& private_pem);

// What a token says, without checking its signature: only for messages to people.
Json unverified_claims(std::string_view token);

// The SHA-256 of the first certificate in a PEM text, as the header x5t#S256 wants it.
Result<std::string> x5t_s256(const std::string& cert_pem);

}  // namespace billow::pool
