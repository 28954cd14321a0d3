// Copies a directory to the head and back. Content that the head does not have is uploaded in
// packs, over several connections.
#pragma once

#include <string>
#include <vector>

#include "client/frame/client.h"
#include "client/frame/commands.h"
#include "client/request/job_request.h"

namespace billow::client {

struct Upload {
  std::string digest;  // of the tree
  std::uint64_t files = 0, bytes = 0;
  std::uint64_t sent_bytes = 0;  // of them, what the head did not have
  std::vector<std::string> warnings;
};
Result<Upload> upload_directory(Client& client, const std::string& directory);
// One file, or everything in a directory, as a tree in which it lies at `place`.
Result<Upload> upload_path(Client& client,
                           const std::string& path,
                           bool directory,
                           const std::string& place);
inline constexpr Duration copy_patience = hours(6);  // of one copy into or out of a running job
// Writes the tree, or what lies at `only` in it, into the directory, which is created if it does
// not exist. What lies at `only` gets the name `as` there, or keeps its own.
struct Fetch {
  std::string digest, directory, only, as;
};
Status download_tree(Client& client, const Fetch& fetch);

// Uploads the working directory and sets in the environment what the node must fetch. It does so as
// asked, else where the head is on another machine.
Status sync_for_job(Client& client, const JobRequest& request, bool quiet, Environment& env);
// How to fetch what the job keeps (--output): "results: billow cp 12:results .".
void say_results(const JobRequest& request, const std::string& job);

}  // namespace billow::client
