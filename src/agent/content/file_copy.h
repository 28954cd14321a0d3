// Copies files into and out of the directory of a running job. A helper process runs as the job's
// user in the job's directory and holds one end of a socket; at the other end the agent sends or
// receives a tree. The helper cannot read or write more than the user can, and follows no links.
#pragma once

#include <functional>
#include <string>

#include "agent/isolate/task_spec.h"
#include "base/result.h"

namespace billow::agent {

struct CopyHelper {
  std::string cwd;
  std::optional<Identity> identity;  // none: as the agent
  bool into = false;
  std::string path;  // what to copy out; empty: everything
};
// Starts the helper, lets `talk` communicate with it, and waits for its end. An error carries the
// helper's message.
Status run_copy_helper(const CopyHelper& helper, const std::function<Status(int fd)>& talk);

}  // namespace billow::agent
