// What the API needs of the head it serves: the state to read, a way to change it that answers only
// when the change is durable, and a connection to the agents. server/head_host.h implements it for
// a real head; tests implement it too.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/json.h"
#include "core/control/core.h"
#include "core/control/decide/front_door.h"
#include "core/wire/agent_v1.h"
#include "core/wire/copy.h"
#include "core/wire/tunnel.h"
#include "files/door.h"
#include "files/store.h"
#include "gateway/table.h"
#include "net/http/http_server.h"
#include "net/http/websocket.h"
#include "net/loop.h"
#include "net/subscription.h"
#include "net/workers.h"
#include "pool/pool.h"
#include "pool/program.h"
#include "store/journal.h"
#include "store/queries.h"
#include "store/sqlite/history.h"
#include "view/job_document.h"

namespace billow::api {

class Host {
 public:
  virtual ~Host() = default;

  // ---- the state, and changing it
  virtual const control::State& state() const = 0;
  virtual const Queries& queries() const = 0;
  virtual const Journal& journal() const = 0;
  virtual net::Loop& loop() = 0;
  virtual net::Workers& workers() = 0;
  virtual WallTime now() const = 0;
  virtual WallTime billed() const = 0;  // by the clock of bills (ADR 10)
  view::Moment moment() const { return {now(), billed()}; }

  // Decides, applies, journals. `done` is called with the events once they are durable, or at once
  // with the error.
  using Done = std::function<void(Result<std::vector<Event>>)>;
  virtual void execute(Command command, control::Cause cause, Done done) = 0;
  // The same with rows of ended jobs that the command changes.
  virtual void execute_with_rows(Command command,
                                 control::Cause cause,
                                 std::vector<JobRow>,
                                 Done done) {
    execute(std::move(command), std::move(cause), std::move(done));
  }
  // Calls back when everything in the state right now is durable: a reader must not see what a
  // crash could take back.
  virtual void when_durable(std::function<void()> fn) = 0;
  // An error while new work is refused (the disk is full, the head is shutting down).
  virtual Status accepting_work() const = 0;

  // The document of a job or array that ended a short while ago; none: ask the store.
  virtual std::optional<Json> recently_finished(JobId job) const = 0;
  // Events as they become durable: those of one job (or of an array's elements), or all of them.
  virtual std::unique_ptr<net::Subscription> watch_job(JobId job,
                                                       std::function<void(const Event&)> fn) = 0;
  virtual std::unique_ptr<net::Subscription> watch_events(std::function<void(const Event&)> fn) = 0;

  // ---- agents
  // `certified` says whether the connection's certificate is valid still.
  virtual void adopt_agent(std::shared_ptr<net::WebSocket> socket,
                           std::string peer,
                           TokenId credential,
                           std::function<bool()> certified) = 0;
  virtual bool send(NodeId node,
                    const wire::agent_v1::ToAgent& message,
                    std::string_view blob = {}) = 0;
  // One answer to one LogRead (the subscription's number is set by the host), from the task's node
  // or from the copy that the head has kept. An unreachable node without a copy is answered for at
  // once, with an error.
  using OnChunk = std::function<void(const wire::agent_v1::LogChunk&, std::string_view frames)>;
  virtual std::unique_ptr<net::Subscription> read_log(NodeId node,
                                                      wire::agent_v1::LogRead request,
                                                      OnChunk fn) = 0;
  // What the kept logs of a project take on the head's disk.
  virtual std::uint64_t kept_log_bytes(ProjectId project) const = 0;
  virtual std::unique_ptr<net::Subscription> watch_input(
      TaskId task, std::function<void(const wire::agent_v1::InputTaken&)> fn) = 0;
  // A connection into a job; null: the node does not answer.
  virtual std::unique_ptr<wire::agent_v1::Tunnel> open_tunnel(NodeId node,
                                                              wire::agent_v1::TunnelOpen request,
                                                              wire::agent_v1::OnTunnel fn) = 0;
  // Copies into or out of a running job's directory; answers with the digest of what came out.
  virtual void copy_files(NodeId node,
                          wire::agent_v1::CopyFiles request,
                          std::function<void(Result<std::string>)> done) = 0;
  // Lets these nodes measure their fabric; answers with the result's document.
  virtual void check_fabric(const std::vector<NodeId>& nodes,
                            std::function<void(Result<Json>)> done) = 0;
  virtual const wire::agent_v1::Heartbeat* readings(NodeId node) const = 0;
  // What a starting task waits for, or why a running replica does not serve.
  virtual std::string waits_for(TaskId task) const = 0;

  // ---- history
  virtual const History& history() const = 0;
  virtual const Telemetry& telemetry() const = 0;
  // The series of a job that is in memory; null: ask the history.
  virtual const JobSeries* live_series(JobId job) const = 0;

  // ---- providers of machines
  virtual void ask_provider(const std::string& pool,
                            pool::Question question,
                            std::function<void(Result<Json>)> done) = 0;
  // Why a pool's provider does not tell which machines exist; empty: it does.
  virtual std::string provider_trouble(PoolId pool) const = 0;
  // That a machine is being deleted and its provider lists nothing; empty: not so.
  virtual std::string machine_ending(const Machine& machine) const = 0;
  // Where a pool's machines are, for people; empty: not known.
  virtual std::string provider_place(PoolId pool) const = 0;
  // The archive of the program that rented machines fetch; null: it could not be read.
  virtual std::shared_ptr<const pool::Program> program() = 0;

  // ---- files and secrets
  virtual billow::files::Store& files() = 0;
  // Lets a client on this machine hand over files without HTTP (files/door.h); an error: it cannot.
  virtual Result<billow::files::DoorTicket> file_ticket(const std::string&,
                                                        const billow::files::OwnerLimit&) {
    return fail(Code::not_found, "this head takes files only over HTTP");
  }
  virtual std::string outputs_dir() const = 0;  // which tree each job left
  virtual Result<std::string> seal_secret(ProjectId project,
                                          const std::string& name,
                                          std::string_view value) = 0;
  // A value sealed under this name for no project.
  virtual Result<std::string> unseal_secret(const std::string& name, const std::string&) const {
    return fail(Code::unsupported, "this head cannot open " + name);
  }
  // Why a secret cannot be opened on this head; empty: it can.
  virtual std::string trouble_with(const Secret& secret) const = 0;
  // An error if its value cannot be the login of a registry, as far as this head can tell.
  virtual Status check_login(const Secret&) const { return {}; }

  // Replaces the key that secrets are sealed with. Answers how many were sealed anew, and how many
  // could not be opened.
  using RotatedKey = std::function<void(Result<std::pair<std::size_t, std::size_t>>)>;
  virtual void rotate_secrets_key(control::Cause, RotatedKey done) {
    done(fail(Code::unsupported, "this head has no key for secrets"));
  }

  // ---- notices and gateways
  virtual std::size_t notices_waiting(std::uint64_t webhook) const = 0;
  virtual std::string webhook_secret(std::uint64_t webhook) const = 0;
  virtual void test_webhook(std::uint64_t webhook,
                            std::function<void(Result<int> status)> done) = 0;
  // Of the targets of persons: the secret of a webhook, the code that confirms a mail address.
  virtual bool can_mail() const { return false; }
  virtual std::string target_secret(std::uint64_t) const { return {}; }
  virtual std::string target_code(std::uint64_t) const { return {}; }
  virtual void send_target_code(std::uint64_t, std::function<void(Status)> done) { done({}); }
  virtual void test_target(std::uint64_t, std::function<void(Status)> done) { done({}); }
  virtual void adopt_gateway(std::shared_ptr<net::WebSocket> socket, gateway::Dialled who) = 0;
  virtual std::vector<gateway::GatewayRow> gateway_list() const = 0;
  // Null: no gateway has reported any.
  virtual const gateway::EndpointFigures* endpoint_figures(const std::string& name) const = 0;
  virtual std::vector<std::string> gateway_addresses() const = 0;
  // Host names of the gateways themselves, which no endpoint can have.
  virtual control::GatewayNames gateway_names() const = 0;
  // Of the certificate of the gateway at the first address; empty: it has none.
  virtual std::string gateway_fingerprint() const = 0;
  // Calls back when the gateways work by the state of now.
  virtual void when_gateways_know(std::function<void()> fn) = 0;

  // The account of this machine with that number, if it may use this head without a token. An error
  // says why not: the head is not for all users of its machine, or the machine's policy refuses it.
  virtual void local_account(unsigned uid, std::function<void(Result<std::string>)> done) = 0;

  // ---- the head itself
  virtual net::ServerFigures server_figures() const = 0;
  // The certificate of the head's own authority and its fingerprint; empty if it has none (plain
  // HTTP, or a certificate was given).
  virtual std::string authority() const = 0;
  virtual std::string authority_fingerprint() const = 0;
  // Whether a node's or gateway's request came with the certificate that it needs; none if it asks
  // for one.
  virtual Status check_certificate(const control::Principal&, net::Exchange&, bool) const {
    return {};
  }
  virtual Result<Json> issue_certificate(const control::Principal&, const std::string&) {
    return fail(Code::conflict, "this head does not use TLS");
  }
  // The head's authority, and its replacement in two steps.
  enum class NewAuthority { announce, change_over, change_over_at_once };
  virtual Json authority_document() const { return Json::object({{"tls", false}}); }
  virtual Result<Json> rotate_authority(NewAuthority) {
    return fail(Code::conflict, "this head does not use TLS and has no authority");
  }
  // Where to keep when tokens were last used; empty: nowhere.
  virtual std::string last_uses_file() const { return ""; }
  virtual Json about() const = 0;  // version, addresses, pid, data directory, …
  virtual void shutdown(bool stop_jobs) = 0;
};

}  // namespace billow::api
