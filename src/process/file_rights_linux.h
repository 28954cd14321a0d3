// The rights of another user on files, for one thread and as long as the object lives. System calls
// alone, for billow-supervise too, which has no C++ library.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace billow::process {

// What this thread opens or makes meanwhile, sockets too, is what that user may open or make.
// For one's own user nothing changes.
class FileRights {
 public:
  explicit FileRights(unsigned uid) : uid_(uid) { syscall(SYS_setfsuid, uid); }
  FileRights(const FileRights&) = delete;
  FileRights& operator=(const FileRights&) = delete;
  ~FileRights() { syscall(SYS_setfsuid, geteuid()); }
  // The call never fails; it returns the previous user. False: nothing may be done.
  bool taken() const { return static_cast<unsigned>(syscall(SYS_setfsuid, -1)) == uid_; }

 private:
  unsigned uid_;
};

}  // namespace billow::process
