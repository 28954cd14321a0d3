// Checks of canaries and of keys, and which revision is a canary.
#pragma once

#include <vector>

#include "base/result.h"
#include "core/model/endpoint.h"

namespace billow::control {

Status check_release(const ReleasePlan& plan);
Status check_key_limits(const std::vector<KeyLimit>& limits, const Endpoint& endpoint);
// The canary of an endpoint, or the one that is starting; null: none.
const Revision* canary_of(const Endpoint& endpoint);

}  // namespace billow::control
