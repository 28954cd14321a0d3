// Certificates of the head, its nodes and its gateways (ADR 22): which one the head shows, whose it
// accepts, and those that it issues.
//
// A certificate names the credential (token) that it was issued for, and is good for nothing else:
// it is refused in the handshake once that credential is revoked, and with requests of any other
// credential. Nothing about it is stored: who proves the credential gets another one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "core/control/decide/decide.h"
#include "head/certificates/authority.h"
#include "head/head_store.h"
#include "net/client_certs.h"

namespace billow::head {

class Certificates {
 public:
  struct Options {
    std::string dir;                      // of the authority and the head's own certificate
    std::vector<std::string> names;       // of the head, beside its host's name and addresses
    bool tls = false;                     // the head serves TLS
    std::string server_cert, server_key;  // the operator's; empty: issued by the authority
    std::string client_ca;  // file with the operator's authority for nodes; empty: the head's own
    bool required = false;  // of nodes and gateways that connect over TLS
    Duration life = hours(24);
    HeadStore* store = nullptr;
    const Clock* clock = nullptr;
    std::function<const control::State&()> state;
  };
  static Result<std::unique_ptr<Certificates>> open(Options options);

  const net::TlsServerOptions& server() const { return server_; }
  const net::ClientAuthorities& clients() const { return clients_; }
  // Called when they have changed while the head runs.
  void on_change(std::function<void()> fn) { changed_ = std::move(fn); }
  // What joining machines trust; empty: the head does not use its own authority.
  std::string authority_pem() const { return own_server_ ? authority_.certs() : ""; }
  std::string fingerprints() const { return own_server_ ? fingerprints_ : ""; }

  // Whether a request of a node or gateway came with the certificate that it needs. One that asks
  // for a certificate needs none.
  struct Shown {
    bool tls = false;
    net::PeerCertificatePtr certificate;
    bool asks = false;
  };
  Status check(const control::Principal& who, const Shown& shown) const;
  // A certificate for the credential: {"certificate", "fingerprints", "expires_at"}.
  Result<Json> issue(const control::Principal& who, const std::string& request_pem);

  Json document() const;
  Result<Json> announce_next();
  Result<Json> change_over(bool at_once);

  void look();  // on a timer: replaces a certificate that grows old, and reads changed files

 private:
  explicit Certificates(Options options) : options_(std::move(options)) {}
  Status issue_own();
  Status read_client_ca();
  Status use(Authority authority);
  void apply();
  bool accepts(const net::PeerCertificate& certificate) const;
  std::string files_seen() const;

  Options options_;
  Authority authority_;
  std::string fingerprints_;
  bool own_server_ = false;  // the head's certificate is of its own authority
  net::TlsServerOptions server_;
  std::string client_ca_pem_;
  net::ClientAuthorities clients_;
  std::function<void()> changed_;
  WallTime own_since_;
  std::string files_seen_;                     // state of the operator's files when they were read
  std::map<TokenId, WallTime> renewed_until_;  // newest certificate of each credential
};

}  // namespace billow::head
