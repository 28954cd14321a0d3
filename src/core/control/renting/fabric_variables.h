// What a job must know to use the network between its nodes: variables of NCCL, libfabric and UCX,
// by the label `fabric` of its node. Internal to this module.
#pragma once

#include <map>
#include <string>

namespace billow::control {

// Empty for networks that need nothing to be set.
std::map<std::string, std::string> fabric_variables(
    const std::map<std::string, std::string>& labels);

}  // namespace billow::control
