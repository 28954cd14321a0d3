// What a member of a gang gets in addition to its command: `billow ranks` in front of it, and a
// file with the hosts.
#pragma once

#include <string>
#include <vector>

#include "core/wire/agent_v1.h"

namespace billow::agent {

// The command, with `billow ranks` in front if there is more than one process to start. A terminal
// has one process.
std::vector<std::string> gang_argv(const wire::agent_v1::Start& start);

// For launchers that read a hostfile: lines of "address slots=N". Empty: this task is not in a
// gang, or the file could not be written.
std::string write_hostfile(const std::string& directory, const wire::agent_v1::Start& start);
void remove_hostfile(const std::string& directory, TaskId task);
// Those of all tasks except these: leftovers of an earlier agent process.
void remove_other_hostfiles(const std::string& directory, const std::vector<TaskId>& live);

}  // namespace billow::agent
