// The head's own certificate. A head that other machines can reach uses TLS from the start: its
// authority (certificates/authority.h; tokens carry its fingerprint) issues a new certificate at
// each start, so that clients can still connect after the address has changed.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/certs.h"

namespace billow::head {

struct OwnTls {
  std::string cert_path, key_path;
};
struct OwnTlsOptions {
  std::string dir;
  std::vector<std::string> names;  // beside the host's name and addresses
};
Result<OwnTls> own_tls(const OwnTlsOptions& options, const net::CertAndKey& authority);

// Addresses of this machine that others may use; loopback last.
std::vector<std::string> own_addresses();
// Whether an address to listen on can be reached from this machine only.
bool is_loopback(const std::string& address);
// The address at which other machines reach a listening address such as 0.0.0.0.
std::string reachable_address(const std::string& bound);

}  // namespace billow::head
