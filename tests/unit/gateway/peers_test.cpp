// Two gateways of two regions on one loop: what one passes on to the other goes over TLS, and to
// nobody but the gateway that the head named.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "gateway/gateway.h"
#include "tests/unit/net/net_test_support.h"

namespace billow::gateway {
namespace {

using net::RawClient;

struct Two {
  int served = 0;
  net::ServerFixture app{[this](std::shared_ptr<net::Exchange> x) {
    served += x->request().path == "/asked";
    x->respond(net::Response::text(200, "from the other region"));
  }};
  std::string directory = [] {
    std::string name = testing::TempDir() + "billow-peers-XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
  std::unique_ptr<Gateway> near = open("/near"), far = open("/far");

  Two() {
    Table t;
    EndpointRow row{.name = "app"};
    row.serving = 1;
    row.policy.min = 1;
    row.replicas = {{.job = 1,
                     .revision = 1,
                     .address = app.server->bound_addresses()[0],
                     .job_state = JobState::running,
                     .task_state = TaskState::running}};
    t.endpoints = {row};
    far->take_table(t);
    EXPECT_TRUE(app.run_until([&] { return far->find("app")->figures().ready == 1; }));
  }
  ~Two() {
    near.reset();
    far.reset();
    (void)remove_tree(directory);
  }
  std::unique_ptr<Gateway> open(const std::string& name) {
    Gateway::Options options;
    options.proxy.listen = {"127.0.0.1:0"};
    options.data_dir = directory + name;
    EXPECT_TRUE(make_directories(options.data_dir, 0700));
    auto made = Gateway::create(app.loop, std::move(options));
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(*made);
  }
  EndpointRow row_near() {
    EndpointRow row{.name = "app"};
    row.serving = 1;
    row.steered = false;
    row.policy.timeout = seconds(2);
    row.elsewhere = {{"far", 1}};
    return row;
  }
  // What the head would tell the one about the other, as the other told it.
  void introduce(const std::string& address, const std::string& key) {
    introduce(address, key, row_near());
  }
  void introduce(const std::string& address, const std::string& key, const EndpointRow& row) {
    Table t;
    t.endpoints = {row};
    t.peers = {{"far", address, key}};
    near->take_table(t);
  }
  std::string ask() {
    const auto raw = net::resolve(*net::parse_address(near->proxy().bound_addresses()[0]));
    Fd fd = std::move(*net::start_connect(raw->front()));
    pollfd p{fd.get(), POLLOUT, 0};
    ::poll(&p, 1, 5000);
    RawClient c(std::move(fd));
    c.send("GET /f/app/asked HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(app.run_until([&] { return c.pull(); }));
    return c.received;
  }
};

// The key without the certificate's fingerprint.
std::string plain(const std::string& key) {
  EXPECT_EQ(key.size() - key.find(':'), 65u) << key;
  return key.substr(0, key.find(':'));
}

TEST(Peers, ARequestIsPassedOnToTheGatewayWithTheNamedCertificate) {
  Two two;
  const Figures told = two.far->figures();
  two.introduce(told.peer_address, told.peer_key);
  const std::string answer = two.ask();
  EXPECT_NE(answer.find("from the other region"), std::string::npos) << answer;
  EXPECT_EQ(two.served, 1);
}

// A gateway that was expelled knows the key: it changes when one goes, and stays otherwise.
TEST(Peers, TheKeyChangesWhenAGatewayHasGone) {
  struct Head final : HeadLink {
    bool connected() const override { return true; }
    void say(const FromGateway&) override {}
    void ask(FromGateway, std::uint64_t, std::function<void(Result<Reply>)>) override {}
  } head;
  Two two;
  two.far->set_link(&head);
  const std::string before = two.far->figures().peer_key;
  Table table;
  table.endpoints = {two.far->find("app")->row()};
  two.far->take_table(table);
  EXPECT_EQ(two.far->figures().peer_key, before);
  table.peer_epoch = 7;
  two.far->take_table(table);
  const Figures told = two.far->figures();
  EXPECT_NE(told.peer_key, before);
  two.far->take_table(table);
  EXPECT_EQ(two.far->figures().peer_key, told.peer_key);
  // Those that have not heard yet are served for a moment; then with the new key.
  for (const std::string& key : {before, told.peer_key}) {
    two.introduce(told.peer_address, key);
    EXPECT_NE(two.ask().find("from the other region"), std::string::npos);
  }
  two.introduce(told.peer_address, std::string(32, 'x') + told.peer_key.substr(before.find(':')));
  EXPECT_EQ(two.ask().find("from the other region"), std::string::npos);
  two.far->set_link(nullptr);
}

// A gateway that has just started knows that nothing here can serve before it has heard from the
// other region.
TEST(Peers, WhatCannotServeHereIsNotRefusedBeforeTheOtherRegionAnswers) {
  for (const std::int64_t awake : {1, 0}) {
    Two two;
    const Figures told = two.far->figures();
    EndpointRow row = two.row_near();
    row.steered = true;
    row.awake_max = 0;
    row.awake_max_why = "the quota of GPUs is used";
    row.elsewhere = {{"far", static_cast<std::uint32_t>(awake)}};
    two.introduce(told.peer_address, told.peer_key, row);
    const std::string answer = two.ask();
    EXPECT_NE(answer.find("from the other region"), std::string::npos) << awake << answer;
  }
}

TEST(Peers, WhatCannotServeHereIsRefusedWhenTheOtherRegionDoesNotAnswer) {
  Two two;
  const Figures told = two.far->figures();
  EndpointRow row = two.row_near();
  row.policy.timeout = seconds(60);
  row.awake_max = 0;
  row.awake_max_why = "the quota of GPUs is used";
  two.introduce(told.peer_address, plain(told.peer_key) + ":" + std::string(64, '0'), row);
  const std::string answer = two.ask();
  EXPECT_NE(answer.find("503"), std::string::npos) << answer;
  EXPECT_NE(answer.find("the quota of GPUs is used"), std::string::npos) << answer;
}

TEST(Peers, AGatewayWithAnotherCertificateGetsNothing) {
  Two two;
  const Figures told = two.far->figures();
  two.introduce(told.peer_address, plain(told.peer_key) + ":" + std::string(64, '0'));
  const std::string answer = two.ask();
  EXPECT_NE(answer.find("504"), std::string::npos) << answer;
  EXPECT_EQ(two.served, 0);
}

TEST(Peers, WithoutACertificateNothingLeavesTheMachine) {
  Two two;
  const Figures told = two.far->figures();
  two.introduce("192.0.2.1:7071", plain(told.peer_key));
  EXPECT_NE(two.ask().find("504"), std::string::npos);
  two.introduce(told.peer_address, plain(told.peer_key));  // on loopback it may be plain
  EXPECT_NE(two.ask().find("from the other region"), std::string::npos);
}

}  // namespace
}  // namespace billow::gateway
