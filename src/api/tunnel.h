// Connections into jobs: their route, and what it needs of the head beside Host.
#pragma once

#include <functional>
#include <memory>

#include "api/call.h"
#include "core/wire/tunnel.h"

namespace billow::api {

// One connection into a job. Destroying it cuts it. Messages get their number here.
class Tunnel {
 public:
  virtual ~Tunnel() = default;
  virtual bool send(wire::agent_v1::Tunnelled message,
                    std::string_view blob) = 0;  // false: it is over
};

class TunnelHost {
 public:
  virtual ~TunnelHost() = default;
  // Null: the node does not answer. TunnelOpened comes first, then data, credit and ends; nothing
  // after a cut.
  using OnTunnel = std::function<void(const wire::agent_v1::Tunnelled&, std::string_view blob)>;
  virtual std::unique_ptr<Tunnel> open_tunnel(NodeId node,
                                              wire::agent_v1::TunnelOpen request,
                                              OnTunnel fn) = 0;
};

namespace streams {
void tunnel(CallPtr call);
}  // namespace streams

}  // namespace billow::api
