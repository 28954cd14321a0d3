// What a member of a gang gets beside its own command: `billow ranks` in front of it, and a file
// with the hosts.
#pragma once

#include <string>
#include <vector>

#include "core/wire/agent_v1.h"

namespace billow::agent {

// The command, with the launcher of ranks in front where there is more than one process to start. A
// terminal is one process's.
std::vector<std::string> gang_argv(const wire::agent_v1::Start& start);

// For launchers that want a file: "address slots=N" a line. Empty: this task is no member of a
// gang, or it could not be written.
std::string write_hostfile(const std::string& directory, const wire::agent_v1::Start& start);
void remove_hostfile(const std::string& directory, TaskId task);

}  // namespace billow::agent
