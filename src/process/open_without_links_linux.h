// Opens a path that was checked before, and nothing else: no part of it is followed if it became a
// symbolic link meanwhile. By system calls alone, for billow-supervise too, which has no C++
// library, and on kernels without openat2.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace billow::process {

// One part of a path, as the descriptor of a file or directory (O_PATH). A directory is asked for
// first: that mounts what an automounter mounts on demand.
inline int open_part(int above, const char* name) {
  const int directory = openat(above, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return directory >= 0 || errno != ENOTDIR ? directory
                                            : openat(above, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

// An absolute path, for O_PATH. -1 and errno; ELOOP if a part of it is a link.
inline int open_without_links(const char* path) {
  if (path[0] != '/') {
    errno = EINVAL;
    return -1;
  }
  int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  while (at >= 0) {
    while (*path == '/')
      ++path;
    if (*path == 0)
      break;
    char name[256];
    const char* end = strchrnul(path, '/');
    const auto length = static_cast<unsigned long>(end - path);
    int below = -1;
    int error = ENAMETOOLONG;
    if (length < sizeof(name)) {
      memcpy(name, path, length);
      name[length] = 0;
      below = open_part(at, name);
      error = errno;
    }
    close(at);
    struct stat st {};
    if (below >= 0 && (fstat(below, &st) != 0 || S_ISLNK(st.st_mode))) {
      close(below);
      below = -1;
      error = ELOOP;
    }
    at = below;
    path = end;
    errno = error;
  }
  return at;
}

}  // namespace billow::process
