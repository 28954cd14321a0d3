// The client's side of the proxy.
#include "gateway/proxy.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"

namespace billow::gateway {
namespace {

constexpr Duration goodbye_timeout = seconds(2);
constexpr std::size_t usage_tail_bytes_max = 4096;

bool sane_request_id(std::string_view id) {
  if (id.empty() || id.size() > 64)
    return false;
  for (char c : id)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
          c == '_' || c == '.'))
      return false;
  return true;
}

// The outgoing bytes of the answer. Small pieces are sent together; always empty between two
// callbacks.
std::string& out() {
  static thread_local std::string buffer;
  return buffer;
}
constexpr std::size_t joined_bytes_max = 8 << 10;

// A replica that says so has not executed the request: another endpoint may.
bool is_refusal(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

bool may_have_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

}  // namespace

std::string_view chunk_start(std::size_t bytes, char (&text)[24]) {
  const auto end = fmt::format_to(text, "{:x}\r\n", bytes);
  return {text, static_cast<std::size_t>(end - text)};
}

Front::Front(Proxy& proxy,
             net::Transport transport,
             std::shared_ptr<net::Admission::Place> place,
             std::string peer)
    : proxy_(proxy), place_(std::move(place)), peer_(std::move(peer)) {
  if (peer_.empty())
    peer_ = net::peer_of(transport.fd(), unix_uid_);
  stream_ = std::make_shared<net::Stream>(proxy.loop(), std::move(transport), this);
  stream_->token = place_;
  deadline_ = proxy.loop().steady() + proxy.options().header_timeout;
}

Front::Front(Proxy& proxy, std::string peer, std::optional<unsigned> unix_uid)
    : proxy_(proxy), peer_(std::move(peer)), unix_uid_(unix_uid) {}

Front::~Front() {
  if (stream_)
    stream_->close();
}

std::string_view Front::path() const {
  const std::string_view target = head_.target;
  return target.substr(0, target.find('?'));
}

void Front::close() {
  if (state_ == State::closed)
    return;
  const auto keep = shared_from_this();
  state_ = State::closed;
  if (place_)
    place_->detach();
  on_body_ = nullptr;
  drop_back(false);
  done(End::client_gone);
  disconnect();
  proxy_.forget(*this);
}

void Front::done(End end) {
  if (over_told_)
    return;
  over_told_ = true;
  proxy_.host().over(*this, end);
}

void Front::drop_back(bool keep) {
  const auto back = std::exchange(back_, nullptr);
  if (!back)
    return;
  back->detach();
  if (keep && ticket.upstream)
    proxy_.keep(ticket.upstream, back);
  else
    back->close();
}

// ---- requests in

void Front::stream_data(std::string_view data) {
  const auto keep = shared_from_this();
  if (state_ == State::closed || state_ == State::goodbye)
    return;
  if (fresh_ && may_become_http2(data))
    return;
  if (state_ == State::tunnel) {
    ticket.bytes_in += data.size();
    deadline_ = tunnel_deadline();
    if (!back_)
      return;
    back_->stream().send_views({data});
    if (back_ && back_->congested())
      stream_->pause_reading();
    return;
  }
  // Complete data is parsed in place; only an incomplete beginning is kept.
  if (processing_ || !pending_.empty()) {
    pending_.append(data);
    return process();
  }
  processing_ = true;
  const std::size_t used = parse(data);
  processing_ = false;
  if (state_ == State::closed || state_ == State::goodbye || used >= data.size())
    return;
  if (state_ == State::tunnel)
    return stream_data(data.substr(used));
  pending_.assign(data.substr(used));
  if (active() && body_complete_ && pending_.size() >= limits::http_pipelined_bytes_max)
    stream_->pause_reading();
}

void Front::process() {
  if (processing_ || pending_.empty())
    return;
  if (active() && body_complete_) {
    if (pending_.size() >= limits::http_pipelined_bytes_max)
      stream_->pause_reading();
    return;
  }
  const std::string all = std::exchange(pending_, {});
  stream_data(all);
}

// Consumes what it can: heads while no request is being answered, and the body of the current one.
// Returns the number of bytes.
std::size_t Front::parse(std::string_view data) {
  std::size_t used = 0;
  while (used < data.size()) {
    const bool in_head = state_ == State::idle;
    if (!in_head && (!active() || body_complete_))
      break;
    if (!parser_) {
      parser_.emplace(net::HttpParser::Kind::request);
      deadline_ = proxy_.loop().steady() + proxy_.options().header_timeout;
    }
    const auto fed = parser_->feed(data.substr(used));
    if (!fed) {
      const bool named = in_head && begins_proxy_header(data.substr(used));
      bad_request(parser_->error_status(),
                  named ? "this is a header of the PROXY protocol, and the address that sends it "
                          "is not trusted: start the gateway with --trusted-proxy ADDRESS"
                        : fed.error().message);
      return data.size();
    }
    used += fed->consumed;
    // Either call may answer the request and begin the next, so this request must not be accessed
    // afterwards.
    if (in_head && parser_->head_done()) {
      take_head();
    } else if (!in_head && (parser_->done() || !fed->body.empty())) {
      body_complete_ = parser_->done();
      forward_body(fed->body);
    } else if (fed->consumed == 0) {
      break;
    }
  }
  return used;
}

// The head is complete.
void Front::take_head() {
  head_ = std::move(parser_->head());
  body_complete_ = parser_->done();
  begin_request();
}

void Front::begin_request() {
  keep_alive_ = head_.keep_alive && !proxy_.stopping() && !closing_;
  head_only_ = head_.method == "HEAD";
  upgrade_ = head_.method == "GET" && head_.minor_version == 1 &&
             head_.headers.has_token("Connection", "upgrade") &&
             net::equal_nocase(head_.headers.get("Upgrade"), "websocket");
  find_client();
  const auto given_id = head_.headers.get("X-Request-Id");
  if (sane_request_id(given_id))
    request_id_ = given_id;
  else
    request_id_ = proxy_.host().next_request_id();
  ticket = {};
  copied_body_.reset();
  kept_body_.clear();
  body_kept_ = true;
  answer_began_ = false;
  over_told_ = true;
  const auto expect = head_.headers.get("Expect");
  expects_continue_ = !expect.empty();
  if (!expect.empty() && !net::equal_nocase(expect, "100-continue")) {
    return bad_request(417, "unsupported Expect header: only 100-continue is supported");
  }
  if (head_.method == "TRACE" || head_.method == "CONNECT") {
    return bad_request(405, "this method is not supported");
  }
  if (connection_options(head_.headers) > connection_options_max)
    return bad_request(400, "the Connection header has too many options");
  state_ = State::waiting;
  if (place_)
    place_->engage();
  over_told_ = false;
  ticket.arrived = proxy_.loop().steady();
  deadline_ = ticket.arrived + proxy_.options().body_idle_timeout;
  proxy_.host().arrived(shared_from_this());
}

void Front::go_on() {
  stream_->send("HTTP/1.1 100 Continue\r\n\r\n");
}

void Front::give(const std::shared_ptr<Upstream>& upstream) {
  if (state_ != State::waiting)
    return;
  state_ = State::serving;
  ticket.upstream = upstream;
  ticket.given = proxy_.loop().steady();
  ++ticket.tries;
  std::string why;
  back_ = proxy_.connect(upstream, ticket.http2, why);
  if (!back_)
    return back_failed(why, false);
  back_->serve(this, head_only_, upgrade_);
  const auto back = back_;
  back->send_request(kept_body_, body_complete_);
  deadline_ = answer_deadline();  // waiting and earlier tries included
  if (body_complete_)
    return;
  if (expects_continue_)
    go_on();
  expects_continue_ = false;
  if (!processing_)
    resume_client();
}

// ---- answers out

void Front::answer_head(net::HttpParser::Head& head, bool until_close) {
  if (!ticket.others.empty() && body_kept_ && is_refusal(head.status)) {
    const auto keep = shared_from_this();
    drop_back(false);
    state_ = State::waiting;
    return proxy_.host().turned_down(keep, head.status);
  }
  answer_began_ = true;
  kept_body_ = {};
  if (ticket.body_held > 0 && !ticket.mirrored)
    proxy_.host().body_freed(*this);
  ticket.first_byte = proxy_.loop().steady();
  deadline_ = ticket.first_byte + proxy_.options().stream_idle_timeout;
  ticket.status = head.status;
  note_grpc_status(head.headers);
  if (ticket.sample)
    sample_fields(ticket.sample->answer, head.headers);
  const bool bodiless = head_only_ || !may_have_body(head.status);
  const bool unknown_length = !bodiless && (head.chunked || until_close);
  chunked_ = unknown_length && head_.minor_version == 1;
  if (unknown_length && !chunked_)
    keep_alive_ = false;
  if (!body_complete_ || proxy_.stopping() || closing_)
    keep_alive_ = false;
  ticket.form = AnswerForm::of(head.headers);
  ticket.wants_usage = ticket.wants_usage && !ticket.form.packed &&
                       (ticket.form.events ||
                        starts_with_nocase(head.headers.get("Content-Type"), "application/json"));
  begin_answer(head);
}

void Front::begin_answer(net::HttpParser::Head& head) {
  out().clear();
  write_answer_head(out(), head, *this, chunked_, keep_alive_);
}

void Front::answer_body(std::string_view data) {
  if (state_ != State::serving || data.empty())
    return;
  if (ticket.bytes_out == 0 && ticket.wish.prompt.bytes != 0)
    proxy_.host().answer_body_begins(*this, data);
  ticket.bytes_out += data.size();
  if (ticket.counts_tokens)
    ticket.form.count(data);
  if (ticket.sample)
    ticket.sample->answer.add(data);
  if (ticket.wants_usage) {
    ticket.usage_tail.append(
        data.substr(data.size() > usage_tail_bytes_max ? data.size() - usage_tail_bytes_max : 0));
    if (ticket.usage_tail.size() > 2 * usage_tail_bytes_max)
      ticket.usage_tail.erase(0, ticket.usage_tail.size() - usage_tail_bytes_max);
  }
  send_answer(data);
}

void Front::send_answer(std::string_view data) {
  std::string& buffer = out();
  char size[24];
  const auto start = chunked_ ? chunk_start(data.size(), size) : std::string_view();
  const std::string_view end = chunked_ ? "\r\n" : "";
  if (buffer.size() + data.size() <= joined_bytes_max) {
    buffer.append(start).append(data).append(end);
    return;
  }
  stream_->send_views({buffer, start, data, end});
  buffer.clear();
}

// After each batch from the replica: sends the rest, and pauses the replica if the client is slow.
void Front::back_drained() {
  flush_answer();
  if (state_ == State::closed)
    return;
  if (answer_began_)  // an interim answer is none
    deadline_ = proxy_.loop().steady() + proxy_.options().stream_idle_timeout;
  if (back_ && congested())
    back_->set_paused(true);
}

void Front::flush_answer() {
  if (out().empty())
    return;
  stream_->send_views({out()});
  out().clear();
}

// Trailers of an HTTP/2 replica are not passed on in HTTP/1.1.
void Front::finish_answer(const net::Headers&) {
  if (chunked_)
    out() += "0\r\n\r\n";
  flush_answer();
}

void Front::answer_done(bool keep_back, const net::Headers& trailers) {
  note_grpc_status(trailers);
  finish_answer(trailers);
  drop_back(keep_back && body_complete_);
  done(End::answered);
  end_of_answer();
}

void Front::back_failed(const std::string& why, bool sent_anything, bool connection_lost) {
  const auto keep = shared_from_this();
  drop_back(false);
  if (state_ == State::tunnel) {
    done(End::answered);
    return say_goodbye();
  }
  if (state_ != State::serving)
    return;
  if (sent_anything)
    ++ticket.lost;
  const Failure failure{.answer_began = answer_began_,
                        .sent_anything = sent_anything,
                        .repeatable_method = repeatable_method(head_.method),
                        .has_idempotency_key = head_.headers.has("Idempotency-Key"),
                        .body_kept = body_kept_,
                        .tries = ticket.tries,
                        .lost = ticket.lost};
  if (answer_began_) {
    // Cut off, so that the client can distinguish a broken answer from a complete one.
    out().clear();
    state_ = State::closed;
    done(End::replica_failed);
    disconnect();
    proxy_.forget(*this);
    return;
  }
  state_ = State::waiting;
  if (connection_lost && proxy_.host().failed(shared_from_this(), failure, why))
    return;
  ticket.status = 502;
  send_whole(net::problem(502, fmt::format("the replica failed: {}", why),
                          "the request may have been processed; with an Idempotency-Key it is "
                          "retried on another replica",
                          request_id_));
  done(End::replica_failed);
  end_of_answer();
}

void Front::tunnel_open(net::HttpParser::Head& head) {
  answer_began_ = true;
  ticket.status = 101;
  ticket.first_byte = proxy_.loop().steady();
  out().clear();
  write_answer_head(out(), head, *this, false, true);
  stream_->send_views({out()});
  out().clear();
  state_ = State::tunnel;
  deadline_ = ticket.first_byte + proxy_.options().stream_idle_timeout;
  parser_.reset();
  const std::string early = std::exchange(pending_, {});
  stream_->resume_reading();
  if (!early.empty())
    stream_data(early);
}

// A client that has closed its sending side may still read, but has usually gone: the tunnel gets a
// shorter idle limit.
SteadyTime Front::tunnel_deadline() const {
  const auto& options = proxy_.options();
  const bool told = peer_eof_ && back_ && back_->stream().queued() == 0;
  return proxy_.loop().steady() + (told        ? goodbye_timeout
                                   : peer_eof_ ? options.write_stall_timeout
                                               : options.stream_idle_timeout);
}

void Front::tunnel_data(std::string_view data) {
  ticket.bytes_out += data.size();
  deadline_ = tunnel_deadline();
  stream_->send_views({data});
  if (back_ && congested())
    back_->set_paused(true);
}

void Front::send_whole(const net::Response& response) {
  if (!body_complete_)
    keep_alive_ = false;
  if (proxy_.stopping() || closing_)
    keep_alive_ = false;
  std::string& buffer = out();
  buffer.clear();
  write_whole_head(buffer, response, *this, proxy_.date(), keep_alive_);
  stream_->send_views({buffer, head_only_ ? std::string_view() : std::string_view(response.body)});
  buffer.clear();
}

void Front::refuse(net::Response response) {
  if (!active())
    return;
  const auto keep = shared_from_this();
  on_body_ = nullptr;
  drop_back(false);
  ticket.status = response.status;
  send_whole(response);
  done(End::refused);
  end_of_answer();
}

void Front::respond(net::Response response) {
  if (!active())
    return;
  const auto keep = shared_from_this();
  drop_back(false);
  ticket.status = response.status;
  ticket.bytes_out = response.body.size();
  send_whole(response);
  done(End::answered);
  end_of_answer();
}

// The framing can no longer be trusted: send one answer, then close.
void Front::bad_request(int status, std::string_view detail) {
  const auto keep = shared_from_this();
  if (active() && answer_began_)
    return close();
  drop_back(false);
  head_only_ = false;
  keep_alive_ = false;
  ticket.status = status;
  send_whole(net::problem(status, detail, "", request_id_));
  done(End::refused);
  say_goodbye();
}

void Front::end_of_answer() {
  if (state_ == State::closed)
    return;
  if (!keep_alive_ || !body_complete_ || peer_eof_)
    return say_goodbye();
  next_request();
}

void Front::next_request() {
  state_ = State::idle;
  place_->end();
  parser_.reset();
  ticket.upstream = nullptr;
  ticket.endpoint = nullptr;
  request_id_.clear();
  deadline_ = proxy_.loop().steady() + proxy_.options().idle_timeout;
  stream_->resume_reading();
  if (!processing_ && !pending_.empty())
    proxy_.loop().post([self = shared_from_this()] {
      if (self->state_ == State::idle)
        self->process();
    });
}

void Front::say_goodbye() {
  if (state_ == State::closed)
    return;
  state_ = State::goodbye;
  deadline_ = proxy_.loop().steady() + goodbye_timeout;
  if (stream_->queued() > 0)
    deadline_ = deadline_ + proxy_.options().write_stall_timeout;
  stream_->resume_reading();
  stream_->end_after_flush(peer_eof_);
  if (!stream_->open())
    close();
}

// ---- the connection itself

void Front::stream_eof() {
  const auto keep = shared_from_this();
  peer_eof_ = true;
  if (state_ != State::tunnel || !back_)
    return close();
  deadline_ = tunnel_deadline();
  back_->stream().end_after_flush(false);
}

void Front::stream_failed(std::string) {
  const auto keep = shared_from_this();
  close();
}

void Front::stream_drained() {
  const auto keep = shared_from_this();
  if (back_)
    back_->set_paused(false);
}

void Front::body_drained() {
  if (state_ == State::tunnel || (state_ == State::serving && !body_complete_))
    resume_client();
}

}  // namespace billow::gateway
