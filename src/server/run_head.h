// Runs a head with its API: the one place where the two are put together.
#pragma once

#include "base/result.h"
#include "head/options.h"

namespace billow::server {

// Runs until a signal or `billow down`. An error says why the head could not start, or why it
// ended.
Status run_head(head::HeadOptions options);

}  // namespace billow::server
