// The front door of the endpoints as tables: what a snapshot stores, and what gateways are sent.
// And who may have a name: host names, models and endpoints of all projects share the gateways, so
// that taking another project's name would mean getting its requests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/control/state.h"
#include "core/model/event.h"

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
// The error for users who may not give a project a host name.
Error only_admins_add(const Domain& domain);
// Whether a new endpoint of this project may have this name.
Status check_endpoint_name(const State& state,
                           const std::string& name,
                           ProjectId project,
                           WallTime now);

// The name of a deleted endpoint or model route is held for its project, because clients still send
// requests to it. It is a row of the domains, without a target, by a name that no host can have:
// so the journal has one kind of event for names that are kept. Gateways are not sent it.
inline constexpr int name_held_days = 30;
inline constexpr Duration name_held_for = hours(24) * name_held_days;
inline constexpr std::size_t held_names_max = 512;  // for a project; the oldest are freed
std::string held_name(std::string_view name);       // its key among the domains
bool is_held(const Domain& domain);
// The events that hold these names for a project from now on, and free what it holds no longer.
struct HeldNames {
  ProjectId project;
  UserId user;
  std::vector<std::string> names;
};
void hold_names(const State& state,
                const HeldNames& held,
                WallTime now,
                std::vector<EventBody>& events);

}  // namespace billow::control
