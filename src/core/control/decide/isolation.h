// How far a job is kept apart, and which network it has: combinations that could not be enforced,
// or that the project does not allow, are refused at submission.
#pragma once

#include "base/result.h"
#include "core/model/job.h"
#include "core/model/node.h"

namespace billow::control {

// Gives a strict job that asks for no network none.
Status check_isolation(JobSpec& spec, const Project& project);

}  // namespace billow::control
