// The head's own authority: it issues the head's certificate, which everybody trusts by the
// authority's fingerprint, and the certificates of nodes and gateways.
//
// It is replaced in two steps. First the next authority is announced: nodes and gateways learn its
// fingerprint over the connections that they trust, and get certificates of the next one. Then the
// head's own certificate changes over and the first authority is gone. Each step is one write, so a
// crash leaves the state of before or the one after.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "net/certs.h"

namespace billow::head {

struct Authority {
  net::CertAndKey current;
  std::optional<net::CertAndKey> next;

  const net::CertAndKey& for_clients() const { return next ? *next : current; }
  std::string certs() const { return current.cert_pem + (next ? next->cert_pem : ""); }
  // Of the current one, and after a comma of the next.
  Result<std::string> fingerprints() const;
  Result<WallTime> next_since() const;

  // Certificates and keys one after the other: how heads of one store share them.
  std::string text() const;
  static Result<Authority> parse(const std::string& text);

  // In a directory: ca.pem and ca.key, and next.pem with both of the next one.
  static Result<Authority> open(const std::string& dir);  // makes one if there is none
  Status save(const std::string& dir) const;
};

}  // namespace billow::head
