// The steps by which a new process gives up what it inherited: user, privileges, signals. Every
// process that Billow starts takes them from here: programs through spawn.h, and jobs through
// billow-supervise, which is static and has no C++ library. So this header uses system calls alone:
// no allocation, no exceptions, safe between fork and exec of a process with threads.
#pragma once

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "process/signals.h"

namespace billow::process {

struct BecomeUser {
  uid_t uid = 0;
  gid_t gid = 0;
  const gid_t* groups = nullptr;  // all supplementary groups
  std::size_t groups_count = 0;
};

// Sets groups, group and user in this order, because each step loses the right to the one before.
// Returns null, or the step that failed, with errno.
inline const char* become_user(const BecomeUser& user) {
  if (getuid() == 0 || user.uid != getuid()) {
    if (setgroups(user.groups_count, user.groups) != 0)
      return "set the supplementary groups";
    if (setresgid(user.gid, user.gid, user.gid) != 0)
      return "set the group";
    if (setresuid(user.uid, user.uid, user.uid) != 0)
      return "set the user";
  }
  // Verify: a process of an ordinary user must not be able to become root again.
  if (user.uid != 0 && (getuid() != user.uid || geteuid() != user.uid || setresuid(0, 0, 0) == 0)) {
    errno = EPERM;
    return "drop root";
  }
  return nullptr;
}

// Gives up every capability that PR_SET_KEEPCAPS kept, except the one to listen on ports below
// 1024.
inline const char* keep_low_ports() {
  constexpr std::uint32_t kept = 1u << CAP_NET_BIND_SERVICE;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct sets[2] = {{kept, kept, kept}, {0, 0, 0}};
  if (syscall(SYS_capset, &header, sets) != 0)
    return "drop the capabilities";
  return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_BIND_SERVICE, 0, 0) == 0
             ? nullptr
             : "keep the right to listen on low ports";
}

// Programs with a set-user-id bit or file capabilities gain nothing from here on.
inline const char* forbid_new_privileges() {
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? nullptr : "forbid new privileges";
}

}  // namespace billow::process
