// Saved environments as they lie in a user's store: unpacked once, read-only by use, and shown to
// each job with a writable layer of its own. Plain directories: no loop device, no privilege, and a
// warm one costs a mount.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::container {

// What a job needs to know of an environment that is here.
struct Environment {
  std::string place;  // "/" for a root file system
  std::map<std::string, std::string> variables;
  std::vector<std::string> programs;  // relative to the place
  std::vector<std::string> command;
  std::string directory;
  std::int64_t bytes = 0;
  template <class V>
  void fields(V& v) {
    v("place", place);
    v("variables", variables);
    v("programs", programs);
    v("command", command);
    v("directory", directory);
    v("bytes", bytes);
  }
};

std::string environment_dir(const std::string& store,
                            const std::string& digest);  // its files are in /tree below
// not_found where it has not been unpacked, or not whole.
Result<Environment> find_environment(const std::string& store, const std::string& digest);

struct Unpacking {
  std::string store, digest;
  std::string key;  // of the task that is to run in it: until it has ended, the environment is not
                    // taken away
  std::uint64_t bytes_max =
      0;  // of all environments of the store; the longest unused go first, none that a task uses
};
// One that is here, for the task. not_found where it is not. None, here and below: another process
// is at it; nobody waits for it here, ask again.
Result<std::optional<Environment>> hold_environment(const Unpacking& what);
// Reads an image from `fd` (8 bytes: the size of its tree's list; the list; the content of its
// files in that order), unpacks it and holds it for the task. Nothing of it is left when it is
// refused or breaks off.
Result<std::optional<Environment>> unpack_environment(const Unpacking& what, int fd);

}  // namespace billow::container
