// What the gateway learns and keeps of its replicas while requests pass: connections, and prompts
// that are still to be read.
#include <sys/resource.h>

#include "proxy_rig.h"

namespace billow::gateway {
namespace {

// More requests at once than idle connections are kept for long: the next such wave must not open
// them all again, which costs more than the requests.
TEST(ReplicaSide, AWaveOfRequestsUsesTheConnectionsOfTheOneBefore) {
  constexpr std::size_t wave = limits::gateway_idle_per_replica_max + 150;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 4 * wave + 100)
    GTEST_SKIP() << "the limit of open files is " << files.rlim_cur;
  net::HttpServer::Options app;
  app.limits.per_peer.connections_max = 2 * wave;
  Rig rig({}, app);
  rig.table(1000);
  std::vector<RawClient> clients;
  for (std::size_t i = 0; i < wave; ++i)
    clients.push_back(rig.client());
  for (int round = 1; round <= 3; ++round) {
    for (auto& c : clients) {
      c.received.clear();
      c.send("GET /f/app/hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    ASSERT_TRUE(rig.run_until([&] { return rig.held.size() == wave; })) << rig.held.size();
    EXPECT_EQ(rig.connections.size(), wave) << "round " << round;
    for (const auto& x : std::exchange(rig.held, {}))
      x->respond(net::Response::text(200, "held"));
    for (auto& c : clients)
      ASSERT_TRUE(rig.run_until([&] { return c.has("held"); }));
  }
}

std::string chat(char letter, std::size_t bytes) {
  const std::string body = R"({"model":"m","stream":true,"messages":[{"role":"user","content":")" +
                           std::string(bytes, letter) + "\"}]}";
  return fmt::format(
      "POST /f/app/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

// Engines send the head of a stream before they read the prompt, and its first event after it.
TEST(ReplicaSide, APromptIsToBeReadUntilTheFirstEventOfItsAnswer) {
  Rig rig;
  EndpointPolicy policy;
  policy.balance = EndpointBalance::prefix;
  rig.table(8, policy);
  const auto waiting = [&] {
    return rig.gateway->find("app")->router.prompts().waiting_bytes(1, rig.app.loop.steady());
  };
  auto c = rig.client();
  c.send(chat('a', 20'000));
  ASSERT_TRUE(rig.run_until([&] { return rig.open && c.has("text/event-stream"); }));
  EXPECT_GT(waiting(), 20'000);
  ASSERT_TRUE(rig.open->write("data: {}\n\n"));
  ASSERT_TRUE(rig.run_until([&] { return c.has("data: {}"); }));
  EXPECT_EQ(waiting(), 0);
  rig.open->finish();
  ASSERT_TRUE(rig.run_until([&] { return c.has("\r\n0\r\n\r\n"); }));
  // Its beginning is cached now; a client that disconnects takes its prompt away.
  auto again = rig.client();
  rig.open.reset();
  again.send(chat('a', 25'000));
  ASSERT_TRUE(rig.run_until([&] { return rig.open && again.has("text/event-stream"); }));
  EXPECT_GT(waiting(), 0);
  EXPECT_LT(waiting(), 7'000);
  again.close();
  EXPECT_TRUE(rig.run_until([&] { return waiting() == 0; }));
  EXPECT_EQ(rig.gateway->find("app")->router.prompts().requests(), 0u);
}

}  // namespace
}  // namespace billow::gateway
