// Files into and out of the directory of a job that runs: a helper that is the job's user in every
// respect, in the job's directory, with nothing but one end of a socket, at whose other end the
// agent hands over or takes a tree. What the user may not read or write the helper may not either,
// and a link in the way leads nowhere.
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
  std::string path;  // what is brought out; empty: everything
};
// Starts the helper, has `talk` speak to it, and waits for its end. An error says what the helper
// said was wrong.
Status run_copy_helper(const CopyHelper& helper, const std::function<Status(int fd)>& talk);

}  // namespace billow::agent
