// The value of an answer of Prometheus to an instant query. Pure.
#pragma once

#include <string_view>

#include "base/result.h"

namespace billow::gateway {

// A scalar, or the sum of the series of a vector.
Result<double> query_value(int status, std::string_view body);

}  // namespace billow::gateway
