// The connection of one gateway.
#pragma once

#include <deque>

#include "gateway/messages.h"
#include "head/gateways.h"

namespace billow::head {

struct Gateways::Link {
  std::shared_ptr<net::WebSocket> socket;
  std::string region, name;
  bool own = false;  // the head has started it
  WallTime connected_at, seen_at;
  gateway::Figures said;  // the last report, without its endpoints and keys
  std::uint64_t requests = 0, in_flight = 0;
  std::deque<std::pair<SteadyTime, std::uint64_t>> rate;  // of the last seconds: all requests
  std::vector<std::string> addresses;
  std::vector<std::string> domains;
  std::string peer_address, peer_key;
  std::map<std::string, gateway::EndpointFigures> figures;
  std::string sent;     // the last table
  std::string gateway;  // the number under which it counts keys
  SteadyTime keys_recorded_at, counts_recorded_at;
  void send(const gateway::ToGateway& message) {
    if (socket->open())
      socket->send_text(gateway::encode(message));
  }
};

}  // namespace billow::head
