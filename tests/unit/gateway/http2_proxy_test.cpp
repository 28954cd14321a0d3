// HTTP/2 through the proxy, over real sockets: clients that speak it to replicas of either kind.
#include "http2_rig.h"

#include <sys/resource.h>

namespace billow::gateway {
namespace {

using Id = net::Http2Session::StreamId;

TEST(Http2Proxy, PassesARequestAndItsAnswer) {
  Rig rig;
  Http2Client client(rig);
  const Id id =
      client.ask(h2::request("POST", "/f/app/a/b?q=1", {{"content-length", "5"}}), "12345");
  ASSERT_TRUE(client.finished(id));
  EXPECT_EQ(client.answers[id].status, 200);
  EXPECT_EQ(client.answers[id].body, "hello 5");
  EXPECT_FALSE(client.answers[id].headers.get("x-request-id").empty());
  EXPECT_FALSE(client.answers[id].headers.has("transfer-encoding"));
  ASSERT_EQ(rig.seen.size(), 1u);
  EXPECT_EQ(rig.seen[0], "POST /a/b?q=1 12345");
}

TEST(Http2Proxy, ARequestAloneOnItsConnectionIsBookedAsAnswered) {
  Rig rig;
  Http2Client client(rig);
  for (int i = 0; i < 3; ++i) {
    const Id id = client.get("/f/app/x");
    ASSERT_TRUE(client.finished(id));
    EXPECT_EQ(client.answers[id].status, 200);
  }
  const Id refused = client.get("/f/nobody/x");
  ASSERT_TRUE(client.finished(refused));
  EXPECT_EQ(client.answers[refused].status, 404);
  const auto& totals = rig.gateway->find("app")->totals;
  EXPECT_EQ(totals.requests, 3u);
  EXPECT_EQ(totals.cancelled, 0u);
}

TEST(Http2Proxy, AClientThatResetsItsRequestIsBookedAsGone) {
  Rig rig;
  Http2Client client(rig);
  const Id id = client.get("/f/app/hang");
  ASSERT_TRUE(client.until([&] { return rig.open != nullptr; }));
  client.session.reset(id, net::Http2Error::cancel);
  ASSERT_TRUE(client.until([&] { return rig.gone; }));
  EXPECT_EQ(rig.gateway->find("app")->totals.cancelled, 1u);
}

TEST(Http2Proxy, ABodyWithoutALengthIsPassedOnInChunks) {
  Rig rig;
  Http2Client client(rig);
  const Id id = client.ask(h2::request("POST", "/f/app/x"), "abc", false);
  ASSERT_TRUE(client.until([&] { return client.session.queued(id) == 0; }));
  client.session.send(id, "defg");
  client.session.finish(id);
  ASSERT_TRUE(client.finished(id));
  EXPECT_EQ(client.answers[id].body, "hello 7");
  EXPECT_EQ(rig.seen.at(0), "POST /x abcdefg");
}

TEST(Http2Proxy, ManyStreamsShareAConnection) {
  Rig rig;
  Http2Client client(rig);
  std::vector<Id> all;
  for (int i = 0; i < 80; ++i)
    all.push_back(client.ask(h2::request("POST", fmt::format("/f/app/{}", i)),
                             std::string(static_cast<std::size_t>(i), 'x')));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(client.finished(all[i])) << i;
    EXPECT_EQ(client.answers[all[i]].body, fmt::format("hello {}", i));
  }
  EXPECT_EQ(rig.seen.size(), 80u);
}

TEST(Http2Proxy, RewritesHeadersAsForHttp1) {
  Rig rig;
  EndpointPolicy open;
  open.access = EndpointAccess::open;
  rig.table(1, open);
  Http2Client client(rig);
  const Id id = client.ask(h2::request("GET", "/f/app/headers",
                                       {{"x-forwarded-for", "6.6.6.6"},
                                        {"x-custom", "yes"},
                                        {"te", "trailers"},
                                        {"cookie", "billow_session=secret"},
                                        {"cookie", "a=1"},
                                        {"authorization", "Bearer bwk_secret"}}));
  ASSERT_TRUE(client.finished(id));
  const auto& body = client.answers[id].body;
  EXPECT_NE(body.find("Host: localhost\n") != body.npos || body.find("host: localhost\n") != 0, 0);
  EXPECT_EQ(body.find("6.6.6.6"), body.npos);
  EXPECT_EQ(body.find("secret"), body.npos);
  EXPECT_EQ(body.find("trailers"), body.npos);
  EXPECT_NE(body.find("cookie: a=1\n"), body.npos) << body;
  EXPECT_NE(body.find("x-custom: yes\n"), body.npos);
  EXPECT_NE(body.find("X-Forwarded-Prefix: /f/app\n"), body.npos);
  EXPECT_EQ(occurrences(body, "ost: localhost\n"), 2u) << "Host and X-Forwarded-Host";
}

TEST(Http2Proxy, HeadHasNoBodyAndRedirectsStayBelowTheEndpoint) {
  Rig rig;
  Http2Client client(rig);
  const Id head = client.ask(h2::request("HEAD", "/f/app/x"));
  const Id redirect = client.get("/f/app/redirect");
  ASSERT_TRUE(client.finished(head) && client.finished(redirect));
  EXPECT_EQ(client.answers[head].status, 200);
  EXPECT_EQ(client.answers[head].body, "");
  EXPECT_EQ(client.answers[redirect].headers.get("location"), "/f/app/there");
}

TEST(Http2Proxy, AnswersOfTheGatewayItself) {
  Rig rig;
  Http2Client client(rig);
  const Id missing = client.get("/f/none/x"), trace = client.ask(h2::request("TRACE"));
  const Id bad = client.get("/f/app/a b");
  ASSERT_TRUE(client.finished(missing) && client.finished(trace) && client.finished(bad));
  EXPECT_EQ(client.answers[missing].status, 404);
  EXPECT_NE(client.answers[missing].body.find("no endpoint is named"), std::string::npos);
  EXPECT_EQ(client.answers[trace].status, 405);
  EXPECT_TRUE(client.answers[bad].status == 400 ||
              client.answers[bad].error != net::Http2Error::none);
  EXPECT_TRUE(rig.seen.empty());
  const Id good = client.get("/f/app/x");
  ASSERT_TRUE(client.finished(good)) << "the connection goes on";
  EXPECT_EQ(client.answers[good].status, 200);
}

// Whatever is refused must not reach the replica, nor may anything hidden in it.
TEST(Http2Proxy, NothingIsSmuggledIntoHttp1) {
  using namespace std::string_literals;
  const auto with = [](std::string name, std::string value) {
    return h2::head(1, h2::request("POST", "/f/app/x", {{std::move(name), std::move(value)}}),
                    false) +
           h2::frame(h2::data, h2::end_stream, 1, "0\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n");
  };
  const std::string cases[] = {
      with("transfer-encoding", "chunked"),
      with("x", "a\r\nTransfer-Encoding: chunked"),
      with("x", "a\nContent-Length: 0"),
      with("x", "a\0b"s),
      with("connection", "x-request-id"),
      with("content-length", "0"),
      with("content-length", "3"),
      with("content-length", "9999"),
      with("host", "other"),
      with("te", "chunked"),
      h2::head(1, h2::request("POST", "/f/app/x HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET /hidden")),
      h2::head(1, h2::request("GET /f/app/hidden HTTP/1.1\r\nX: ", "/f/app/x")),
      h2::head(1, h2::request("GET", "/f/app/x", {{":path", "/f/app/hidden"}})),
  };
  for (const auto& bytes : cases) {
    Rig rig;
    auto c = rig.client();
    c.send(h2::preface() + bytes);
    ASSERT_TRUE(rig.run_until([&] {
      c.pull();
      const auto frames = h2::read(c.received);
      return c.closed || h2::first(frames, h2::rst_stream, 1) || h2::first(frames, h2::headers, 1);
    })) << bytes;
    (void)rig.app.loop.run_until([] { return false; }, milliseconds(10));
    for (const auto& seen : rig.seen)
      ADD_FAILURE() << "the replica was sent: " << seen << "\nby: " << bytes;
  }
}

TEST(Http2Proxy, EventsPassAsTheyComeAndACancelledRequestIsCancelled) {
  Rig rig;
  Http2Client client(rig);
  const Id id = client.get("/f/app/stream");
  ASSERT_TRUE(client.until([&] { return client.answers[id].status == 200 && rig.open; }));
  ASSERT_TRUE(rig.open->write("data: 1\n\n"));
  ASSERT_TRUE(client.until([&] { return client.answers[id].body == "data: 1\n\n"; }));
  const Id other = client.get("/f/app/x");
  ASSERT_TRUE(client.finished(other)) << "a stream holds up no other request";
  client.session.reset(id, net::Http2Error::cancel);
  ASSERT_TRUE(client.until([&] { return rig.gone; }));
  EXPECT_EQ(rig.gateway->find("app")->figures().cancelled, 1u);
}

TEST(Http2Proxy, AClientThatDisconnectsCancelsAllItsRequests) {
  Rig rig;
  Http2Client client(rig);
  const Id id = client.get("/f/app/hang");
  ASSERT_TRUE(client.until([&] { return rig.open != nullptr; }));
  EXPECT_EQ(client.answers[id].status, 0);
  client.raw.close();
  ASSERT_TRUE(rig.run_until([&] { return rig.gone; }));
  ASSERT_TRUE(rig.run_until([&] { return rig.gateway->proxy().connections() == 0; }));
}

// A client that keeps its windows closed: the replica is not read, and after the stall limit the
// request is cut; others go on.
TEST(Http2Proxy, AClosedWindowFillsNoMemoryAndIsCut) {
  Proxy::Options options;
  options.write_stall_timeout = milliseconds(300);
  Rig rig(options);
  Http2Client client(rig);
  client.keep_window = true;
  const Id id = client.get("/f/app/stream");
  ASSERT_TRUE(client.until([&] { return client.answers[id].status == 200 && rig.open; }));
  const std::string piece(64 << 10, 'x');
  std::size_t written = 0;
  ASSERT_TRUE(client.until([&] {
    if (!rig.gone && rig.open->write(piece))
      written += piece.size();
    return rig.gone;
  }));
  EXPECT_LT(client.answers[id].body.size(), 300u << 10) << "its window";
  EXPECT_LT(written, 24u << 20) << "the kernel's buffers and the replica's own, and no more";
  ASSERT_TRUE(client.finished(id));
  EXPECT_NE(client.answers[id].error, net::Http2Error::none) << "it must not look complete";
  client.keep_window = false;
  const Id next = client.get("/f/app/x");
  ASSERT_TRUE(client.finished(next));
  EXPECT_EQ(client.answers[next].status, 200);
}

// A replica that reads nothing: the client is let send no more than the windows.
TEST(Http2Proxy, ASlowReplicaHoldsTheClientBack) {
  Rig rig;
  auto stuck = std::move(*net::listen_on({.host = "127.0.0.1", .port = 0, .unix_path = {}}));
  const int small = 16 << 10;  // of the sockets that it accepts
  ::setsockopt(stuck.fd.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  auto upstream = *Upstream::create(9, stuck.bound.text());
  Http2Client client(rig);
  const Id slow = client.get("/f/app/hang");
  ASSERT_TRUE(client.until([&] { return rig.open != nullptr; }));
  const Id id = client.ask(h2::request("POST", "/f/app/hang"), {}, false);
  const std::string piece(256 << 10, 'x');
  std::size_t quiet = 0;
  std::uint64_t before = 0;
  ASSERT_TRUE(client.until([&] {
    if (client.session.queued(id) < piece.size() && before < 64u << 20)
      client.session.send(id, piece);
    const auto sent = client.session.sent(id);
    quiet = sent == before ? quiet + 1 : 0;
    before = sent;
    return quiet > 200;
  }));
  EXPECT_LT(before, 32u << 20) << "the rest waits at the client";
  EXPECT_EQ(client.answers[slow].status, 0);
}

TEST(Http2Proxy, StoppingLetsRequestsFinishAndClosesIdleConnections) {
  Rig rig;
  Http2Client busy(rig), idle(rig);
  const Id one = idle.get("/f/app/x");
  ASSERT_TRUE(idle.finished(one));
  const Id id = busy.get("/f/app/hang");
  ASSERT_TRUE(busy.until([&] { return rig.open != nullptr; }));
  rig.gateway->stop();
  ASSERT_TRUE(idle.until([&] { return idle.raw.closed; }));
  rig.open->respond(net::Response::text(200, "late"));
  rig.open.reset();
  ASSERT_TRUE(busy.finished(id));
  EXPECT_EQ(busy.answers[id].body, "late");
  ASSERT_TRUE(busy.until([&] { return rig.gateway->proxy().connections() == 0; }));
}

TEST(Http2Proxy, AnIdleOrSilentConnectionIsClosed) {
  Proxy::Options options;
  options.idle_timeout = options.header_timeout = milliseconds(50);
  Rig rig(options);
  auto silent = rig.client();
  silent.send(h2::preface());
  auto half = rig.client();
  half.send(h2::preface() + h2::frame(h2::headers, h2::end_stream, 1, "").substr(0, 5));
  auto dribble = rig.client();
  dribble.send(h2::preface() + h2::frame(h2::headers, h2::end_stream, 1, h2::block(h2::request())));
  auto start = rig.client();
  start.send(std::string(net::http2_preface.substr(0, 9)));
  for (auto* c : {&silent, &half, &dribble, &start})
    EXPECT_TRUE(rig.run_until([&] { return c->pull(); }));
  EXPECT_TRUE(rig.seen.empty());
}

TEST(Http2Proxy, AFloodEndsOnlyItsOwnConnection) {
  Rig rig;
  Http2Client other(rig);
  auto c = rig.client();
  std::string all = h2::preface();
  for (std::uint32_t id = 1; id < 2'000; id += 2)
    all += h2::head(id, h2::request("GET", "/f/app/x")) +
           h2::frame(h2::rst_stream, 0, id, h2::number(8));
  c.send(all);
  ASSERT_TRUE(rig.run_until([&] { return c.pull(); }));
  const auto frames = h2::read(c.received);
  const auto* away = h2::first(frames, h2::goaway, 0);
  ASSERT_TRUE(away);
  EXPECT_EQ(away->error(), static_cast<std::uint32_t>(net::Http2Error::enhance_your_calm));
  const Id id = other.get("/f/app/x");
  ASSERT_TRUE(other.finished(id));
  EXPECT_EQ(other.answers[id].status, 200);
  ASSERT_TRUE(rig.run_until([&] { return rig.gateway->find("app")->figures().in_flight == 0; }));
}

// Clients of another gateway share its connection: what one of them cancels is not held against
// all.
TEST(Http2Proxy, CancelledRequestsOfAnotherGatewayDoNotEndItsConnection) {
  Rig rig;
  std::string key = rig.gateway->figures().peer_key;
  key = key.substr(0, key.find(':'));
  auto fields = h2::request("GET", "/f/app/x");
  fields.push_back({"x-billow-peer", key});
  auto c = rig.client();
  c.send(h2::preface() + h2::head(1, fields));
  ASSERT_TRUE(rig.run_until([&] {
    c.pull();
    const auto frames = h2::read(c.received);
    return h2::first(frames, h2::headers, 1) != nullptr;
  }));
  std::string all;
  for (std::uint32_t id = 3; id < 2'000; id += 2)
    all += h2::head(id, fields) + h2::frame(h2::rst_stream, 0, id, h2::number(8));
  all += h2::head(2'001, fields);
  c.send(all);
  ASSERT_TRUE(rig.run_until([&] {
    c.pull();
    const auto frames = h2::read(c.received);
    return h2::first(frames, h2::headers, 2'001) || h2::first(frames, h2::goaway, 0);
  }));
  const auto frames = h2::read(c.received);
  EXPECT_TRUE(h2::first(frames, h2::headers, 2'001)) << "another client's request is answered";
  EXPECT_FALSE(h2::first(frames, h2::goaway, 0));
}

TEST(Http2Proxy, Http1RequestsThatBeginLikeThePrefaceAreHttp1) {
  Rig rig;
  auto c = rig.client();
  c.send("P");
  (void)rig.app.loop.run_until([] { return false; }, milliseconds(5));
  c.send("RI");
  (void)rig.app.loop.run_until([] { return false; }, milliseconds(5));
  c.send("NT /f/app/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return c.has("\r\n\r\n"); }));
  EXPECT_TRUE(c.received.starts_with("HTTP/1.1 "));
  auto d = rig.client();
  d.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return d.has("HTTP/1.1 505"); }));
}

// ---- replicas that speak HTTP/2

TEST(Http2Replicas, AGrpcCallPassesWithItsTrailers) {
  GrpcRig rig;
  Http2Client client(rig);
  const Id id = client.ask(GrpcRig::call(), std::string("\0\0\0\0\2hi", 7));
  ASSERT_TRUE(client.finished(id));
  EXPECT_EQ(client.answers[id].status, 200);
  EXPECT_EQ(client.answers[id].body, "echo " + std::string("\0\0\0\0\2hi", 7));
  EXPECT_EQ(client.answers[id].trailers.get("grpc-status"), "0");
  EXPECT_EQ(client.answers[id].trailers.get("grpc-message"), "all is well");
  const auto& to = *rig.replica.connections.back();
  const auto& head = to.heads.rbegin()->second;
  EXPECT_EQ(head.target, "/pkg.Service/Method");
  EXPECT_EQ(head.headers.get("te"), "trailers");
  EXPECT_EQ(head.headers.get("x-forwarded-for"), "127.0.0.1");
}

TEST(Http2Replicas, AGrpcCallNamesItsEndpointByMetadataAuthorityOrPath) {
  GrpcRig rig;
  Http2Client client(rig);
  auto by_authority = GrpcRig::call({});
  by_authority[3].second = "rpc.example.org";
  auto by_path = GrpcRig::call({});
  by_path[2].second = "/f/rpc/pkg.Service/Method";
  const Id authority = client.ask(by_authority, "x"), path = client.ask(by_path, "x");
  const Id none = client.ask(GrpcRig::call({}), "x");
  for (const Id id : {authority, path, none})
    ASSERT_TRUE(client.finished(id));
  EXPECT_EQ(client.answers[authority].trailers.get("grpc-status"), "0");
  EXPECT_EQ(client.answers[path].trailers.get("grpc-status"), "0");
  EXPECT_EQ(client.answers[none].status, 200);
  EXPECT_EQ(client.answers[none].headers.get("grpc-status"), "12") << "in terms of gRPC";
  EXPECT_NE(client.answers[none].headers.get("grpc-message").find("billow-endpoint"),
            std::string_view::npos);
}

TEST(Http2Replicas, CallsOfAllClientsShareAConnectionAndMessagesPassBothWays) {
  GrpcRig rig;
  rig.replica.on_head = [](Http2Replica::Connection& to, Id id) {
    if (to.heads[id].target.starts_with("/grpc.health"))
      return;
    net::Http2Fields fields;
    fields.add("content-type", "application/grpc");
    to.session.answer(id, 200, fields, false);
  };
  rig.replica.on_body = [](Http2Replica::Connection& to, Id id, std::string_view data) {
    if (!to.heads[id].target.starts_with("/grpc.health"))
      to.session.send(id, std::string(data) + "!");
  };
  rig.replica.on_request = [](Http2Replica::Connection& to, Id id) {
    net::Http2Fields trailers;
    trailers.add("grpc-status", "0");
    if (to.heads[id].target.starts_with("/grpc.health"))
      return Http2Replica::answer(to, id, std::string("\0\0\0\0\2\x08\x01", 7));
    to.session.finish(id, &trailers);
  };
  const std::size_t before = rig.replica.connections.size();
  Http2Client a(rig), b(rig);
  const Id one = a.ask(GrpcRig::call(), "1", false), two = b.ask(GrpcRig::call(), "2", false);
  ASSERT_TRUE(a.until([&] { return a.answers[one].body == "1!"; }));
  ASSERT_TRUE(b.until([&] { return b.answers[two].body == "2!"; }));
  a.session.send(one, "3");
  ASSERT_TRUE(a.until([&] { return a.answers[one].body == "1!3!"; }));
  a.session.finish(one);
  b.session.finish(two);
  ASSERT_TRUE(a.finished(one) && b.finished(two));
  EXPECT_EQ(a.answers[one].trailers.get("grpc-status"), "0");
  EXPECT_EQ(rig.replica.connections.size(), before + 1) << "one connection for both";
}

TEST(Http2Replicas, Http1ClientsReachThemToo) {
  GrpcRig rig(EndpointProtocol::h2);
  const auto answer =
      rig.exchange("POST /f/rpc/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("echo abc"), std::string::npos);
  EXPECT_NE(answer.find("transfer-encoding: chunked") != std::string::npos ||
                answer.find("Transfer-Encoding: chunked") != std::string::npos,
            false);
}

TEST(Http2Replicas, ACancelledCallResetsItsStreamOnly) {
  GrpcRig rig;
  rig.replica.on_request = [](Http2Replica::Connection& to, Id id) {
    if (to.heads[id].target == "/grpc.health.v1.Health/Check")
      return Http2Replica::answer(to, id, std::string("\0\0\0\0\2\x08\x01", 7));
    if (to.bodies[id] != "hang")
      Http2Replica::answer(to, id, "ok");
  };
  Http2Client client(rig);
  const Id hangs = client.ask(GrpcRig::call(), "hang");
  const Id first = client.ask(GrpcRig::call(), "x");
  ASSERT_TRUE(client.finished(first));
  const int before = rig.replica.resets;
  client.session.reset(hangs, net::Http2Error::cancel);
  ASSERT_TRUE(client.until([&] { return rig.replica.resets > before; }));
  const std::size_t connections = rig.replica.connections.size();
  const Id next = client.ask(GrpcRig::call(), "x");
  ASSERT_TRUE(client.finished(next));
  EXPECT_EQ(client.answers[next].body, "ok");
  EXPECT_EQ(rig.replica.connections.size(), connections);
}

TEST(Http2Replicas, ARefusedStreamIsTriedElsewhereAndALostOneIsReported) {
  GrpcRig rig;
  Http2Replica other(rig.app.loop);
  other.on_request = rig.replica.on_request;
  rig.serve_by({rig.replica.listener.bound.text(), other.listener.bound.text()},
               EndpointProtocol::grpc);
  int refused = 0, lost = 0;
  const auto refuse = [&](Http2Replica::Connection& to, Id id) {
    if (to.heads[id].target == "/grpc.health.v1.Health/Check")
      return Http2Replica::answer(to, id, std::string("\0\0\0\0\2\x08\x01", 7));
    if (to.bodies[id] == "kill") {
      ++lost;
      return to.session.reset(id, net::Http2Error::internal);
    }
    if (++refused == 1)
      return to.session.reset(id, net::Http2Error::refused_stream);
    Http2Replica::answer(to, id, "ok");
  };
  rig.replica.on_request = other.on_request = refuse;
  Http2Client client(rig);
  const Id id = client.ask(GrpcRig::call(), "x");
  ASSERT_TRUE(client.finished(id));
  EXPECT_EQ(client.answers[id].body, "ok") << "nothing of it had been processed";
  EXPECT_EQ(refused, 2);
  const Id killed = client.ask(GrpcRig::call(), "kill");
  ASSERT_TRUE(client.finished(killed));
  EXPECT_EQ(client.answers[killed].headers.get("grpc-status"), "14");
  EXPECT_EQ(lost, 1) << "it may have been processed: it is not repeated";
}

TEST(Http2Replicas, ADeadReplicaIsReportedToEveryCall) {
  GrpcRig rig;
  rig.replica.on_request = [](Http2Replica::Connection& to, Id id) {
    if (to.heads[id].target == "/grpc.health.v1.Health/Check")
      Http2Replica::answer(to, id, std::string("\0\0\0\0\2\x08\x01", 7));
  };
  Http2Client client(rig);
  const Id a = client.ask(GrpcRig::call(), "a"), b = client.ask(GrpcRig::call(), "b");
  ASSERT_TRUE(client.until([&] {
    const auto& connections = rig.replica.connections;
    return !connections.empty() && connections.back()->bodies.size() == 2;
  }));
  rig.replica.watch.cancel();
  rig.replica.listener.fd.reset();
  rig.replica.connections.clear();
  ASSERT_TRUE(client.finished(a) && client.finished(b));
  EXPECT_EQ(client.answers[a].headers.get("grpc-status"), "14");
  EXPECT_EQ(client.answers[b].headers.get("grpc-status"), "14");
}

TEST(Http2Replicas, AReplicaThatIsNotServingGetsNoCalls) {
  GrpcRig rig;
  rig.replica.on_request = [](Http2Replica::Connection& to, Id id) {
    Http2Replica::answer(to, id, std::string("\0\0\0\0\2\x08\x02", 7));  // NOT_SERVING
  };
  Http2Replica other(rig.app.loop);
  other.on_request = rig.replica.on_request;
  Table t;
  EndpointRow row{.name = "new"};
  row.serving = 1;
  row.policy.protocol = EndpointProtocol::grpc;
  row.policy.min = 1;
  row.replicas = {{.job = 7,
                   .revision = 1,
                   .address = other.listener.bound.text(),
                   .job_state = JobState::running,
                   .task_state = TaskState::running}};
  t.endpoints = {row};
  rig.gateway->take_table(t);
  ASSERT_TRUE(rig.run_until([&] { return !other.connections.empty(); }));
  (void)rig.app.loop.run_until([] { return false; }, milliseconds(50));
  EXPECT_EQ(rig.gateway->find("new")->figures().ready, 0u);
  other.on_request = [](Http2Replica::Connection& to, Id id) {
    Http2Replica::answer(to, id, std::string("\0\0\0\0\2\x08\x01", 7));
  };
  EXPECT_TRUE(rig.run_until([&] { return rig.gateway->find("new")->figures().ready == 1; }));
}

}  // namespace
}  // namespace billow::gateway
