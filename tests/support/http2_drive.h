// A session of HTTP/2 with arbitrary bytes from its peer, cut as a number says. What must hold
// whatever comes:
// - every head, and every trailer, could be written in HTTP/1.1 and be read back as the same;
// - a body is never longer than its announced length, and its end is told only if it is as long;
// - each stream begins once, and nothing is told about it after its end or its close;
// - what is held for the peer is bounded by the windows.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>

#include "base/rng.h"
#include "net/http2/http2_session.h"

namespace billow::net {

class Http2Drive final : public Http2Session::Owner {
 public:
  using Id = Http2Session::StreamId;
  explicit Http2Drive(Http2Session::Role role) : role_(role), session_(role, *this) {}

  // Which rule was broken; empty: none.
  std::string play(std::string_view bytes, std::uint64_t how) {
    Rng rng(how);
    rng_ = &rng;
    if (role_ == Http2Session::Role::client)
      for (int i = 0; i < 3; ++i)
        ask();
    SteadyTime now{1};
    while (!bytes.empty()) {
      const auto piece =
          std::min<std::size_t>(bytes.size(), 1 + rng.below(rng.chance(0.5) ? 16 : 4096));
      const bool fine = session_.receive(bytes.substr(0, piece), now).has_value();
      std::string out;
      session_.take_output(out, 1 << 20);
      if (!fine)
        break;
      bytes.remove_prefix(piece);
      now = now + milliseconds(static_cast<std::int64_t>(rng.below(5)));
    }
    return broken_;
  }
  std::size_t heads() const { return begun_; }

  void stream_head(Id id, HttpParser::Head& head, bool end) override {
    auto& stream = streams_[id];
    if (stream.begun || stream.closed)
      broken("a stream began twice");
    stream.begun = true;
    ++begun_;
    stream.length = head.content_length;
    check_as_http1(head, end);
    if (role_ == Http2Session::Role::server)
      respond(id);
  }
  void stream_refused(Id id, int status, const std::string& why) override {
    if (streams_[id].begun || status < 400 || why.empty())
      broken("a refusal without a reason");
    respond(id);
  }
  void stream_body(Id id, std::string_view data) override {
    auto& stream = streams_[id];
    if (stream.ended || stream.closed)
      broken("data after the end");
    stream.bytes += data.size();
    stream.held += data.size();
    if (stream.held > (64u << 10) && role_ == Http2Session::Role::server)
      broken("more was held than the window allows");
    if (stream.length && stream.bytes > *stream.length)
      broken("a body is longer than announced");
    if (rng_->chance(0.3))
      return session_.pause(id);
    session_.resume(id);
    stream.held = 0;
  }
  void stream_end(Id id, const Headers& trailers) override {
    auto& stream = streams_[id];
    if (stream.ended || stream.closed || !stream.begun)
      broken("an end at the wrong time");
    stream.ended = true;
    if (role_ == Http2Session::Role::server && stream.length && stream.bytes != *stream.length)
      broken("the end of a body that is shorter than announced");
    for (const auto& [name, value] : trailers)
      if (!valid_token(name) || !valid_field_value(value) || equal_nocase(name, "content-length"))
        broken("a trailer that is none");
  }
  void stream_closed(Id id, Http2Error) override {
    if (std::exchange(streams_[id].closed, true))
      broken("a stream was closed twice");
  }
  void stream_relieved(Id) override {}

 private:
  struct Seen {
    bool begun = false, ended = false, closed = false;
    std::uint64_t bytes = 0, held = 0;
    std::optional<std::uint64_t> length;
  };
  void broken(std::string why) {
    if (broken_.empty())
      broken_ = std::move(why);
  }
  void ask() {
    Http2Fields fields;
    fields.add(":method", "GET");
    fields.add(":scheme", "http");
    fields.add(":path", "/");
    fields.add(":authority", "localhost");
    (void)session_.open(fields, true);
  }
  void respond(Id id) {
    Http2Fields fields;
    fields.add("x", "y");
    session_.answer(id, 200, fields, false);
    session_.send(id, std::string(rng_->below(100'000), 'z'));
    if (rng_->chance(0.8))
      session_.finish(id, rng_->chance(0.3) ? &fields : nullptr);
    if (rng_->chance(0.2))
      session_.drop_the_rest(id);
    if (rng_->chance(0.1))
      session_.reset(id, Http2Error::cancel);
    (void)session_.congested(id);
  }
  // Written as the gateway writes it, it must be one message with the same fields.
  void check_as_http1(const HttpParser::Head& head, bool) {
    const bool request = role_ == Http2Session::Role::server;
    std::string text = request ? head.method + " " + head.target + " HTTP/1.1\r\n"
                               : fmt::format("HTTP/1.1 {} x\r\n", head.status);
    std::size_t fields = 0;
    for (const auto& [name, value] : head.headers) {
      if (equal_nocase(name, "content-length"))
        continue;
      text += name + ": " + value + "\r\n";
      ++fields;
    }
    text += "Content-Length: 0\r\n\r\n";
    HttpParser parser(request ? HttpParser::Kind::request : HttpParser::Kind::response,
                      {.head_bytes_max = 1 << 20, .headers_max = 1000});
    std::size_t used = 0;
    while (used < text.size() && !parser.done()) {
      const auto step = parser.feed(std::string_view(text).substr(used));
      if (!step)
        return broken("a head that HTTP/1.1 refuses: " + step.error().message);
      if (step->consumed == 0)
        break;
      used += step->consumed;
    }
    if (!parser.done() || used != text.size() || parser.head().headers.size() != fields + 1 ||
        parser.head().method != head.method || parser.head().target != head.target)
      broken("a head that HTTP/1.1 reads in another way");
  }

  Http2Session::Role role_;
  Http2Session session_;
  Rng* rng_ = nullptr;
  std::map<Id, Seen> streams_;
  std::size_t begun_ = 0;
  std::string broken_;
};

}  // namespace billow::net
