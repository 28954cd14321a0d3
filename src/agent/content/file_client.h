// The job's side of the node's file service, used by `billow stage`. It runs as the job's user and
// needs only the name of a socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::agent {

// Writes the tree with this digest into a directory.
Status stage_files(const std::string& socket,
                   const std::string& digest,
                   const std::string& directory);
// Receives or sends a tree over an open descriptor; used by the agent's copy helper.
Status take_tree(int fd, const std::string& directory);
Status give_tree(int fd, const std::string& directory, const std::string& path);
// Asks the agent to place an object at a path in the job's directory. `variables` holds the access
// keys under the names that S3 tools use.
struct BroughtInput {
  std::uint64_t files = 0, bytes = 0, fetched_bytes = 0;
};
Result<BroughtInput> bring_input(const std::string& socket,
                                 const std::string& url,
                                 const std::string& path,
                                 const std::map<std::string, std::string>& variables);
// Sends the files at these paths. Paths that are absent or unreadable are reported and do not
// affect the others.
struct NotLeft {
  std::vector<std::string> absent;  // the job did not create them
  std::vector<std::string> bad;     // they exist but cannot be read: "out/core: Permission denied"
};
Status leave_outputs(const std::string& socket,
                     const std::string& directory,
                     const std::vector<std::string>& paths,
                     NotLeft& not_left);

}  // namespace billow::agent
