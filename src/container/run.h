// Starts a job's command in its room: makes the namespaces and mounts of a plan and becomes the
// command, or the runtime that runs it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "container/plan.h"

namespace billow::container {

// Returns only with what went wrong. `env` is the job's environment; the process must have one
// thread.
Status run_plan(const Plan& plan,
                const std::vector<std::string>& command,
                const std::vector<std::string>& env);

}  // namespace billow::container
