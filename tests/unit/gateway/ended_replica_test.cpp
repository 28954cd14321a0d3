// Requests whose replica ends without its connection being reset: its node is gone, or behind its
// port is a process that is frozen and takes connections without ever answering. The table says
// that it has ended, and nobody waits for it until the request's own deadline.
#include <gtest/gtest.h>

#include "gateway/gateway.h"
#include "tests/unit/net/net_test_support.h"

namespace billow::gateway {
namespace {

using net::RawClient;

struct EndedStage {
  net::ServerFixture app{[](std::shared_ptr<net::Exchange> x) {
    x->respond(net::Response::text(200, "the successor"));
  }};
  net::Listener frozen = std::move(*net::listen_on(
      {.host = "127.0.0.1", .port = 0, .unix_path = {}}));  // nobody accepts: the kernel does
  std::unique_ptr<Gateway> gateway;
  Table t;

  EndedStage() {
    Proxy::Options options;
    options.listen = {"127.0.0.1:0"};
    gateway =
        std::move(*Gateway::create(app.loop, {.proxy = options, .data_dir = "", .advertise = ""}));
    EndpointRow row{.name = "app"};
    row.serving = 1;
    row.policy.timeout = minutes(10);
    t.endpoints = {row};
    show(1, frozen.bound.text());
    gateway->find("app")->checked(1, Check::good,
                                  app.loop.steady());  // somebody answered its health check
  }
  ~EndedStage() { gateway.reset(); }
  void show(std::uint64_t job, const std::string& address) {
    t.endpoints[0].replicas = {{.job = job,
                                .revision = 1,
                                .address = address,
                                .job_state = JobState::running,
                                .task_state = TaskState::running}};
    gateway->take_table(t);
  }
  RawClient client() {
    const auto raw = net::resolve(*net::parse_address(gateway->proxy().bound_addresses()[0]));
    Fd fd = std::move(*net::start_connect(raw->front()));
    pollfd p{fd.get(), POLLOUT, 0};
    ::poll(&p, 1, 5000);
    return RawClient(std::move(fd));
  }
  RawClient ask(std::string_view request) {
    auto c = client();
    c.send(request);
    EXPECT_TRUE(app.run_until([&] { return gateway->find("app")->router.in_flight() == 1; }));
    return c;
  }
};

TEST(EndedReplica, ARequestThatMayBeRepeatedGoesToItsSuccessor) {
  EndedStage s;
  auto c = s.ask("GET /f/app/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  s.t.endpoints[0].failed_job = 1;
  s.t.endpoints[0].failed_reason = "exit code 1";
  s.show(2, s.app.server->bound_addresses()[0]);
  EXPECT_TRUE(s.app.run_until([&] { return c.has("the successor"); })) << c.received;
  EXPECT_EQ(s.gateway->find("app")->totals.retried, 1u);
}

TEST(EndedReplica, ARequestThatMayHaveBeenExecutedFails) {
  EndedStage s;
  auto c = s.ask("POST /f/app/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok");
  s.show(2, s.app.server->bound_addresses()[0]);
  EXPECT_TRUE(s.app.run_until([&] { return c.has("502") && c.has("it has ended"); })) << c.received;
  EXPECT_EQ(s.gateway->find("app")->router.in_flight(), 0u);
}

TEST(EndedReplica, AReplicaThatIsSomewhereElseNowAnswersFromThere) {
  EndedStage s;
  auto c = s.ask("GET /f/app/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  s.show(
      1,
      s.app.server->bound_addresses()[0]);  // its node was lost, and the same job runs on another
  EXPECT_TRUE(s.app.run_until([&] { return c.has("the successor"); })) << c.received;
}

}  // namespace
}  // namespace billow::gateway
