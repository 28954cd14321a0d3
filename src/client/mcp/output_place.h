// Where an agent may let outputs of its jobs be written.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::client::mcp {

// A directory below the one in which the server was started: not hidden, and no part of it a link.
// Errors say what to give instead.
Result<std::string> place_for_outputs(const std::string& asked);

}  // namespace billow::client::mcp
