// The control group of this machine's gateways. Replicas accept connections from processes in it
// (agent/isolate/replica_guard.h); only root can put a process into it. It is never removed, so it
// keeps its number while gateways start and stop.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::process {

// Where cgroup v2 is mounted; empty: nowhere.
std::string cgroup_v2_mount();
// Its directory, made if need be. An error: no cgroup v2 that this process can write.
Result<std::string> gateway_group();
// Puts this process into it: for gateways that root starts by hand.
Status enter_gateway_group();

}  // namespace billow::process
