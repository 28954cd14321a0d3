// The process at the other end of a Unix socket, as the kernel identifies it.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"

namespace billow::agent {

struct SocketPeer {
  int pid = 0;
  unsigned uid = 0;
  Fd handle;  // of the process, if the kernel gives one: it shows that the pid was not reused

  // False if the process has ended, so that its pid may belong to another one.
  bool alive() const;
};
std::optional<SocketPeer> peer_of(int socket);

// The parent of a process; 0: it has ended, or has none.
int parent_of(int pid);
// The path of its v2 control group, from /proc/PID/cgroup; empty: unknown.
std::string cgroup_of(int pid);

}  // namespace billow::agent
