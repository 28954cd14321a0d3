// Saved environments in a user's store on a node: unpacked once and mounted for each job under a
// separate writable layer. They are plain directories, so they need no loop device and no
// privilege, and a job that finds one unpacked pays for one mount only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::container {

// What a job needs to know about an unpacked environment.
struct Environment {
  std::string place;  // "/" for a root file system
  std::map<std::string, std::string> variables;
  std::vector<std::string> programs;  // directories for PATH, relative to the place
  std::vector<std::string> command;
  std::string directory;
  std::int64_t bytes = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("place", s.place);
    v("variables", s.variables);
    v("programs", s.programs);
    v("command", s.command);
    v("directory", s.directory);
    v("bytes", s.bytes);
  }
};

std::string environment_dir(const std::string& store,
                            const std::string& digest);  // its files are in /tree below
// not_found: it has not been unpacked completely.
Result<Environment> find_environment(const std::string& store, const std::string& digest);

struct Unpacking {
  std::string store, digest;
  std::string key;  // of the task that will use it; the environment is kept until that task ends
  // Limit for all environments in the store. The least recently used are removed first, never one
  // that a task uses.
  std::uint64_t bytes_max = 0;
};
// Marks an unpacked environment as used by the task. not_found: it is not in the store. An empty
// optional, here and below: another process holds the lock; this never waits for it, try again.
Result<std::optional<Environment>> hold_environment(const Unpacking& what);
// Reads an environment from `fd` (8 bytes with the size of the file list, the list, then the
// content of its files in that order), unpacks it and marks it as used by the task. On an error
// nothing of it remains.
Result<std::optional<Environment>> unpack_environment(const Unpacking& what, int fd);

}  // namespace billow::container
