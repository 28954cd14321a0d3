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

// A key of its own and the request (PKCS #10) with which an authority certifies it.
struct KeyAndRequest {
  std::string key_pem;  // secret
  std::string request_pem;
};
Result<KeyAndRequest> request_cert(const std::string& name);
// The same for a server with these DNS names (at least one), as public authorities want it.
Result<KeyAndRequest> request_server_cert(const std::vector<std::string>& names);

// A certificate for a client whose request proves that it has the key. Of the request only the key
// counts; the names are the authority's choice.
struct ClientCert {
  std::string name;  // the subject
  std::string uri;   // what the certificate is for
  Duration life;
};
Result<std::string> certify_client(const CertAndKey& authority,
                                   const std::string& request_pem,
                                   const ClientCert& client);

struct CertDates {
  WallTime not_before, not_after;
};
Result<CertDates> cert_dates(const std::string& cert_pem);
// How long before it is made a certificate begins to be valid: clocks of joining nodes may be slow.
inline constexpr Duration cert_backdated = hours(1);

// The DNS names that the first certificate of a PEM text is for, in lower case.
Result<std::vector<std::string>> cert_names(const std::string& cert_pem);

// SHA-256 over the first certificate of a PEM text, 64 hexadecimal digits.
Result<std::string> cert_fingerprint(const std::string& cert_pem);

}  // namespace billow::net
