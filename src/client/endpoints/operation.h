// Options of `deploy` about the operation of an endpoint: probes, rollouts, and what decides about
// the number of replicas. `scale` takes the last ones too.
#pragma once

#include <span>

#include "client/frame/command.h"
#include "core/model/endpoint.h"
#include "core/model/endpoint_program.h"

namespace billow::client {

// Probes and rollouts.
std::span<const OptionSpec> operation_options();
Status read_operation(const Parsed& parsed, EndpointPolicy& policy);

// The number of replicas, and how requests are divided among them.
std::span<const OptionSpec> scaling_options();
Status read_scaling(const Parsed& parsed, EndpointPolicy& policy);
// The settings of `policy` whose options were given.
ScaleChange given_scaling(const Parsed& parsed, const EndpointPolicy& policy);

// "none" removes what a text or a list says.
std::string text_or_none(const Parsed& parsed, const char* name);
std::vector<std::string> list_or_none(const Parsed& parsed, const char* name);

}  // namespace billow::client
