// Walks through trees that users can write to, with bounded memory and few descriptors: whoever
// made the tree may have made it as deep as they like, and may change it meanwhile.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace billow {

struct DirStreamCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using DirStream = std::unique_ptr<DIR, DirStreamCloser>;
// Follows no link. Empty: it cannot be read.
DirStream open_dir_stream(int at, const char* name);

struct TreeVisit {
  // Each entry below the top, named in its open directory. False: the walk ends.
  std::function<bool(int directory, const char* name, const struct stat& info)> entry;
  // A directory that is not entered because it lies too deep. May be empty.
  std::function<void(int directory, const char* name)> too_deep = {};
};

// Deeper than any directory that is used by its path, which has at most 4,096 bytes.
inline constexpr std::size_t walk_levels_max = 500;

// Follows no link, also not at the top. What cannot be read is left out.
void walk_tree(const std::string& top, const TreeVisit& visit);

}  // namespace billow
