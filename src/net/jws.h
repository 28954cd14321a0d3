// Signed JSON requests as ACME authorities read them (RFC 7515, 7517, 7638): ECDSA on P-256 with
// SHA-256 ("ES256").
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace billow::net {

// A key and what is derived from it. `pem` is secret: store it with mode 0600.
class JwsKey {
 public:
  static Result<JwsKey> make();
  static Result<JwsKey> read(const std::string& pem);
  const std::string& pem() const { return pem_; }
  Json public_jwk() const;         // the public key
  std::string thumbprint() const;  // of the public key, as ACME's key authorizations have it
  // The document {"protected":…,"payload":…,"signature":…}. "alg" is added to the header. An empty
  // payload is sent as such (POST-as-GET).
  Result<std::string> sign(Json header, std::string_view payload) const;

 private:
  std::string pem_, x_, y_;  // the coordinates as URL-safe base64
};

// URL-safe base64 without padding.
std::string base64url(std::string_view bytes);
// The bytes of the first block of a PEM text.
Result<std::string> pem_bytes(std::string_view pem);

}  // namespace billow::net
