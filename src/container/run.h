// Starts a job's command in its container: creates the namespaces and mounts of a plan, then
// replaces this process with the command or with the runtime that runs it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "container/plan.h"

namespace billow::container {

// Returns only on error. `env` is the job's environment; the process must have one thread.
Status run_plan(const Plan& plan,
                const std::vector<std::string>& command,
                const std::vector<std::string>& env);

}  // namespace billow::container
