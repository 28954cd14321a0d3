#include "process/fork.h"

#include <fcntl.h>
#include <unistd.h>

namespace billow::process {

Result<int> fork_child(const Prepared&) {
  return fail(Code::unsupported, "programs can only be started plainly on this system");
}

void close_on_exec_from(int first) {
  for (int fd = first; fd < ::getdtablesize(); ++fd)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void close_in_child(const Prepared& prepared, posix_spawn_file_actions_t& actions, short& flags) {
  flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
  for (int fd = 0; fd < 3; ++fd)
    if (!prepared.gives(fd))
      ::posix_spawn_file_actions_addinherit_np(&actions, fd);
}

}  // namespace billow::process
