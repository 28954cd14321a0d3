// The certificate that an agent or a gateway shows its head. The head issues it for a short time to
// a machine that proves its credential; this class keeps it on disk and renews it after two thirds
// of its life. Each certificate has a new key. The head's answer also names the fingerprints to
// trust, so that the head can replace its authority while everybody is connected.
//
// Nothing depends on a renewal that fails: the certificate of before is shown until it expires, and
// one that is expired or refused is not shown at all, because a credential alone is enough to get
// the next one. A head without TLS, or of an older version, issues none.
//
// The file holds certificate, key and fingerprints together, so that it is replaced at once.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/sync.h"
#include "net/address.h"
#include "net/http/http_client.h"
#include "net/http/node_credential.h"
#include "net/loop.h"
#include "net/tls.h"

namespace billow::net {

// Where the certificate is, and how the head is trusted at first.
struct CertificatePlace {
  std::string file;  // mode 0600; empty: in memory only
  // From the operator. A file that was written for another fingerprint is not used.
  TlsClientOptions trust;
  // Of an authority that the operator runs, who also renews it: read again when it changes. The key
  // may be the handle of one in a TPM ("handle:0x81000001", through OpenSSL's provider tpm2).
  std::string own_cert, own_key;
};

// What to show and trust, by what the place holds. An own certificate that cannot be used is an
// error.
Result<TlsClientOptions> stored_tls(const CertificatePlace& place);

class CertificateKeeper {
 public:
  struct Options {
    CertificatePlace place;
    std::shared_ptr<NodeCredential> credential;
    std::string name;  // for the request; the head chooses the certificate's own
    std::function<Endpoint()> head;
    std::function<void()> changed;    // tls() has changed: later connections should use it
    Duration patience = seconds(10);  // for one answer of the head
  };
  static Result<std::unique_ptr<CertificateKeeper>> create(Loop& loop, Options options);
  ~CertificateKeeper();

  // Safe from any thread.
  TlsClientOptions tls() const { return *tls_.lock(); }
  // Calls back when the certificate is as good as it gets: at once, or after one request. An error
  // says that the head did not answer that request within the patience: dialling is pointless.
  void before_dialling(std::function<void(Status)> ready);
  // A connection to the head could not be made.
  void connection_failed();

 private:
  CertificateKeeper(Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
  bool operators() const { return !options_.place.own_cert.empty(); }
  void set(TlsClientOptions tls);
  void forget();
  void ask();
  void answered(Result<Response> answer, const std::string& key_pem);
  Status take(const Response& response, const std::string& key_pem);
  void note_dates(const std::string& cert_pem);
  void next_renewal(Duration in);
  void look_at_own_files();

  Loop& loop_;
  Options options_;
  mutable Sync<TlsClientOptions> tls_;
  // For one request: its connection, which may show no certificate, is used for nothing else.
  std::unique_ptr<HttpClient> client_;
  std::function<void(Status)> ready_;
  Timer renewal_, own_files_;
  bool asking_ = false;
  bool issued_none_ = false;  // by this head: it is older, or has no TLS
  WallTime until_;            // of the certificate that is shown
  Duration life_;             // with which it was issued
  std::string own_seen_;      // state of the operator's files when they were read
};

}  // namespace billow::net
