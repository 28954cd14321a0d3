// HTTP/2 without sockets: what a session reports, refuses and bounds.
#include <gtest/gtest.h>

#include <map>

#include "net/http2/http2_session.h"
#include "tests/support/http2_frames.h"

namespace billow::net {
namespace {

namespace h2 = http2_frames;
using Id = Http2Session::StreamId;

struct Told {
  std::string head, body;
  int refused = 0;
  std::string why;
  bool end = false, closed = false;
  Http2Error error = Http2Error::none;
  Headers trailers, headers;
  HttpParser::Head parsed;
};

struct Recorder : Http2Session::Owner {
  std::map<Id, Told> streams;
  std::vector<Id> relieved;
  std::function<void(Id)> on_head = [](Id) {
  };
  std::function<void(Id)> on_body = [](Id) {
  };
  void stream_head(Id id, HttpParser::Head& head, bool) override {
    auto& told = streams[id];
    told.head = head.status ? std::to_string(head.status) : head.method + " " + head.target;
    told.parsed = head;
    on_head(id);
  }
  void stream_refused(Id id, int status, const std::string& why) override {
    streams[id].refused = status;
    streams[id].why = why;
  }
  void stream_body(Id id, std::string_view data) override {
    streams[id].body.append(data);
    on_body(id);
  }
  void stream_end(Id id, const Headers& trailers) override {
    streams[id].end = true;
    streams[id].trailers = trailers;
  }
  void stream_closed(Id id, Http2Error error) override {
    streams[id].closed = true;
    streams[id].error = error;
  }
  void stream_relieved(Id id) override { relieved.push_back(id); }
  std::size_t heads() const {
    std::size_t n = 0;
    for (const auto& [id, told] : streams)
      n += !told.head.empty();
    return n;
  }
};

struct Side {
  explicit Side(Http2Session::Role role, Http2Limits limits = {})
      : session(role, recorder, limits) {}
  std::string output() {
    std::string out;
    session.take_output(out, 64 << 20);
    return out;
  }
  Recorder recorder;
  Http2Session session;
};

// A server, and bytes as a client sends them.
struct Server : Side {
  explicit Server(Http2Limits limits = {}) : Side(Http2Session::Role::server, limits) {
    EXPECT_TRUE(session.receive(h2::preface(), now));
    (void)output();
  }
  Status feed(std::string_view bytes) { return session.receive(bytes, now); }
  std::vector<h2::Frame> frames() { return h2::read(output()); }
  SteadyTime now{1'000'000'000};
};

struct Pair {
  Side client{Http2Session::Role::client}, server{Http2Session::Role::server};
  void pump() {
    for (int i = 0; i < 20; ++i) {
      const auto there = client.output();
      ASSERT_TRUE(server.session.receive(there, SteadyTime{1}));
      const auto back = server.output();
      ASSERT_TRUE(client.session.receive(back, SteadyTime{1}));
      if (there.empty() && back.empty())
        return;
    }
  }
  Id ask(bool end, std::string method = "POST") {
    Http2Fields fields;
    for (const auto& [name, value] : h2::request(method))
      fields.add(name, value);
    return *client.session.open(fields, end);
  }
};

TEST(Http2Session, CarriesARequestAndItsAnswerWithTrailers) {
  Pair pair;
  const Id id = pair.ask(false);
  pair.client.session.send(id, "ping");
  pair.client.session.finish(id);
  pair.pump();
  auto& asked = pair.server.recorder.streams.at(id);
  EXPECT_EQ(asked.head, "POST /f/app/x");
  EXPECT_EQ(asked.parsed.headers.get("Host"), "localhost");
  EXPECT_TRUE(asked.parsed.chunked) << "no length was announced";
  EXPECT_EQ(asked.body, "ping");
  EXPECT_TRUE(asked.end);

  Http2Fields fields, trailers;
  fields.add("Content-Type", "application/grpc");
  trailers.add("grpc-status", "0");
  pair.server.session.answer(id, 200, fields, false);
  pair.server.session.send(id, "pong");
  pair.server.session.finish(id, &trailers);
  pair.pump();
  const auto& got = pair.client.recorder.streams.at(id);
  EXPECT_EQ(got.head, "200");
  EXPECT_EQ(got.body, "pong");
  EXPECT_TRUE(got.end);
  EXPECT_EQ(got.trailers.get("grpc-status"), "0");
  EXPECT_TRUE(got.closed);
  EXPECT_EQ(pair.server.session.streams(), 0u);
  EXPECT_EQ(pair.client.session.streams(), 0u);
}

TEST(Http2Session, FieldsThatDifferEachTimeDoNotDisplaceOthersFromTheCompression) {
  Pair pair;
  std::size_t least = SIZE_MAX, most = 0;
  for (int i = 0; i < 300; ++i) {
    const Id id = pair.ask(true);
    pair.pump();
    Http2Fields fields;
    fields.add("Server", "a server with a name of some length");
    fields.add("X-Request-Id", std::to_string(1'000'000 + i));
    fields.add("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169" +
                                  std::to_string(100'000 + i) + "-01");
    pair.server.session.answer(id, 200, fields, true);
    const auto answer = pair.server.output();
    ASSERT_TRUE(pair.client.session.receive(answer, SteadyTime{1}));
    ASSERT_EQ(pair.client.recorder.streams.at(id).parsed.headers.get("X-Request-Id"),
              std::to_string(1'000'000 + i));
    if (i == 0)
      continue;  // says everything in full
    least = std::min(least, answer.size());
    most = std::max(most, answer.size());
  }
  // Digits take one or two bits more or less each; the name of the server would take 25 bytes.
  EXPECT_LT(most, least + 12);
}

TEST(Http2Session, AnAnnouncedEndTakesRequestsThatAreOnTheirWay) {
  Pair pair;
  pair.pump();
  const Id early = pair.ask(true);
  const auto on_its_way = pair.client.output();
  pair.server.session.announce_end();
  const auto announced = pair.server.output();
  ASSERT_TRUE(pair.server.session.receive(on_its_way, SteadyTime{1}));
  EXPECT_EQ(pair.server.recorder.streams.at(early).head, "POST /f/app/x");
  EXPECT_FALSE(pair.server.session.end_heard());
  ASSERT_TRUE(pair.client.session.receive(announced, SteadyTime{1}));
  EXPECT_FALSE(pair.client.session.can_open()) << "the client has heard it";
  pair.pump();
  EXPECT_TRUE(pair.server.session.end_heard());
  pair.server.session.go_away(Http2Error::none);
  pair.server.session.answer(early, 200, {}, true);
  pair.pump();
  EXPECT_EQ(pair.client.recorder.streams.at(early).head, "200");
}

TEST(Http2Session, JoinsCookies) {
  Server server;
  ASSERT_TRUE(server.feed(
      h2::head(1, h2::request("GET", "/a", {{"cookie", "a=1"}, {"x", "y"}, {"cookie", "b=2"}}))));
  const auto& headers = server.recorder.streams.at(1).parsed.headers;
  EXPECT_EQ(headers.count("Cookie"), 1u);
  EXPECT_EQ(headers.get("Cookie"), "a=1; b=2");
}

h2::Fields with(std::string name, std::string value) {
  return h2::request("POST", "/f/app/x", {{std::move(name), std::move(value)}});
}
h2::Fields path(std::string value) {
  return h2::request("GET", std::move(value));
}

using namespace std::string_literals;
const std::pair<const char*, h2::Fields> ambiguous_heads[] = {
    {"LF in a value", with("x", "a\nTransfer-Encoding: chunked")},
    {"CR LF in a value", with("x", "a\r\n\r\nGET /hidden HTTP/1.1")},
    {"CR in a value", with("x", "a\rb")},
    {"NUL in a value", with("x", "a\0b"s)},
    {"space before a value", with("x", " chunked")},
    {"tab after a value", with("x", "chunked\t")},
    {"CR LF in a name", with("x\r\ny", "1")},
    {"colon in a name", with("x:y", "1")},
    {"space in a name", with("transfer-encoding ", "chunked")},
    {"capitals in a name", with("X-Name", "1")},
    {"an empty name", with("", "1")},
    {"transfer-encoding", with("transfer-encoding", "chunked")},
    {"connection", with("connection", "close")},
    {"keep-alive", with("keep-alive", "1")},
    {"proxy-connection", with("proxy-connection", "close")},
    {"upgrade", with("upgrade", "websocket")},
    {"te", with("te", "gzip")},
    {"te with more", with("te", "trailers, chunked")},
    {"length with a sign", with("content-length", "+5")},
    {"length as a list", with("content-length", "5, 5")},
    {"length in hex", with("content-length", "0x5")},
    {"a huge length", with("content-length", "99999999999999999999")},
    {"an empty length", with("content-length", "")},
    {"two lengths",
     h2::request("POST", "/f/app/x", {{"content-length", "0"}, {"content-length", "5"}})},
    {"the same length twice",
     h2::request("POST", "/f/app/x", {{"content-length", "0"}, {"content-length", "0"}})},
    {"another host", with("host", "other")},
    {"two hosts", h2::request("GET", "/f/app/x", {{"host", "localhost"}, {"host", "other"}})},
    {"space in the path", path("/f/app/x HTTP/1.1\r\nX: y")},
    {"a path with a space", path("/f/app/a b")},
    {"an empty path", path("")},
    {"a path without a slash", path("f/app/x")},
    {"a fragment", path("/f/app/x#y")},
    {"an absolute path", path("http://other/f/app/x")},
    {"an asterisk for GET", path("*")},
    {"letters beyond ASCII in the path", path("/f/app/\xc3\xa9")},
    {"a method of two words", h2::request("GET /f/app/y", "/f/app/x")},
    {"a method with CR LF", h2::request("GET\r\nX: y", "/f/app/x")},
    {"an empty method", h2::request("", "/f/app/x")},
    {"no method", {{":scheme", "http"}, {":path", "/"}, {":authority", "a"}}},
    {"no path", {{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}}},
    {"no scheme", {{":method", "GET"}, {":path", "/"}, {":authority", "a"}}},
    {"another scheme",
     {{":method", "GET"}, {":scheme", "file"}, {":path", "/"}, {":authority", "a"}}},
    {"no authority", {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}}},
    {"an authority with a user",
     {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "u@localhost"}}},
    {"an authority with a path",
     {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "localhost/f"}}},
    {"two methods", h2::request("GET", "/f/app/x", {{":method", "POST"}})},
    {"two paths",
     {{":method", "GET"},
      {":scheme", "http"},
      {":path", "/a"},
      {":path", "/b"},
      {":authority", "a"}}},
    {"a late pseudo-header",
     {{":method", "GET"}, {":scheme", "http"}, {"x", "y"}, {":path", "/"}, {":authority", "a"}}},
    {"an unknown pseudo-header", h2::request("GET", "/f/app/x", {{":proxy", "y"}})},
    {"a pseudo-header of answers", h2::request("GET", "/f/app/x", {{":status", "200"}})},
    {"extended CONNECT", h2::request("CONNECT", "/f/app/x", {{":protocol", "websocket"}})},
};

// Each must be refused or reset, and never be reported as a request: what is written in HTTP/1.1 to
// a replica would be another request.
TEST(Http2Session, RefusesHeadsThatHttp1WouldReadInAnotherWay) {
  for (const auto& [name, fields] : ambiguous_heads) {
    Server server;
    const auto fed = server.feed(h2::head(1, fields));
    EXPECT_EQ(server.recorder.heads(), 0u) << name;
    const auto frames = server.frames();
    const bool refused =
        server.recorder.streams.contains(1) && server.recorder.streams.at(1).refused >= 400;
    EXPECT_TRUE(!fed || refused || h2::first(frames, h2::rst_stream, 1) ||
                h2::first(frames, h2::goaway, 0))
        << name;
  }
}

TEST(Http2Session, NeverReportsMoreOrLessThanTheAnnouncedLength) {
  const auto five = h2::request("POST", "/f/app/x", {{"content-length", "5"}});
  {
    Server server;
    (void)server.feed(h2::head(1, five, false) +
                      h2::frame(h2::data, h2::end_stream, 1, "12345GET /hidden"));
    EXPECT_EQ(server.recorder.streams.at(1).body.substr(0, 5),
              std::string("12345").substr(0, server.recorder.streams.at(1).body.size()));
    EXPECT_LE(server.recorder.streams.at(1).body.size(), 5u);
    EXPECT_FALSE(server.recorder.streams.at(1).end);
    EXPECT_TRUE(h2::first(server.frames(), h2::rst_stream, 1));
  }
  {
    Server server;
    (void)server.feed(h2::head(1, five, false) + h2::frame(h2::data, h2::end_stream, 1, "123"));
    EXPECT_FALSE(server.recorder.streams.at(1).end) << "the body is shorter than announced";
    EXPECT_TRUE(h2::first(server.frames(), h2::rst_stream, 1));
  }
  {
    Server server;
    (void)server.feed(h2::head(1, five, true));
    EXPECT_EQ(server.recorder.heads(), 0u) << "a body was announced, and none follows";
  }
}

TEST(Http2Session, TrailersMayNotFrameTheMessage) {
  for (const char* name : {"content-length", "transfer-encoding", "host", "connection"}) {
    Server server;
    (void)server.feed(h2::head(1, h2::request("POST"), false) + h2::frame(h2::data, 0, 1, "abc") +
                      h2::head(1, {{name, "1"}}, true));
    EXPECT_FALSE(server.recorder.streams.at(1).end) << name;
  }
  Server server;
  ASSERT_TRUE(server.feed(h2::head(1, h2::request("POST"), false) +
                          h2::frame(h2::data, 0, 1, "abc") + h2::head(1, {{"x-sum", "9"}}, true)));
  EXPECT_EQ(server.recorder.streams.at(1).trailers.get("x-sum"), "9");
}

TEST(Http2Session, BoundsHeaderLists) {
  Server server;
  h2::Fields large = h2::request();
  for (int i = 0; i < 3; ++i)
    large.emplace_back(fmt::format("x-{}", i), std::string(14'000, 'v'));
  std::string block = h2::block(large), bytes;
  bytes = h2::frame(h2::headers, h2::end_stream, 1, block.substr(0, 16'000));
  bytes += h2::frame(h2::continuation, 0, 1, block.substr(16'000, 16'000));
  bytes += h2::frame(h2::continuation, h2::end_headers, 1, block.substr(32'000));
  ASSERT_TRUE(server.feed(bytes)) << "the connection goes on";
  EXPECT_EQ(server.recorder.streams.at(1).refused, 431);
  h2::Fields many = h2::request();
  for (int i = 0; i < 150; ++i)
    many.emplace_back(fmt::format("x-{}", i), "v");
  ASSERT_TRUE(server.feed(h2::head(3, many)));
  EXPECT_EQ(server.recorder.streams.at(3).refused, 431);
  ASSERT_TRUE(server.feed(h2::head(5, h2::request())));
  EXPECT_EQ(server.recorder.streams.at(5).head, "GET /f/app/x");
}

// One field of 4,000 bytes in the compression table, then one byte for each repetition.
TEST(Http2Session, AHeaderBombEndsTheConnection) {
  Server server;
  std::string block = h2::block(h2::request());
  block += '\x40' + h2::hpack_length(1) + "x" + h2::hpack_length(4000) + std::string(4000, 'v');
  block += std::string(12'000, '\xbe');  // the newest entry of the table
  const auto fed = server.feed(h2::frame(h2::headers, h2::end_headers | h2::end_stream, 1, block));
  EXPECT_FALSE(fed) << "48 MiB of fields in 16 KiB";
  const auto frames = server.frames();
  const auto* away = h2::first(frames, h2::goaway, 0);
  ASSERT_TRUE(away);
  EXPECT_EQ(away->error(), static_cast<std::uint32_t>(Http2Error::enhance_your_calm));
  EXPECT_EQ(server.recorder.heads(), 0u);
}

TEST(Http2Session, AContinuationFloodEndsTheConnection) {
  Server server;
  Status fed = server.feed(h2::frame(h2::headers, h2::end_stream, 1, h2::block(h2::request())));
  int sent = 0;
  for (; sent < 10'000 && fed; ++sent) {
    fed = server.feed(h2::frame(h2::continuation, 0, 1, ""));
    if (!server.session.wants_output())
      continue;
    if (h2::first(server.frames(), h2::goaway, 0))
      break;
  }
  EXPECT_LT(sent, 100);
  EXPECT_EQ(server.recorder.heads(), 0u);
}

TEST(Http2Session, RapidResetsEndTheConnection) {
  Server server;
  std::uint32_t id = 1;
  Status fed;
  for (; id < 20'000 && fed; id += 2)
    fed =
        server.feed(h2::head(id, h2::request()) + h2::frame(h2::rst_stream, 0, id, h2::number(8)));
  EXPECT_FALSE(fed);
  EXPECT_LE(server.recorder.heads(), 260u) << "the budget is 1000 / 4";
  const auto frames = server.frames();
  const auto* away = h2::first(frames, h2::goaway, 0);
  ASSERT_TRUE(away);
  EXPECT_EQ(away->error(), static_cast<std::uint32_t>(Http2Error::enhance_your_calm));
}

TEST(Http2Session, AClientThatCancelsNowAndThenGoesOn) {
  Server server;
  for (std::uint32_t id = 1; id < 4'000; id += 2) {
    ASSERT_TRUE(
        server.feed(h2::head(id, h2::request()) + h2::frame(h2::rst_stream, 0, id, h2::number(8))))
        << id;
    server.now = server.now + milliseconds(25);
    (void)server.output();
  }
}

TEST(Http2Session, FloodsOfFramesWithoutUseEndTheConnection) {
  const std::pair<const char*, std::string> cases[] = {
      {"ping", h2::frame(h2::ping, 0, 0, "12345678")},
      {"settings", h2::frame(h2::settings, 0, 0, "")},
      {"empty data", h2::frame(h2::data, 0, 1, "")},
      {"priority", h2::frame(h2::priority, 0, 1, h2::number(3) + "\x10")},
      {"window update", h2::frame(h2::window_update, 0, 1, h2::number(1))},
      {"resets of nothing", h2::frame(h2::rst_stream, 0, 1, h2::number(8))},
  };
  for (const auto& [name, frame] : cases) {
    Server server;
    ASSERT_TRUE(server.feed(h2::head(1, h2::request("POST"), false)));
    Status fed;
    int sent = 0;
    for (; sent < 100'000 && fed; ++sent) {
      fed = server.feed(frame);
      (void)server.output();
    }
    EXPECT_FALSE(fed) << name;
    EXPECT_LE(sent, 21'000) << name;
  }
}

TEST(Http2Session, MoreStreamsThanAllowedAreRefused) {
  Server server;
  std::string all;
  for (std::uint32_t id = 1; id <= 2 * 150; id += 2)
    all += h2::head(id, h2::request("POST"), false);
  (void)server.feed(all);
  EXPECT_EQ(server.recorder.heads(), 100u);
}

// A body that nobody takes stops at its window; another stream of the connection is not held up.
TEST(Http2Session, APausedStreamIsSentNoMoreThanItsWindow) {
  Pair pair;
  const Id slow = pair.ask(false), quick = pair.ask(false);
  pair.pump();
  pair.server.session.pause(slow);
  const std::string much(1 << 20, 'x');
  pair.client.session.send(slow, much);
  pair.client.session.send(quick, much);
  pair.client.session.finish(quick);
  for (int i = 0; i < 100; ++i)
    pair.pump();
  auto& told = pair.server.recorder.streams;
  EXPECT_EQ(told.at(slow).body.size(), 64u << 10);
  EXPECT_EQ(told.at(quick).body.size(), much.size());
  EXPECT_TRUE(pair.client.session.congested(slow));
  pair.server.session.resume(slow);
  pair.server.session.widen(slow);
  for (int i = 0; i < 100; ++i)
    pair.pump();
  EXPECT_EQ(told.at(slow).body.size(), much.size());
  EXPECT_EQ(pair.client.recorder.relieved, std::vector<Id>{slow});
}

// Together they may keep the connection's window, whatever each of them may.
TEST(Http2Session, PausedStreamsTogetherAreBounded) {
  Pair pair;
  std::vector<Id> all;
  for (int i = 0; i < 90; ++i)
    all.push_back(pair.ask(false));
  pair.pump();
  const std::string much(1 << 20, 'x');
  for (const Id id : all) {
    pair.server.session.pause(id);
    pair.server.session.widen(id);
    pair.client.session.send(id, much);
  }
  for (int i = 0; i < 100; ++i)
    pair.pump();
  std::size_t held = 0;
  for (const auto& [id, told] : pair.server.recorder.streams)
    held += told.body.size();
  EXPECT_LE(held, 2u << 20);
  EXPECT_GE(held, 1u << 20);
  for (const Id id : all)
    pair.client.session.reset(id, Http2Error::cancel);
  pair.pump();
  const Id next = pair.ask(false);
  pair.client.session.send(next, "abc");
  pair.pump();
  EXPECT_EQ(pair.server.recorder.streams.at(next).body, "abc")
      << "the window of cancelled streams came back";
}

TEST(Http2Session, AnAnswerBeforeTheEndOfTheRequestIsSentWhole) {
  Pair pair;
  const Id id = pair.ask(false);
  pair.client.session.send(id, "a");
  pair.pump();
  Http2Fields fields;
  pair.server.session.answer(id, 413, fields, false);
  pair.server.session.send(id, std::string(100'000, 'e'));
  pair.server.session.finish(id);
  pair.server.session.drop_the_rest(id);
  for (int i = 0; i < 20; ++i)
    pair.pump();
  const auto& got = pair.client.recorder.streams.at(id);
  EXPECT_EQ(got.head, "413");
  EXPECT_EQ(got.body.size(), 100'000u);
  EXPECT_TRUE(got.end);
  EXPECT_FALSE(got.closed) << "a client that is still sending may lose an answer before a reset";
  pair.client.session.send(id, "the end");
  pair.client.session.finish(id);
  pair.pump();
  EXPECT_TRUE(got.closed);
  EXPECT_EQ(pair.server.session.streams(), 0u);
  EXPECT_EQ(pair.server.recorder.streams.at(id).body, "a") << "what is not wanted is dropped";
}

TEST(Http2Session, AClientThatGoesOnAfterItsAnswerIsStopped) {
  Pair pair;
  const Id id = pair.ask(false);
  pair.client.session.send(id, std::string(20'000, 'a'));
  pair.pump();
  pair.server.session.pause(id);
  pair.server.session.answer(id, 413, Http2Fields(), true);
  pair.server.session.drop_the_rest(id);
  std::size_t sent = 0;
  for (; sent < 200'000 && !pair.client.recorder.streams[id].closed; sent += 10'000) {
    pair.client.session.send(id, std::string(10'000, 'a'));
    for (int i = 0; i < 3; ++i)
      pair.pump();
  }
  EXPECT_EQ(pair.client.recorder.streams.at(id).head, "413");
  EXPECT_EQ(sent, 70'000u) << "64 KiB of it are dropped in silence";
  EXPECT_EQ(pair.server.session.streams(), 0u);
}

TEST(Http2Session, HowBytesAreCutChangesNothing) {
  std::string all = h2::head(1, h2::request("POST", "/a", {{"content-length", "3"}}), false) +
                    h2::frame(h2::data, h2::end_stream, 1, "abc") + h2::head(3, h2::request()) +
                    h2::head(5, h2::request("GET", "/a b")) + h2::frame(h2::ping, 0, 0, "12345678");
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{17}, all.size()}) {
    Server server;
    for (std::size_t at = 0; at < all.size(); at += piece)
      ASSERT_TRUE(server.feed(std::string_view(all).substr(at, piece)));
    EXPECT_EQ(server.recorder.streams.at(1).body, "abc");
    EXPECT_TRUE(server.recorder.streams.at(1).end);
    EXPECT_EQ(server.recorder.streams.at(3).head, "GET /f/app/x");
    EXPECT_EQ(server.recorder.heads(), 2u);
    EXPECT_FALSE(server.session.in_head());
  }
}

TEST(Http2Session, WhatIsNotHttp2EndsTheConnection) {
  Side side(Http2Session::Role::server);
  EXPECT_FALSE(side.session.receive("GET / HTTP/1.1\r\nHost: a\r\n\r\n", SteadyTime{1}));
  Server server;
  (void)server.feed(h2::frame(h2::data, 0, 7, "abc"));
  EXPECT_TRUE(h2::first(server.frames(), h2::goaway, 0)) << "data of a stream that was not opened";
}

TEST(Http2Session, AResponseThatBreaksTheRulesIsReset) {
  const h2::Fields cases[] = {
      {{":status", "200"}, {"transfer-encoding", "chunked"}},
      {{":status", "200"}, {"x", "a\r\nSet-Cookie: b"}},
      {{":status", "2000"}},
      {{"x", "y"}},
      {{":status", "200"}, {"content-length", "1"}, {"content-length", "2"}},
      {{":status", "999"}},
  };
  for (const auto& fields : cases) {
    Side client(Http2Session::Role::client);
    Http2Fields ask;
    for (const auto& [name, value] : h2::request())
      ask.add(name, value);
    const Id id = *client.session.open(ask, true);
    (void)client.output();
    (void)client.session.receive(
        h2::frame(h2::settings, 0, 0, "") + h2::head(static_cast<std::uint32_t>(id), fields),
        SteadyTime{1});
    (void)client.output();
    EXPECT_EQ(client.recorder.heads(), 0u) << fields[0].second;
    EXPECT_TRUE(client.recorder.streams.at(id).closed) << fields[0].second;
  }
}

}  // namespace
}  // namespace billow::net
