// The front door of the endpoints as tables: what a snapshot stores, and what gateways are sent.
// And who may have a name: host names, models and endpoints of all projects share the gateways, so
// that taking another project's name would mean getting its requests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/control/state.h"

namespace billow::control {

FrontDoorImage image_of(const FrontDoor& door);
FrontDoor restore_front_door(FrontDoorImage image);

// What gateways are sent: without routes that have the name of another project's endpoint. They
// cannot be made any more, but older journals may have them.
FrontDoorImage served_front_door(const State& state);

// Names that the gateways have themselves. They are not part of the state: gateways report them.
struct GatewayNames {
  std::vector<std::string> domains;  // --domain: endpoints are served below them
  std::vector<std::string> hosts;    // where gateways are reached, with or without a port
};

// A domain as it is stored and compared: in lower case, without a final dot.
std::string domain_name(std::string_view name);
// Refuses what is no domain, names of the gateways themselves, and names below their own domains.
Status check_not_of_gateways(const std::string& domain, const GatewayNames& gateways);
// What somebody is told who may not give a project a host name.
Error only_admins_add(const Domain& domain);
// Whether a new endpoint of this project may have this name.
Status check_endpoint_name(const State& state, const std::string& name, ProjectId project);

}  // namespace billow::control
