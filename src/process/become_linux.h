// The steps by which a new process gives up what it inherited: user, privileges, signals. Every
// process that Billow starts takes them from here: programs through spawn.h, and jobs through
// billow-supervise, which is static and has no C++ library. So this header uses system calls alone:
// no allocation, no exceptions, safe between fork and exec of a process with threads.
#pragma once

#include <errno.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

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

// Programs with a set-user-id bit or file capabilities gain nothing from here on.
inline const char* forbid_new_privileges() {
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? nullptr : "forbid new privileges";
}

}  // namespace billow::process
