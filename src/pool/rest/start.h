// What a machine of a rest pool runs at its first start.
#pragma once

#include <string>

#include "pool/pool.h"
#include "pool/rest/provider.h"

namespace billow::pool::rest {

// A shell script, which cloud-init, start-up scripts and containers all accept. Identical for
// identical orders.
std::string start_script(const Order& order, const billow::Pool& settings, BootKind kind);

}  // namespace billow::pool::rest
