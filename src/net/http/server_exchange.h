// The exchange that a server connection hands to its handler. Internal to net.
#pragma once

#include "net/http/http_connection.h"

namespace billow::net {

// The handler's side of one request. It owns the connection, not the other way round.
class ServerExchange final : public Exchange {
 public:
  ServerExchange(std::shared_ptr<Connection> connection,
                 Request request,
                 PeerCertificatePtr certificate)
      : connection_(std::move(connection)),
        request_(std::move(request)),
        certificate_(std::move(certificate)) {}
  ~ServerExchange() override {
    if (connection_ && connection_->exchange_ == this)
      connection_->abandoned();
  }
  Request& request() override { return request_; }
  PeerCertificatePtr certificate() const override { return certificate_; }
  void respond(Response response) override {
    if (active())
      connection_->respond(std::move(response));
  }
  void start_stream(int status, Headers headers) override {
    if (active())
      connection_->start_stream(status, std::move(headers));
  }
  bool write(std::string_view data) override { return active() && connection_->write_stream(data); }
  std::size_t buffered() const override { return active() ? connection_->stream_->queued() : 0; }
  void finish() override {
    if (active())
      connection_->finish_stream();
  }
  void abort() override {
    if (active())
      connection_->close();
  }
  bool open() const override { return active() && !gone_; }
  void on_close(std::function<void()> fn) override {
    if (gone_)
      connection_->loop_.post(std::move(fn));
    else if (active())
      on_close_ = std::move(fn);
  }
  void on_drain(std::function<void()> fn) override {
    if (active())
      on_drain_ = std::make_shared<std::function<void()>>(std::move(fn));
  }
  Result<std::shared_ptr<WebSocket>> upgrade_websocket(WebSocket::Options options) override {
    if (!active())
      return fail(Code::unavailable, "the client has disconnected");
    return connection_->upgrade(std::move(options));
  }

  void client_gone() {
    if (gone_)
      return;
    gone_ = true;
    // Posted, not called: this may run during one of the handler's calls.
    if (on_close_)
      connection_->loop_.post(std::exchange(on_close_, nullptr));
  }
  void drained() {
    if (const auto fn = on_drain_)
      (*fn)();
  }
  // The callbacks may own this exchange; dropping them breaks the cycle.
  void detach() {
    on_close_ = nullptr;
    on_drain_ = nullptr;
  }

 private:
  bool active() const { return connection_->exchange_ == this; }
  std::shared_ptr<Connection> connection_;
  Request request_;
  PeerCertificatePtr certificate_;
  std::function<void()> on_close_;
  std::shared_ptr<std::function<void()>> on_drain_;
  bool gone_ = false;
};

}  // namespace billow::net
