// Mounting a single file.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

namespace billow::supervise {

// Binds a file, device or socket over a new empty file.
inline int bind_file(const char* from, const char* to) {
  const int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return errno;
  close(fd);
  return mount(from, to, nullptr, MS_BIND, nullptr) == 0 ? 0 : errno;
}

}  // namespace billow::supervise
