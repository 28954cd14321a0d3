// A second way into a room that is there: a shell or a command beside the job's own, in its
// namespaces, with its variables and no more rights than it has. For whoever is let in from outside
// (`billow ssh`).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "container/plan.h"

namespace billow::container {

struct Entry {
  int pid = 0;  // of a process in the room
  Plan plan;
  std::vector<std::string> env;  // of the job, but for its secrets
  template <class V>
  void fields(V& v) {
    v("pid", pid);
    v("plan", plan);
    v("env", env);
  }
};
// Becomes `command`, run by a shell of the image's; empty: a shell, as at a login. "internal-sftp
// …", which sshd calls its own, is the image's server of files. As the job's user, with one thread.
// Returns only with what went wrong.
Status enter_room(const Entry& entry, const std::string& command);

}  // namespace billow::container
