// Internal to this module: when a lost member of a gang is replaced instead of ending the attempt.
#pragma once

#include "model/job.h"

namespace billow::control {

bool is_replaceable(const Job& job, const ExitStatus& exit);

}  // namespace billow::control
