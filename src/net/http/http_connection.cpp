#include "net/http/http_connection.h"

#include "base/append_format.h"
#include "base/log.h"
#include "net/address.h"
#include "net/http/server_exchange.h"
#include "net/http/ws_frame.h"
#include "net/http/ws_socket.h"
#include "net/wipe.h"

namespace billow::net {
namespace {

constexpr Duration goodbye_timeout = seconds(2);
constexpr std::size_t joined_body_bytes_max =
    16 << 10;  // a body up to this size is sent in one piece with its head

bool sane_request_id(std::string_view id) {
  if (id.empty() || id.size() > 64)
    return false;
  for (char c : id)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
          c == '_' || c == '.'))
      return false;
  return true;
}

// Turns an exception of a callback into an error.
template <class Fn>
auto guarded(Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::exception& e) {
    log_error("a body callback threw: {}", e.what());
    return fail(Code::internal, "this request failed because of a bug in Billow",
                "see the head's log");
  }
}

bool may_have_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

}  // namespace

Connection::Connection(Loop& loop,
                       ConnectionHost& host,
                       Transport transport,
                       std::shared_ptr<Admission::Place> place)
    : loop_(loop), host_(&host), place_(std::move(place)) {
  peer_ = peer_of(transport.fd(), peer_uid_);
  stream_ = std::make_shared<Stream>(loop, std::move(transport), this);
  stream_->token = place_;
  deadline_ = loop.steady() + host.options().header_timeout;
}

Connection::~Connection() {
  if (stream_)
    stream_->close();
}

void Connection::start() {
  stream_->start();
}

void Connection::close() {
  if (state_ == State::closed)
    return;
  const auto keep = shared_from_this();
  state_ = State::closed;
  place_->detach();
  if (stream_)
    stream_->close();
  plan_ = {};
  if (auto* exchange = std::exchange(exchange_, nullptr)) {
    exchange->client_gone();
    exchange->detach();
  }
  if (host_)
    host_->forget(*this);
}

void Connection::server_gone() {
  host_ = nullptr;
  close();
}

void Connection::close_when_idle() {
  keep_alive_ = false;
  if (state_ == State::head && !(parser_ && parser_->started()))
    close();
}

void Connection::check_deadlines(SteadyTime now) {
  const auto keep = shared_from_this();
  if (state_ == State::closed)
    return;
  if (stream_->queued() > 0 &&
      now - stream_->last_write_progress() > host_->options().write_stall_timeout) {
    log_debug("{}: takes nothing for {} s; cut", peer_,
              host_->options().write_stall_timeout.seconds());
    return close();
  }
  // Pipelined bytes fill the buffer, so reading is paused and the loop does not report a
  // disconnect. It is treated like an end that was read.
  if ((state_ == State::handling || state_ == State::streaming) && !peer_eof_ &&
      stream_->paused_peer_has_gone(false))
    return stream_eof();
  if (!deadline_ || now < *deadline_)
    return;
  switch (state_) {
    case State::head:
      if (parser_ && parser_->started()) {
        host_->refused(Refused::slow_head, place_->peer());
        refuse(408, "the request's header did not arrive in time");
      } else {
        close();
      }
      return;
    case State::body:
      host_->refused(Refused::slow_body, place_->peer());
      return refuse(408, "the request's body did not arrive in time");
    case State::draining:
      return close();
    case State::handling:
    case State::streaming:
    case State::closed:
      return;
  }
}

void Connection::stream_data(std::string_view data) {
  const auto keep = shared_from_this();
  if (state_ == State::draining)
    return;
  pending_.append(data);
  process();
  const bool waiting = state_ == State::handling || state_ == State::streaming;
  if (waiting && pending_.size() >= limits::http_pipelined_bytes_max)
    stream_->pause_reading();
}

void Connection::stream_eof() {
  const auto keep = shared_from_this();
  peer_eof_ = true;
  // A client may close its side and still read the answer, so a plain answer is still sent. The
  // handler is notified anyway: most clients that do so have disconnected.
  if (state_ == State::handling && exchange_)
    return exchange_->client_gone();
  close();
}

void Connection::stream_failed(std::string reason) {
  log_debug("{}: {}", peer_, reason);
  close();
}

void Connection::stream_drained() {
  const auto keep = shared_from_this();
  (void)place_->set_unsent(0, loop_.steady());
  if (state_ == State::streaming && exchange_)
    exchange_->drained();
}

// Parses buffered bytes up to the next request that must be answered first.
void Connection::process() {
  if (processing_)
    return;
  processing_ = true;
  while ((state_ == State::head || state_ == State::body) && consumed_ < pending_.size()) {
    if (!parser_) {
      parser_.emplace(HttpParser::Kind::request,
                      HttpParser::Limits{.head_bytes_max = host_->options().header_bytes_max});
      deadline_ = loop_.steady() + host_->options().header_timeout;
      request_id_.clear();
    }
    const auto step = parser_->feed(std::string_view(pending_).substr(consumed_));
    if (!step) {
      refuse(parser_->error_status(), step.error().message);
      break;
    }
    consumed_ += step->consumed;
    if (!step->body.empty() && !take_body(step->body))
      break;
    if (state_ == State::head && parser_->head_done()) {
      if (!head_arrived())
        break;
    }
    if (parser_->done())
      dispatch();
    else if (step->consumed == 0)
      break;
  }
  processing_ = false;
  wipe_used(pending_.data(), consumed_);  // the connection may stay open for long
  pending_.erase(0, consumed_);
  consumed_ = 0;
  if (pending_.empty() && pending_.capacity() > 4096)
    pending_ = {};
}

// Checks a complete head and decides about its body. False if the request was rejected.
bool Connection::head_arrived() {
  auto& head = parser_->head();
  keep_alive_ = head.keep_alive && !host_->stopping();
  minor_version_ = head.minor_version;
  request_ = {};
  const auto given_id = head.headers.get("X-Request-Id");
  request_id_ = sane_request_id(given_id) ? std::string(given_id) : host_->next_request_id();
  const auto method = parse_method(head.method);
  if (!method) {
    refuse(501, "this method is not supported",
           "use GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS");
    return false;
  }
  request_.method = *method;
  head_only_ = *method == Method::head;
  if (const auto parsed = parse_target(head.target, request_); !parsed) {
    refuse(400, parsed.error().message, parsed.error().hint);
    return false;
  }
  request_.headers = std::move(head.headers);
  request_.peer = peer_;
  request_.peer_uid = peer_uid_;
  request_.request_id = request_id_;
  request_.tls = stream_->tls();
  if (request_.tls && !certificate_)
    certificate_ = stream_->peer_certificate();
  state_ = State::body;
  plan_ = {};
  body_bytes_ = 0;
  if (!admit())
    return false;
  const auto expect = request_.headers.get("Expect");
  if (!expect.empty() && !equal_nocase(expect, "100-continue")) {
    refuse(417, "the only supported expectation is 100-continue");
    return false;
  }
  if (!head.has_body())
    return true;
  body_began_at_ = loop_.steady();
  deadline_ = body_began_at_ + host_->options().body_idle_timeout;
  if (!choose_body_plan())
    return false;
  if (!expect.empty())
    stream_->send("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

// Whether the caller's share of the server allows another request.
bool Connection::admit() {
  Caller caller;
  if (const auto& identify = host_->options().identify) {
    const auto found = guarded([&]() -> Result<Caller> { return identify(request_); });
    if (found)
      caller = std::move(*found);
  }
  const Status admitted = place_->begin(caller, loop_.steady());
  if (!admitted)
    refuse(admitted.error());
  return admitted.has_value();
}

bool Connection::choose_body_plan() {
  if (const auto& policy = host_->options().body_policy) {
    auto plan = guarded([&] { return policy(request_); });
    if (!plan) {
      host_->refused(Refused::body, place_->peer());
      refuse(plan.error());
      return false;
    }
    plan_ = std::move(*plan);
  }
  const auto length = parser_->head().content_length;
  if (length && *length > plan_.bytes_max) {
    refuse(413, fmt::format("the body has {} bytes; the limit is {}", *length, plan_.bytes_max));
    return false;
  }
  if (length && !plan_.on_chunk)
    request_.body.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(*length, 1 << 20)));
  return true;
}

bool Connection::take_body(std::string_view data) {
  body_bytes_ += data.size();
  if (body_bytes_ > plan_.bytes_max) {
    refuse(413, fmt::format("the body exceeds the limit of {} bytes", plan_.bytes_max));
    return false;
  }
  // A sender must not only send something now and then: that would hold the connection for ages.
  const auto& options = host_->options();
  const Duration earned = milliseconds(static_cast<std::int64_t>(
      body_bytes_ * 1000 / std::max<std::uint64_t>(options.body_bytes_per_s_min, 1)));
  deadline_ = std::min(loop_.steady() + options.body_idle_timeout,
                       body_began_at_ + options.body_idle_timeout + earned);
  if (!plan_.on_chunk) {
    if (const Status held = place_->add_body(data.size(), loop_.steady()); !held) {
      refuse(held.error());
      return false;
    }
    request_.body.append(data);
    return true;
  }
  if (const auto taken = guarded([&] { return plan_.on_chunk(data); }); !taken) {
    refuse(taken.error());
    return false;
  }
  return true;
}

void Connection::dispatch() {
  state_ = State::handling;
  place_->engage();
  dispatched_at_ = loop_.steady();
  deadline_.reset();
  parser_.reset();
  request_.attachment = std::move(plan_.attachment);
  plan_ = {};
  auto exchange =
      std::make_shared<ServerExchange>(shared_from_this(), std::move(request_), certificate_);
  exchange_ = exchange.get();
  const auto threw = [&](std::string_view what) {
    log_error("request {}: the handler threw: {}", request_id_, what);
    if (exchange_ == exchange.get() && state_ == State::handling)
      respond(problem(500, "this request failed because of a bug in Billow", "see the head's log",
                      request_id_));
    else if (exchange_ == exchange.get())
      close();
  };
  try {
    host_->handler()(exchange);
  } catch (const std::exception& e) {
    threw(e.what());
  } catch (...) {
    threw("something other than std::exception");
  }
}

void Connection::abandoned() {
  exchange_ = nullptr;
  if (state_ == State::streaming)
    return close();
  if (state_ != State::handling)
    return;
  if (peer_eof_)
    return close();  // the handler knows that its client has disconnected
  log_error("request {}: the handler gave no answer", request_id_);
  send_whole(problem(500, "this request got no answer because of a bug in Billow",
                     "see the head's log", request_id_),
             keep_alive_);
}

void Connection::refuse(int status, std::string_view detail, std::string_view hint) {
  head_only_ = false;
  keep_alive_ = false;
  send_whole(problem(status, detail, hint, request_id_), false);
}

void Connection::refuse(const Error& error) {
  head_only_ = false;
  keep_alive_ = false;
  Response answer = problem(error, request_id_);
  if (answer.status == 429 || answer.status == 503)
    answer.headers.set("Retry-After", "1");
  send_whole(std::move(answer), false);
}

std::string Connection::response_head(int status,
                                      const Headers& headers,
                                      std::optional<std::uint64_t> body_bytes,
                                      bool chunked) {
  std::string out;
  out.reserve(256);
  append_format(out, "HTTP/1.1 {} {}\r\nDate: {}\r\n", status, status_text(status), host_->date());
  for (const auto& [name, value] : headers) {
    if (equal_nocase(name, "Content-Length") || equal_nocase(name, "Transfer-Encoding") ||
        equal_nocase(name, "Connection"))
      continue;
    if (!valid_token(name) || !valid_field_value(value)) {
      log_error(
          "request {}: the header {} of the answer contains invalid characters and is left out",
          request_id_, valid_token(name) ? name : "?");
      continue;
    }
    out.append(name).append(": ").append(value).append("\r\n");
  }
  if (chunked)
    out += "Transfer-Encoding: chunked\r\n";
  else if (body_bytes)
    append_format(out, "Content-Length: {}\r\n", *body_bytes);
  if (!request_id_.empty() && !headers.has("X-Request-Id"))
    out.append("X-Request-Id: ").append(request_id_).append("\r\n");
  if (!keep_alive_)
    out += "Connection: close\r\n";
  else if (minor_version_ == 0)
    out += "Connection: keep-alive\r\n";
  out += "\r\n";
  return out;
}

// Logs the answer with the id of the request: every call with `--verbose`, otherwise only server
// errors.
void Connection::note_answer(int status) const {
  const LogLevel level = status >= 500 ? LogLevel::warn : LogLevel::debug;
  if (!exchange_ || !log_enabled(level))
    return;
  const Request& request = exchange_->request();
  log_line(level,
           fmt::format("{} {} was answered {}", method_name(request.method), request.path, status),
           {{"request_id", request_id_},
            {"status", fmt::format("{}", status)},
            {"took_ms", fmt::format("{:.1f}", (loop_.steady() - dispatched_at_).seconds() * 1000)},
            {"peer", peer_}});
}

void Connection::send_whole(Response response, bool keep_alive) {
  if (state_ == State::closed)
    return;
  note_answer(response.status);
  keep_alive_ = keep_alive && !peer_eof_ && host_ && !host_->stopping();
  std::optional<std::uint64_t> length;
  if (may_have_body(response.status))
    length = response.body.size();
  // An answer to HEAD may state the length of the body it does not carry.
  if (head_only_ && response.body.empty())
    if (const auto stated = response.headers.get("Content-Length"); !stated.empty())
      length = std::strtoull(std::string(stated).c_str(), nullptr, 10);
  std::string head = response_head(response.status, response.headers, length, false);
  if (head_only_ || !may_have_body(response.status))
    response.body.clear();
  if (response.body.size() <= joined_body_bytes_max) {
    head += response.body;
    response.body.clear();
  }
  stream_->send(std::move(head), std::move(response.body));
  if (!place_->set_unsent(stream_->queued(), loop_.steady()))
    return close();
  answered();
}

void Connection::respond(Response response) {
  if (state_ != State::handling)
    return;
  send_whole(std::move(response), keep_alive_);
}

void Connection::answered() {
  if (auto* exchange = std::exchange(exchange_, nullptr))
    exchange->detach();
  if (state_ == State::closed)
    return;
  parser_.reset();
  plan_ = {};
  request_ = {};
  place_->end();
  if (!keep_alive_)
    return say_goodbye();
  state_ = State::head;
  deadline_ = loop_.steady() + host_->options().idle_timeout;
  stream_->resume_reading();
  // Pipelined requests continue from the loop, not during the handler's call.
  if (!processing_ && !pending_.empty())
    loop_.post([self = shared_from_this()] {
      if (self->state_ == State::head)
        self->process();
    });
}

void Connection::say_goodbye() {
  state_ = State::draining;
  deadline_ = loop_.steady() + goodbye_timeout;
  if (stream_->queued() > 0)
    deadline_ = *deadline_ + host_->options().write_stall_timeout;
  stream_->resume_reading();
  stream_->end_after_flush(peer_eof_);
  if (!stream_->open())
    close();
}

void Connection::start_stream(int status, Headers headers) {
  if (state_ != State::handling)
    return;
  note_answer(status);
  state_ = State::streaming;
  stream_bytes_left_.reset();
  const auto length = headers.get("Content-Length");
  if (!length.empty())
    stream_bytes_left_ = std::strtoull(std::string(length).c_str(), nullptr, 10);
  chunked_ = !stream_bytes_left_ && minor_version_ == 1 && may_have_body(status);
  if (!stream_bytes_left_ && minor_version_ == 0)
    keep_alive_ = false;
  stream_->send(response_head(status, headers, stream_bytes_left_, chunked_));
  if (peer_eof_)
    close();
}

bool Connection::write_stream(std::string_view data) {
  if (state_ != State::streaming)
    return false;
  if (data.empty() || head_only_)
    return true;
  if (stream_->queued() > 0 &&
      stream_->queued() + data.size() > host_->options().stream_buffer_bytes_max)
    return false;
  // With an empty queue nothing would tell the writer to go on.
  if (!place_->set_unsent(stream_->queued() + data.size(), loop_.steady()) &&
      stream_->queued() > 0) {
    (void)place_->set_unsent(stream_->queued(), loop_.steady());
    return false;
  }
  if (stream_bytes_left_) {
    if (data.size() > *stream_bytes_left_) {
      log_error("request {}: the streamed answer is longer than its Content-Length", request_id_);
      close();
      return false;
    }
    *stream_bytes_left_ -= data.size();
  }
  if (!chunked_) {
    stream_->send(std::string(data));
    return true;
  }
  std::string chunk;
  chunk.reserve(data.size() + 12);
  append_format(chunk, "{:x}\r\n", data.size());
  chunk.append(data).append("\r\n");
  stream_->send(std::move(chunk));
  return true;
}

void Connection::finish_stream() {
  if (state_ != State::streaming)
    return;
  if (!head_only_ && stream_bytes_left_.value_or(0) != 0) {
    log_error("request {}: the streamed answer is {} bytes shorter than its Content-Length",
              request_id_, *stream_bytes_left_);
    return close();
  }
  if (chunked_ && !head_only_)
    stream_->send("0\r\n\r\n");
  keep_alive_ = keep_alive_ && !peer_eof_ && host_ && !host_->stopping();
  answered();
}

Result<std::shared_ptr<WebSocket>> Connection::upgrade(WebSocket::Options options) {
  if (state_ != State::handling)
    return fail(Code::conflict, "this request has already been answered");
  auto answer = BILLOW_TRY(
      ws_accept(exchange_->request().method, exchange_->request().headers, options.subprotocol));
  std::string head = "HTTP/1.1 101 Switching Protocols\r\n";
  for (const auto& [name, value] : answer)
    head.append(name).append(": ").append(value).append("\r\n");
  head += "\r\n";
  if (auto* exchange = std::exchange(exchange_, nullptr))
    exchange->detach();
  stream_->send(std::move(head));
  auto socket = make_websocket(std::exchange(stream_, nullptr), WsReader::Role::server,
                               std::move(options), pending_.substr(consumed_));
  pending_.clear();
  consumed_ = 0;
  host_->upgraded(socket);
  close();
  return socket;
}

}  // namespace billow::net
