// The head as the API sees it: every question of the API goes to the part of the head that answers
// it.
#pragma once

#include "api/host.h"
#include "head/door/file_door.h"
#include "head/head.h"
#include "server/local_accounts.h"

namespace billow::server {

class HeadHost final : public api::Host {
 public:
  explicit HeadHost(head::Head& head) : head_(head) {}

  const control::State& state() const override { return head_.state(); }
  const Queries& queries() const override { return head_.store().queries(); }
  const Journal& journal() const override { return head_.store().journal(); }
  net::Loop& loop() override { return head_.loop(); }
  net::Workers& workers() override { return head_.workers(); }
  WallTime now() const override { return head_.clock().wall(); }
  WallTime billed() const override { return head_.engine().billed(); }
  void execute(Command command, control::Cause cause, Done done) override {
    head_.engine().execute(command, cause, std::move(done));
  }
  void execute_with_rows(Command command,
                         control::Cause cause,
                         std::vector<JobRow> rows,
                         Done done) override {
    head_.engine().execute_with_rows(command, cause, std::move(rows), std::move(done));
  }
  void when_durable(std::function<void()> fn) override {
    head_.engine().when_durable(std::move(fn));
  }
  Status accepting_work() const override { return head_.accepting_work(); }
  net::ServerFigures server_figures() const override { return head_.server_figures(); }
  std::optional<Json> recently_finished(JobId job) const override {
    return head_.engine().recently_finished(job);
  }
  std::unique_ptr<net::Subscription> watch_job(JobId job,
                                               std::function<void(const Event&)> fn) override {
    return head_.engine().watch_job(job, std::move(fn));
  }
  std::unique_ptr<net::Subscription> watch_events(std::function<void(const Event&)> fn) override {
    return head_.engine().watch_events(std::move(fn));
  }
  const Telemetry& telemetry() const override { return head_.engine().telemetry(); }
  const History& history() const override { return head_.history(); }
  const JobSeries* live_series(JobId job) const override {
    return head_.sampling().live_series(job);
  }

  // ---- agents
  bool send(NodeId node, const wire::agent_v1::ToAgent& message, std::string_view blob) override {
    return head_.agents().send(node, message, blob);
  }
  std::unique_ptr<net::Subscription> read_log(NodeId node,
                                              wire::agent_v1::LogRead request,
                                              OnChunk fn) override {
    return head_.logs().read(node, std::move(request), std::move(fn));
  }
  std::uint64_t kept_log_bytes(ProjectId project) const override {
    return head_.logs().bytes_of(project);
  }
  std::unique_ptr<net::Subscription> watch_input(
      TaskId task, std::function<void(const wire::agent_v1::InputTaken&)> fn) override {
    return head_.agents().watch_input(task, std::move(fn));
  }
  const wire::agent_v1::Heartbeat* readings(NodeId node) const override {
    return head_.agents().readings(node);
  }
  std::string waits_for(TaskId task) const override { return head_.agents().waits_for(task); }
  void adopt_agent(std::shared_ptr<net::WebSocket> socket,
                   std::string peer,
                   TokenId credential,
                   std::function<bool()> certified) override {
    head_.agents().adopt(std::move(socket), std::move(peer), credential, std::move(certified));
  }
  std::unique_ptr<wire::agent_v1::Tunnel> open_tunnel(NodeId node,
                                                      wire::agent_v1::TunnelOpen request,
                                                      wire::agent_v1::OnTunnel fn) override {
    return head_.agents().open_tunnel(node, std::move(request), std::move(fn));
  }
  void check_fabric(const std::vector<NodeId>& nodes,
                    std::function<void(Result<Json>)> done) override {
    head_.fabric().start(nodes, std::move(done));
  }

  void local_account(unsigned uid, std::function<void(Result<std::string>)> done) override {
    if (!head_.serves_machine())
      return done(fail(Code::forbidden, "this head does not sign in the users of its machine",
                       "log in with a token, or let root start it with `billow up --system`"));
    const Status queued =
        head_.workers().submit([uid] { return account_with_access(uid); },
                               [done](Result<std::string> account) { done(std::move(account)); });
    if (!queued)
      done(pass(queued.error()));
  }

  // ---- providers of machines
  void ask_provider(const std::string& pool,
                    pool::Question question,
                    std::function<void(Result<Json>)> done) override {
    head_.pools().ask_provider(pool, question, std::move(done));
  }
  std::string provider_trouble(PoolId pool) const override { return head_.pools().trouble(pool); }
  std::string machine_ending(const Machine& machine) const override {
    return head_.pools().ending(machine);
  }
  std::string provider_place(PoolId pool) const override { return head_.pools().place(pool); }
  std::shared_ptr<const pool::Program> program() override { return head_.pools().program(); }

  // ---- files and secrets
  files::Store& files() override { return head_.files(); }
  Result<files::DoorTicket> file_ticket(const std::string& owner,
                                        const files::OwnerLimit& limit) override {
    if (!head_.file_door())
      return fail(Code::not_found, "this head takes files only over HTTP");
    return head_.file_door()->grant(owner, limit);
  }
  std::string outputs_dir() const override { return head_.outputs_dir(); }
  void copy_files(NodeId node,
                  wire::agent_v1::CopyFiles request,
                  std::function<void(Result<std::string>)> done) override {
    head_.agents().copies().start(node, std::move(request), head_.clock().steady(),
                                  std::move(done));
  }
  Result<std::string> seal_secret(ProjectId project,
                                  const std::string& name,
                                  std::string_view value) override {
    return head_.secrets().sealed(state(), project, name, value);
  }
  Result<std::string> unseal_secret(const std::string& name,
                                    const std::string& sealed) const override {
    return head_.secrets().opened(name, sealed);
  }
  std::string trouble_with(const Secret& secret) const override {
    return head_.secrets().trouble_with(secret);
  }
  Status check_login(const Secret& secret) const override {
    return head_.secrets().check_login(secret);
  }
  void rotate_secrets_key(control::Cause cause, RotatedKey done) override {
    head_.rotation().start(std::move(cause), [done](Result<head::KeyRotation::Done> result) {
      done(result ? Result<std::pair<std::size_t, std::size_t>>(
                        std::pair(result->resealed, result->lost))
                  : Result<std::pair<std::size_t, std::size_t>>(pass(result.error())));
    });
  }

  // ---- notices and gateways
  std::size_t notices_waiting(std::uint64_t webhook) const override {
    return head_.notifier().waiting(webhook);
  }
  std::string webhook_secret(std::uint64_t webhook) const override {
    return head_.notifier().secret(webhook);
  }
  void test_webhook(std::uint64_t webhook, std::function<void(Result<int>)> done) override {
    head_.notifier().test(webhook, std::move(done));
  }
  bool can_mail() const override { return head_.personal().can_mail(); }
  std::string target_secret(std::uint64_t target) const override {
    return head_.personal().signing_secret(target);
  }
  std::string target_code(std::uint64_t target) const override {
    return head_.personal().code(target);
  }
  void send_target_code(std::uint64_t target, std::function<void(Status)> done) override {
    head_.personal().send_code(target, std::move(done));
  }
  void test_target(std::uint64_t target, std::function<void(Status)> done) override {
    head_.personal().test(target, std::move(done));
  }
  void adopt_gateway(std::shared_ptr<net::WebSocket> socket, gateway::Dialled who) override {
    head_.gateways().adopt(std::move(socket), std::move(who));
  }
  std::vector<gateway::GatewayRow> gateway_list() const override { return head_.gateways().list(); }
  const gateway::EndpointFigures* endpoint_figures(const std::string& name) const override {
    return head_.gateways().figures(name);
  }
  std::vector<std::string> gateway_addresses() const override {
    return head_.gateways().addresses();
  }
  control::GatewayNames gateway_names() const override { return head_.gateways().names(); }
  std::string gateway_fingerprint() const override { return head_.gateways().fingerprint(); }
  void when_gateways_know(std::function<void()> fn) override {
    head_.gateways().when_known(std::move(fn));
  }

  // ---- the head itself
  std::string authority() const override { return head_.certificates().authority_pem(); }
  std::string authority_fingerprint() const override { return head_.certificates().fingerprints(); }
  Status check_certificate(const control::Principal& who,
                           net::Exchange& exchange,
                           bool asks) const override {
    return head_.certificates().check(who, {exchange.request().tls, exchange.certificate(), asks});
  }
  Result<Json> issue_certificate(const control::Principal& who,
                                 const std::string& request) override {
    return head_.certificates().issue(who, request);
  }
  Json authority_document() const override { return head_.certificates().document(); }
  Result<Json> rotate_authority(NewAuthority step) override {
    return step == NewAuthority::announce
               ? head_.certificates().announce_next()
               : head_.certificates().change_over(step == NewAuthority::change_over_at_once);
  }
  std::string last_uses_file() const override { return head_.data_dir() + "/last-uses.json"; }
  Json about() const override { return head_.about(); }
  void shutdown(bool stop_jobs) override { head_.shutdown(stop_jobs); }

 private:
  head::Head& head_;
};

}  // namespace billow::server
