// This machine's agent as a child process. It outlives the head on purpose (jobs and their watcher go on while a head is replaced):
// when one is alive already, told by the lock on its data directory, it is left alone and dials in by itself.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace billow::head {

struct LocalAgentOptions {
  std::string data_dir;       // of the head; the agent's own is below it
  std::string head_address;   // unix:…/head.sock
  std::string token_path;
  std::string sim;
  std::string node_name;
  std::vector<std::string> labels;
};
// Starts it unless it runs. Returns 1 where it was started, 0 where one was there.
Result<int> ensure_local_agent(const LocalAgentOptions& options);
// Whether an agent holds the lock of its data directory.
bool local_agent_alive(const std::string& data_dir);

}  // namespace billow::head
