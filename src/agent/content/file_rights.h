#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace billow::agent {

// This thread has the rights of this user on files, and so on the sockets that it makes: they
// belong to that user.
class FileRights {
 public:
  explicit FileRights(unsigned uid) : uid_(uid) { ::syscall(SYS_setfsuid, uid); }
  FileRights(const FileRights&) = delete;
  FileRights& operator=(const FileRights&) = delete;
  ~FileRights() { ::syscall(SYS_setfsuid, ::geteuid()); }
  // The call never fails; it returns the previous user.
  bool taken() const { return static_cast<unsigned>(::syscall(SYS_setfsuid, -1)) == uid_; }

 private:
  unsigned uid_;
};

}  // namespace billow::agent
