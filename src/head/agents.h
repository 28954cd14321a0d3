// The agents' connections: one WebSocket per node. The protocol is in head/agent_links; here are
// the sockets, the log reads and inputs under way, and the readings: the newest of each node is
// kept in memory and never journalled.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "core/wire/fabric_v1.h"
#include "head/agent_links.h"
#include "head/copies.h"
#include "head/tunnels.h"
#include "net/http/websocket.h"
#include "net/loop.h"
#include "net/subscription.h"

namespace billow::head {

class Agents {
 public:
  Agents(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine);
  ~Agents();

  // `certified` says whether the connection's certificate is valid still.
  void adopt(std::shared_ptr<net::WebSocket> socket,
             std::string peer,
             TokenId credential,
             std::function<bool()> certified);
  void set_tls(bool tls) { tls_ = tls; }  // of every connection that is not a Unix socket's
  // Called with each heartbeat, before it replaces the one before.
  void on_heartbeat(std::function<void(NodeId, const wire::agent_v1::Heartbeat&)> fn) {
    on_heartbeat_ = std::move(fn);
  }
  // Called with each hello's offer, which it may complete.
  void on_offer(std::function<void(NodeOffer&)> fn) { on_offer_ = std::move(fn); }
  // Called with the name of a node that says that it is taken away; a better reason, or none.
  void on_reclaimed(std::function<std::string(const std::string&)> fn) {
    on_reclaimed_ = std::move(fn);
  }
  void deliver(const control::Effect& effect) { links_.deliver(effect); }
  bool connected(NodeId node) const { return links_.connected(node); }
  // Where the node's ports are reached: this machine for an agent on the Unix socket, else the
  // address that it connected from.
  std::string host_of(NodeId node) const;
  bool is_own(NodeId node) const;  // this machine's agent, connected over the Unix socket
  bool send(NodeId node, const wire::agent_v1::ToAgent& message, std::string_view blob) {
    return links_.send(node, message, blob);
  }
  // Fabric checks use their own protocol over the same connection.
  bool send_fabric(NodeId node, const wire::fabric_v1::Ask& ask);
  void on_fabric(std::function<void(NodeId, const wire::fabric_v1::Answer&)> fn) {
    on_fabric_ = std::move(fn);
  }
  // One answer to one LogRead (its subscription number is set here). A node that is not connected
  // is answered for at once, with an error.
  using OnChunk = std::function<void(const wire::agent_v1::LogChunk&, std::string_view frames)>;
  std::unique_ptr<net::Subscription> read_log(NodeId node,
                                              wire::agent_v1::LogRead request,
                                              OnChunk fn);
  std::unique_ptr<net::Subscription> watch_input(
      TaskId task, std::function<void(const wire::agent_v1::InputTaken&)> fn);
  std::unique_ptr<wire::agent_v1::Tunnel> open_tunnel(NodeId node,
                                                      wire::agent_v1::TunnelOpen request,
                                                      wire::agent_v1::OnTunnel fn) {
    return tunnels_.open(node, std::move(request), std::move(fn));
  }
  void on_start(std::function<void(wire::agent_v1::Start&, bool confidential)> complete) {
    links_.on_start(std::move(complete));
  }
  void on_refused(std::function<void(const std::string& machine, const std::string& why)> fn) {
    links_.on_refused(std::move(fn));
  }
  const wire::agent_v1::Heartbeat* readings(NodeId node) const;
  std::string waits_for(TaskId task) const { return links_.waits_for(task); }
  AgentLinks::Port port(TaskId task) const { return links_.port(task); }
  void on_port(std::function<void()> changed) { links_.on_port(std::move(changed)); }
  // The address of this machine for other nodes; its own agent uses a Unix socket.
  void set_own_address(std::string address) { own_address_ = std::move(address); }
  void watch_silence();  // on a timer; idempotent
  Copies& copies() { return copies_; }
  void renew_leases() { links_.renew_leases(); }
  std::size_t count() const { return links_.count(); }

 private:
  struct Link;
  struct LogSub;
  struct InputSub;
  void take(const std::shared_ptr<Link>& link, std::string_view frame);
  bool take_other(const Link& link, std::string_view frame);
  void take_reclaimed(const AgentLinkPtr& link, wire::agent_v1::Reclaimed& notice);
  void take_heartbeat(Link& link, const AgentLinkPtr& pointer, wire::agent_v1::Heartbeat& beat);
  void take_log(NodeId node, const wire::agent_v1::LogChunk& chunk, std::string_view frames);
  void take_input(NodeId node, const wire::agent_v1::InputTaken& taken);
  std::string address_for_gangs(const Link& link) const;
  void closed(const std::shared_ptr<Link>& link);

  net::Loop& loop_;
  const Clock& clock_;
  std::string own_address_ = "127.0.0.1";
  AgentLinks links_;
  Copies copies_{[this](NodeId node, const std::string& frame) {
    return links_.send_raw(node, frame);
  }};
  Tunnels tunnels_{
      [this](NodeId node, const wire::agent_v1::Tunnelled& message, std::string_view blob) {
        return links_.send_raw(node, wire::agent_v1::encode_tunnel(message, blob));
      }};
  bool tls_ = false;
  mutable std::unordered_map<NodeId, std::string> hosts_;
  std::unordered_map<NodeId, wire::agent_v1::Heartbeat> readings_;
  std::function<void(NodeId, const wire::agent_v1::Heartbeat&)> on_heartbeat_;
  std::function<void(NodeId, const wire::fabric_v1::Answer&)> on_fabric_;
  std::function<void(NodeOffer&)> on_offer_;
  std::function<std::string(const std::string&)> on_reclaimed_;
  struct Waiting;
  std::shared_ptr<Waiting> waiting_;  // log reads under way and input watchers
};

}  // namespace billow::head
