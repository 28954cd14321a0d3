// The entries of a directory, without memory of our own: the supervisor calls this between fork and
// exec.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace billow::supervise {

// `take(name)` for each, but for `.` and `..`, until one gives an error, which is the answer.
template <class Take>
int each_entry(const char* directory, Take take) {
  struct Entry {
    std::uint64_t inode;
    std::int64_t offset;
    unsigned short bytes;
    unsigned char type;
    char name[];
  };
  const int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0)
    return errno;
  char buffer[8u << 10];
  int error = 0;
  while (error == 0) {
    const long n = syscall(SYS_getdents64, dir, buffer, sizeof(buffer));
    if (n <= 0)
      break;
    for (long at = 0; at < n && error == 0;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + at);
      at += entry->bytes;
      if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0)
        error = take(entry->name);
    }
  }
  close(dir);
  return error;
}

// Something that is no directory, bound over a new empty file.
inline int bind_file(const char* from, const char* to) {
  const int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return errno;
  close(fd);
  return mount(from, to, nullptr, MS_BIND, nullptr) == 0 ? 0 : errno;
}

}  // namespace billow::supervise
