// Enters a running container: starts a shell or a command beside the job's own, in its namespaces,
// with its environment and no more rights than it has. Used by `billow ssh`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "container/plan.h"

namespace billow::container {

struct Entry {
  int pid = 0;  // of a process in the container
  Plan plan;
  std::vector<std::string> env;  // the job's, without its secrets
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pid", s.pid);
    v("plan", s.plan);
    v("env", s.env);
  }
};
// Replaces this process with `command`, run by the image's shell; empty: a login shell.
// "internal-sftp …", the name sshd gives its built-in server, starts the image's sftp-server.
// Must be called as the job's user, with one thread. Returns only on error.
Status enter_container(const Entry& entry, const std::string& command);

}  // namespace billow::container
