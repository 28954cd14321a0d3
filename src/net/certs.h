// Certificates of a private authority: the head creates one and issues its own certificate with it;
// joining nodes trust it by its fingerprint. Keys are ECDSA P-256.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace billow::net {

struct CertAndKey {
  std::string
      cert_pem;  // an issued certificate is followed by its authority's, as servers send them
  std::string key_pem;  // secret: store with mode 0600
};

Result<CertAndKey> make_ca(const std::string& name, Duration life = hours(24 * 3650));

struct CertRequest {
  std::vector<std::string> names;  // DNS names and IP addresses; the first is the subject
  Duration life = hours(24 * 365);
};
Result<CertAndKey> issue_cert(const CertAndKey& authority, const CertRequest& request);

// SHA-256 over the first certificate of a PEM text, 64 hexadecimal digits.
Result<std::string> cert_fingerprint(const std::string& cert_pem);

}  // namespace billow::net
