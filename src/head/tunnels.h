// The head's end of connections into jobs (core/wire/tunnel.h): matches agents' messages to
// tunnels. A tunnel ends with its agent's connection, and its owner gets an end with the reason.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "core/wire/tunnel.h"

namespace billow::head {

class Tunnels {
 public:
  using Send = std::function<bool(NodeId, const wire::agent_v1::Tunnelled&, std::string_view)>;
  explicit Tunnels(Send send);

  // Null: the agent is not connected.
  std::unique_ptr<wire::agent_v1::Tunnel> open(NodeId node,
                                               wire::agent_v1::TunnelOpen request,
                                               wire::agent_v1::OnTunnel fn);
  void take(NodeId from, const wire::agent_v1::Tunnelled& message, std::string_view blob);
  void node_gone(NodeId node, const std::string& why);

 private:
  struct Open {
    NodeId node;
    wire::agent_v1::OnTunnel fn;
  };
  struct Shared {
    std::uint64_t next = 1;
    std::map<std::uint64_t, Open> open;
    Send send;
  };
  struct Link;
  std::shared_ptr<Shared> shared_;
};

}  // namespace billow::head
