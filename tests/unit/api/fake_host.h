// An API without a head: a core driven by hand (tests/unit/view/rig.h) stands for it, a store in a
// directory that goes away answers queries, and requests are made without a socket. Agents
// and gateways do not exist; a route that needs them fails its test.
#pragma once

#include "api/api.h"
#include "store/sqlite/sqlite_store.h"
#include "tests/unit/store/store_test_support.h"
#include "tests/unit/view/rig.h"

namespace billow::api {

struct FakeExchange final : net::Exchange {
  net::Request asked;
  std::optional<net::Response> answer;
  std::string streamed;

  net::Request& request() override { return asked; }
  void respond(net::Response response) override { answer = std::move(response); }
  void start_stream(int status, net::Headers headers) override {
    answer = net::Response{status, std::move(headers), ""};
  }
  bool write(std::string_view data) override {
    streamed += data;
    return true;
  }
  std::size_t buffered() const override { return 0; }
  void finish() override {}
  void abort() override {}
  bool open() const override { return true; }
  void on_close(std::function<void()>) override {}
  void on_drain(std::function<void()>) override {}
  Result<std::shared_ptr<net::WebSocket>> upgrade_websocket(net::WebSocket::Options) override {
    return fail(Code::invalid, "no WebSocket here");
  }
};

class FakeHost final : public Host {
 public:
  view::Rig rig;
  gateway::EndpointFigures figures;
  std::vector<std::string> gateways;

  const control::State& state() const override { return rig.state(); }
  const Queries& queries() const override { return store_->queries(); }
  const Journal& journal() const override { return store_->journal(); }
  net::Loop& loop() override { return loop_; }
  net::Workers& workers() override { return workers_; }
  WallTime now() const override { return rig.wall; }
  WallTime billed() const override { return rig.billed; }
  void execute(Command command, control::Cause cause, Done done) override {
    if (!done)
      done = [](Result<std::vector<Event>>) {
      };
    auto step = rig.core.execute(command, cause, rig.wall, rig.billed);
    if (!step)
      return done(pass(step.error()));
    auto events = step->events;
    rig.take(std::move(*step));
    done(std::move(events));
  }
  void when_durable(std::function<void()> fn) override { fn(); }
  Status accepting_work() const override { return {}; }
  net::ServerFigures server_figures() const override { return {}; }
  std::optional<Json> recently_finished(JobId) const override { return std::nullopt; }
  std::unique_ptr<net::Subscription> watch_job(JobId, std::function<void(const Event&)>) override {
    return nullptr;
  }
  std::unique_ptr<net::Subscription> watch_events(std::function<void(const Event&)>) override {
    return nullptr;
  }

  std::map<unsigned, std::string> accounts;  // of the machine, for sign-in by account
  void local_account(unsigned uid, std::function<void(Result<std::string>)> done) override {
    const auto found = accounts.find(uid);
    if (found == accounts.end())
      return done(fail(Code::forbidden, "this account may not"));
    done(found->second);
  }
  void adopt_agent(std::shared_ptr<net::WebSocket>,
                   std::string,
                   TokenId,
                   std::function<bool()>) override {}
  bool send(NodeId, const wire::agent_v1::ToAgent&, std::string_view) override { return false; }
  std::unique_ptr<net::Subscription> read_log(NodeId, wire::agent_v1::LogRead, OnChunk) override {
    return nullptr;
  }
  std::unique_ptr<net::Subscription> watch_input(
      TaskId, std::function<void(const wire::agent_v1::InputTaken&)>) override {
    return nullptr;
  }
  std::unique_ptr<wire::agent_v1::Tunnel> open_tunnel(NodeId,
                                                      wire::agent_v1::TunnelOpen,
                                                      wire::agent_v1::OnTunnel) override {
    return nullptr;
  }
  void ask_provider(const std::string&,
                    pool::Question,
                    std::function<void(Result<Json>)> done) override {
    done(fail(Code::unsupported, "no pools here"));
  }
  std::string provider_trouble(PoolId) const override { return {}; }
  std::string machine_ending(const Machine&) const override { return {}; }
  std::string provider_place(PoolId) const override { return {}; }
  std::shared_ptr<const pool::Program> program() override { return nullptr; }
  void copy_files(NodeId,
                  wire::agent_v1::CopyFiles,
                  std::function<void(Result<std::string>)> done) override {
    done(fail(Code::unsupported, "no agents here"));
  }
  void check_fabric(const std::vector<NodeId>&, std::function<void(Result<Json>)> done) override {
    done(fail(Code::unsupported, "no agents here"));
  }
  const wire::agent_v1::Heartbeat* readings(NodeId) const override { return nullptr; }
  std::string waits_for(TaskId) const override { return {}; }

  const History& history() const override { return *history_; }
  History& kept_history() { return *history_; }
  const Telemetry& telemetry() const override { return telemetry_; }
  const JobSeries* live_series(JobId) const override { return nullptr; }

  billow::files::Store& files() override { return *files_; }
  std::string outputs_dir() const override { return dir_.path(); }
  std::uint64_t kept_log_bytes(ProjectId) const override { return 0; }
  Result<std::string> seal_secret(ProjectId, const std::string&, std::string_view value) override {
    return std::string(value);
  }
  Result<std::string> unseal_secret(const std::string&, const std::string& value) const override {
    return value;
  }
  std::string trouble_with(const Secret&) const override { return {}; }

  std::size_t notices_waiting(std::uint64_t) const override { return 0; }
  std::string webhook_secret(std::uint64_t) const override { return {}; }
  void test_webhook(std::uint64_t, std::function<void(Result<int>)> done) override { done(200); }
  void adopt_gateway(std::shared_ptr<net::WebSocket>, gateway::Dialled) override {}
  std::vector<gateway::GatewayRow> gateway_list() const override { return {}; }
  const gateway::EndpointFigures* endpoint_figures(const std::string&) const override {
    return &figures;
  }
  std::vector<std::string> gateway_addresses() const override { return gateways; }
  control::GatewayNames gateway_names() const override { return {}; }
  void when_gateways_know(std::function<void()> fn) override { fn(); }
  std::string authority() const override { return {}; }
  std::string authority_fingerprint() const override { return {}; }
  std::string gateway_fingerprint() const override { return {}; }
  Json about() const override { return Json::object({{"version", "test"}}); }
  void shutdown(bool) override {}

  // Waits until a worker has answered, for at most ten seconds.
  void run_until(const std::function<bool()>& done) {
    const SteadyTime deadline = system_clock().steady() + seconds(10);
    const net::Timer look = loop_.every(milliseconds(1), [&] {
      if (done() || system_clock().steady() > deadline)
        loop_.stop();
    });
    if (!done())
      loop_.run();
  }
  void store(Batch batch) {
    store_->journal().append(std::move(batch));
    ASSERT_TRUE(store_->journal().flush(seconds(10)));
  }

 private:
  store_test::TempDir dir_;
  std::unique_ptr<SqliteStore> store_ = *SqliteStore::open({.data_dir = dir_ / "store"});
  std::unique_ptr<History> history_ = *History::open(dir_ / "history");
  std::unique_ptr<billow::files::Store> files_ =
      *billow::files::Store::open({.directory = dir_ / "files"});
  net::Loop loop_;
  net::Workers workers_{loop_, {}};
  Telemetry telemetry_;
};

struct ApiTest : testing::Test {
  FakeHost host;
  Api api{host};
  std::string token = "bw_admin";

  net::Response ask(net::Method method, std::string_view target, std::string body = {}) {
    auto exchange = std::make_shared<FakeExchange>();
    exchange->asked.method = method;
    EXPECT_TRUE(net::parse_target(target, exchange->asked));
    if (!token.empty())
      exchange->asked.headers.set("Authorization", "Bearer " + token);
    exchange->asked.body = std::move(body);
    exchange->asked.request_id = "r1";
    api.handle(exchange);
    host.run_until([&] { return exchange->answer.has_value(); });
    EXPECT_TRUE(exchange->answer) << target << " was not answered";
    return exchange->answer.value_or(net::Response{});
  }
  net::Response get(std::string_view target) { return ask(net::Method::get, target); }
  Json json(const net::Response& response) {
    const auto parsed = parse_json(response.body);
    EXPECT_TRUE(parsed) << response.body;
    return parsed.value_or(Json());
  }
};

}  // namespace billow::api
