// A shell command of a job's user, run by the agent beside the job: before a suspend, after a
// resume, to make a checkpoint. It runs as the job's user in the job's directory, never with more
// than that user has, and is ended when its time is over.
#pragma once

#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"
#include "base/clock.h"
#include "base/result.h"

namespace billow::agent {

struct Hook {
  std::string command;
  std::vector<std::string> env;  // NAME=value
  std::string cwd = "/";
  std::optional<Identity> identity;  // none: as the agent
  Duration patience = seconds(60);
};
// Blocks until it has ended. An error says how it failed, with the end of what it printed.
Status run_hook(const Hook& hook);

}  // namespace billow::agent
