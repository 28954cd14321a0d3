#include "agent/isolate/peer.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/text.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace billow::agent {

bool SocketPeer::alive() const {
  return !handle || ::syscall(SYS_pidfd_send_signal, handle.get(), 0, nullptr, 0) == 0 ||
         errno == EPERM;
}

std::optional<SocketPeer> peer_of(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.pid <= 0)
    return std::nullopt;
  SocketPeer peer{who.pid, who.uid, Fd()};
  int handle = -1;
  size = sizeof handle;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &handle, &size) == 0)
    peer.handle.reset(handle);
  return peer;
}

int parent_of(int pid) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", pid), 4096);
  if (!stat)
    return 0;
  // "PID (NAME) STATE PPID …"; the name may hold anything.
  const auto end = stat->rfind(") ");
  return end == std::string::npos || end + 4 > stat->size() ? 0
                                                            : std::atoi(stat->c_str() + end + 4);
}

std::string cgroup_of(int pid) {
  const auto text = read_file(fmt::format("/proc/{}/cgroup", pid), 64 << 10);
  for (const std::string& line : split(text ? *text : "", '\n'))
    if (line.starts_with("0::"))
      return line.substr(3);
  return {};
}

}  // namespace billow::agent
