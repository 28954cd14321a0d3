// The public document of an endpoint: its revisions, replicas, figures and cost.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "core/control/state.h"
#include "gateway/table.h"
#include "view/job_document.h"

namespace billow::view {

// What the gateways know of an endpoint.
struct GatewayView {
  const gateway::EndpointFigures* figures = nullptr;  // null: no gateway has reported any
  std::vector<std::string> addresses;                 // of all gateways
};

Json endpoint_document(const control::State& state,
                       const Endpoint& endpoint,
                       const GatewayView& gateways,
                       Moment at);
// Why the endpoint does not serve, or not yet.
Json explain_endpoint_document(const control::State& state,
                               const Endpoint& endpoint,
                               const GatewayView& gateways,
                               Moment at);

}  // namespace billow::view
