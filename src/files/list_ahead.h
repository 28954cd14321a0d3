// Lists the directories of a tree with several threads, ahead of the scan that decides what belongs
// to it: most of the time of a scan goes into asking the kernel for the states of files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace billow::files {

struct Listed {
  std::string name;
  bool known = false;  // the rest: it could be asked for
  mode_t mode = 0;
  std::uint64_t size = 0, inode = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
};
using Listing = std::vector<Listed>;  // by name

inline constexpr const char* ignore_file_names[] = {".gitignore", ".billowignore"};
inline constexpr std::size_t ignore_file_bytes_max = 1 << 20;

// Billow's own directories below a home, by their paths relative to it: a head's data, caches, and
// logins with their tokens.
bool is_billows_own(std::string_view path);

// By relative path; the root is "". A directory that could not be listed is absent. With
// `ignore_files`, those that the ignore files leave out are not listed.
std::unordered_map<std::string, Listing> list_ahead(const std::string& root, bool ignore_files);
// One directory, or one name in it. They return an errno value, or 0.
int list_directory(const std::string& path, Listing& out);
int look_at(int directory, const char* name, Listed& out);

}  // namespace billow::files
