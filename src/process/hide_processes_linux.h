// A /proc without the processes that its reader may not look into, for the mount namespace that
// this process is in. Only a system call: the supervisor, which has no C++ library, makes it too.
#pragma once

#include <errno.h>
#include <sys/mount.h>

namespace billow::process {

// 0 or an errno. The setting is given by its name, because kernels before 5.8 do not know the name
// and refuse it: they would take the number for the /proc of the whole node.
inline int hide_processes() {
  const int result =
      mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible");
  return result == 0 ? 0 : errno;
}

}  // namespace billow::process
