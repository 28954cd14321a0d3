// Certificates that a server's clients show in the TLS handshake.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/tls.h"

namespace billow::net {

// What a client's certificate says. Its chain, purpose and dates were verified.
struct PeerCertificate {
  std::vector<std::string> names;  // the common name, DNS names and URIs
  WallTime not_after;
};
using PeerCertificatePtr = std::shared_ptr<const PeerCertificate>;

// Clients may show a certificate of these authorities. Any other one, or one that is expired or not
// for clients, ends the handshake.
struct ClientAuthorities {
  std::string ca_pem;  // empty: no client is asked for a certificate
  // Called in the handshake, on the thread that does it, with a verified certificate. False: it was
  // revoked, and the handshake ends.
  std::function<bool(const PeerCertificate&)> accept;
};
Status ask_client_certificates(TlsContext& server, const ClientAuthorities& clients);

}  // namespace billow::net
