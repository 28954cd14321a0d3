// The public documents of gateways.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "gateway/table.h"

namespace billow::view {

Json gateway_document(const gateway::GatewayRow& row);
// What each connected gateway has to do with an endpoint.
Json gateway_shares(const std::vector<gateway::GatewayRow>& rows, const std::string& endpoint);

}  // namespace billow::view
