// What strangers and greedy callers can do to a server: each test is an attack, and says who must
// not notice it.
#include <sys/resource.h>

#include <fstream>

#include "net/sockets.h"
#include "net_test_support.h"

namespace billow::net {
namespace {

Handler says_ok() {
  return [](std::shared_ptr<Exchange> x) {
    x->respond(Response::text(200, "ok " + x->request().path));
  };
}

// "Authorization: Bearer NAME" makes the caller that user; "node" is a node.
Caller by_header(const Request& head) {
  const std::string_view header = head.headers.get("Authorization");
  if (!header.starts_with("Bearer "))
    return {};
  const std::string name(header.substr(7));
  return {.kind = name == "node" ? CallerKind::node : CallerKind::user, .name = name};
}

Result<BodyPlan> only_with_a_token(const Request& head) {
  BodyPlan plan;
  if (by_header(head).kind == CallerKind::stranger)
    return fail(Code::unauthorized, "this call needs a token");
  return plan;
}

HttpServer::Options guarded_options() {
  HttpServer::Options o;
  o.identify = by_header;
  o.body_policy = only_with_a_token;
  return o;
}

std::string get(std::string_view path, std::string_view who = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path,
                     who.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", who));
}

// The address sanitizer keeps freed memory for a while, to find uses of it: what is resident then
// says nothing of what is in use.
#ifdef __SANITIZE_ADDRESS__
constexpr bool resident_is_used = false;
#else
constexpr bool resident_is_used = true;
#endif

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:"))
      return std::strtoull(line.c_str() + 6, nullptr, 10);
  return 0;
}

std::uint64_t refused(const ServerFixture& f, Refused reason) {
  return f.server->figures().refused[static_cast<std::size_t>(reason)];
}

TEST(Flood, BodiesWithoutATokenAreNotRead) {
  ServerFixture f(says_ok(), guarded_options());
  const std::string head = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n";
  const std::string some(60'000, 'x');
  std::vector<std::unique_ptr<RawClient>> clients;
  const std::size_t before = resident_kib();
  for (int i = 0; i < 150; ++i) {
    clients.push_back(std::make_unique<RawClient>(f));
    clients.back()->send(head);
    clients.back()->send(some);
    (void)f.loop.run_until([] { return false; }, milliseconds(1));
  }
  ASSERT_TRUE(f.run_until([&] {
    for (auto& c : clients) {
      c->send(some);
      if (!c->has("HTTP/1.1 401"))
        return false;
    }
    return true;
  }));
  EXPECT_EQ(f.server->figures().body_bytes, 0u);
  if (resident_is_used) {
    EXPECT_LT(resident_kib() - before, 20'000u);
  }
  EXPECT_EQ(refused(f, Refused::body), 150u);
}

TEST(Flood, APeerThatFillsItsShareLosesItsOwnOldestConnection) {
  auto o = guarded_options();
  o.limits.per_peer.connections_max = 4;
  ServerFixture f(says_ok(), o);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(std::make_unique<RawClient>(f));
    (void)f.loop.run_until([] { return false; }, milliseconds(1));
  }
  ASSERT_TRUE(f.run_until([&] { return idle[15]->pull(); }));
  EXPECT_LE(f.server->connections(), 4u);
  RawClient late(f);
  late.send(get("/late"));
  EXPECT_TRUE(f.run_until([&] { return late.has("ok /late"); }))
      << "a client at the same address is answered while the flood goes on";
  EXPECT_FALSE(idle[19]->pull());
}

TEST(Flood, AFullServerKeepsItsReserveForTheUnixSocketAndNodes) {
  TempDir dir;
  auto o = guarded_options();
  o.listen = {"127.0.0.1:0", "unix:" + (dir / "s")};
  o.limits.connections_max = 20;
  o.limits.unix_reserve = 3;
  o.limits.nodes_reserve = 3;
  std::vector<std::shared_ptr<Exchange>> held;
  ServerFixture f(
      [&](std::shared_ptr<Exchange> x) {
        if (x->request().path == "/hold")
          held.push_back(std::move(x));
        else
          x->respond(Response::text(200, "ok " + x->request().path));
      },
      o);
  // One user holds every connection it can get; none of them waits, so none can be dropped.
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 30; ++i) {
    greedy.push_back(std::make_unique<RawClient>(f));
    greedy.back()->send(get("/hold", "mallory"));
    (void)f.loop.run_until([] { return false; }, milliseconds(2));
  }
  ASSERT_TRUE(f.run_until([&] { return refused(f, Refused::connection) > 0; }));
  EXPECT_EQ(held.size(), 14u);
  const auto address = parse_endpoint("unix:" + (dir / "s"));
  RawClient local(*start_connect(resolve(address->address)->front()));
  local.send(get("/local"));
  EXPECT_TRUE(f.run_until([&] { return local.has("ok /local"); }));
  held.clear();
}

TEST(Flood, StrangersAreDroppedForWhoeverComesNext) {
  auto o = guarded_options();
  o.limits.connections_max = 10;
  o.limits.unix_reserve = o.limits.nodes_reserve = 2;
  ServerFixture f(says_ok(), o);
  RawClient known(f);
  known.send(get("/first", "alice"));
  ASSERT_TRUE(f.run_until([&] { return known.has("ok /first"); }));
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 30; ++i) {
    idle.push_back(std::make_unique<RawClient>(f));
    (void)f.loop.run_until([] { return false; }, milliseconds(1));
  }
  RawClient node(f);
  node.send(get("/node", "node"));
  EXPECT_TRUE(f.run_until([&] { return node.has("ok /node"); }));
  known.send(get("/again", "alice"));
  EXPECT_TRUE(f.run_until([&] { return known.has("ok /again"); }))
      << "strangers are dropped before a caller that waits";
  EXPECT_GT(refused(f, Refused::displaced), 0u);
}

TEST(Flood, OneUsersRequestsInFlightAndRateAreLimited) {
  auto o = guarded_options();
  o.limits.per_caller.requests_max = 3;
  std::vector<std::shared_ptr<Exchange>> held;
  ServerFixture f([&](std::shared_ptr<Exchange> x) { held.push_back(std::move(x)); }, o);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<RawClient>(f));
    clients.back()->send(get("/slow", "mallory"));
  }
  ASSERT_TRUE(f.run_until([&] {
    int answered = 0;
    for (auto& c : clients)
      answered += c->has("HTTP/1.1 429");
    return answered == 2 && held.size() == 3;
  }));
  RawClient other(f);
  other.send(get("/slow", "alice"));
  EXPECT_TRUE(f.run_until([&] { return held.size() == 4; })) << "another user is not affected";
  held.clear();

  auto slow = guarded_options();
  slow.limits.per_caller.requests_per_s = 1;
  slow.limits.per_caller.requests_burst = 2;
  ServerFixture g(says_ok(), slow);
  RawClient many(g);
  many.send(get("/1", "mallory") + get("/2", "mallory") + get("/3", "mallory"));
  EXPECT_TRUE(g.run_until([&] { return many.has("HTTP/1.1 429"); }));
  EXPECT_TRUE(many.has("ok /2"));
  EXPECT_TRUE(many.has("Retry-After: 1"));
  EXPECT_EQ(refused(g, Refused::rate), 1u);
  many.close();
  EXPECT_TRUE(g.run_until([&] { return g.server->connections() == 0; }));
  RawClient again(g);
  again.send(get("/4", "mallory") + get("/5", "mallory"));
  EXPECT_TRUE(g.run_until([&] { return again.has("HTTP/1.1 429"); }))
      << "a new connection does not begin anew";
}

TEST(Flood, BodyBytesInFlightAreLimitedAndGivenBack) {
  auto o = guarded_options();
  o.limits.per_caller.body_bytes_max = 10'000;
  std::vector<std::shared_ptr<Exchange>> held;
  ServerFixture f([&](std::shared_ptr<Exchange> x) { held.push_back(std::move(x)); }, o);
  const std::string post =
      "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer mallory\r\nContent-Length: "
      "8000\r\n\r\n" +
      std::string(8000, 'x');
  RawClient a(f), b(f);
  a.send(post);
  ASSERT_TRUE(f.run_until([&] { return held.size() == 1; }));
  EXPECT_EQ(f.server->figures().body_bytes, 8000u);
  b.send(post);
  ASSERT_TRUE(f.run_until([&] { return b.has("HTTP/1.1 429"); }));
  held[0]->respond({});
  held.clear();
  EXPECT_EQ(f.server->figures().body_bytes, 0u);
  RawClient c(f);
  c.send(post);
  EXPECT_TRUE(f.run_until([&] { return held.size() == 1; }));
  held.clear();
}

TEST(Flood, ABodyThatTricklesIsCutAlthoughItNeverStops) {
  auto o = guarded_options();
  o.body_idle_timeout = milliseconds(300);
  o.body_bytes_per_s_min = 1000;
  ServerFixture f(says_ok(), o);
  RawClient slow(f), fast(f);
  const std::string head =
      "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nContent-Length: 100000\r\n\r\n";
  slow.send(head);
  fast.send(head);
  const auto began = f.loop.steady();
  SteadyTime last = began;
  std::size_t sent = 0;
  EXPECT_TRUE(f.run_until([&] {
    if (f.loop.steady() - last > milliseconds(20)) {
      last = f.loop.steady();
      slow.send("x");
      const std::string piece(std::min<std::size_t>(2000, 100'000 - sent), 'x');
      fast.send(piece);
      sent += piece.size();
    }
    return slow.has("HTTP/1.1 408") && fast.has("ok /");
  }));
  EXPECT_EQ(refused(f, Refused::slow_body), 1u);
}

TEST(Flood, AnswersThatNobodyReadsAreLimited) {
  auto o = guarded_options();
  o.limits.per_peer.unsent_bytes_max = 16 << 20;
  ServerFixture f(
      [](std::shared_ptr<Exchange> x) {
        x->respond(Response::text(200, std::string(8 << 20, 'x')));
      },
      o);
  std::vector<std::unique_ptr<RawClient>> clients;
  const std::size_t before = resident_kib();
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<RawClient>(f));
    clients.back()->send(get("/app.js"));
    (void)f.loop.run_until([] { return false; }, milliseconds(20));
  }
  ASSERT_TRUE(f.run_until([&] { return refused(f, Refused::unsent_bytes) >= 10; }));
  if (resident_is_used) {
    EXPECT_LT(resident_kib() - before, 64u << 10);
  }
  EXPECT_TRUE(f.run_until([&] {
    clients[0]->pull();
    return clients[0]->received.size() > (8 << 20);
  })) << "who reads gets the whole answer";
}

TEST(Flood, UsersOfThisMachineAreToldApartOverTheLoopback) {
  const auto listener = listen_on(*parse_address("127.0.0.1:0"));
  const Fd client = *start_connect(resolve(listener->bound)->front());
  Fd accepted;
  for (int i = 0; i < 1000 && !accepted; ++i)
    accepted = sockets::accept_one(listener->fd.get());
  const auto uid = sockets::loopback_peer_uid(accepted.get());
  ASSERT_TRUE(uid) << "the kernel does not tell whose the other end is";
  EXPECT_EQ(*uid, ::getuid());
  EXPECT_EQ(network_of_peer("10.0.0.7:4711"), "10.0.0.7");
  EXPECT_EQ(network_of_peer("[2001:db8:1:2:3:4:5:6]:4711"), "2001:db8:1:2::/64");
  EXPECT_EQ(network_of_peer("[::ffff:10.0.0.7]:1"), "10.0.0.7");
  EXPECT_EQ(network_of_peer("[::1]:1"), "::1");
}

}  // namespace
}  // namespace billow::net
