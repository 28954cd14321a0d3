// The public document of an endpoint: its revisions, replicas, figures and cost.
#pragma once

#include <functional>
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
  std::string fingerprint;                            // of the first one's certificate
  // Why a running replica does not serve, as its node reports it; empty: nothing is known.
  std::function<std::string(TaskId)> trouble_of = {};
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

// How many endpoints have a replica that runs. They are served while no head runs.
std::size_t endpoints_running(const control::State& state);

}  // namespace billow::view
