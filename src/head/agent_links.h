// What the head and its agents say to each other, apart from how it travels: hello first, then
// reports in and orders out. A node that says nothing for limits::agent_unreachable_after is
// declared unreachable; one that stays so beyond its own fence loses the work that may run again.
// `Agents` carries this over WebSockets, the fault simulator over a simulated network.
//
// A start that was never sent, because its node's connection had just ended, is taken back when the
// node is declared unreachable: it can have begun nowhere. One that was sent may have been
// received, and is left as it is. A node that comes back with tasks that are not its own any more
// ends them first, and says hello again when they are gone: only then does it take work.
//
// What holds: at most one link speaks for a node, the one with the newest hello. A hello that
// comes late, from a connection its agent has given up meanwhile, changes nothing: it describes a
// past in which later tasks were unknown.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "core/control/believed.h"
#include "head/engine.h"

namespace billow::head {

// One connection, whoever carries it.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual bool send(const wire::agent_v1::ToAgent& message, std::string_view blob) = 0;
  virtual bool send_raw(std::string_view) {
    return false;
  }  // a frame of another kind than the protocol's
  virtual bool open() const = 0;
  virtual void close(std::string_view why) = 0;  // what was sent before goes out first
  virtual std::string peer() const = 0;
  virtual bool confidential() const {
    return true;
  }  // nobody else can read what is sent: secrets may go

  NodeId node;  // zero until its hello was accepted
  std::string name;
  TokenId credential;  // what it showed when it connected; zero where there are none (tests)
  SteadyTime heard;    // when its last frame came
};
using AgentLinkPtr = std::shared_ptr<AgentLink>;

class AgentLinks {
 public:
  AgentLinks(const Clock& clock, std::function<Engine&()> engine)
      : clock_(clock), engine_(std::move(engine)) {}

  void hello(const AgentLinkPtr& link, const wire::agent_v1::Hello& hello);
  void report(const AgentLinkPtr& link, const wire::agent_v1::Report& report);
  void reclaimed(const AgentLinkPtr& link, const wire::agent_v1::Reclaimed& notice);
  // Answered, so that an agent knows how long its head has been silent.
  std::size_t keep_believed(const AgentLinkPtr& link, wire::agent_v1::Heartbeat& beat) {
    return control::keep_believed(engine_().state(), link->node, beat);
  }
  void heartbeat(const AgentLinkPtr& link) {
    link->send(wire::agent_v1::LeaseRenew{engine_().state().epoch, {}, {}}, {});
  }
  // What agents say of metering and idleness; none of it is answered, all of it is said again.
  void marks(const AgentLinkPtr& link, const wire::agent_v1::MeterMark& mark);
  void idle_note(const AgentLinkPtr& link, const wire::agent_v1::IdleNote& note);
  void keep_alive(const AgentLinkPtr& link, const wire::agent_v1::KeepAliveAsked& asked);
  // On a timer: tells every agent how long its leases are paid for, where a budget limits them.
  void renew_leases();
  void refuse(const AgentLinkPtr& link, std::string message, std::string hint);
  // The connection is gone. True: it was the one that spoke for its node, which is now without.
  bool closed(const AgentLinkPtr& link);
  // To an agent that is away nothing is kept: its hello brings everything up to date.
  bool send(NodeId node, const wire::agent_v1::ToAgent& message, std::string_view blob);
  bool send_raw(NodeId node, std::string_view frame) {
    const auto found = links_.find(node);
    return found != links_.end() && found->second->send_raw(frame);
  }
  // A start order gets what only now may be known, such as the values of secrets, by `complete`,
  // just before it goes.
  void deliver(const control::Effect& effect);
  void on_start(std::function<void(wire::agent_v1::Start&, bool confidential)> complete) {
    complete_ = std::move(complete);
  }
  // On a timer. Cuts links gone quiet (`cut` is told of each), declares nodes silent and, much
  // later, fenced.
  void watch_silence(const std::function<void(const AgentLinkPtr&)>& cut);
  // Whether what this node says of the task is its to say.
  bool has_task(NodeId node, TaskId task) const {
    const Task* found = engine_().state().find_task(task);
    return found && found->node == node;
  }
  bool connected(NodeId node) const { return links_.contains(node); }
  // What a task that starts waits for, as its agent said last. Never journalled: it is of no use
  // later.
  std::string waits_for(TaskId task) const {
    const auto found = waits_for_.find(task);
    return found == waits_for_.end() ? std::string() : found->second;
  }
  // Who has a replica's port, as its agent said last, and the number of the question it answered.
  // Never journalled: it is of no use later.
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
  bool revoked(const AgentLinkPtr& link);
  void take_port(NodeId node, const TaskStatus& status);
  void take_back_unsent(NodeId node);

  const Clock& clock_;
  std::function<Engine&()> engine_;
  std::function<void(wire::agent_v1::Start&, bool)> complete_;
  std::unordered_map<NodeId, AgentLinkPtr> links_;
  std::unordered_map<TaskId, std::string> waits_for_;
  std::unordered_map<TaskId, Port> ports_;
  std::function<void()> port_changed_;
  std::unordered_map<NodeId, std::set<TaskId>>
      strangers_;  // live on a connected node, and no longer its own
  std::unordered_map<NodeId, std::set<TaskId>>
      unsent_;  // placed by this head, and no start of them was ever sent
  std::unordered_map<TaskId, SteadyTime> marked_at_;  // when a task's mark was last journalled
  std::unordered_map<NodeId, SteadyTime>
      silent_since_;  // of nodes the state knows and that are not connected
  // AgentLinks whose hello is decided and not durable yet, by node name. Their nodes are not
  // silent: to declare one unreachable after its hello was taken would leave it so for as long as
  // it stays connected.
  std::unordered_map<std::string, AgentLinkPtr> arriving_;
  struct LastHello {
    std::string boot_id;
    SteadyTime sent_at;  // by the agent's clock, which only counts up within a boot
  };
  std::unordered_map<std::string, LastHello> last_hello_;  // by node name
};

}  // namespace billow::head
