// This side of a connection into a job: whoever reads slowly gets everything, whatever the head has
// done by then.
#include "client/jobs/tunnel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "base/crypto.h"
#include "net/http/http_server.h"

namespace billow::client {
namespace {

struct Rig {
  net::Loop loop;
  std::string path = "/tmp/billow-tunnel-test-" + std::to_string(::getpid());
  std::shared_ptr<net::WebSocket> head;  // the head's end
  bool head_closed = false;
  std::string head_got;
  std::unique_ptr<net::HttpServer> server;
  std::unique_ptr<net::HttpClient> client;
  Fd local, relayed;  // whoever connected, and what the relay has of it
  std::shared_ptr<TunnelRelay> relay;
  std::optional<std::string> closed;

  Rig() {
    ::unlink(path.c_str());
    server = *net::HttpServer::create(
        loop, {.listen = {"unix:" + path}}, [this](std::shared_ptr<net::Exchange> x) {
          head = *x->upgrade_websocket({});
          head->on_message([this](std::string_view data, bool) { head_got += data; });
          head->on_close([this](const net::WebSocket::Closed&) { head_closed = true; });
          head->send_text(R"({"type":"open"})");
        });
    client = *net::HttpClient::create(loop, {});
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    local = Fd(ends[0]);
    relayed = Fd(ends[1]);
    HeadAddress address;
    address.endpoint = *net::parse_endpoint("unix:" + path);
    relay = TunnelRelay::start(loop, *client, address, "/v1/jobs/1/tunnel?port=80",
                               {relayed.get(), relayed.get(), true},
                               {.opened = {}, .closed = [this](const std::string& trouble) {
                                  closed = trouble;
                                  relayed.reset();
                                }});
    EXPECT_TRUE(loop.run_until([this] { return head != nullptr; }, seconds(10)));
  }
  ~Rig() { ::unlink(path.c_str()); }

  std::string read_to_the_end() {
    std::string got;
    EXPECT_TRUE(loop.run_until(
        [&] {
          char buffer[16384];
          const ssize_t n = ::recv(local.get(), buffer, sizeof buffer, MSG_DONTWAIT);
          if (n > 0)
            got.append(buffer, static_cast<std::size_t>(n));
          return n == 0;
        },
        seconds(10)));
    return got;
  }
};

TEST(TunnelRelay, ASlowReaderGetsTheRestAfterTheHeadHasClosed) {
  Rig rig;
  ASSERT_EQ(::shutdown(rig.local.get(), SHUT_WR), 0);
  const std::string data =
      random_bytes(440 << 10);  // more than the socket takes, and less than holds the head back
  rig.head->send_binary(data);
  rig.head->send_text(R"({"type":"eof"})");
  ASSERT_TRUE(rig.loop.run_until([&] { return !rig.head_got.empty(); }, seconds(10)));
  rig.head->close();
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.head_closed; }, seconds(10)));
  rig.loop.run_until([] { return false; }, milliseconds(20));
  EXPECT_FALSE(rig.closed);
  EXPECT_TRUE(rig.read_to_the_end() == data);
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.closed.has_value(); }, seconds(10)));
  EXPECT_EQ(*rig.closed, "");
}

TEST(TunnelRelay, WhatCameBeforeAnErrorIsWrittenAndThenTheErrorTold) {
  Rig rig;
  const std::string data = random_bytes(440 << 10);
  rig.head->send_binary(data);
  rig.head->send_text(R"({"type":"error","detail":"the job has ended"})");
  rig.head->close();
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.head_closed; }, seconds(10)));
  EXPECT_TRUE(rig.read_to_the_end() == data);
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.closed.has_value(); }, seconds(10)));
  EXPECT_EQ(*rig.closed, "the job has ended");
}

// Both ends of file are no reason to hang up: the head may still hold bytes for the job.
TEST(TunnelRelay, TheHeadClosesAfterBothEnds) {
  Rig rig;
  rig.head->send_text(R"({"type":"eof"})");
  ASSERT_EQ(::send(rig.local.get(), "to the job", 10, 0), 10);
  ASSERT_EQ(::shutdown(rig.local.get(), SHUT_WR), 0);
  EXPECT_EQ(rig.read_to_the_end(), "");
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.head_got.find("eof") != std::string::npos; },
                                 seconds(10)));
  rig.loop.run_until([&] { return rig.head_closed; }, milliseconds(50));
  EXPECT_FALSE(rig.head_closed);
  EXPECT_FALSE(rig.closed);
  rig.head->close();
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.closed.has_value(); }, seconds(10)));
  EXPECT_EQ(*rig.closed, "");
}

}  // namespace
}  // namespace billow::client
