#include "agent/node/head_link.h"

#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr Duration removed_after = seconds(30);
// Where another head can take over, one that has stopped answering is left soon: it may be stopped
// or cut off without its connection being closed.
constexpr Duration standby_ping_interval = seconds(2), standby_patience = seconds(3);
constexpr Duration patience = seconds(10);

}  // namespace

HeadLink::HeadLink(net::Loop& loop, Options options, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      jitter_(static_cast<std::uint64_t>(::getpid())) {}

Result<std::unique_ptr<HeadLink>> HeadLink::create(net::Loop& loop,
                                                   Options options,
                                                   Callbacks callbacks) {
  std::unique_ptr<HeadLink> link(new HeadLink(loop, std::move(options), std::move(callbacks)));
  for (const std::string& head : split(link->options_.heads, ','))
    link->endpoints_.push_back(BILLOW_TRY(net::parse_endpoint(trim(head))));
  HeadLink& self = *link;
  link->certificate_ =
      BILLOW_TRY(net::CertificateKeeper::create(loop, {.place = self.options_.certificate,
                                                       .credential = self.options_.credential,
                                                       .name = self.options_.name,
                                                       .head = [&self] { return self.endpoint(); },
                                                       .changed = [&self] { self.stale_ = true; },
                                                       .patience = self.patience_for_answer()}));
  return link;
}

Duration HeadLink::patience_for_answer() const {
  return endpoints_.size() > 1 ? standby_patience : patience;
}

void HeadLink::dial() {
  if (dialing_ || socket_)
    return;
  dialing_ = true;
  certificate_->before_dialling([this](const Status& reached) {
    dialing_ = false;
    if (!reached)
      return dialled(pass(reached.error()));
    dial_certified();
  });
}

// Anew after the certificate has changed. The open WebSocket does not need the client.
Status HeadLink::open_client() {
  if (client_ && !stale_)
    return {};
  auto fresh = BILLOW_TRY(net::HttpClient::create(loop_, {.tls = tls()}));
  // The old one may be calling us: destroyed later.
  loop_.post([old = std::shared_ptr<net::HttpClient>(std::move(client_))] {});
  client_ = std::move(fresh);
  stale_ = false;
  return {};
}

void HeadLink::dial_certified() {
  if (const Status open = open_client(); !open) {
    log_warn("{}", open.error().message);
    return redial();
  }
  net::ClientRequest request;
  request.endpoint = endpoint();
  request.target = "/v1/agent";
  const auto proof = options_.credential->authorization(net::Method::get, request.target);
  if (!proof) {
    log_warn("{}", proof.error().message);
    return redial();
  }
  dialing_ = true;
  request.headers.set("Authorization", *proof);
  net::WebSocket::Options socket{.message_bytes_max = limits::agent_frame_bytes_max,
                                 .queue_bytes_max = 64 << 20};
  if (endpoints_.size() > 1) {
    socket.ping_interval = standby_ping_interval;
    socket.pong_timeout = request.timeout = standby_patience;
  }
  call_ = client_->connect_websocket(
      std::move(request), std::move(socket),
      [this](Result<std::shared_ptr<net::WebSocket>> socket) { dialled(std::move(socket)); });
}

void HeadLink::dialled(Result<std::shared_ptr<net::WebSocket>> socket) {
  dialing_ = false;
  if (!socket) {
    const bool unknown_credential = socket.error().code == Code::unauthorized;
    if (attempts_ % 20 == 0 && !unknown_credential)
      log_warn("cannot reach the head at {}: {}", options_.heads, socket.error().message);
    certificate_->connection_failed();
    refused(unknown_credential);
    if (socket.error().code == Code::invalid)
      return ask_time();
    return redial();
  }
  refused_since_ = {};
  socket_ = std::move(*socket);
  socket_->on_message([this](std::string_view frame, bool) { callbacks_.frame(frame); });
  socket_->on_close([this](const net::WebSocket::Closed&) { disconnected(); });
  callbacks_.connected();
}

// The head could not accept the time of our signature: our clock may be wrong. Any answer of the
// head says what its clock shows.
void HeadLink::ask_time() {
  if (!open_client())
    return redial();
  net::ClientRequest request;
  request.endpoint = endpoint();
  request.target = "/healthz";
  request.timeout = patience_for_answer();
  call_ = client_->fetch(std::move(request), [this](Result<net::Response> answer) {
    if (answer)
      options_.credential->set_head_time(answer->headers.get("Date"), system_clock().wall());
    redial();
  });
}

// Not believed at once, so that an operator can correct a mistake.
void HeadLink::refused(bool unknown_credential) {
  if (!unknown_credential)
    refused_since_ = {};
  if (!unknown_credential || removed_)
    return;
  const SteadyTime now = system_clock().steady();
  if (refused_since_.ns == 0) {
    refused_since_ = now;
    log_error(
        "the head at {} does not know this node: it was removed or its credential was revoked. "
        "Running tasks end in {} unless the head knows the node again",
        options_.heads, format_duration(removed_after));
  }
  if (now - refused_since_ < removed_after)
    return;
  removed_ = true;
  callbacks_.removed();
}

// Quickly at first, for a head that restarts; more slowly if it stays away. The jitter keeps the
// nodes of a fleet from dialling at the same moment.
void HeadLink::redial() {
  const std::int64_t base_ms =
      std::min<std::int64_t>(2000, 10ll << std::min<std::uint64_t>(attempts_, 8));
  // The pause grows after each round of all heads.
  if (++head_at_ % endpoints_.size() == 0)
    ++attempts_;
  const auto jitter_ms =
      static_cast<std::int64_t>(jitter_.below(static_cast<std::uint64_t>(base_ms)));
  redial_ = loop_.after(milliseconds(base_ms / 2 + jitter_ms), [this] { dial(); });
}

void HeadLink::disconnected() {
  if (!socket_)
    return;
  const auto old = std::move(socket_);
  socket_ = nullptr;
  callbacks_.disconnected();
  redial();
  loop_.post([old] {});  // the socket is calling us: destroy it later
}

void HeadLink::send(std::string_view frame) {
  if (socket_ && socket_->open())
    socket_->send_binary(frame);
}

void HeadLink::close(int code, std::string_view reason) {
  if (socket_)
    socket_->close(code, reason);
}

}  // namespace billow::agent
