// Which accounts of this machine may use a head that serves all of them (`billow up --system`).
#pragma once

#include <string>

#include "base/result.h"

namespace billow::server {

// The name of the account with this number. The node's policy (agent/node/node_policy.h) decides:
// who may run jobs on this machine may use its head. Root always may. May block, on a directory of
// users on another machine.
Result<std::string> account_with_access(unsigned uid);

}  // namespace billow::server
