// Requests that wait for a replica, and replicas that fail them.
#include "proxy_rig.h"

namespace billow::gateway {
namespace {

TEST(Proxy, AHeldRequestIsAnsweredWhenAReplicaComes) {
  Rig rig;
  const std::string address = rig.app.server->bound_addresses()[0];
  Table t;
  EndpointRow row{.name = "late"};
  row.serving = 1;
  t.endpoints = {row};
  rig.gateway->take_table(t);
  auto c = rig.client();
  c.send("POST /f/late/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
  ASSERT_TRUE(rig.run_until([&] { return rig.gateway->find("late")->router.held() == 1; }));
  EXPECT_EQ(c.received, "");
  t.endpoints[0].replicas = {{.job = 9,
                              .revision = 1,
                              .address = address,
                              .job_state = JobState::running,
                              .task_state = TaskState::running}};
  rig.gateway->take_table(t);
  ASSERT_TRUE(rig.run_until([&] { return c.has("hello 3"); }));
}

TEST(Proxy, AnUnreachableReplicaKeepsNoRequest) {
  Rig rig;
  Table t;
  EndpointRow row{.name = "lost"};
  row.serving = 1;
  row.policy.timeout = milliseconds(300);
  row.policy.min = 1;
  row.replicas = {{.job = 3,
                   .revision = 1,
                   .address = "",
                   .job_state = JobState::running,
                   .task_state = TaskState::running}};
  t.endpoints = {row};
  rig.gateway->take_table(t);
  rig.gateway->find("lost")->checked(3, Check::good,
                                     rig.app.loop.steady());  // healthy, as far as anybody knows
  auto c = rig.client();
  c.send("GET /f/lost/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return c.has("504"); }))
      << "its deadline is kept: " << c.received;
  EXPECT_EQ(rig.gateway->find("lost")->router.in_flight(), 0u);
}

TEST(Proxy, AFullQueueIs429AndADeadlineIs504) {
  Rig rig;
  Table t;
  EndpointRow row{.name = "full"};
  row.serving = 1;
  row.policy.queue_max = 2;
  row.policy.timeout = milliseconds(300);
  t.endpoints = {row};
  rig.gateway->take_table(t);
  auto a = rig.client(), b = rig.client(), c = rig.client();
  for (auto* each : {&a, &b})
    each->send("GET /f/full/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return rig.gateway->find("full")->router.held() == 2; }));
  c.send("GET /f/full/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return c.has("429"); }));
  EXPECT_TRUE(c.has("Retry-After: "));
  ASSERT_TRUE(rig.run_until([&] { return a.has("504") && b.has("504"); }));
}

TEST(Proxy, AFailedStartIs503WithTheReason) {
  Rig rig;
  Table t;
  EndpointRow row{.name = "bad"};
  row.serving = 1;
  t.endpoints = {row};
  rig.gateway->take_table(t);
  auto c = rig.client();
  c.send("GET /f/bad/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(rig.run_until([&] { return rig.gateway->find("bad")->router.held() == 1; }));
  t.endpoints[0].replicas = {{.job = 5, .revision = 1}};
  rig.gateway->take_table(t);
  t.endpoints[0].replicas.clear();
  t.endpoints[0].failed_job = 5;
  t.endpoints[0].failed_reason = "exit code 3";
  rig.gateway->take_table(t);
  ASSERT_TRUE(rig.run_until([&] { return c.has("503"); }));
  EXPECT_TRUE(c.has("exit code 3"));
}

TEST(Proxy, ARequestToADeadReplicaGoesToAnother) {
  Rig rig;
  Table t;
  EndpointRow row{.name = "two"};
  row.serving = 1;
  row.policy.min = 2;
  row.policy.max = 2;
  // The first one accepts nobody: its port was free a moment ago.
  auto closed = net::listen_on({.host = "127.0.0.1", .port = 0, .unix_path = {}});
  const std::string dead = closed->bound.text();
  net::ServerFixture second(
      [](std::shared_ptr<net::Exchange> x) { x->respond(net::Response::text(200, "second")); });
  (void)second;
  row.replicas = {{.job = 1,
                   .revision = 1,
                   .address = rig.app.server->bound_addresses()[0],
                   .job_state = JobState::running,
                   .task_state = TaskState::running}};
  t.endpoints = {row};
  rig.gateway->take_table(t);
  auto two = rig.gateway->find("two");
  ASSERT_TRUE(rig.run_until([&] { return two->figures().ready == 1; }));
  t.endpoints[0].replicas.insert(t.endpoints[0].replicas.begin(),
                                 {.job = 0x7,
                                  .revision = 1,
                                  .address = dead,
                                  .job_state = JobState::running,
                                  .task_state = TaskState::running});
  rig.gateway->take_table(t);
  two->checked(7, Check::good, rig.app.loop.steady());  // it was healthy once
  closed->fd.reset();
  two->router.replica(1, rig.app.loop.steady()).in_flight = 3;  // so the other one is chosen first
  const auto answer =
      rig.exchange("POST /f/two/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_NE(answer.find("hello 2"), std::string::npos) << answer;
  EXPECT_EQ(two->totals.retried, 1u);
}

// Each announces as much as a body may have, and sends nothing of it.
TEST(Bodies, AnnouncedBytesTakeNoMemoryFromOthers) {
  Rig rig;
  const std::string head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
  std::vector<RawClient> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(rig.client());
    slow.back().send(head + "Content-Length: 8388608\r\n\r\n{");
  }
  (void)rig.app.loop.run_until([] { return false; }, milliseconds(50));
  const std::string body = R"({"model":"app","text":")" + std::string(200'000, 'x') + "\"}";
  auto c = rig.client();
  std::string unsent = head + fmt::format("Content-Length: {}\r\n\r\n", body.size()) + body;
  ASSERT_TRUE(rig.run_until([&] {
    const auto n = ::send(c.fd(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    unsent.erase(0, n > 0 ? static_cast<std::size_t>(n) : 0);
    return c.has("HTTP/1.1 ");
  }));
  EXPECT_TRUE(c.has(" 200 ")) << c.received;
}

TEST(Failures, AnAnswerWithAServersErrorCountsOnce) {
  Rig rig;
  EXPECT_NE(rig.exchange("GET /f/app/x HTTP/1.1\r\nHost: localhost\r\n\r\n").find(" 200 "),
            std::string::npos);
  const auto& totals = rig.gateway->find("app")->totals;
  EXPECT_EQ(totals.failed, 0u);
  EXPECT_NE(rig.exchange("GET /f/app/broken HTTP/1.1\r\nHost: localhost\r\n\r\n").find(" 500 "),
            std::string::npos);
  EXPECT_EQ(totals.requests, 2u);
  EXPECT_EQ(totals.failed, 1u);
  EXPECT_EQ(rig.gateway->find("app")->figures().ready, 1u) << "one error makes no replica sick";
}

}  // namespace
}  // namespace billow::gateway
