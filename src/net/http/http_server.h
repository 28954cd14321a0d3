// The HTTP/1.1 server: TCP (with or without TLS) and Unix sockets, on the loop's thread. Handlers
// answer at once or later, whole or as a stream.
//
// Invariants: requests of one connection are answered in order, one at a time. An exchange is
// answered exactly once: if its handler drops it or throws, the answer is 500. A stream that is
// dropped unfinished is cut, so that the client notices. Limits: connections (503 and closed),
// headers (431), bodies (413), slow headers and bodies (408), readers that take nothing (cut), and
// for each caller its share of all of that (429). A malformed request gets 400 and its connection
// is closed, because the framing can no longer be trusted.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/limits.h"
#include "net/client_certs.h"
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

  // That the client has shown in the TLS handshake; null: none.
  virtual PeerCertificatePtr certificate() const { return nullptr; }
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

// ---- who may hold how much of the server (admission.h)

// local: through a Unix socket. node: an agent or a gateway.
enum class CallerKind : std::uint8_t { stranger, user, node, local };
inline constexpr std::size_t caller_kinds = 4;

// What one caller may hold at a time, on all of its connections together.
struct ShareLimits {
  std::size_t connections_max = 0;
  std::size_t requests_max = 0;  // being answered
  std::uint64_t body_bytes_max = 0;
  std::uint64_t unsent_bytes_max = 0;  // of answers that its clients have not read yet
  double requests_per_s = 0;           // on average, after requests_burst at once
  double requests_burst = 0;
};

// The sender of a request, as far as the request's head proves it.
struct Caller {
  CallerKind kind = CallerKind::stranger;
  std::string name;                       // "user alice"; strangers go by their peer's name
  std::optional<ShareLimits> share = {};  // default: ServerLimits::per_caller
};

// The other end of a connection: "10.0.0.7", "127.0.0.1 uid 1000", "unix uid 0".
struct Peer {
  std::string name;
  bool is_unix = false;
};

struct ServerLimits {
  std::size_t connections_max = limits::http_connections_max;
  std::size_t strangers_max = limits::http_strangers_max;  // connections without a known caller
  std::size_t unix_reserve = limits::http_unix_reserve;
  std::size_t nodes_reserve = limits::http_nodes_reserve;
  std::uint64_t body_bytes_max = limits::http_body_bytes_in_flight_max;
  ShareLimits per_peer = limits_of_peers();
  ShareLimits per_caller = limits_of_callers();

  static ShareLimits limits_of_peers();
  static ShareLimits limits_of_callers();
};

enum class Refused : std::uint8_t {
  connection,
  displaced,
  requests,
  rate,
  body_bytes,
  body,
  slow_head,
  slow_body,
  unsent_bytes
};
inline constexpr std::size_t refused_reasons = 9;
std::string_view refused_name(Refused reason);
std::string_view caller_kind_name(CallerKind kind);

struct ServerFigures {
  std::array<std::size_t, caller_kinds> connections{};   // by CallerKind
  std::array<std::uint64_t, refused_reasons> refused{};  // by Refused, since the start
  std::uint64_t body_bytes = 0;                          // in flight
};

class HttpServer {
 public:
  struct Options {
    std::vector<std::string> listen;  // "127.0.0.1:7070", "[::1]:0", "unix:/path" (mode 0600)
    TlsServerOptions tls;             // for the TCP addresses, when cert_path is set
    ClientAuthorities clients;        // whose certificates clients may show there
    BodyPolicy body_policy;           // default: bodies up to limits::api_body_bytes_max
    // Who sends a request, from its head. Default: every caller is a stranger.
    std::function<Caller(const Request& head)> identify;
    ServerLimits limits;
    std::size_t header_bytes_max = limits::http_header_bytes_max;
    std::size_t stream_buffer_bytes_max = limits::stream_buffer_bytes_max;
    Duration idle_timeout = limits::http_idle_timeout;
    Duration header_timeout = limits::http_header_timeout;
    Duration body_idle_timeout = limits::http_body_idle_timeout;
    // A body must arrive at this rate at least, after a first body_idle_timeout.
    std::uint64_t body_bytes_per_s_min = limits::http_body_bytes_per_s_min;
    Duration write_stall_timeout = limits::http_write_stall_timeout;
  };
  static Result<std::unique_ptr<HttpServer>> create(Loop& loop, Options options, Handler handler);
  ~HttpServer();  // cuts its connections and closes its WebSockets (1001)

  std::vector<std::string> bound_addresses() const;  // with the ports the system chose
  std::size_t connections() const;
  ServerFigures figures() const;
  // Another certificate, and other authorities of clients, for connections from now on. If they are
  // not usable, the ones before stay.
  Status set_tls(const TlsServerOptions& tls, const ClientAuthorities& clients);
  void stop_listening();  // finishes running requests; each connection then closes
  // Serves an already connected socket as if it had been accepted (socket activation, tests).
  void adopt(Fd fd);

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace billow::net
