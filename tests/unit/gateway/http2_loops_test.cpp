// HTTP/2 and gRPC with several loops: the streams of one connection stay on its loop, and those of
// different loops share replicas, slots and the queue.
#include "http2_rig.h"

namespace billow::gateway {
namespace {

using Id = net::Http2Session::StreamId;

constexpr std::size_t loops = 3;
constexpr std::size_t clients_count = 2 * loops;

Proxy::Options several_loops() {
  Proxy::Options options;
  options.threads = loops;
  return options;
}

struct Clients {
  explicit Clients(Rig& of) : rig(of) {
    for (std::size_t i = 0; i < clients_count; ++i)
      all.push_back(std::make_unique<Http2Client>(of));
  }
  bool until(const std::function<bool()>& done) {
    return rig.run_until([&] {
      for (const auto& client : all)
        client->turn();
      return done();
    });
  }
  // All of its answers so far have ended.
  static bool over(Http2Client& client, const std::vector<Id>& ids) {
    return std::ranges::all_of(
        ids, [&](Id id) { return client.answers[id].end || client.answers[id].closed; });
  }
  Rig& rig;
  std::vector<std::unique_ptr<Http2Client>> all;
};

// The first loop has its part of the connections, so the others have theirs. (Streams count, too,
// while they are open.)
bool dealt_to_all(Rig& rig) {
  return rig.gateway->proxy().connections() == clients_count / loops;
}

TEST(Http2Loops, StreamsOfAllLoopsShareTheSlotsOfAReplica) {
  Rig rig(several_loops());
  rig.table(4);
  Clients clients(rig);
  std::vector<std::vector<Id>> ids(clients.all.size());
  for (std::size_t i = 0; i < clients.all.size(); ++i)
    for (int k = 0; k < 5; ++k)
      ids[i].push_back(clients.all[i]->get("/f/app/hold"));
  ASSERT_TRUE(clients.until([&] { return rig.held.size() == 4; }));
  std::size_t answered = 0;
  // Each answer frees a slot for a request that waits on any loop.
  while (answered < clients_count * 5) {
    ASSERT_TRUE(clients.until([&] { return !rig.held.empty(); })) << answered;
    ASSERT_LE(rig.held.size(), 4u);
    for (const auto& x : std::exchange(rig.held, {})) {
      x->respond(net::Response::text(200, "held"));
      ++answered;
    }
  }
  for (std::size_t i = 0; i < clients.all.size(); ++i) {
    ASSERT_TRUE(clients.until([&] { return Clients::over(*clients.all[i], ids[i]); }));
    for (const Id id : ids[i])
      EXPECT_EQ(clients.all[i]->answers[id].body, "held");
  }
  EXPECT_TRUE(clients.until([&] { return rig.gateway->figures().endpoints.at(0).in_flight == 0; }));
  EXPECT_TRUE(clients.until([&] { return dealt_to_all(rig); }));
}

TEST(Http2Loops, GrpcCallsAreAnsweredOnTheLoopThatTheyCameBy) {
  GrpcRig rig(EndpointProtocol::grpc, several_loops());
  Clients clients(rig);
  for (int round = 0; round < 10; ++round) {
    std::vector<std::vector<Id>> ids(clients.all.size());
    for (std::size_t i = 0; i < clients.all.size(); ++i)
      for (int k = 0; k < 8; ++k)
        ids[i].push_back(clients.all[i]->ask(GrpcRig::call(), fmt::format("{}-{}", i, k)));
    for (std::size_t i = 0; i < clients.all.size(); ++i) {
      ASSERT_TRUE(clients.until([&] { return Clients::over(*clients.all[i], ids[i]); }));
      for (std::size_t k = 0; k < ids[i].size(); ++k) {
        const auto& answer = clients.all[i]->answers[ids[i][k]];
        EXPECT_EQ(answer.body, fmt::format("echo {}-{}", i, k));
        EXPECT_EQ(answer.trailers.get("grpc-status"), "0");
      }
    }
  }
  EXPECT_TRUE(clients.until([&] { return dealt_to_all(rig); }));
}

// Streams in both directions that are open while the gateway stops: they end as they would, and the
// gateway is deserted afterwards.
TEST(Http2Loops, OpenStreamsFinishWhenItsListenersGo) {
  GrpcRig rig(EndpointProtocol::grpc, several_loops());
  std::size_t begun = 0;
  rig.replica.on_head = [&](Http2Replica::Connection& to, Id id) {
    begun += to.heads[id].target == "/pkg.Service/Method";
  };
  Clients clients(rig);
  std::vector<Id> ids;
  for (const auto& client : clients.all)
    ids.push_back(client->ask(GrpcRig::call(), "first ", false));
  ASSERT_TRUE(clients.until([&] { return begun == clients_count; }));
  rig.gateway->stop();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    clients.all[i]->session.send(ids[i], "second");
    clients.all[i]->session.finish(ids[i]);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(clients.until([&] { return Clients::over(*clients.all[i], {ids[i]}); }));
    EXPECT_EQ(clients.all[i]->answers[ids[i]].body, "echo first second");
  }
  EXPECT_TRUE(clients.until([&] { return rig.gateway->deserted(); }));
}

TEST(Http2Loops, ClientsThatResetOrDisconnectLoseNoSlot) {
  Rig rig(several_loops());
  rig.table(2);
  for (int round = 0; round < 8; ++round) {
    Clients clients(rig);
    for (const auto& client : clients.all)
      for (int k = 0; k < 3; ++k) {
        const Id id = client->get("/f/app/hold");
        if (k == round % 3)
          client->session.reset(id, net::Http2Error::cancel);
      }
    ASSERT_TRUE(clients.until([&] { return !rig.held.empty(); }));
    if (round % 2)
      rig.held.clear();
  }
  rig.held.clear();
  EXPECT_TRUE(rig.run_until([&] {
    rig.held.clear();
    const auto figures = rig.gateway->figures().endpoints.at(0);
    return figures.in_flight == 0 && figures.held == 0;
  }));
  Http2Client last(rig);
  const Id id = last.get("/f/app/x");
  ASSERT_TRUE(last.finished(id));
  EXPECT_EQ(last.answers[id].status, 200);
}

}  // namespace
}  // namespace billow::gateway
