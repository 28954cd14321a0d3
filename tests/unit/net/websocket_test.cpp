#include "net/http/websocket.h"

#include "net/http/blocking_client.h"
#include "net/http/ws_frame.h"
#include "net_test_support.h"

namespace billow::net {

// Answers every message with itself. The callbacks hold the socket; they go when it closes.
Handler echo_socket(WebSocket::Options options = {}) {
  return [options](std::shared_ptr<Exchange> x) {
    auto made = x->upgrade_websocket(options);
    if (!made)
      return x->respond(problem(made.error()));
    auto ws = *made;
    ws->on_message([ws](std::string_view data, bool binary) {
      binary ? ws->send_binary(data) : ws->send_text(data);
    });
  };
}

std::shared_ptr<WebSocket> connect(ServerFixture& f,
                                   HttpClient& client,
                                   WebSocket::Options options = {}) {
  std::optional<Result<std::shared_ptr<WebSocket>>> made;
  client.connect_websocket({.endpoint = f.endpoint()}, options,
                           [&](auto r) { made = std::move(r); });
  EXPECT_TRUE(f.run_until([&] { return made.has_value(); }));
  EXPECT_TRUE(made && *made) << (made ? made->error().message : "");
  return made && *made ? **made : nullptr;
}

TEST(WebSocket, EchoesTextBinaryAndLargeMessages) {
  ServerFixture f(echo_socket());
  auto client = *HttpClient::create(f.loop, {});
  auto ws = connect(f, *client, {.queue_bytes_max = 8 << 20});
  std::vector<std::pair<std::string, bool>> got;
  ws->on_message([&](std::string_view data, bool binary) { got.emplace_back(data, binary); });
  const std::string large(300'000, 'L'), middle(1000, 'm');
  EXPECT_TRUE(ws->send_text("grüße"));
  EXPECT_TRUE(ws->send_binary(std::string_view("\0\xff", 2)));
  EXPECT_TRUE(ws->send_binary(middle));
  EXPECT_TRUE(ws->send_binary(large));
  ASSERT_TRUE(f.run_until([&] { return got.size() == 4; }));
  EXPECT_EQ(got[0], std::pair(std::string("grüße"), false));
  EXPECT_EQ(got[1], std::pair(std::string("\0\xff", 2), true));
  EXPECT_EQ(got[2].first, middle);
  EXPECT_EQ(got[3].first, large);
}

TEST(WebSocket, CloseCodesReachTheOtherSide) {
  std::optional<WebSocket::Closed> at_server;
  std::shared_ptr<WebSocket> held;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    held = *x->upgrade_websocket({});
    held->on_message([](auto, bool) {});
    held->on_close([&](const WebSocket::Closed& c) { at_server = c; });
  });
  auto client = *HttpClient::create(f.loop, {});
  auto ws = connect(f, *client);
  bool closed_here = false;
  ws->on_close([&](const WebSocket::Closed&) { closed_here = true; });
  ws->on_message([](auto, bool) {});
  ws->close(4001, "enough");
  ASSERT_TRUE(f.run_until([&] { return at_server && closed_here; }));
  EXPECT_EQ(at_server->code, 4001);
  EXPECT_EQ(at_server->reason, "enough");
  EXPECT_FALSE(held->send_text("late"));
  held.reset();
  EXPECT_TRUE(f.run_until([&] { return f.server->connections() == 0; }));
}

// A reset would end a `kubectl port-forward` between the two. What a client sends behind its close
// frame arrives after the server has ended the WebSocket.
TEST(WebSocket, AClientThatSendsAfterItsCloseFrameSeesAnEndAndNoReset) {
  std::shared_ptr<WebSocket> held;
  bool closed = false;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    held = *x->upgrade_websocket({});
    held->on_message([](auto, bool) {});
    held->on_close([&](const WebSocket::Closed&) {
      closed = true;
      held.reset();
    });
  });
  RawClient c(f);
  c.send(
      "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
      "Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
      "dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return held != nullptr; }));
  c.send(ws_close_frame(1000, "", true));
  ASSERT_TRUE(f.run_until([&] { return closed && c.pull(); }));
  // The answer to the first would be a reset, and the second would fail.
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(::send(c.fd(), "x", 1, MSG_NOSIGNAL), 1) << "the connection was reset";
  c.close();
  EXPECT_TRUE(f.run_until([&] { return f.server->connections() == 0; }));
}

TEST(WebSocket, ASlowReaderIsClosedWithItsCode) {
  std::shared_ptr<WebSocket> held;
  std::optional<WebSocket::Closed> closed;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    held = *x->upgrade_websocket({.queue_bytes_max = 64 << 10});
    held->on_message([](auto, bool) {});
    held->on_close([&](const WebSocket::Closed& c) { closed = c; });
  });
  RawClient c(f);
  c.send(
      "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
      "Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
      "dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return held && c.has("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="); }))
      << "the example of RFC 6455";
  const std::string piece(32 << 10, 'p');
  std::size_t sent = 0;
  while (held->send_binary(piece)) {
    ASSERT_LT(sent += piece.size(), 64u << 20) << "the queue has no end";
    ASSERT_LE(held->buffered(), 128u << 10);
  }
  ASSERT_TRUE(f.run_until([&] {
    c.pull();
    return c.received.find("the reader is too slow") != std::string::npos;
  }));
  c.close();
  ASSERT_TRUE(f.run_until([&] { return closed.has_value(); }));
  EXPECT_EQ(closed->code, WebSocket::close_slow_reader);
}

TEST(WebSocket, APeerThatAnswersNoPingIsCut) {
  std::optional<WebSocket::Closed> closed;
  std::shared_ptr<WebSocket> held;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    held = *x->upgrade_websocket(
        {.ping_interval = milliseconds(20), .pong_timeout = milliseconds(500)});
    held->on_message([](auto, bool) {});
    held->on_close([&](const WebSocket::Closed& c) { closed = c; });
  });
  auto client = *HttpClient::create(f.loop, {});
  auto answering = connect(f, *client);
  answering->on_message([](auto, bool) {});
  bool later = false;
  Timer t = f.loop.after(milliseconds(1200), [&] { later = true; });
  ASSERT_TRUE(f.run_until([&] { return later; }));
  EXPECT_FALSE(closed) << "one that answers stays";
  RawClient silent(f);
  silent.send(
      "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
      "Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
      "dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return closed.has_value(); }));
  EXPECT_EQ(closed->code, 1006);
  held.reset();  // a socket must not outlive its loop
}

TEST(WebSocket, BrokenFramesAreRefused) {
  struct Case {
    std::string bytes;
    int code;
  };
  const auto masked = [](std::string head, std::string payload) {
    return head + std::string(4, '\0') + payload;
  };
  const std::vector<Case> cases = {
      {std::string("\x81\x01x", 3), 1002},                          // not masked
      {masked("\xc1\x81", "x"), 1002},                              // a reserved bit
      {masked("\x83\x81", "x"), 1002},                              // an unknown kind
      {masked(std::string("\x09\x80", 2), ""), 1002},               // a ping in parts
      {masked("\x80\x81", "x"), 1002},                              // goes on with nothing
      {masked("\x81\x82", "\xc3\x28"), 1007},                       // not UTF-8
      {masked(std::string("\x82\xfe\x00\x05", 4), "12345"), 1002},  // not the shortest length
      {masked(std::string("\x82\xff\x00\x00\x00\x00\x7f\xff\xff\xff", 10), ""), 1009},
      {masked(std::string("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10), ""), 1009},
  };
  ServerFixture f(echo_socket());
  for (const auto& each : cases) {
    RawClient c(f);
    c.send(
        "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
        "Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" +
        each.bytes);
    ASSERT_TRUE(f.run_until([&] { return c.pull(); })) << hex(each.bytes);
    const auto body = c.received.substr(c.received.find("\r\n\r\n") + 4);
    ASSERT_GE(body.size(), 4u) << hex(each.bytes);
    EXPECT_EQ(static_cast<unsigned char>(body[0]), 0x88);
    EXPECT_EQ(static_cast<unsigned char>(body[2]) << 8 | static_cast<unsigned char>(body[3]),
              each.code)
        << hex(each.bytes);
  }
}

TEST(WebSocket, FragmentsComeTogetherAndPingsInBetweenAreAnswered) {
  WsReader reader(WsReader::Role::client, 1000);
  const std::string wire =
      std::string("\x01\x02he", 4) + std::string("\x89\x01p", 3) + std::string("\x80\x03llo", 5);
  std::vector<std::pair<WsOp, std::string>> got;
  for (char c : wire) {
    reader.feed({&c, 1});
    for (auto m = reader.next(); m && *m; m = reader.next())
      got.emplace_back((*m)->op, (*m)->payload);
  }
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0], std::pair(WsOp::ping, std::string("p")));
  EXPECT_EQ(got[1], std::pair(WsOp::text, std::string("hello")));
}

TEST(WebSocket, ACallbackThatThrowsClosesItsSocketOnly) {
  ServerFixture f([](std::shared_ptr<Exchange> x) {
    auto ws = *x->upgrade_websocket({});
    ws->on_message([ws](std::string_view data, bool) {
      if (data == "throw")
        throw std::runtime_error("thrown on purpose");
      ws->send_text(data);
    });
  });
  auto client = *HttpClient::create(f.loop, {});
  auto bad = connect(f, *client), good = connect(f, *client);
  std::optional<WebSocket::Closed> closed;
  std::string got;
  bad->on_close([&](const WebSocket::Closed& c) { closed = c; });
  bad->on_message([](auto, bool) {});
  good->on_message([&](std::string_view data, bool) { got = data; });
  bad->send_text("throw");
  ASSERT_TRUE(f.run_until([&] { return closed.has_value(); }));
  EXPECT_EQ(closed->code, WebSocket::close_internal_error);
  good->send_text("still here");
  EXPECT_TRUE(f.run_until([&] { return got == "still here"; }));
}

TEST(WebSocket, APausedReaderHoldsMessagesBackAndLosesNone) {
  std::shared_ptr<WebSocket> server_side;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    server_side = *x->upgrade_websocket({.queue_bytes_max = 64 << 20});
  });
  auto client = *HttpClient::create(f.loop, {});
  auto ws = connect(f, *client);
  int got = 0;
  ws->on_message([&](std::string_view, bool) {
    if (++got == 3)
      ws->pause();
  });
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(server_side->send_binary(std::string(10'000, 'm')));
  ASSERT_TRUE(f.run_until([&] { return got == 3; }));
  bool later = false;
  Timer t = f.loop.after(milliseconds(30), [&] { later = true; });
  ASSERT_TRUE(f.run_until([&] { return later; }));
  EXPECT_EQ(got, 3);
  ws->resume();
  EXPECT_TRUE(f.run_until([&] { return got == 100; }));
  server_side.reset();  // a socket must not outlive its loop
}

TEST(WebSocket, TheServersEndClosesItsSockets) {
  ServerFixture f(echo_socket());
  auto client = *HttpClient::create(f.loop, {});
  auto ws = connect(f, *client);
  std::optional<WebSocket::Closed> closed;
  ws->on_message([](auto, bool) {});
  ws->on_close([&](const WebSocket::Closed& c) { closed = c; });
  f.server.reset();
  ASSERT_TRUE(f.run_until([&] { return closed.has_value(); }));
  EXPECT_EQ(closed->code, WebSocket::close_going_away);
}

TEST(WebSocket, AWrongUpgradeIsRefusedAsHttp) {
  ServerFixture f(echo_socket());
  RawClient c(f);
  c.send(
      "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nUpgrade: "
      "websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
      "short\r\n\r\n");
  EXPECT_TRUE(f.run_until([&] {
    c.pull();
    return occurrences(c.received, "HTTP/1.1 400") == 2;
  }));
}

TEST(WebSocket, TheBlockingClientEchoes) {
  ThreadedServer s(echo_socket());
  BlockingClient client({.endpoint = s.endpoint()});
  auto ws = client.websocket("/");
  ASSERT_TRUE(ws) << ws.error().message;
  const std::string large(900'000, 'B');
  ASSERT_TRUE(ws->send_text("hello"));
  ASSERT_TRUE(ws->send_binary(large));
  const auto first = ws->wait(patience);
  const auto second = ws->wait(patience);
  ASSERT_TRUE(first && *first && second && *second);
  EXPECT_EQ((*first)->data, "hello");
  EXPECT_EQ((*second)->data, large);
  ws->close(1000, "done");
  EXPECT_FALSE(ws->send_text("late"));
}

TEST(WebSocket, TheBlockingClientSaysWhyItWasRefused) {
  ThreadedServer s([](std::shared_ptr<Exchange> x) {
    x->respond(problem(Error{Code::invalid, "an array has no terminal", "name an element"}));
  });
  BlockingClient client({.endpoint = s.endpoint()});
  const auto ws = client.websocket("/");
  ASSERT_FALSE(ws);
  EXPECT_EQ(ws.error().code, Code::invalid);
  EXPECT_EQ(ws.error().message, "an array has no terminal");
  EXPECT_EQ(ws.error().hint, "name an element");
}

TEST(WebSocket, TheBlockingClientSeesTheServersGoodbye) {
  ThreadedServer s([](std::shared_ptr<Exchange> x) {
    auto ws = *x->upgrade_websocket({});
    ws->on_message([ws](std::string_view, bool) { ws->close(4321, "that is all"); });
  });
  BlockingClient client({.endpoint = s.endpoint()});
  auto ws = *client.websocket("/");
  ASSERT_TRUE(ws.send_text("x"));
  const auto message = ws.wait(patience);
  ASSERT_TRUE(message && *message);
  EXPECT_EQ((*message)->kind, BlockingWebSocket::Message::Kind::closed);
  EXPECT_EQ((*message)->close_code, 4321);
  EXPECT_EQ((*message)->data, "that is all");
}

}  // namespace billow::net
