#include "agent/isolate/look_as_user.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

namespace billow::agent {
namespace {

// Between fork and the end of a process with threads: system calls only.
Sight look(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT                      ? Sight::nothing
           : errno == ENOTDIR || errno == ELOOP ? Sight::used
                                                : Sight::closed;
  alignas(8) char entries[4096];
  Sight seen = Sight::empty;
  for (long n = 0;
       seen == Sight::empty && (n = ::syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;)
    for (long at = 0; at < n;) {
      // struct linux_dirent64: inode, offset, length of the record, kind, name.
      std::uint16_t length = 0;
      std::memcpy(&length, entries + at + 16, sizeof length);
      const char* name = entries + at + 19;
      if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0)
        seen = Sight::used;
      at += length;
    }
  ::close(fd);
  return seen;
}

}  // namespace

Sight look_as_user(const std::optional<Identity>& user, const std::string& path) {
  if (!user)
    return look(path.c_str());
  const std::vector<gid_t> groups(user->groups.begin(), user->groups.end());
  const pid_t pid = ::fork();
  if (pid < 0)
    return Sight::closed;
  if (pid == 0) {
    if (::setgroups(groups.size(), groups.data()) != 0 ||
        ::setresgid(user->gid, user->gid, user->gid) != 0 ||
        ::setresuid(user->uid, user->uid, user->uid) != 0)
      ::_exit(static_cast<int>(Sight::closed));
    ::_exit(static_cast<int>(look(path.c_str())));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return Sight::closed;
  return WIFEXITED(status) && WEXITSTATUS(status) <= static_cast<int>(Sight::closed)
             ? static_cast<Sight>(WEXITSTATUS(status))
             : Sight::closed;
}

}  // namespace billow::agent
