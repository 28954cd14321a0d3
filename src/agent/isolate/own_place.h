// A directory of this agent's own in a place where everybody may write (/tmp, /dev/shm): what jobs
// must reach cannot lie in the agent's data directory, and a name that others can guess would be
// theirs to take first, for every next task.
//
// Its name is drawn, and kept in the data directory, so that the next life of the agent finds it
// again. Nobody else can make anything in it; everybody can pass through it, to what is given to
// them.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::agent {

// One that somebody else has under that name by now is left to them, and another name drawn.
Result<std::string> own_place(const std::string& data_dir, const std::string& under);

}  // namespace billow::agent
