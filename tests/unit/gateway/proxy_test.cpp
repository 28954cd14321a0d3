// The proxy over real sockets on one loop: framing, smuggling, streaming, backpressure, WebSockets,
// disconnects, limits in time.
#include "proxy_rig.h"

namespace billow::gateway {
namespace {

TEST(Proxy, PassesARequestAndItsAnswer) {
  Rig rig;
  const auto answer = rig.exchange(
      "POST /f/app/a/b?q=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12345");
  EXPECT_NE(answer.find("200 OK"), std::string::npos);
  EXPECT_NE(answer.find("hello 5"), std::string::npos);
  EXPECT_NE(answer.find("X-Request-Id: "), std::string::npos);
  ASSERT_EQ(rig.seen.size(), 1u);
  EXPECT_EQ(rig.seen[0], "POST /a/b?q=1 12345");
}

TEST(Proxy, SetsClientHeadersAndDropsTheClientsOwn) {
  Rig rig;
  EndpointPolicy open;
  open.access = EndpointAccess::open;
  rig.table(1, open);
  const auto answer = rig.exchange(
      "GET /f/app/headers HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 6.6.6.6\r\nX-Custom: "
      "yes\r\nX-Real-IP: 6.6.6.6\r\nTrue-Client-Ip: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\n"
      "Connection: X-Secret\r\nX-Secret: 1\r\nTE: trailers\r\n\r\n");
  EXPECT_NE(answer.find("X-Forwarded-For: 127.0.0.1"), std::string::npos);
  EXPECT_EQ(answer.find("6.6.6.6"), std::string::npos);
  EXPECT_NE(answer.find("X-Forwarded-Prefix: /f/app"), std::string::npos);
  EXPECT_NE(answer.find("X-Custom: yes"), std::string::npos);
  EXPECT_EQ(answer.find("X-Secret"), std::string::npos)
      << "named by Connection: it belongs to this hop";
  EXPECT_EQ(answer.find("TE: "), std::string::npos);
}

TEST(Proxy, RedirectsStayBelowTheEndpoint) {
  Rig rig;
  EXPECT_NE(rig.exchange("GET /f/app/redirect HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .find("Location: /f/app/there\r\n"),
            std::string::npos);
  EXPECT_NE(rig.exchange("GET /f/app/knows HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .find("Location: /f/app/there\r\n"),
            std::string::npos);
}

TEST(Proxy, PipelinedRequestsAreAnsweredInOrderOverOneConnection) {
  Rig rig;
  auto c = rig.client();
  std::string all;
  for (int i = 0; i < 20; ++i)
    all += fmt::format("POST /f/app/{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                       i, i, std::string(static_cast<std::size_t>(i), 'x'));
  c.send(all);
  ASSERT_TRUE(rig.run_until([&] { return c.has("hello 19"); }));
  EXPECT_EQ(occurrences(c.received, "200 OK"), 20u);
  std::size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    at = c.received.find(fmt::format("hello {}", i), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_EQ(rig.seen.size(), 20u);
}

TEST(Proxy, AChunkedBodyIsPassedOnInChunks) {
  Rig rig;
  EXPECT_NE(rig.exchange("POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                         "chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
                .find("hello 7"),
            std::string::npos);
  EXPECT_EQ(rig.seen.at(0), "POST /x abcdefg");
}

TEST(Proxy, HeadAndNoContentHaveNoBody) {
  Rig rig;
  auto c = rig.client();
  c.send(
      "HEAD /f/app/x HTTP/1.1\r\nHost: localhost\r\n\r\nGET /f/app/y HTTP/1.1\r\nHost: "
      "localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return c.has("hello 0"); }));
  EXPECT_EQ(occurrences(c.received, "hello"), 1u);
}

// Every case must be refused, and nothing of it may reach the replica: neither the request nor what
// is hidden behind it.
TEST(Proxy, SmugglingIsRefusedAndNothingReachesTheReplica) {
  const std::string hidden = "GET /f/app/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string cases[] = {
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: "
      "4\r\n\r\n0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: "
      "44\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: "
      "0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: +5\r\n\r\n12345" + hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5, 5\r\n\r\n12345" + hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x5\r\n\r\n12345" + hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
      "chunked\r\nTransfer-Encoding: "
      "identity\r\n\r\n0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, "
      "chunked\r\n\r\n0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nX: 1\r\n Transfer-Encoding: chunked\r\n\r\n" +
          hidden,
      "POST /f/app/x HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n" + hidden,
      "POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\n\r\n" + hidden,
      "GET /f/app/x HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n" + hidden,
      "GET /f/app/x HTTP/1.1\r\n\r\n" + hidden,
      "GET /f/app/x\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
      "GET /f/app/x HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n" + hidden,
      std::string("GET /f/app/x HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", 42) + hidden,
      "GET /f/app/x HTTP/2.0\r\nHost: localhost\r\n\r\n" + hidden,
      "GET  /f/app/x HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
      "CONNECT /f/app/x HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
      "TRACE /f/app/x HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
  };
  for (const auto& attack : cases) {
    SCOPED_TRACE(attack);
    Rig rig;
    auto c = rig.client();
    c.send(attack);
    ASSERT_TRUE(rig.run_until([&] { return c.has("HTTP/1.1 4") || c.has("HTTP/1.1 505"); }));
    c.end_writing();
    ASSERT_TRUE(rig.run_until([&] { return c.pull(); }));
    EXPECT_EQ(occurrences("\n" + c.received, "\nHTTP/1.1 "), 1u)
        << "one answer, then the connection ends";
    for (const auto& each : rig.seen)
      EXPECT_EQ(each.find("hidden"), std::string::npos);
  }
}

// A chunk that lies about its size breaks a request that has begun: the replica must not take the
// rest for another one.
TEST(Proxy, ABrokenChunkCutsTheRequestAndHidesNothing) {
  for (const std::string broken : {"3\r\nabcd\r\n0\r\n\r\n", "zz\r\nabc\r\n",
                                   "3;ext=1\r\nabc\r\n0\r\n\r\n", "ffffffffffffffff1\r\nabc",
                                   "3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n", "-1\r\nabc\r\n"}) {
    SCOPED_TRACE(broken);
    Rig rig;
    auto c = rig.client();
    c.send("POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
           broken + "GET /f/app/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(rig.run_until([&] { return c.has("HTTP/1.1 400"); }));
    c.end_writing();
    ASSERT_TRUE(rig.run_until([&] { return c.pull(); }));
    for (const auto& each : rig.seen)
      EXPECT_EQ(each.find("hidden"), std::string::npos);
  }
}

TEST(Proxy, HeaderFloodsAreCutOff) {
  Rig rig;
  std::string many = "GET /f/app/x HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 500; ++i)
    many += fmt::format("X-{}: y\r\n", i);
  EXPECT_NE(rig.exchange(many + "\r\n").find("431"), std::string::npos);
  EXPECT_NE(
      rig.exchange("GET /f/app/x HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(100'000, 'a'))
          .find("431"),
      std::string::npos);
  EXPECT_TRUE(rig.seen.empty());
}

TEST(Proxy, ASlowlorisGets408) {
  Proxy::Options options;
  options.header_timeout = milliseconds(50);
  options.body_idle_timeout = milliseconds(50);
  Rig rig(options);
  auto c = rig.client();
  c.send("GET /f/app/x HTTP/1.1\r\nHos");
  ASSERT_TRUE(rig.run_until([&] { return c.has("408"); }));
  auto d = rig.client();
  d.send("POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n123");
  EndpointPolicy quick;
  quick.timeout = milliseconds(100);
  rig.table(1, quick);
  auto e = rig.client();
  e.send("POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n123");
  ASSERT_TRUE(rig.run_until([&] { return e.has("408"); }));
  Proxy::Options slow;
  slow.body_grace = milliseconds(200);
  Rig whole(slow);
  auto f = whole.client();
  f.send("POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
  // Never idle, and never complete: a byte each millisecond. What is sent after the answer resets
  // the connection, and what was not read is lost with it.
  SteadyTime next;
  EXPECT_TRUE(whole.run_until([&] {
    if (f.has("408"))
      return true;
    if (const SteadyTime now = whole.app.loop.steady(); now >= next) {
      f.send("x");
      next = now + milliseconds(1);
    }
    return false;
  }));
  auto idle = rig.client();
  EXPECT_TRUE(rig.run_until([&] { return idle.pull(); }))
      << "a connection that says nothing is closed";
}

TEST(Proxy, AnAnswerThatNeverComesIsATypedTimeout) {
  Proxy::Options options;
  options.header_timeout = milliseconds(200);
  Rig rig(options);
  EndpointPolicy quick;
  quick.timeout = milliseconds(100);
  rig.table(1, quick);
  auto c = rig.client();
  c.send("GET /f/app/hang HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return c.has("HTTP/1.1 504"); }));
  EXPECT_TRUE(c.has("timed_out"));
  EXPECT_TRUE(rig.run_until([&] { return rig.gone; })) << "the replica's connection is closed too";
}

TEST(Proxy, EventsPassAsTheyCome) {
  Rig rig;
  auto c = rig.client();
  c.send("GET /f/app/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return rig.open && c.has("text/event-stream"); }));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.open->write(fmt::format("data: {}\n\n", i)));
    ASSERT_TRUE(rig.run_until([&] { return c.has(fmt::format("data: {}\n", i)); }));
  }
  rig.open->finish();
  ASSERT_TRUE(rig.run_until([&] { return c.has("\r\n0\r\n\r\n"); }));
}

TEST(Proxy, ADisconnectCancelsTheRequest) {
  Rig rig;
  auto c = rig.client();
  c.send("GET /f/app/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return rig.open && c.has("text/event-stream"); }));
  c.close();
  EXPECT_TRUE(rig.run_until([&] { return rig.gone; }));
  EXPECT_TRUE(rig.run_until([&] { return rig.gateway->find("app")->router.in_flight() == 0; }));
  EXPECT_EQ(rig.gateway->find("app")->totals.cancelled, 1u);
}

// More was sent than is read ahead of an answer: the client's end lies behind bytes that stay in
// the kernel.
TEST(Proxy, ADisconnectIsNoticedWhileReadingIsPaused) {
  for (const bool abrupt : {false, true}) {
    SCOPED_TRACE(abrupt);
    Rig rig;
    auto c = rig.client();
    c.send("GET /f/app/hang HTTP/1.1\r\nHost: localhost\r\n\r\n" + std::string(100'000, 'x'));
    ASSERT_TRUE(rig.run_until([&] { return rig.open != nullptr; }));
    c.send(std::string(30'000, 'x'));
    (void)rig.app.loop.run_until([] { return false; }, milliseconds(50));
    EXPECT_FALSE(rig.gone);
    c.hang_up(abrupt);
    EXPECT_TRUE(rig.run_until([&] { return rig.gone; })) << "the replica is told";
    EXPECT_TRUE(rig.run_until([&] { return rig.gateway->find("app")->router.in_flight() == 0; }));
    EXPECT_EQ(rig.gateway->find("app")->totals.cancelled, 1u);
    EXPECT_EQ(rig.gateway->proxy().connections(), 0u);
  }
}

TEST(Proxy, ADisconnectDuringAHeldBodyIsNoticed) {
  Rig rig;
  Table t;
  EndpointRow row{.name = "late"};
  row.serving = 1;
  t.endpoints = {row};
  rig.gateway->take_table(t);
  auto c = rig.client();
  c.send("POST /f/late/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n" +
         std::string(100'000, 'x'));
  ASSERT_TRUE(rig.run_until([&] { return rig.gateway->find("late")->router.held() == 1; }));
  (void)rig.app.loop.run_until([] { return false; }, milliseconds(50));
  c.hang_up(false);
  EXPECT_TRUE(rig.run_until([&] { return rig.gateway->find("late")->router.held() == 0; }));
  EXPECT_EQ(rig.gateway->proxy().connections(), 0u);
}

// A tunnel to a replica that is a bare socket, and does nothing by itself.
struct BareTunnel {
  Rig rig;
  net::Listener listener =
      std::move(*net::listen_on({.host = "127.0.0.1", .port = 0, .unix_path = {}}));
  std::vector<RawClient>
      links;  // the last is the tunnel, others may ask after the replica's health
  RawClient c = rig.client();
  BareTunnel() {
    Table t;
    EndpointRow row{.name = "bare"};
    row.serving = 1;
    row.policy.min = 1;
    row.replicas = {{.job = 3,
                     .revision = 1,
                     .address = listener.bound.text(),
                     .job_state = JobState::running,
                     .task_state = TaskState::running}};
    t.endpoints = {row};
    rig.gateway->take_table(t);
    rig.gateway->find("bare")->checked(3, Check::good, rig.app.loop.steady());
    c.send(
        "GET /f/bare/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "
        "websocket\r\n\r\n");
    EXPECT_TRUE(rig.run_until([&] {
      pollfd p{listener.fd.get(), POLLIN, 0};
      if (::poll(&p, 1, 0) == 1)
        links.emplace_back(
            Fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
      for (auto& link : links) {
        if (!link.has("Upgrade: websocket"))
          continue;
        link.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
            "websocket\r\n\r\n");
        std::swap(link, links.back());
        return true;
      }
      return false;
    }));
    EXPECT_TRUE(rig.run_until([&] { return c.has("101"); }));
  }
  std::size_t connections() { return rig.gateway->proxy().connections(); }
};

// What a client that only stopped sending has sent is kept for a replica that reads nothing; one
// that hung up is gone.
TEST(Proxy, ATunnelThatIsFullEndsWhenItsClientHangsUp) {
  BareTunnel tunnel;
  const std::string piece(64 << 10, 'z');
  int stuck = 0;
  ASSERT_TRUE(tunnel.rig.run_until([&] {
    const auto n = ::send(tunnel.c.fd(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    stuck = n > 0 ? 0 : stuck + 1;
    return stuck > 20;
  })) << "nothing in between swallows without end";
  tunnel.c.end_writing();
  (void)tunnel.rig.app.loop.run_until([] { return false; }, milliseconds(700));
  EXPECT_EQ(tunnel.connections(), 1u) << "the replica may still read it all";
  tunnel.c.hang_up(true);
  EXPECT_TRUE(tunnel.rig.run_until([&] { return tunnel.connections() == 0; }));
}

TEST(Proxy, AReplicaThatDoesNotHearOfATunnelsEndIsCutOff) {
  BareTunnel tunnel;
  tunnel.c.send("last words");
  tunnel.c.end_writing();
  ASSERT_TRUE(tunnel.rig.run_until([&] { return tunnel.links.back().pull(); }))
      << "the end is passed on";
  EXPECT_TRUE(tunnel.links.back().received.ends_with("last words"));
  tunnel.links.back().send("an answer to them");
  EXPECT_TRUE(tunnel.rig.run_until([&] { return tunnel.c.has("an answer to them"); }))
      << "a client that stopped sending may still read";
  tunnel.c.hang_up(false);
  EXPECT_TRUE(tunnel.rig.run_until([&] { return tunnel.connections() == 0; }))
      << "the replica says nothing and closes nothing";
}

TEST(Proxy, AReplicaThatDiesMidwayCutsTheAnswerSoThatTheClientCanTell) {
  Rig rig;
  auto c = rig.client();
  c.send("GET /f/app/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return rig.open && c.has("text/event-stream"); }));
  ASSERT_TRUE(rig.open->write("data: 1\n\n"));
  ASSERT_TRUE(rig.run_until([&] { return c.has("data: 1"); }));
  rig.open->abort();
  ASSERT_TRUE(rig.run_until([&] { return c.pull(); }));
  EXPECT_FALSE(c.received.ends_with("0\r\n\r\n"));
}

TEST(Proxy, WebSocketsPassThrough) {
  Rig rig;
  std::shared_ptr<net::WebSocket> socket;
  std::string got;
  net::ClientRequest request;
  request.endpoint = *net::parse_endpoint(rig.gateway->proxy().bound_addresses()[0]);
  request.target = "/f/app/ws";
  auto client = std::move(*net::HttpClient::create(rig.app.loop, {}));
  client->connect_websocket(request, {}, [&](Result<std::shared_ptr<net::WebSocket>> made) {
    ASSERT_TRUE(made) << made.error().message;
    socket = *made;
    socket->on_message([&](std::string_view m, bool) { got = m; });
    socket->send_text("one");
  });
  ASSERT_TRUE(rig.run_until([&] { return got == "echo one"; }));
  socket->send_text(std::string(300'000, 'x'));
  ASSERT_TRUE(rig.run_until([&] { return got.size() == 300'005; }));
  socket->close();
  EXPECT_TRUE(rig.run_until([&] { return rig.gateway->find("app")->router.in_flight() == 0; }));
}

TEST(Proxy, ASlowReaderHoldsItsReplicaBackInsteadOfFillingMemory) {
  Rig rig;
  auto c = rig.client();
  const int small = 4096;
  ::setsockopt(c.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  c.send("GET /f/app/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return rig.open != nullptr; }));
  const std::string piece(64 << 10, 'z');
  std::size_t taken = 0;
  ASSERT_TRUE(rig.run_until([&] {
    while (rig.open->write(piece))
      taken += piece.size();
    return rig.open->buffered() > (512 << 10);
  })) << "the replica's own buffer fills: nothing in between swallows without end";
  EXPECT_LT(taken, std::size_t{64} << 20);
  // With so small a window the kernel sends a few kilobytes at a time, after a pause; the rest may
  // come faster.
  const int large = 1 << 20;
  ::setsockopt(c.fd(), SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
  std::size_t got = 0;
  rig.open->on_drain([&] { (void)rig.open->write("THE END"); });
  ASSERT_TRUE(rig.run_until([&] {
    c.pull();
    got += c.received.size();
    const bool end = c.received.find("THE END") != std::string::npos;
    if (c.received.size() > 16)
      c.received.erase(0, c.received.size() - 16);
    return end || c.received.find("THE END") != std::string::npos;
  }));
  EXPECT_GE(got, taken);
}

TEST(Proxy, KeysAreAskedForAndNotPassedOn) {
  Rig rig;
  EndpointPolicy keyed;
  keyed.access = EndpointAccess::key;
  Table t;
  EndpointRow row{.name = "app"};
  row.serving = 1;
  row.policy = keyed;
  row.policy.min = 1;
  row.keys = {sha256_hex("the-key")};
  row.replicas = {{.job = 1,
                   .revision = 1,
                   .address = rig.app.server->bound_addresses()[0],
                   .job_state = JobState::running,
                   .task_state = TaskState::running}};
  t.endpoints = {row};
  rig.gateway->take_table(t);
  EXPECT_NE(rig.exchange("GET /f/app/headers HTTP/1.1\r\nHost: localhost\r\n\r\n").find("401"),
            std::string::npos);
  EXPECT_NE(rig.exchange("GET /f/app/headers HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                         "wrong\r\n\r\n")
                .find("401"),
            std::string::npos);
  for (const std::string header : {"Authorization: Bearer the-key", "X-Api-Key: the-key",
                                   "Authorization: Basic "
                                   "dTp0aGUta2V5"}) {
    const auto answer =
        rig.exchange("GET /f/app/headers HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n\r\n");
    EXPECT_NE(answer.find("200 OK"), std::string::npos) << header;
    EXPECT_EQ(answer.find("the-key"), std::string::npos);
    EXPECT_EQ(answer.find("Authorization"), std::string::npos);
    // A browser sends what was typed into its sign-in dialog with the calls of every page.
    const auto page = rig.exchange(
        "POST /f/app/headers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
        "Origin: https://evil.example\r\n" +
        header + "\r\n\r\n");
    EXPECT_EQ(page.substr(9, 3), header.find("Basic") == std::string::npos ? "200" : "403")
        << header;
  }
}

TEST(Proxy, AnOpenEndpointGetsItsOwnCredentialsButNoKeyOfAnother) {
  Rig rig;
  EndpointPolicy open;
  open.access = EndpointAccess::open;
  rig.table(1, open);
  const auto seen = [&](const std::string& value) {
    return rig.exchange(
        "GET /f/app/headers HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + value + "\r\n\r\n");
  };
  for (const std::string own : {"Bearer of-the-app", "Basic dXNlcjpwYXNzd29yZA=="})
    EXPECT_NE(seen(own).find("Authorization: " + own), std::string::npos) << own;
  for (const std::string key : {"Bearer bwk_abc", "Basic eDpid2tfYWJj"})
    EXPECT_EQ(seen(key).find("Authorization"), std::string::npos) << key;
}

// What a browser or a proxy on this machine passes on is not a call of its user.
TEST(Proxy, OnlyItsOwnUsersCallALocalEndpointWithoutAKey) {
  Rig rig;  // the caller runs as the gateway does
  const auto status = [&](const std::string& headers) {
    return rig.exchange("GET /f/app/headers HTTP/1.1\r\n" + headers + "\r\n").substr(9, 3);
  };
  EXPECT_EQ(status("Host: 127.0.0.1:7071\r\n"), "200");
  EXPECT_EQ(status("Host: [::1]:7071\r\n"), "200");
  EXPECT_EQ(status("Host: LOCALHOST\r\n"), "200");
  EXPECT_EQ(rig.exchange("GET /f/app/headers HTTP/1.0\r\n\r\n").substr(9, 3), "200");
  EXPECT_EQ(status("Host: evil.example\r\n"), "421");
  EXPECT_EQ(status("Host: evil.example\r\nOrigin: http://evil.example\r\n"), "421");
  EXPECT_EQ(status("Host: 127.0.0.1.evil.example\r\n"), "421");
  EXPECT_EQ(status("Host: localhost\r\nOrigin: http://evil.example\r\n"), "403");
  for (const char* passed_on : {"X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1",
                                "Via: 1.1 p", "X-Real-IP: 127.0.0.1", "X-Forwarded-For: 127.0.0.1"})
    EXPECT_EQ(status(fmt::format("Host: localhost\r\n{}\r\n", passed_on)), "401") << passed_on;
}

TEST(Proxy, CorsForTheOriginsThatWereNamed) {
  Rig rig;
  EndpointPolicy policy;
  policy.cors = {"https://a.example"};
  rig.table(1, policy);
  const auto yes = rig.exchange(
      "OPTIONS /f/app/x HTTP/1.1\r\nHost: localhost\r\nOrigin: "
      "https://a.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  EXPECT_NE(yes.find("204"), std::string::npos);
  for (const std::string origin : {"https://a.example", "https://evil.example"})
    EXPECT_EQ(rig.exchange("OPTIONS /v1/x HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin +
                           "\r\nAccess-Control-Request-Method: POST\r\n\r\n")
                  .substr(9, 3),
              origin == "https://a.example" ? "204" : "403");
  EXPECT_NE(yes.find("Access-Control-Allow-Origin: https://a.example"), std::string::npos);
  EXPECT_NE(
      rig.exchange("GET /f/app/x HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\n\r\n")
          .find("Access-Control-Allow-Origin: https://a.example"),
      std::string::npos);
  EXPECT_NE(
      rig.exchange(
             "GET /f/app/x HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n")
          .find("403"),
      std::string::npos);
}

// Random bytes made out of pieces of HTTP: whatever comes, the proxy answers or closes, and goes on
// serving others.
TEST(Proxy, SurvivesWhateverIsSentToIt) {
  static constexpr std::string_view pieces[] = {"GET ",
                                                "POST ",
                                                "/f/app/x",
                                                " HTTP/1.1",
                                                "\r\n",
                                                "\r\n\r\n",
                                                "Host: localhost",
                                                "Content-Length: 5",
                                                "Transfer-Encoding: chunked",
                                                "0\r\n\r\n",
                                                "5\r\nhello\r\n",
                                                "\n",
                                                "\r",
                                                ":",
                                                " ",
                                                "\t",
                                                "Connection: close",
                                                "Connection: upgrade",
                                                "Upgrade: websocket",
                                                "Expect: 100-continue",
                                                "ffff\r\n",
                                                "HTTP/1.0",
                                                "\x00",
                                                "/",
                                                "%00",
                                                "Prefer: respond-async"};
  Rig rig;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    auto c = rig.client();
    std::string bytes = rng.below(2) == 0 ? "GET /f/app/x HTTP/1.1\r\nHost: localhost\r\n" : "";
    const auto n = 1 + rng.below(30);
    for (std::uint64_t i = 0; i < n; ++i)
      bytes += pieces[rng.below(std::size(pieces))];
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t take = std::min<std::size_t>(1 + rng.below(40), bytes.size() - at);
      c.send(std::string_view(bytes).substr(at, take));
      at += take;
      if (rng.below(4) == 0)
        (void)rig.app.loop.run_until([&] { return c.pull(); }, milliseconds(1));
    }
    if (rng.below(2) == 0)
      c.end_writing();
    else
      c.close();
    if (rng.below(8) == 0) {
      const auto answer = rig.exchange("GET /f/app/still HTTP/1.1\r\nHost: localhost\r\n\r\n");
      ASSERT_NE(answer.find("hello 0"), std::string::npos) << answer;
    }
  }
  EXPECT_TRUE(
      rig.run_until([&] { return rig.gateway->find("app")->router.in_flight() == 0 || rig.open; }));
}

}  // namespace
}  // namespace billow::gateway
