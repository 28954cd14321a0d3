// Options of `deploy` about the operation of an endpoint: probes, rollouts, and what decides about
// the number of replicas besides requests.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "client/frame/command.h"
#include "core/model/endpoint.h"

namespace billow::client {

std::span<const OptionSpec> operation_options();
Status read_operation(const Parsed& parsed, EndpointPolicy& policy);
// A time as it can be given to an option: "90s", "1h".
std::string typed(Duration time);
// Calls `keep(option, value)` for each setting that differs from its default.
void each_operation(const EndpointPolicy& policy,
                    const std::function<void(const char* option, std::string value)>& keep);

}  // namespace billow::client
