// What the API needs of the head it serves: the state to read, a way to change it that answers only
// when the change is durable, and a line to the agents. The head implements it; tests can too.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/json.h"
#include "core/control/core.h"
#include "core/wire/agent_v1.h"
#include "gateway/table.h"
#include "net/http/websocket.h"
#include "net/loop.h"
#include "net/workers.h"
#include "store/journal.h"
#include "store/queries.h"
#include "store/sqlite/history.h"

namespace billow::api {

// Ends a subscription when it is destroyed.
class Subscription {
 public:
  virtual ~Subscription() = default;
};

class Host {
 public:
  virtual ~Host() = default;

  virtual const control::State& state() const = 0;
  virtual const Queries& queries() const = 0;
  virtual const Journal& journal() const = 0;
  virtual net::Loop& loop() = 0;
  virtual net::Workers& workers() = 0;
  virtual WallTime now() const = 0;
  virtual WallTime billed() const = 0;  // by the clock of bills

  // Decides, applies, journals. `done` comes with the events once they are durable, or at once with
  // the error.
  using Done = std::function<void(Result<std::vector<Event>>)>;
  virtual void execute(Command command, control::Cause cause, Done done) = 0;
  // Calls back when everything in the state right now is durable: a reader must not see what a
  // crash could take back.
  virtual void when_durable(std::function<void()> fn) = 0;
  // An error while new work is refused (the disk is full, the head is going down).
  virtual Status accepting_work() const = 0;

  // The document of a job or array that ended a short while ago; empty when the store must be
  // asked.
  virtual std::string recently_finished(JobId job) const = 0;
  // Durable events, as they become so: of one job (also of an array's elements), or all of them.
  virtual std::unique_ptr<Subscription> watch_job(JobId job,
                                                  std::function<void(const Event&)> fn) = 0;
  virtual std::unique_ptr<Subscription> watch_events(std::function<void(const Event&)> fn) = 0;

  // ---- agents
  virtual bool connected(NodeId node) const = 0;
  virtual bool send(NodeId node,
                    const wire::agent_v1::ToAgent& message,
                    std::string_view blob = {}) = 0;
  // One answer to one LogRead (the subscription's number is set here). An unreachable node answers
  // with an error at once.
  using OnChunk = std::function<void(const wire::agent_v1::LogChunk&, std::string_view frames)>;
  virtual std::unique_ptr<Subscription> read_log(NodeId node,
                                                 wire::agent_v1::LogRead request,
                                                 OnChunk fn) = 0;
  virtual std::unique_ptr<Subscription> watch_input(
      TaskId task, std::function<void(const wire::agent_v1::InputTaken&)> fn) = 0;
  virtual const wire::agent_v1::Heartbeat* readings(NodeId node) const = 0;
  virtual std::string waits_for(TaskId) const { return {}; }  // what a task that starts waits for
  // What was. `live_series` is of a job whose series is in memory; null: ask the history.
  virtual const History& history() const = 0;
  virtual const Telemetry& telemetry() const = 0;
  virtual const JobSeries* live_series(JobId job) const = 0;
  virtual void adopt_agent(std::shared_ptr<net::WebSocket> socket,
                           std::string peer,
                           TokenId credential) = 0;

  // ---- notices
  virtual std::size_t notices_waiting(std::uint64_t webhook) const = 0;
  virtual std::string webhook_secret(std::uint64_t webhook) const = 0;
  virtual void test_webhook(std::uint64_t webhook,
                            std::function<void(Result<int> status)> done) = 0;
  // ---- gateways
  virtual void adopt_gateway(std::shared_ptr<net::WebSocket> socket, std::string region) = 0;
  virtual const gateway::EndpointFigures* endpoint_figures(
      const std::string& name) const = 0;  // null: none has been heard
  virtual std::vector<std::string> gateway_addresses() const = 0;

  // ---- the head itself
  // The certificate of the head's own authority and its fingerprint; empty where it has none (plain
  // HTTP, given certificates).
  virtual std::string authority() const = 0;
  virtual std::string authority_fingerprint() const = 0;
  virtual Json about() const = 0;  // version, addresses, pid, data directory, …
  virtual void shutdown(bool stop_jobs) = 0;
};

}  // namespace billow::api
