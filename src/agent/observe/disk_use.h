// What a task's files take on the node's disk: those below its directories, and those that its
// processes have deleted but still hold open or mapped, which no directory shows.
#pragma once

#include <cstdint>
#include <string>
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

// Follows no symbolic link and stays on the file system of each place. Places that do not exist
// count as nothing. Blocks: for workers.
DiskUse disk_use(const std::vector<std::string>& places,
                 const std::vector<int>& pids,
                 std::int64_t entries_max = disk_entries_max);

// Free and all bytes of the file system that holds `path`; -1: unknown.
struct DiskSpace {
  std::int64_t free = -1, size = -1;
};
DiskSpace disk_space(const std::string& path);

}  // namespace billow::agent
