// How spawn() starts what posix_spawn cannot: in this room alone. fork_linux.cpp does it;
// fork_darwin.cpp, for the client on macOS, says that it is not supported.
#pragma once

#include <spawn.h>

#include <vector>

#include "process/spawn.h"

namespace billow::process {

struct Prepared {
  const Spawn& request;
  std::vector<char*> argv, env;  // both end in null
  std::vector<GivenFd> fds;      // sources lie above every target
  int first_free_fd = 3;         // above every target
  const char* program() const {
    return request.program.empty() ? argv[0] : request.program.c_str();
  }
  bool gives(int fd) const {
    for (const GivenFd& one : fds)
      if (one.as == fd)
        return true;
    return false;
  }
};

Result<int> fork_child(const Prepared& prepared);
// Marks every descriptor of this process from `first` on as close-on-exec.
void close_on_exec_from(int first);
// A child of posix_spawn has no descriptors but its standard streams and those it is given.
void close_in_child(const Prepared& prepared, posix_spawn_file_actions_t& actions, short& flags);

}  // namespace billow::process
