// The rights of the job's user on files, for as long as this object lives: what is opened or made
// meanwhile is what that user may open or make. Only root has to, for a job of somebody else.
#pragma once

#include <errno.h>
#include <grp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervise/spec.h"

namespace billow::supervise {

class JobRights {
 public:
  explicit JobRights(const Spec& spec) : other_(geteuid() == 0 && spec.has_uid && spec.uid != 0) {
    if (!other_)
      return;
    if (setgroups(spec.has_groups ? spec.groups_count : 0, spec.groups) != 0) {
      error_ = errno;
      return;
    }
    syscall(SYS_setfsgid, spec.has_gid ? spec.gid : getgid());
    syscall(SYS_setfsuid, spec.uid);
    // It never fails; it returns the previous user.
    if (static_cast<uid_t>(syscall(SYS_setfsuid, -1)) != spec.uid)
      error_ = EPERM;
  }
  JobRights(const JobRights&) = delete;
  JobRights& operator=(const JobRights&) = delete;
  ~JobRights() {
    if (!other_)
      return;
    syscall(SYS_setfsuid, 0);
    syscall(SYS_setfsgid, getegid());
  }
  int error() const { return error_; }  // not 0: nothing may be done

 private:
  bool other_;
  int error_ = 0;
};

}  // namespace billow::supervise
