// Checks of an endpoint's settings.
#pragma once

#include "base/result.h"
#include "core/model/endpoint.h"

namespace billow::control {

// The error names the option that is wrong.
Status check_policy(const EndpointPolicy& policy);

}  // namespace billow::control
