// What a task's files take on the node's disk: those below its directories, and those that its
// processes have deleted but still hold open or mapped, which no directory shows.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace billow::agent {

struct DiskUse {
  std::int64_t bytes = 0;    // blocks of files, each counted once, however many names it has
  std::int64_t entries = 0;  // files and directories that were looked at
  bool complete = true;      // false: there are too many files to count them
  bool too_deep = false;     // directories are nested more deeply than can be followed
};

inline constexpr std::int64_t disk_entries_max = 20'000'000;
inline constexpr std::size_t disk_depth_max = 500;

// The directories and larger files that were found so far, by handles that the file system gives
// them. What is moved while it is counted, so that no directory shows it at the right moment, and
// what is deleted and kept where no process shows it (in a message between sockets), is found
// again by its handle. Needs root and a file system with handles; otherwise it stays empty.
class DiskMemory {
 public:
  static constexpr std::int64_t file_bytes_min = 64 << 10;
  static constexpr std::size_t handles_max = 200'000;  // of 100 bytes or so; more are not found

 private:
  friend class DiskWalk;
  struct Handle {
    int type = 0;
    std::string bytes;
  };
  std::map<std::pair<dev_t, ino_t>, Handle> handles_;
};

// Follows no symbolic link and stays on the file system of each place. Places that do not exist
// count as nothing. Blocks: for workers.
DiskUse disk_use(const std::vector<std::string>& places,
                 const std::vector<int>& pids,
                 std::int64_t entries_max = disk_entries_max,
                 DiskMemory* memory = nullptr);

// Free and all bytes of the file system that holds `path`; -1: unknown.
struct DiskSpace {
  std::int64_t free = -1, size = -1;
};
DiskSpace disk_space(const std::string& path);

}  // namespace billow::agent
