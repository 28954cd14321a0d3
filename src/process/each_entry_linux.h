// The entries of a directory, by system calls alone: safe between fork and exec of a process with
// threads, and free of the C++ library (billow-supervise uses it too).
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace billow::process {

// Calls `take(name)` for each entry except `.` and `..`, until one returns an error. Returns that
// error, or 0.
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

}  // namespace billow::process
