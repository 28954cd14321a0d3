// The HTTP/1.1 server: TCP (with or without TLS) and Unix sockets, on the loop's thread. Handlers
// answer at once or later, whole or as a stream.
//
// Invariants: requests of one connection are answered in order, one at a time. An exchange is
// answered exactly once: if its handler drops it or throws, the answer is 500. A stream that is
// dropped unfinished is cut, so that the client notices. Limits: connections (503 and closed),
// headers (431), bodies (413), slow headers and bodies (408), readers that take nothing (cut). A
// malformed request gets 400 and its connection is closed, because the framing can no longer be
// trusted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/limits.h"
#include "net/http/http.h"
#include "net/http/websocket.h"
#include "net/loop.h"
#include "net/tls.h"

namespace billow::net {

// One request and its answer. All calls on the loop's thread; calls after the client has
// disconnected do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual Request& request() = 0;
  virtual void respond(Response response) = 0;

  // A streamed answer: chunked unless the headers contain Content-Length.
  virtual void start_stream(int status, Headers headers) = 0;
  // False: the buffer is full and nothing was taken. Continue in on_drain, or abort() a follower
  // that can resume itself.
  [[nodiscard]] virtual bool write(std::string_view data) = 0;
  virtual std::size_t buffered() const = 0;
  virtual void finish() = 0;
  virtual void abort() = 0;  // cuts the connection

  virtual bool open() const = 0;
  // Called once if the client disconnects before the answer is complete. (A client that only stops
  // sending counts as disconnected for a stream; a plain answer can still be sent.)
  virtual void on_close(std::function<void()> fn) = 0;
  virtual void on_drain(std::function<void()> fn) = 0;  // whenever a backlog has been written

  // Fails when the request does not ask for a WebSocket; then respond() as usual.
  virtual Result<std::shared_ptr<WebSocket>> upgrade_websocket(WebSocket::Options options) = 0;
};
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

// How to handle a body, decided from the head before any of the body is read (and only if there is
// one).
struct BodyPlan {
  std::uint64_t bytes_max = limits::api_body_bytes_max;
  // If set, the body is passed on piece by piece and not kept; the handler is called after the last
  // one. An error ends the request with that answer. If the client disconnects midway, this is
  // destroyed and the handler is never called.
  std::function<Status(std::string_view)> on_chunk;
  std::any attachment;  // becomes Request::attachment
};
using BodyPolicy = std::function<Result<BodyPlan>(const Request& head)>;  // an error is the answer;
                                                                          // the body is not read

class HttpServer {
 public:
  struct Options {
    std::vector<std::string> listen;  // "127.0.0.1:7070", "[::1]:0", "unix:/path" (mode 0600)
    TlsServerOptions tls;             // for the TCP addresses, when cert_path is set
    BodyPolicy body_policy;           // default: bodies up to limits::api_body_bytes_max
    std::size_t connections_max = limits::http_connections_max;
    std::size_t header_bytes_max = limits::http_header_bytes_max;
    std::size_t stream_buffer_bytes_max = limits::stream_buffer_bytes_max;
    Duration idle_timeout = limits::http_idle_timeout;
    Duration header_timeout = limits::http_header_timeout;
    Duration body_idle_timeout = limits::http_body_idle_timeout;
    Duration write_stall_timeout = limits::http_write_stall_timeout;
  };
  static Result<std::unique_ptr<HttpServer>> create(Loop& loop, Options options, Handler handler);
  ~HttpServer();  // cuts its connections and closes its WebSockets (1001)

  std::vector<std::string> bound_addresses() const;  // with the ports the system chose
  std::size_t connections() const;
  void stop_listening();  // finishes running requests; each connection then closes
  // Serves an already connected socket as if it had been accepted (socket activation, tests).
  void adopt(Fd fd);

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace billow::net
