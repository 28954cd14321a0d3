// What lies at a path, as a job's user sees it: the agent, who can look anywhere, must not tell a
// user what that user cannot see.
#pragma once

#include <optional>
#include <string>

#include "agent/isolate/task_spec.h"

namespace billow::agent {

enum class Sight {
  nothing,  // there is nothing
  empty,    // an empty directory
  used,     // anything else
  closed,   // this user cannot see
};
// None: as the agent itself. By a process of its own, since a thread cannot be somebody else by
// itself.
Sight look_as_user(const std::optional<Identity>& user, const std::string& path);

}  // namespace billow::agent
