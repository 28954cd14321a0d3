// One connected, non-blocking socket, with or without TLS: read and write never wait. Shared by the
// event-driven streams and the blocking client, which wait in their own ways.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "net/client_certs.h"
#include "net/tls.h"

struct iovec;

namespace billow::net {

enum class Io { done, want_read, want_write, closed, failed };
struct IoResult {
  Io state = Io::done;
  std::size_t bytes = 0;
};

class Transport {
 public:
  explicit Transport(Fd fd) : fd_(std::move(fd)) {}
  // For a client, `host` is the name or address the certificate must be for. With `http2` it asks
  // for HTTP/2 and nothing else.
  static Result<Transport> with_tls(Fd fd,
                                    const std::shared_ptr<TlsContext>& context,
                                    const std::string& host = {},
                                    bool http2 = false);
  Transport(Transport&& o) noexcept;
  Transport& operator=(Transport&&) = delete;
  ~Transport();

  IoResult handshake();  // done at once without TLS
  IoResult read(char* into, std::size_t bytes_max);
  IoResult write(const iovec* pieces, int count);
  void end_writing();  // TLS close_notify and a half-close
  void close();
  int fd() const { return fd_.get(); }
  bool tls() const { return ssl_ != nullptr; }
  bool http2() const;  // both sides agreed on it in the TLS handshake
  // Of the client, on a server's connection; null: it has shown none.
  PeerCertificatePtr peer_certificate() const;
  const std::string& error() const { return error_; }
  bool cut() const { return cut_; }  // TLS: the connection ended without the peer saying so

 private:
  IoResult tls_result(int rc);
  Fd fd_;
  ssl_st* ssl_ = nullptr;
  std::shared_ptr<TlsContext> context_;
  std::string error_;
  bool cut_ = false;
};

}  // namespace billow::net
