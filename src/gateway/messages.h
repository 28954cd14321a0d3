// The messages between head and gateway as text: one JSON object each, with its kind.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "gateway/table.h"

namespace billow::gateway {

std::string encode(const ToGateway& message);
std::string encode(const FromGateway& message);
Result<ToGateway> decode_to_gateway(std::string_view text);
Result<FromGateway> decode_from_gateway(std::string_view text);

}  // namespace billow::gateway
