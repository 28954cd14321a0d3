// The protocol between the head and its agents, without the transport: hello first, then reports in
// and orders out. A node that is silent for limits::agent_unreachable_after is declared
// unreachable; if it stays so beyond its own fence, its jobs that may be restarted are restarted
// elsewhere. `Agents` carries the protocol over WebSockets, the fault simulator over a simulated
// network.
//
// A start that was never sent, because the connection had just ended, is taken back when the node
// is declared unreachable: it cannot have started. A start that was sent may have been received and
// is left alone. A node that comes back with tasks that have been given to other nodes ends them
// first, then says hello again; only then does it get work.
//
// Invariant: at most one link speaks for a node, the one with the newest hello. A late hello from a
// connection that its agent has given up changes nothing, because it does not know later tasks; it
// may even be of an earlier boot of the machine.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "core/control/believed.h"
#include "head/engine.h"

namespace billow::head {

// One connection to an agent, over any transport.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual bool send(const wire::agent_v1::ToAgent& message, std::string_view blob) = 0;
  virtual bool send_raw(std::string_view) { return false; }  // a frame of another protocol
  virtual bool open() const = 0;
  virtual void close(std::string_view why) = 0;  // after everything sent before
  virtual std::string peer() const = 0;
  virtual bool confidential() const { return true; }  // encrypted or local: secrets may be sent
  virtual bool certified() const { return true; }     // its certificate has not expired

  // In the order in which connections were opened. An agent opens one when it has given up the one
  // before.
  const std::uint64_t number = ++opened_;
  NodeId node;  // zero until its hello was accepted
  std::string name;
  TokenId credential;  // its token; zero if there are none (tests)
  SteadyTime heard;    // when its last frame arrived

 private:
  static inline std::atomic<std::uint64_t> opened_ = 0;
};
using AgentLinkPtr = std::shared_ptr<AgentLink>;

class AgentLinks {
 public:
  AgentLinks(const Clock& clock, std::function<Engine&()> engine)
      : clock_(clock), engine_(std::move(engine)) {}

  void hello(const AgentLinkPtr& link, const wire::agent_v1::Hello& hello);
  void report(const AgentLinkPtr& link, const wire::agent_v1::Report& report);
  void reclaimed(const AgentLinkPtr& link, const wire::agent_v1::Reclaimed& notice);
  // Removes what a node may not claim from its heartbeat; returns how much.
  std::size_t keep_believed(const AgentLinkPtr& link, wire::agent_v1::Heartbeat& beat) {
    return control::keep_believed(engine_().state(), link->node, beat);
  }
  // Answers a heartbeat, so that the agent knows that its head is alive.
  void heartbeat(const AgentLinkPtr& link) {
    link->send(wire::agent_v1::LeaseRenew{engine_().state().epoch, {}, {}}, {});
  }
  // Reports on metering and idleness. They are repeated, so they are not acknowledged.
  void marks(const AgentLinkPtr& link, const wire::agent_v1::MeterMark& mark);
  void idle_note(const AgentLinkPtr& link, const wire::agent_v1::IdleNote& note);
  void keep_alive(const AgentLinkPtr& link, const wire::agent_v1::KeepAliveAsked& asked);
  // On a timer: tells agents how long the leases limited by a budget are paid for.
  void renew_leases();
  void refuse(const AgentLinkPtr& link, std::string message, std::string hint);
  // The connection ended. True: the node is now disconnected.
  bool closed(const AgentLinkPtr& link);
  // Nothing is kept for a disconnected agent: its next hello brings everything up to date.
  bool send(NodeId node, const wire::agent_v1::ToAgent& message, std::string_view blob);
  bool send_raw(NodeId node, std::string_view frame) {
    const auto found = links_.find(node);
    return found != links_.end() && found->second->send_raw(frame);
  }
  // `complete` adds to a start order what may be known only when it is sent, such as the values of
  // secrets.
  void deliver(const control::Effect& effect);
  void on_start(std::function<void(wire::agent_v1::Start&, bool confidential)> complete) {
    complete_ = std::move(complete);
  }
  // Called when the hello of a rented machine's agent is refused, with the name that its credential
  // is for and the reason.
  void on_refused(std::function<void(const std::string& machine, const std::string& why)> fn) {
    on_refused_ = std::move(fn);
  }
  // On a timer. Cuts silent links (`cut` is called for each), declares nodes silent and, much
  // later, fenced.
  void watch_silence(const std::function<void(const AgentLinkPtr&)>& cut);
  // Whether the task runs on this node.
  bool has_task(NodeId node, TaskId task) const {
    const Task* found = engine_().state().find_task(task);
    return found && found->node == node;
  }
  bool connected(NodeId node) const { return links_.contains(node); }
  // What a starting task waits for, or why a running replica does not serve, as its agent last
  // reported. Not journalled: useless later.
  std::string waits_for(TaskId task) const {
    const auto found = waits_for_.find(task);
    return found == waits_for_.end() ? std::string() : found->second;
  }
  // Who holds a replica's port, as its agent last reported, and the number of the question that
  // this answers. Not journalled: useless later.
  struct Port {
    PortHolder holder = PortHolder::unsaid;
    std::uint64_t look = 0;
  };
  Port port(TaskId task) const {
    const auto found = ports_.find(task);
    return found == ports_.end() ? Port{} : found->second;
  }
  void on_port(std::function<void()> changed) { port_changed_ = std::move(changed); }
  AgentLinkPtr find(NodeId node) const {
    const auto found = links_.find(node);
    return found == links_.end() ? nullptr : found->second;
  }
  std::size_t count() const { return links_.size(); }
  std::string peer_of(NodeId node) const {
    const auto found = links_.find(node);
    return found == links_.end() ? std::string() : found->second->peer();
  }

 private:
  void accepted(const AgentLinkPtr& link, const wire::agent_v1::Hello& hello);
  bool credential_gone(const AgentLink& link) const;
  bool revoked(const AgentLinkPtr& link);
  void take_port(NodeId node, const TaskStatus& status);
  void take_back_unsent(NodeId node);

  const Clock& clock_;
  std::function<Engine&()> engine_;
  std::function<void(wire::agent_v1::Start&, bool)> complete_;
  std::function<void(const std::string&, const std::string&)> on_refused_;
  std::unordered_map<NodeId, AgentLinkPtr> links_;
  std::unordered_map<TaskId, std::string> waits_for_;
  std::unordered_map<TaskId, Port> ports_;
  std::function<void()> port_changed_;
  std::unordered_map<NodeId, std::set<TaskId>>
      strangers_;  // run on a connected node but belong to another one
  std::unordered_map<NodeId, std::set<TaskId>> unsent_;  // placed by this head, start never sent
  std::unordered_map<TaskId, SteadyTime> marked_at_;     // when a task's mark was last journalled
  // Of nodes that are not connected: when they were last heard, and when their link was cut, until
  // which they may have heard the head.
  struct Silence {
    SteadyTime heard, cut;
  };
  std::unordered_map<NodeId, Silence> silent_since_;
  // AgentLinks whose hello is decided and not durable yet, by node name. Their nodes are not
  // silent: to declare one unreachable after its hello was taken would leave it so for as long as
  // it stays connected.
  std::unordered_map<std::string, AgentLinkPtr> arriving_;
  struct LastHello {
    std::uint64_t link = 0;
    TokenId credential;
  };
  std::unordered_map<std::string, LastHello> last_hello_;  // by node name
};

}  // namespace billow::head
