// A replica closes a connection instead of answering. That is a sign of its end only if it has no
// other connection open: else a client whose requests make it do so would take it from all others.
#include <gtest/gtest.h>

#include "gateway/gateway.h"
#include "net/sockets.h"
#include "tests/unit/net/net_test_support.h"

namespace billow::gateway {
namespace {

using net::RawClient;

struct ClosedStage {
  net::ServerFixture app{[](std::shared_ptr<net::Exchange> x) {
    (void)x;
  }};
  net::Listener replica =
      std::move(*net::listen_on({.host = "127.0.0.1", .port = 0, .unix_path = {}}));
  std::unique_ptr<Gateway> gateway;

  ClosedStage() {
    Proxy::Options options;
    options.listen = {"127.0.0.1:0"};
    gateway =
        std::move(*Gateway::create(app.loop, {.proxy = options, .data_dir = "", .advertise = ""}));
    EndpointRow row{.name = "app"};
    row.serving = 1;
    row.replicas = {{.job = 1,
                     .revision = 1,
                     .address = replica.bound.text(),
                     .job_state = JobState::running,
                     .task_state = TaskState::running}};
    Table table;
    table.endpoints = {row};
    gateway->take_table(table);
    (void)accept();  // its health check, which is not answered
    gateway->find("app")->checked(1, Check::good, app.loop.steady());
  }
  ~ClosedStage() { gateway.reset(); }
  Fd accept() {
    Fd fd;
    EXPECT_TRUE(app.run_until([&] {
      fd = net::sockets::accept_one(replica.fd.get());
      return static_cast<bool>(fd);
    }));
    return fd;
  }
  RawClient ask(std::string_view method) {
    const auto raw = net::resolve(*net::parse_address(gateway->proxy().bound_addresses()[0]));
    Fd fd = std::move(*net::start_connect(raw->front()));
    pollfd p{fd.get(), POLLOUT, 0};
    ::poll(&p, 1, 5000);
    RawClient c(std::move(fd));
    c.send(std::string(method) +
           " /f/app/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    return c;
  }
  // The connection that a request comes by, once the request is there.
  Fd served() {
    Fd fd = accept();
    EXPECT_TRUE(app.run_until([&] {
      char first = 0;
      return ::recv(fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    }));
    char all[4096];
    (void)!::recv(fd.get(), all, sizeof all, MSG_DONTWAIT);
    return fd;
  }
  Phase phase() { return gateway->find("app")->router.find(1)->phase; }
};

TEST(ClosedConnection, AReplicaWithOtherConnectionsStaysInService) {
  ClosedStage s;
  auto other = s.ask("GET");
  const Fd open = s.served();
  for (int i = 0; i < 5; ++i) {
    auto abuser = s.ask("POST");
    s.served().reset();
    EXPECT_TRUE(s.app.run_until([&] { return abuser.has("502"); })) << abuser.received;
    EXPECT_EQ(s.phase(), Phase::ready);
  }
  constexpr std::string_view answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  (void)!::send(open.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(s.app.run_until([&] { return other.has("200 OK"); })) << other.received;
}

TEST(ClosedConnection, AReplicaWithoutOthersMustShowThatItLives) {
  ClosedStage s;
  auto only = s.ask("POST");
  s.served().reset();
  EXPECT_TRUE(s.app.run_until([&] { return only.has("502"); })) << only.received;
  EXPECT_NE(s.phase(), Phase::ready);
}

TEST(ClosedConnection, OneThatHasEndedDoesNotLiveByConnectionsThatAreClosedToo) {
  ClosedStage s;
  auto first = s.ask("POST"), second = s.ask("POST");
  Fd a = s.served(), b = s.served();
  a.reset();
  b.reset();
  EXPECT_TRUE(s.app.run_until([&] { return first.has("502") && second.has("502"); }));
  EXPECT_NE(s.phase(), Phase::ready);
}

}  // namespace
}  // namespace billow::gateway
