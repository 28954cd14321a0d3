// What a path holds, as a job's user sees it: the agent can look anywhere, and must not reveal to a
// user what that user cannot see.
#pragma once

#include <optional>
#include <string>

#include "agent/isolate/task_spec.h"

namespace billow::agent {

enum class Sight {
  nothing,  // no such path
  empty,    // an empty directory
  used,     // anything else
  closed,   // the user may not look there
};
// No user: as the agent itself. In a separate process, because a single thread of a program cannot
// become another user.
Sight look_as_user(const std::optional<Identity>& user, const std::string& path);

}  // namespace billow::agent
