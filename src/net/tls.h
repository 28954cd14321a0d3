// TLS settings as values. A context is created once and shared by all connections of a server or
// client.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace billow::net {

class TlsContext;

struct TlsServerOptions {
  std::string cert_path;  // PEM, the leaf first, then its chain
  std::string key_path;
  bool http2 = false;  // clients may choose HTTP/2 (ALPN)
  // The context with the certificate for the name that a client asks for (SNI, in lower case;
  // empty: for none). Null: this one.
  std::function<std::shared_ptr<TlsContext>(std::string_view name)> by_name = {};
};

struct TlsClientOptions {
  std::string ca_path;             // PEM; replaces the system's authorities
  std::string pinned_fingerprint;  // SHA-256 in hex (colons allowed) of the server's certificate or
                                   // of an authority in its chain
  std::string ca_pem;              // like ca_path, as text; wins over it
  std::string cert_pem;            // the client's own certificate (chain) and key, as text
  std::string key_pem;             // or "handle:0x81…": it is in a TPM
  std::string server_name;         // the certificate must be for this name instead of the host's
  bool accept_any_cert = false;    // nothing is verified: anybody on the way can read everything
};

class TlsContext {
 public:
  static Result<std::shared_ptr<TlsContext>> server(const TlsServerOptions& options);
  static Result<std::shared_ptr<TlsContext>> client(const TlsClientOptions& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;

 private:
  friend class Transport;
  friend struct TlsVerify;
  TlsContext(ssl_ctx_st* context, bool is_server) : context_(context), is_server_(is_server) {}
  ssl_ctx_st* context_;
  bool is_server_;
  std::string pin_;          // lower-case hex, or empty
  std::string server_name_;  // instead of the host's; or empty
  std::function<std::shared_ptr<TlsContext>(std::string_view name)> by_name_;
  std::shared_ptr<TlsContext> key_in_tpm_;  // shows the own certificate; null: this one does
};

}  // namespace billow::net
