// The head's own certificates. A head that other machines can reach uses TLS from the start: it
// creates an authority once (kept in the data directory; tokens carry its fingerprint) and a new
// certificate at each start, so that a changed address locks nobody out.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/tls.h"

namespace billow::head {

struct OwnTls {
  net::TlsServerOptions server;
  std::string authority_pem;
  std::string fingerprint;  // of the authority
};
struct OwnTlsOptions {
  std::string dir;                 // made with mode 0700
  std::vector<std::string> names;  // beside the host's name and addresses
};
Result<OwnTls> own_tls(const OwnTlsOptions& options);

// Whether an address to listen on can be reached from this machine only.
bool is_loopback(const std::string& address);
// The address at which other machines reach a listening address such as 0.0.0.0.
std::string reachable_address(const std::string& bound);

}  // namespace billow::head
