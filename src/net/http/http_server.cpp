#include "net/http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <ctime>

#include "base/crypto.h"
#include "base/log.h"
#include "net/address.h"
#include "net/http/http_connection.h"
#include "net/sockets.h"

namespace billow::net {
namespace {
constexpr int accepts_per_wakeup_max = 64;
constexpr Duration accept_pause = milliseconds(100);  // when the process is out of descriptors
// Answers that clients do not read: of a peer without a token, a few times the dashboard's files.
constexpr std::uint64_t unsent_bytes_per_peer_max = 8 << 20;
constexpr std::uint64_t unsent_bytes_per_user_max = 256 << 20;
constexpr Duration accept_quiet = seconds(10);  // between two log lines about that

// Often enough for the shortest timeout, but at most a few times a second.
Duration sweep_period(const HttpServer::Options& o) {
  const auto shortest =
      std::min({o.idle_timeout, o.header_timeout, o.body_idle_timeout, o.write_stall_timeout});
  return std::clamp(shortest / 4, milliseconds(5), milliseconds(500));
}
}  // namespace

namespace {
// A server that knows nobody cannot tell strangers from callers: all of them get a caller's share,
// at any rate.
ServerLimits limits_for(const HttpServer::Options& options) {
  ServerLimits limits = options.limits;
  if (options.identify)
    return limits;
  limits.strangers_max = limits.connections_max;
  limits.per_peer = limits.per_caller;
  limits.per_peer.requests_per_s = limits.per_peer.requests_burst = 1e9;
  return limits;
}
}  // namespace

ShareLimits ServerLimits::limits_of_peers() {
  const double rate = limits::http_requests_per_s_per_peer_max;
  return {.connections_max = limits::http_connections_per_peer_max,
          .requests_max = limits::http_connections_per_peer_max,
          .body_bytes_max = limits::http_body_bytes_per_peer_max,
          .unsent_bytes_max = unsent_bytes_per_peer_max,
          .requests_per_s = rate,
          .requests_burst = rate * limits::http_requests_burst_factor};
}

ShareLimits ServerLimits::limits_of_callers() {
  const double rate = limits::http_requests_per_s_per_user_max;
  return {.connections_max = limits::http_connections_per_user_max,
          .requests_max = limits::http_connections_per_user_max,
          .body_bytes_max = limits::http_body_bytes_per_user_max,
          .unsent_bytes_max = unsent_bytes_per_user_max,
          .requests_per_s = rate,
          .requests_burst = rate * limits::http_requests_burst_factor};
}

std::string_view refused_name(Refused reason) {
  switch (reason) {
    case Refused::connection:
      return "connection";
    case Refused::displaced:
      return "displaced";
    case Refused::requests:
      return "requests";
    case Refused::rate:
      return "rate";
    case Refused::body_bytes:
      return "body_bytes";
    case Refused::body:
      return "body";
    case Refused::slow_head:
      return "slow_head";
    case Refused::slow_body:
      return "slow_body";
    case Refused::unsent_bytes:
      return "unsent_bytes";
  }
  return "";
}

std::string_view caller_kind_name(CallerKind kind) {
  switch (kind) {
    case CallerKind::stranger:
      return "stranger";
    case CallerKind::user:
      return "user";
    case CallerKind::node:
      return "node";
    case CallerKind::local:
      return "unix";
  }
  return "";
}

struct HttpServer::Impl final : ConnectionHost {
  struct Listening {
    Listener listener;
    bool tls;
    Watch watch;
  };

  Impl(Loop& l, Options o, Handler h)
      : loop(l),
        settings(std::move(o)),
        on_request(std::move(h)),
        admission(std::make_shared<Admission>(limits_for(settings))),
        id_prefix(random_token(6)) {}
  ~Impl() override {
    auto gone = std::exchange(connections, {});
    for (auto& [key, connection] : gone)
      connection->server_gone();
    for (const auto& weak : sockets) {
      if (const auto socket = weak.lock()) {
        socket->close(WebSocket::close_going_away, "the server is stopping");
        socket->abort();
      }
    }
    close_listeners();
  }

  const Options& options() const override { return settings; }
  const Handler& handler() const override { return on_request; }
  bool stopping() const override { return is_stopping; }
  std::string next_request_id() override { return fmt::format("{}-{:x}", id_prefix, ++id_counter); }
  void refused(Refused reason, const std::string& peer) override {
    admission->note(reason, peer, loop.steady());
  }
  void forget(Connection& connection) override { connections.erase(&connection); }
  void upgraded(const std::shared_ptr<WebSocket>& socket) override {
    // Closed ones are removed whenever the list has doubled: constant cost on average.
    if (sockets.size() >= sockets_sweep_at) {
      std::erase_if(sockets, [](const auto& weak) { return weak.expired(); });
      sockets_sweep_at = std::max<std::size_t>(64, sockets.size() * 2);
    }
    sockets.push_back(socket);
  }
  std::string_view date() override {
    const std::time_t now = std::time(nullptr);
    if (now != date_second) {
      date_second = now;
      std::tm utc{};
      ::gmtime_r(&now, &utc);
      char text[40];
      date_text.assign(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc));
    }
    return date_text;
  }

  Status listen() {
    if (!settings.tls.cert_path.empty()) {
      tls = BILLOW_TRY(TlsContext::server(settings.tls));
      BILLOW_TRY_VOID(ask_client_certificates(*tls, settings.clients));
    }
    for (const auto& text : settings.listen) {
      auto item = std::make_unique<Listening>(
          BILLOW_TRY(listen_on(BILLOW_TRY(parse_address(text)))), false, Watch{});
      item->tls = tls && !item->listener.bound.is_unix();
      arm(*item);
      listening.push_back(std::move(item));
    }
    sweep = loop.every(sweep_period(settings), [this] { sweep_connections(); });
    return {};
  }

  void arm(Listening& item) {
    item.watch = loop.on_readable(item.listener.fd.get(), [this, &item] { accept_some(item); });
  }

  void accept_some(Listening& item) {
    for (int i = 0; i < accepts_per_wakeup_max; ++i) {
      Fd fd = sockets::accept_one(item.listener.fd.get());
      if (!fd) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
          if (loop.steady() - accept_failed_at > accept_quiet) {
            log_error("cannot accept connections: {}; raise the limit of open files",
                      ::strerror(errno));
            accept_failed_at = loop.steady();
          }
          item.watch.cancel();
          accept_again = loop.after(accept_pause, [this] {
            for (auto& each : listening)
              if (!each->watch)
                arm(*each);
          });
        }
        return;
      }
      serve(std::move(fd), item.tls);
    }
  }

  void serve(Fd fd, bool with_tls) {
    auto place = admission->enter(peer_at(fd.get()), loop.steady());
    if (!place) {
      // Best effort: the answer fits the socket's buffer, and a TLS client sees a broken handshake.
      static constexpr std::string_view busy =
          "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: "
          "1\r\nContent-Length: 0\r\n\r\n";
      [[maybe_unused]] const auto sent =
          ::send(fd.get(), busy.data(), busy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return;
    }
    auto open = [&]() -> Result<Transport> {
      if (with_tls)
        return Transport::with_tls(std::move(fd), tls);
      return Transport(std::move(fd));
    };
    auto transport = open();
    if (!transport)
      return log_error("{}", transport.error().message);
    auto connection = std::make_shared<Connection>(loop, *this, std::move(*transport), place);
    place->wait_with([weak = std::weak_ptr(connection)] {
      if (const auto dropped = weak.lock())
        dropped->close();
    });
    connections.emplace(connection.get(), connection);
    connection->start();
  }

  void sweep_connections() {
    const auto now = loop.steady();
    // A closing connection removes itself, so this iterates over a copy.
    swept.clear();
    for (const auto& [key, connection] : connections)
      swept.push_back(connection);
    for (const auto& connection : swept)
      connection->check_deadlines(now);
    swept.clear();
    admission->report(now);
  }

  void close_listeners() {
    for (auto& item : listening) {
      item->watch.cancel();
      if (item->listener.bound.is_unix())
        ::unlink(item->listener.bound.unix_path.c_str());
    }
    listening.clear();
  }

  Loop& loop;
  Options settings;
  Handler on_request;
  std::shared_ptr<TlsContext> tls;
  std::vector<std::unique_ptr<Listening>> listening;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  std::vector<std::shared_ptr<Connection>> swept;
  std::vector<std::weak_ptr<WebSocket>> sockets;
  std::size_t sockets_sweep_at = 64;
  std::shared_ptr<Admission> admission;  // outlives the server with its WebSockets
  std::string id_prefix;
  std::uint64_t id_counter = 0;
  std::time_t date_second = 0;
  std::string date_text;
  bool is_stopping = false;
  Timer sweep;
  Timer accept_again;
  SteadyTime accept_failed_at;
};

Result<std::unique_ptr<HttpServer>> HttpServer::create(Loop& loop,
                                                       Options options,
                                                       Handler handler) {
  auto impl = std::make_shared<Impl>(loop, std::move(options), std::move(handler));
  BILLOW_TRY_VOID(impl->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() = default;

std::vector<std::string> HttpServer::bound_addresses() const {
  std::vector<std::string> out;
  for (const auto& item : impl_->listening)
    out.push_back(item->listener.bound.text());
  return out;
}

std::size_t HttpServer::connections() const {
  return impl_->admission->connections();
}

ServerFigures HttpServer::figures() const {
  return impl_->admission->figures();
}

Status HttpServer::set_tls(const TlsServerOptions& tls, const ClientAuthorities& clients) {
  auto context = BILLOW_TRY(TlsContext::server(tls));
  BILLOW_TRY_VOID(ask_client_certificates(*context, clients));
  impl_->tls = std::move(context);
  return {};
}

void HttpServer::stop_listening() {
  impl_->is_stopping = true;
  impl_->close_listeners();
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& [key, connection] : impl_->connections)
    all.push_back(connection);
  for (const auto& connection : all)
    connection->close_when_idle();
}

void HttpServer::adopt(Fd fd) {
  impl_->serve(std::move(fd), false);
}

}  // namespace billow::net
