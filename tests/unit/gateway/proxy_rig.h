// A gateway with replicas in one process, for tests of the proxy.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "gateway/gateway.h"
#include "tests/unit/net/net_test_support.h"

namespace billow::gateway {
namespace {

using net::occurrences;
using net::RawClient;

struct Rig {
  net::ServerFixture app;  // the replica
  std::unique_ptr<Gateway> gateway;
  std::vector<std::string> seen;  // requests the replica got: "METHOD target body"
  std::shared_ptr<net::Exchange> open;
  std::vector<std::shared_ptr<net::Exchange>> held;  // requests to /hold
  std::set<std::string> connections;                 // of these
  bool gone = false;

  explicit Rig(Proxy::Options options = {},
               net::HttpServer::Options app_options = {},
               const std::string& data_dir = "")
      : app([this](std::shared_ptr<net::Exchange> x) { serve(std::move(x)); },
            std::move(app_options)) {
    options.listen = {"127.0.0.1:0"};
    auto made = Gateway::create(app.loop, {.proxy = options, .data_dir = data_dir});
    if (!made) {
      ADD_FAILURE() << made.error().message;
      return;
    }
    gateway = std::move(*made);
    table(1);
    EXPECT_TRUE(run_until([&] { return gateway->find("app")->figures().ready == 1; }));
    seen.clear();
  }
  ~Rig() {
    open.reset();
    held.clear();
    gateway.reset();
  }
  void table(std::uint32_t concurrency, EndpointPolicy policy = {}) {
    Table t;
    EndpointRow row{.name = "app"};
    row.serving = 1;
    row.policy = policy;
    row.policy.concurrency = concurrency == 1 ? 100 : concurrency;
    row.policy.min = 1;
    row.replicas = {{.job = 1,
                     .revision = 1,
                     .address = app.server->bound_addresses()[0],
                     .job_state = JobState::running,
                     .task_state = TaskState::running}};
    t.endpoints = {row};
    gateway->take_table(t);
  }
  void serve(std::shared_ptr<net::Exchange> x) {
    const auto& r = x->request();
    seen.push_back(
        fmt::format("{} {} {}", net::method_name(r.method), r.target, r.body.substr(0, 100)));
    if (r.path == "/stream") {
      x->start_stream(200, {{"Content-Type", "text/event-stream"}});
      x->on_close([this] { gone = true; });
      open = std::move(x);
      return;
    }
    if (r.path == "/hold") {
      connections.insert(r.peer);
      held.push_back(std::move(x));
      return;
    }
    if (r.path == "/hang") {
      x->on_close([this] { gone = true; });
      open = std::move(x);
      return;
    }
    if (r.path == "/ws") {
      auto socket = x->upgrade_websocket({});
      if (!socket)
        return x->respond(net::problem(400, "no websocket"));
      auto held = *socket;
      held->on_message(
          [held](std::string_view m, bool) { held->send_text("echo " + std::string(m)); });
      held->on_close([held](const auto&) {});
      return;
    }
    if (r.path == "/headers") {
      std::string all;
      for (const auto& [n, v] : r.headers)
        all += n + ": " + v + "\n";
      return x->respond(net::Response::text(200, all));
    }
    if (r.path == "/broken")
      return x->respond(net::Response::text(500, "broken"));
    if (r.path == "/knows")
      return x->respond({302, {{"Location", "/f/app/there"}}, ""});
    if (r.path == "/redirect")
      return x->respond({302, {{"Location", "/there"}}, ""});
    x->respond(net::Response::text(200, "hello " + std::to_string(r.body.size())));
  }
  RawClient client() {
    const auto raw = net::resolve(*net::parse_address(gateway->proxy().bound_addresses()[0]));
    Fd fd = std::move(*net::start_connect(raw->front()));
    pollfd p{fd.get(), POLLOUT, 0};
    ::poll(&p, 1, 5000);
    return RawClient(std::move(fd));
  }
  bool run_until(const std::function<bool()>& f) { return app.run_until(f); }
  std::string exchange(std::string_view request) {
    auto c = client();
    c.send(request);
    EXPECT_TRUE(
        run_until([&] { return c.pull() || c.received.find("\r\n\r\n") != std::string::npos; }));
    (void)app.loop.run_until([&] { return c.pull(); }, milliseconds(30));
    return c.received;
  }
};

}  // namespace
}  // namespace billow::gateway
