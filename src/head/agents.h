// The agents' connections: one WebSocket per node, hello first, then reports in and orders out. A node that says nothing for
// limits::agent_unreachable_after is declared unreachable; one that stays so beyond its own fence loses the work that may run again.
// Readings are samples: the newest is kept in memory and never journalled.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "api/host.h"
#include "head/engine.h"
#include "net/loop.h"
#include "net/websocket.h"

namespace billow::head {

class Agents {
 public:
  Agents(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine);
  ~Agents();

  void adopt(std::shared_ptr<net::WebSocket> socket, std::string peer);
  void deliver(const control::Effect& effect);
  bool connected(NodeId node) const { return links_.contains(node); }
  bool send(NodeId node, const wire::agent_v1::ToAgent& message, std::string_view blob);
  std::unique_ptr<api::Subscription> read_log(NodeId node, wire::agent_v1::LogRead request, api::Host::OnChunk fn);
  std::unique_ptr<api::Subscription> watch_input(TaskId task, std::function<void(std::uint64_t)> fn);
  const wire::agent_v1::Heartbeat* readings(NodeId node) const;
  void watch_silence();  // on a timer; idempotent
  std::size_t count() const { return links_.size(); }

 private:
  struct Link;
  struct LogSub;
  struct InputSub;
  void take(const std::shared_ptr<Link>& link, std::string_view frame);
  void hello(const std::shared_ptr<Link>& link, const wire::agent_v1::Hello& hello);
  void report(const std::shared_ptr<Link>& link, const wire::agent_v1::Report& report);
  void closed(const std::shared_ptr<Link>& link);
  void refuse(const std::shared_ptr<Link>& link, std::string message, std::string hint);

  net::Loop& loop_;
  const Clock& clock_;
  std::function<Engine&()> engine_;
  std::unordered_map<NodeId, std::shared_ptr<Link>> links_;
  std::unordered_map<NodeId, wire::agent_v1::Heartbeat> readings_;
  std::unordered_map<NodeId, SteadyTime> silent_since_;   // of nodes the state knows and that are not connected
  struct Waiting;
  std::shared_ptr<Waiting> waiting_;                      // log reads under way and input watchers
};

}  // namespace billow::head
