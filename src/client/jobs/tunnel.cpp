#include "client/jobs/tunnel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace billow::client {
namespace {

constexpr std::size_t piece_bytes = 64 << 10;
constexpr std::size_t backlog_max = 256 << 10;  // beyond it the side that sends is held back

}  // namespace

std::shared_ptr<TunnelRelay> TunnelRelay::start(net::Loop& loop,
                                                net::HttpClient& client,
                                                const HeadAddress& head,
                                                const std::string& target,
                                                TunnelEnds ends,
                                                Callbacks callbacks) {
  std::shared_ptr<TunnelRelay> relay(new TunnelRelay(loop, ends, std::move(callbacks)));
  net::ClientRequest request;
  request.endpoint = head.endpoint;
  request.target = target;
  if (!head.token.empty())
    request.headers.set("Authorization", "Bearer " + head.token);
  relay->client_ = &client;
  relay->request_ = request;
  relay->call_ = client.connect_websocket(
      std::move(request), {},
      [weak = std::weak_ptr(relay)](Result<std::shared_ptr<net::WebSocket>> socket) {
        if (const auto self = weak.lock())
          self->connected(std::move(socket));
      });
  return relay;
}

void TunnelRelay::connected(Result<std::shared_ptr<net::WebSocket>> socket) {
  if (done_)
    return;
  if (!socket)
    return ask_why(socket.error().message);
  socket_ = std::move(*socket);
  socket_->on_message([weak = weak_from_this()](std::string_view data, bool binary) {
    if (const auto self = weak.lock())
      self->message(data, binary);
  });
  socket_->on_close([weak = weak_from_this()](const net::WebSocket::Closed& closed) {
    if (const auto self = weak.lock())
      self->finish_after_rest(self->ended_there_      ? ""
                              : closed.reason.empty() ? "the connection to the head broke"
                                                      : closed.reason);
  });
  socket_->on_drain([weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->watch();
  });
}

// The refusal of a WebSocket has no reasons; the same question without one has.
void TunnelRelay::ask_why(const std::string& otherwise) {
  call_ =
      client_->fetch(request_, [weak = weak_from_this(), otherwise](Result<net::Response> answer) {
        const auto self = weak.lock();
        if (!self)
          return;
        const auto json = answer ? parse_json(answer->body) : Result<Json>(Json());
        const std::string detail(json ? (*json)["detail"].str_or("") : "");
        self->finish(detail.empty() ? otherwise : detail);
      });
}

void TunnelRelay::message(std::string_view data, bool binary) {
  if (done_)
    return;
  if (binary) {
    to_here_ += data;
    write_here();
    if (!done_ && to_here_.size() > backlog_max)
      socket_->pause();
    return watch();
  }
  const auto json = parse_json(data);
  if (!json)
    return;
  const std::string_view type = (*json)["type"].str_or("");
  if (type == "error")
    return finish_after_rest(std::string((*json)["detail"].str_or("the connection was closed")));
  if (type == "eof") {
    ended_there_ = true;
    write_here();
  } else if (type == "open" && !open_) {
    open_ = true;
    if (const Status good = callbacks_.opened ? callbacks_.opened(*json) : Status{}; !good)
      return finish(good.error().message);
    const auto ready = [weak = weak_from_this()](bool readable, bool writable) {
      const auto self = weak.lock();
      if (!self || self->done_)
        return;
      if (writable)
        self->write_here();
      if (readable && !self->done_)
        self->read_here();
      self->watch();
    };
    if (ends_.in == ends_.out) {
      both_ = loop_.watch(ends_.in, ready);
    } else {
      in_ = loop_.watch(ends_.in, [ready](bool readable, bool) { ready(readable, false); });
      out_ = loop_.watch(ends_.out, [ready](bool, bool writable) { ready(false, writable); });
    }
  }
  watch();
}

void TunnelRelay::read_here() {
  if (ended_here_ || finishing_ || socket_->buffered() > backlog_max)
    return;
  char buffer[piece_bytes];
  const ssize_t n = ::read(ends_.in, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n > 0) {
    socket_->send_binary({buffer, static_cast<std::size_t>(n)});
    return;
  }
  if (n < 0 && ends_.socket)
    return finish("");  // the local program closed the connection
  ended_here_ = true;
  socket_->send_text(R"({"type":"eof"})");
}

void TunnelRelay::write_here() {
  if (!open_)
    return;
  std::size_t done = 0;
  while (done < to_here_.size()) {
    const ssize_t n =
        ends_.socket
            ? ::send(ends_.out, to_here_.data() + done, to_here_.size() - done, MSG_NOSIGNAL)
            : ::write(ends_.out, to_here_.data() + done, to_here_.size() - done);
    if (n > 0)
      done += static_cast<std::size_t>(n);
    else if (n < 0 && errno == EINTR)
      continue;
    else if (n < 0 && errno == EAGAIN)
      break;
    else
      return finish("");
  }
  to_here_.erase(0, done);
  if (to_here_.size() <= backlog_max)
    socket_->resume();
  if (finishing_ && to_here_.empty())
    return finish(trouble_);
  if (!to_here_.empty() || !ended_there_ || std::exchange(shut_, true))
    return;
  if (ends_.socket)
    ::shutdown(ends_.out,
               SHUT_WR);  // the head closes once the job's side, too, was sent everything
  else
    finish("");  // a pipe's reader that got everything needs nobody to go on
}

void TunnelRelay::watch() {
  if (done_ || !open_)
    return;
  const bool read = !ended_here_ && !finishing_ && socket_->buffered() <= backlog_max,
             write = !to_here_.empty();
  if (both_)
    both_->want(read, write);
  if (in_)
    in_->want(read, false);
  if (out_)
    out_->want(false, write);
}

// The head closes as soon as it has sent everything; the local reader may be slower than that.
void TunnelRelay::finish_after_rest(const std::string& trouble) {
  if (done_ || std::exchange(finishing_, true))
    return;
  trouble_ = trouble;
  if (to_here_.empty())
    return finish(trouble_);
  watch();
}

void TunnelRelay::stop() {
  finish("");
}

void TunnelRelay::finish(const std::string& trouble) {
  if (std::exchange(done_, true))
    return;
  // Inside one of the callbacks that would go: they are let go of afterwards.
  loop_.post([self = shared_from_this(), trouble] {
    self->both_.reset();
    self->in_.reset();
    self->out_.reset();
    if (self->call_)
      self->call_->cancel();
    if (self->socket_)
      self->socket_->close();
    if (self->callbacks_.closed)
      self->callbacks_.closed(trouble);
    self->callbacks_ = {};
  });
}

}  // namespace billow::client
