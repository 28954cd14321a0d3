// How far a job is kept apart, and which network it has: what would not hold is refused when the
// job is submitted, and so is what its project does not allow.
#pragma once

#include "base/result.h"
#include "core/model/job.h"
#include "core/model/node.h"

namespace billow::control {

// Gives a strict job that asks for no network none.
Status check_isolation(JobSpec& spec, const Project& project);

}  // namespace billow::control
