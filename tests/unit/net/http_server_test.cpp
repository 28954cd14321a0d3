#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net_test_support.h"

namespace billow::net {

Handler echo_path() {
  return [](std::shared_ptr<Exchange> x) {
    x->respond(Response::text(200, x->request().path));
  };
}

TEST(HttpServer, KeepsTheConnectionAndAnswersInOrder) {
  ServerFixture f(echo_path());
  RawClient c(f);
  c.send("GET /one HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("/one"); }));
  c.send(
      "GET /two HTTP/1.1\r\nHost: x\r\n\r\nGET /three HTTP/1.1\r\nHost: x\r\n\r\nGET /four "
      "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.pull(); }));
  EXPECT_EQ(occurrences(c.received, "HTTP/1.1 200 OK"), 4u);
  EXPECT_LT(c.received.find("/two"), c.received.find("/three"));
  EXPECT_LT(c.received.find("/three"), c.received.find("/four"));
  EXPECT_EQ(occurrences(c.received, "Connection: close"), 1u);
}

TEST(HttpServer, PipelinedRequestsWaitForALateAnswer) {
  std::vector<std::shared_ptr<Exchange>> waiting;
  ServerFixture f([&](std::shared_ptr<Exchange> x) { waiting.push_back(std::move(x)); });
  RawClient c(f);
  c.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return waiting.size() == 1; }));
  EXPECT_EQ(waiting[0]->request().path, "/1");
  waiting[0]->respond(Response::text(200, "first"));
  ASSERT_TRUE(f.run_until([&] { return waiting.size() == 2; }));
  waiting[1]->respond(Response::text(200, "second"));
  ASSERT_TRUE(f.run_until([&] { return c.has("second"); }));
  EXPECT_LT(c.received.find("first"), c.received.find("second"));
}

// It has sent more ahead of its answer than is read: the stream is not in the poll, and its end
// must be asked for.
TEST(HttpServer, ADisconnectIsNoticedWhileReadingIsPaused) {
  for (const bool streaming : {false, true})
    for (const bool abrupt : {false, true}) {
      SCOPED_TRACE(
          fmt::format("{} {}", streaming ? "streaming" : "waiting", abrupt ? "reset" : "ended"));
      std::shared_ptr<Exchange> open;
      bool gone = false;
      ServerFixture f([&](std::shared_ptr<Exchange> x) {
        x->on_close([&] { gone = true; });
        if (streaming)
          x->start_stream(200, {{"Content-Type", "text/event-stream"}});
        open = std::move(x);
      });
      RawClient c(f);
      c.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n" +
             std::string(limits::http_pipelined_bytes_max + 30'000, 'x'));
      ASSERT_TRUE(f.run_until([&] { return open != nullptr; }));
      c.send(std::string(30'000, 'x'));
      (void)f.loop.run_until([] { return false; }, milliseconds(50));
      EXPECT_FALSE(gone);
      c.hang_up(abrupt);
      EXPECT_TRUE(f.run_until([&] { return gone; }));
      open.reset();
    }
}

TEST(HttpServer, HeadHasALengthAndNoBody) {
  ServerFixture f(echo_path());
  RawClient c(f);
  c.send(
      "HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\nGET /z HTTP/1.1\r\nHost: x\r\nConnection: "
      "close\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.pull(); }));
  EXPECT_NE(c.received.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_EQ(c.received.find("/abc"), std::string::npos);
}

TEST(HttpServer, Http10ClosesUnlessAskedNotTo) {
  ServerFixture f(echo_path());
  RawClient c(f);
  c.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("Connection: keep-alive"); }));
  c.send("GET /b HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.pull(); }));
  EXPECT_NE(c.received.find("/b"), std::string::npos);
}

TEST(HttpServer, DecodesTargetAndQuery) {
  Request seen;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    seen = x->request();
    x->respond({});
  });
  RawClient c(f);
  c.send(
      "GET /a%20b/c%2Fd?x=1&y=a+b%21&flag&x=2 HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("X-Request-Id: mine-1"); }));
  EXPECT_EQ(seen.path, "/a b/c%2Fd");
  EXPECT_EQ(seen.param("x"), "1");
  EXPECT_EQ(seen.param("y"), "a b!");
  EXPECT_TRUE(seen.has_param("flag"));
  EXPECT_EQ(seen.request_id, "mine-1");
  EXPECT_EQ(seen.query.size(), 4u);
}

TEST(HttpServer, AHandlerThatThrowsOrForgetsGivesA500AndTheServerGoesOn) {
  ServerFixture f([](std::shared_ptr<Exchange> x) {
    if (x->request().path == "/throw")
      throw std::runtime_error("boom");
    if (x->request().path == "/odd")
      throw 7;
    if (x->request().path == "/ok")
      x->respond(Response::text(200, "fine"));
  });
  RawClient c(f);
  c.send(
      "GET /throw HTTP/1.1\r\nHost: x\r\n\r\nGET /odd HTTP/1.1\r\nHost: x\r\n\r\nGET /forget "
      "HTTP/1.1\r\nHost: x\r\n\r\nGET /ok HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("fine"); }));
  EXPECT_EQ(occurrences(c.received, "HTTP/1.1 500"), 3u);
  EXPECT_EQ(c.received.find("boom"), std::string::npos) << "what a defect says is for the log";
}

TEST(HttpServer, ChunkedAndLengthBodiesArrive) {
  std::vector<std::string> bodies;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    bodies.push_back(x->request().body);
    x->respond({});
  });
  RawClient c(f);
  for (char ch :
       std::string_view("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                        "chunked\r\n\r\n5\r\nhello\r\nA\r\n, chunked!\r\n0\r\nX-T: 1\r\n\r\n"
                        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")) {
    c.send(std::string_view(&ch, 1));
    f.loop.run_until([] { return false; }, microseconds(1));
  }
  ASSERT_TRUE(f.run_until([&] { return bodies.size() == 2; }));
  EXPECT_EQ(bodies[0], "hello, chunked!");
  EXPECT_EQ(bodies[1], "abc");
}

TEST(HttpServer, ExpectContinueIsAnsweredBeforeTheBody) {
  ServerFixture f([](std::shared_ptr<Exchange> x) {
    x->respond(Response::text(200, "got " + x->request().body));
  });
  RawClient c(f);
  c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("100 Continue\r\n\r\n"); }));
  c.send("data");
  ASSERT_TRUE(f.run_until([&] { return c.has("got data"); }));
}

TEST(HttpServer, TooLargeABodyIsRefusedBeforeItIsRead) {
  int handled = 0;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    ++handled;
    x->respond({});
  });
  RawClient c(f);
  c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("HTTP/1.1 413"); }));
  EXPECT_NE(c.received.find("application/problem+json"), std::string::npos);
  EXPECT_EQ(c.received.find("100 Continue"), std::string::npos);

  RawClient chunked(f);
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string piece = "100000\r\n" + std::string(0x100000, 'x') + "\r\n";
  std::string left;
  int sent = 0;
  ASSERT_TRUE(f.run_until([&] {
    if (left.empty() && sent++ < 10)
      left = piece;
    const auto n = ::send(chunked.fd(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
      left.erase(0, static_cast<std::size_t>(n));
    return chunked.has("HTTP/1.1 413");
  }));
  EXPECT_EQ(handled, 0);
}

TEST(HttpServer, APolicyMayTakeLargeBodiesPieceByPiece) {
  auto total = std::make_shared<std::uint64_t>(0);
  std::uint64_t handled = 0;
  HttpServer::Options o;
  o.body_policy = [&](const Request& head) -> Result<BodyPlan> {
    if (head.path == "/no")
      return fail(Code::forbidden, "not here");
    BodyPlan plan;
    plan.bytes_max = 64 << 20;
    plan.on_chunk = [total](std::string_view piece) -> Status {
      *total += piece.size();
      return {};
    };
    plan.attachment = total;
    return plan;
  };
  ServerFixture f(
      [&](std::shared_ptr<Exchange> x) {
        EXPECT_TRUE(x->request().body.empty());
        handled = *std::any_cast<std::shared_ptr<std::uint64_t>>(x->request().attachment);
        x->respond({});
      },
      o);
  auto client = *HttpClient::create(f.loop, {});
  ASSERT_TRUE(fetch(f, *client,
                    {.endpoint = f.endpoint(),
                     .method = Method::put,
                     .target = "/up",
                     .body = std::string(20 << 20, 'u')}));
  EXPECT_EQ(handled, 20u << 20);
  const auto refused = fetch(f, *client,
                             {.endpoint = f.endpoint(),
                              .method = Method::put,
                              .target = "/no",
                              .body = std::string(1000, 'u')});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 403);
}

TEST(HttpServer, HeaderFloodsGet431) {
  ServerFixture f(echo_path());
  for (const std::string& flood :
       {"GET /" + std::string(40000, 'a') + " HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(40000, 'b'), [] {
          std::string s = "GET / HTTP/1.1\r\nHost: x\r\n";
          for (int i = 0; i < 200; ++i)
            s += "a: b\r\n";
          return s + "\r\n";
        }()}) {
    RawClient c(f);
    c.send(flood);
    ASSERT_TRUE(f.run_until([&] { return c.pull(); }));
    EXPECT_TRUE(c.received.starts_with("HTTP/1.1 431")) << c.received;
  }
}

TEST(HttpServer, SlowHeadersAndBodiesGet408AndIdleOnesAreClosed) {
  HttpServer::Options o;
  // Long enough that a busy machine has read what was sent before the time is over.
  o.header_timeout = o.body_idle_timeout = o.idle_timeout = milliseconds(400);
  ServerFixture f(echo_path(), o);
  RawClient head(f), body(f), idle(f), silent(f);
  head.send("GET / HTTP/1.1\r\nHos");
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  idle.send("GET /i HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return head.pull() & body.pull() & idle.pull() & silent.pull(); }));
  EXPECT_TRUE(head.received.starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(body.received.starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(idle.received.starts_with("HTTP/1.1 200"));
  EXPECT_EQ(silent.received, "");
}

TEST(HttpServer, StreamsChunksAndFinishes) {
  std::shared_ptr<Exchange> stream;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    x->start_stream(200, {{"Content-Type", "text/event-stream"}});
    stream = x;
  });
  RawClient c(f);
  c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("Transfer-Encoding: chunked"); }));
  EXPECT_TRUE(stream->write("hello"));
  ASSERT_TRUE(f.run_until([&] { return c.has("5\r\nhello\r\n"); }));
  stream->finish();
  EXPECT_FALSE(stream->write("late"));
  ASSERT_TRUE(f.run_until([&] { return c.has("0\r\n\r\n"); }));
  c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] {
    c.pull();
    return occurrences(c.received, "200 OK") == 2;
  })) << "the connection is used again";
  stream.reset();
  ASSERT_TRUE(f.run_until([&] { return c.pull(); })) << "a stream dropped unfinished is cut";
}

TEST(HttpServer, AFullStreamBufferRefusesAndDrains) {
  std::shared_ptr<Exchange> stream;
  bool drained = false;
  HttpServer::Options o;
  o.stream_buffer_bytes_max = 64 << 10;
  ServerFixture f(
      [&](std::shared_ptr<Exchange> x) {
        x->start_stream(200, {});
        x->on_drain([&] { drained = true; });
        stream = x;
      },
      o);
  RawClient c(f);
  c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return stream != nullptr; }));
  const std::string piece(8 << 10, '~');
  std::size_t taken = 0;
  while (stream->write(piece)) {
    taken += piece.size();
    ASSERT_LT(taken, 64u << 20) << "the buffer has no end";
    ASSERT_LE(stream->buffered(), (64u << 10) + 64);
  }
  EXPECT_FALSE(drained);
  ASSERT_TRUE(f.run_until([&] {
    c.pull();
    return drained;
  }));
  EXPECT_TRUE(stream->write(piece));
  stream->finish();
  ASSERT_TRUE(f.run_until([&] { return c.has("0\r\n\r\n"); }));
  EXPECT_EQ(occurrences(c.received, "~"), taken + piece.size())
      << "what was accepted arrives, exactly once";
}

TEST(HttpServer, AVanishedFollowerIsNoticed) {
  int gone = 0;
  std::vector<std::shared_ptr<Exchange>> open;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    if (x->request().path == "/stream")
      x->start_stream(200, {});
    x->on_close([&] { ++gone; });
    open.push_back(x);
  });
  RawClient a(f), b(f);
  a.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  b.send("GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return open.size() == 2; }));
  a.close();
  b.close();
  ASSERT_TRUE(f.run_until([&] { return gone == 2; }));
  for (auto& x : open) {
    EXPECT_FALSE(x->open());
    x->respond({});
  }
  open.clear();
  EXPECT_TRUE(f.run_until([&] { return f.server->connections() == 0; }));
}

TEST(HttpServer, AClientThatEndsItsSideStillGetsItsAnswer) {
  std::shared_ptr<Exchange> x;
  ServerFixture f([&](std::shared_ptr<Exchange> e) { x = std::move(e); });
  RawClient c(f);
  c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  c.end_writing();
  ASSERT_TRUE(f.run_until([&] { return x && !x->open(); }));
  x->respond(Response::text(200, "still here"));
  EXPECT_TRUE(f.run_until([&] { return c.has("still here") && c.pull(); }));
}

TEST(HttpServer, AReaderThatTakesNothingIsCut) {
  HttpServer::Options o;
  o.write_stall_timeout = milliseconds(80);
  bool gone = false;
  std::shared_ptr<Exchange> stream;
  ServerFixture f(
      [&](std::shared_ptr<Exchange> x) {
        x->start_stream(200, {});
        x->on_close([&] { gone = true; });
        while (x->write(std::string(64 << 10, 's'))) {}
        stream = x;
      },
      o);
  RawClient c(f);
  c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(f.run_until([&] { return gone; }));
}

TEST(HttpServer, ConnectionsAreLimited) {
  HttpServer::Options o;
  o.limits.connections_max = 2;
  o.limits.unix_reserve = o.limits.nodes_reserve = 0;
  std::vector<std::shared_ptr<Exchange>> held;
  ServerFixture f([&](std::shared_ptr<Exchange> x) { held.push_back(std::move(x)); }, o);
  RawClient a(f), b(f);
  a.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  b.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return held.size() == 2; }));
  RawClient c(f);
  ASSERT_TRUE(f.run_until([&] { return c.pull(); }));
  EXPECT_TRUE(c.received.starts_with("HTTP/1.1 503"));
  held.erase(held.begin());
  RawClient d(f);
  d.send("GET /d HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(f.run_until([&] { return held.size() == 2; }))
      << "a connection without a request is dropped for a new one";
  held.clear();
}

TEST(HttpServer, ATakenAddressIsAConflictThatSaysWhich) {
  ServerFixture f(echo_path());
  const auto address = f.server->bound_addresses()[0];
  const auto second = HttpServer::create(f.loop, {.listen = {address}}, echo_path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::conflict);
  EXPECT_NE(second.error().message.find(address), std::string::npos);
  EXPECT_NE(second.error().hint.find("--listen"), std::string::npos);
}

TEST(HttpServer, AcceptedSocketsInheritWhatWasSetOnTheListener) {
  auto listener = *listen_on(*parse_address("127.0.0.1:0"));
  auto client = *start_connect(resolve(listener.bound)->front());
  pollfd p{listener.fd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&p, 1, 5000), 1);
  Fd accepted(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (const auto& [level, option] : {std::pair<int, int>(IPPROTO_TCP, TCP_NODELAY),
                                      {SOL_SOCKET, SO_KEEPALIVE},
                                      {IPPROTO_TCP, TCP_USER_TIMEOUT}}) {
    int value = 0;
    socklen_t length = sizeof value;
    ASSERT_EQ(::getsockopt(accepted.get(), level, option, &value, &length), 0);
    EXPECT_GT(value, 0) << option;
  }
}

TEST(HttpServer, UnixSocketsArePrivateAndReplaceStaleOnes) {
  TempDir dir;
  const std::string path = dir / "s.sock";
  {
    auto stale = listen_on({.unix_path = path});
    ASSERT_TRUE(stale);
  }  // the file stays behind
  ASSERT_TRUE(file_exists(path));
  std::optional<unsigned> uid;
  ServerFixture f(
      [&](std::shared_ptr<Exchange> x) {
        uid = x->request().peer_uid;
        x->respond(Response::text(200, "unix"));
      },
      {.listen = {"unix:" + path}});
  ASSERT_TRUE(f.server);
  const auto mode = std::filesystem::status(path).permissions();
  EXPECT_EQ(static_cast<unsigned>(mode), 0600u);
  auto client = *HttpClient::create(f.loop, {});
  const auto answer = fetch(f, *client, {.endpoint = f.endpoint()});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "unix");
  EXPECT_EQ(uid, ::getuid());
  const auto second = HttpServer::create(f.loop, {.listen = {"unix:" + path}}, echo_path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::conflict);
  f.server.reset();
  EXPECT_FALSE(file_exists(path));
}

TEST(HttpServer, AnswerHeadersCannotSplitTheResponse) {
  ServerFixture f([](std::shared_ptr<Exchange> x) {
    x->respond({200, {{"X-Bad", "a\r\nSet-Cookie: evil=1"}, {"X-Good", "b"}}, "ok"});
  });
  RawClient c(f);
  c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return c.has("ok"); }));
  EXPECT_EQ(c.received.find("evil"), std::string::npos);
  EXPECT_NE(c.received.find("X-Good: b"), std::string::npos);
}

TEST(HttpServer, StopListeningAnswersRunningRequests) {
  std::shared_ptr<Exchange> x;
  ServerFixture f([&](std::shared_ptr<Exchange> e) { x = std::move(e); });
  RawClient busy(f), idle(f);
  busy.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return x != nullptr && f.server->connections() == 2; }));
  f.server->stop_listening();
  EXPECT_TRUE(f.run_until([&] { return idle.pull(); }));
  x->respond(Response::text(200, "last"));
  EXPECT_TRUE(f.run_until([&] { return busy.has("last") && busy.pull(); }));
}

}  // namespace billow::net
