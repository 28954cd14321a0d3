#include "net/http/ws_socket.h"

#include "base/log.h"

namespace billow::net {
namespace {

class StreamWebSocket final : public WebSocket,
                              public StreamOwner,
                              public std::enable_shared_from_this<StreamWebSocket> {
 public:
  StreamWebSocket(std::shared_ptr<Stream> stream,
                  WsReader::Role role,
                  Options options,
                  std::string already_read)
      : stream_(std::move(stream)),
        masks_(role == WsReader::Role::client),
        options_(std::move(options)),
        reader_(role, options_.message_bytes_max) {
    reader_.feed(already_read);
    stream_->set_owner(this);
    stream_->pause_reading();
  }
  ~StreamWebSocket() override {
    if (state_ == State::open)
      stream_->send(ws_close_frame(close_going_away, "", masks_));
    stream_->finish(limits::ws_close_timeout);
  }

  void start() {
    ping_timer_ = stream_->loop().every(options_.ping_interval, [this] { tick(); });
  }

  bool send_text(std::string_view text) override { return send(WsOp::text, text); }
  bool send_binary(std::string_view data) override { return send(WsOp::binary, data); }

  void on_message(std::function<void(std::string_view, bool)> fn) override {
    if (state_ == State::closed)
      return;
    on_message_ = std::make_shared<std::function<void(std::string_view, bool)>>(std::move(fn));
    if (!paused_)
      start_reading();
  }
  void on_close(std::function<void(const Closed&)> fn) override {
    if (state_ != State::closed)
      on_close_ = std::move(fn);
    else if (fn)
      stream_->loop().post([fn = std::move(fn), closed = closed_] { fn(closed); });
  }
  void on_drain(std::function<void()> fn) override {
    on_drain_ = std::make_shared<std::function<void()>>(std::move(fn));
  }

  void close(int code, std::string_view reason) override {
    if (state_ != State::open)
      return;
    state_ = State::closing;
    closed_ = {code, std::string(reason)};
    stream_->send(ws_close_frame(code, reason, masks_));
    close_timer_ = stream_->loop().after(limits::ws_close_timeout, [this] {
      const auto keep = shared_from_this();
      ended();
    });
    // The peer's close frame must be read even if reading was paused.
    paused_ = false;
    stream_->resume_reading();
  }
  void abort() override {
    const auto keep = shared_from_this();
    ended();
  }
  std::size_t buffered() const override { return stream_->queued(); }
  bool open() const override { return state_ == State::open; }

  void pause() override {
    if (state_ != State::open)
      return;
    paused_ = true;
    stream_->pause_reading();
  }
  void resume() override {
    paused_ = false;
    if (on_message_ && state_ != State::closed)
      start_reading();
  }

  void stream_data(std::string_view data) override {
    const auto keep = shared_from_this();
    heard();
    reader_.feed(data);
    pump();
  }
  void stream_eof() override {
    const auto keep = shared_from_this();
    ended();
  }
  void stream_failed(std::string reason) override {
    const auto keep = shared_from_this();
    if (state_ == State::open)
      closed_ = {1006, std::move(reason)};
    ended();
  }
  void stream_drained() override {
    const auto keep = shared_from_this();
    if (const auto fn = on_drain_)
      (*fn)();
  }

 private:
  enum class State { open, closing, closed };

  void start_reading() {
    stream_->loop().post([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->paused_ || self->state_ == State::closed)
        return;
      self->heard();
      self->pump();
      if (!self->paused_)
        self->stream_->resume_reading();
    });
  }

  void heard() {
    ping_unanswered_ = false;
    last_heard_ = stream_->loop().steady();
  }

  bool send(WsOp op, std::string_view payload) {
    if (state_ != State::open)
      return false;
    if (stream_->queued() > 0 && stream_->queued() + payload.size() > options_.queue_bytes_max) {
      stream_->drop_unsent();
      close(close_slow_reader, "the reader is too slow");
      return false;
    }
    stream_->send(ws_frame(op, payload, masks_));
    return true;
  }

  void pump() {
    while (state_ != State::closed && !(paused_ && state_ == State::open)) {
      auto next = reader_.next();
      if (!next) {
        // Nothing after an invalid frame can be read, so there is no wait for the peer's close
        // frame.
        close(reader_.close_code(), next.error().message);
        return ended();
      }
      if (!*next)
        return;
      take(**next);
    }
  }

  void take(const WsReader::Message& message) {
    switch (message.op) {
      case WsOp::text:
      case WsOp::binary:
        return deliver(message);
      case WsOp::ping:
        // The queue of pongs is bounded, even for a peer that sends pings without reading.
        if (state_ == State::open && stream_->queued() < options_.queue_bytes_max)
          stream_->send(ws_frame(WsOp::pong, message.payload, masks_));
        return;
      case WsOp::close:
        return peer_closed(message.payload);
      case WsOp::pong:
      case WsOp::continuation:
        return;
    }
  }

  void deliver(const WsReader::Message& message) {
    const auto fn = on_message_;
    if (!fn || !*fn || state_ != State::open)
      return;  // an empty pong: ignored
    try {
      (*fn)(message.payload, message.op == WsOp::binary);
    } catch (const std::exception& e) {
      log_error("a WebSocket's message callback threw: {}", e.what());
      close(close_internal_error, "a bug in Billow; see its log");
    }
  }

  void peer_closed(std::string_view payload) {
    auto said = parse_ws_close(payload);
    if (state_ == State::open) {
      closed_ = said ? Closed{said->code, said->reason}
                     : Closed{close_protocol_error, said.error().message};
      const int echo = !said                ? close_protocol_error
                       : said->code == 1005 ? close_normal
                                            : said->code;
      stream_->send(ws_close_frame(echo, "", masks_));
    }
    ended();
  }

  void ended() {
    if (state_ == State::closed)
      return;
    state_ = State::closed;
    ping_timer_.cancel();
    close_timer_.cancel();
    // The stream itself writes out what is still queued (a close frame after data), for a bounded
    // time.
    stream_->finish(limits::ws_close_timeout);
    on_message_ = nullptr;
    on_drain_ = nullptr;
    if (auto fn = std::exchange(on_close_, nullptr))
      fn(closed_);
  }

  void tick() {
    const auto keep = shared_from_this();
    if (state_ != State::open || paused_ || !on_message_)
      return;
    if (ping_unanswered_ && stream_->loop().steady() - last_heard_ > options_.pong_timeout) {
      closed_ = {1006, "the peer does not answer pings"};
      return ended();
    }
    if (!ping_unanswered_)
      last_heard_ = stream_->loop().steady();
    ping_unanswered_ = true;
    if (stream_->queued() < options_.queue_bytes_max)
      stream_->send(ws_frame(WsOp::ping, "", masks_));
  }

  std::shared_ptr<Stream> stream_;
  bool masks_;
  Options options_;
  WsReader reader_;
  State state_ = State::open;
  bool paused_ = false;
  bool ping_unanswered_ = false;
  SteadyTime last_heard_;
  Closed closed_;
  std::shared_ptr<std::function<void(std::string_view, bool)>> on_message_;
  std::shared_ptr<std::function<void()>> on_drain_;
  std::function<void(const Closed&)> on_close_;
  Timer ping_timer_;
  Timer close_timer_;
};

}  // namespace

std::shared_ptr<WebSocket> make_websocket(std::shared_ptr<Stream> stream,
                                          WsReader::Role role,
                                          WebSocket::Options options,
                                          std::string already_read) {
  auto socket = std::make_shared<StreamWebSocket>(std::move(stream), role, std::move(options),
                                                  std::move(already_read));
  socket->start();
  return socket;
}

}  // namespace billow::net
