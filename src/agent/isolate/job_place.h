// Where a command beside a running job runs: as the job's user, in its control groups and
// namespaces, so that it has the job's limits and sees the job's devices and files, and nothing of
// other jobs. Hooks and `billow ssh` run there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"

namespace billow::agent {

struct JobPlace {
  std::optional<Identity> identity;  // none: the agent's own user
  std::vector<std::string> cgroups;  // directories of the job's control groups
  int pid = 0;                       // a process of the job, whose namespaces are entered
  std::vector<std::string> env;      // of the job, without its secrets
  std::string cwd = "/";
  // System calls that are refused as to the job (process/call_filter_linux.h).
  std::uint32_t refused_calls = 0;
  // How the job's image is entered (container::Entry as JSON). Empty: the job runs on the node's
  // own file system.
  std::string image_entry;
};

}  // namespace billow::agent
