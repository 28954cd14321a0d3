// The job's side of its node's file service, for `billow stage`: runs as the job's own user, with
// nothing but the name of a socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::agent {

// Brings the tree with this digest into a directory.
Status stage_files(const std::string& socket,
                   const std::string& digest,
                   const std::string& directory);
// The same two over a descriptor that is open already, for a helper of the agent's.
Status take_tree(int fd, const std::string& directory);
Status give_tree(int fd, const std::string& directory, const std::string& path);
// Has an object from elsewhere put at a path in the job's directory. `variables`: the keys for it,
// by the names that S3 tools use.
struct BroughtInput {
  std::uint64_t files = 0, bytes = 0, fetched_bytes = 0;
};
Result<BroughtInput> bring_input(const std::string& socket,
                                 const std::string& url,
                                 const std::string& path,
                                 const std::map<std::string, std::string>& variables);
// Hands over what lies at these paths, as far as it can be had, and tells what cannot: one bad path
// costs nothing but itself.
struct NotLeft {
  std::vector<std::string> absent;  // the job made none
  std::vector<std::string> bad;     // there, but not to be had: "out/core: Permission denied"
};
Status leave_outputs(const std::string& socket,
                     const std::string& directory,
                     const std::vector<std::string>& paths,
                     NotLeft& not_left);

}  // namespace billow::agent
