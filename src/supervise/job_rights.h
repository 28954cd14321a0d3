// The rights of the job's user and groups on files, for as long as this object lives: what is
// opened or made meanwhile is what that user may open or make. Only root has to, for a job of
// somebody else.
#pragma once

#include <errno.h>
#include <grp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process/file_rights_linux.h"
#include "supervise/spec.h"

namespace billow::supervise {

class JobRights {
 public:
  explicit JobRights(const Spec& spec)
      : other_(geteuid() == 0 && spec.has_uid && spec.uid != 0),
        user_(other_ ? spec.uid : geteuid()) {
    if (!other_)
      return;
    if (setgroups(spec.has_groups ? spec.groups_count : 0, spec.groups) != 0) {
      error_ = errno;
      return;
    }
    syscall(SYS_setfsgid, spec.has_gid ? spec.gid : getgid());
    if (!user_.taken())
      error_ = EPERM;
  }
  JobRights(const JobRights&) = delete;
  JobRights& operator=(const JobRights&) = delete;
  ~JobRights() {
    if (other_)
      syscall(SYS_setfsgid, getegid());
  }
  int error() const { return error_; }  // not 0: nothing may be done

 private:
  bool other_;
  process::FileRights user_;
  int error_ = 0;
};

}  // namespace billow::supervise
