// Checks of an endpoint's settings.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/endpoint.h"

namespace billow::control {

// The error names the option that is wrong.
Status check_policy(const EndpointPolicy& policy);

// Browsers send an origin without a slash at its end, so it is cut. An origin with a path would
// never match, and is refused.
Status tidy_origins(std::vector<std::string>& origins);

}  // namespace billow::control
