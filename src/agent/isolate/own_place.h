// The agent's own directory in a place where everyone may write (/tmp, /dev/shm). Files that jobs
// must reach cannot be in the agent's data directory, and another user could create a directory
// with a predictable name first.
//
// The name is random, and stored in the data directory, so that a restarted agent finds it again.
// Others cannot create files in it, but can pass through it to files that are given to them.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::agent {

// If another user has taken the stored name, a new one is used.
Result<std::string> own_place(const std::string& data_dir, const std::string& under);

}  // namespace billow::agent
