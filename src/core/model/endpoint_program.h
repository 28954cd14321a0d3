// Which settings of an endpoint belong to the program of a revision.
#pragma once

#include <algorithm>

#include "core/model/endpoint.h"

namespace billow {

// Takes over the settings of the program: how it is started, asked and placed. A rollback restores
// them. Everything else belongs to the endpoint: who may call it, how many replicas it has, and
// what they may cost.
inline void take_program_settings(EndpointPolicy& policy, const EndpointPolicy& from) {
  policy.start_timeout = from.start_timeout;
  policy.health = from.health;
  policy.probes = from.probes;
  policy.protocol = from.protocol;
  policy.regions = from.regions;
  policy.spot = from.spot;
  policy.base_on_demand = std::min(from.base_on_demand, policy.max);
}

}  // namespace billow
