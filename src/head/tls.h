// The head's own certificates. A head that listens beyond this machine speaks TLS from the start:
// it makes an authority once (kept in the data directory, trusted by its fingerprint, which tokens
// carry) and a fresh certificate at each start, so that a machine whose address changed is not
// locked out.
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
// What other machines call an address we listen on: 0.0.0.0 is nobody's address.
std::string reachable_address(const std::string& bound);

}  // namespace billow::head
