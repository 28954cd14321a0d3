// This machine's agent as a separate process. It outlives the head on purpose, so that jobs keep
// running while a head is replaced. If an agent holds the lock of its data directory, it is alive,
// and connects by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::head {

struct LocalAgentOptions {
  std::string data_dir;      // of the head; the agent's own is below it
  std::string head_address;  // unix:…/head.sock
  std::string token_path;
  std::string sim;
  std::string node_name;
  std::vector<std::string> labels;
  std::uint64_t open_files = 0;  // its limit of descriptors, and so its jobs'; 0: as the head's
};
// Starts it unless it runs. Returns 1 if it was started, 0 if one was running.
Result<int> ensure_local_agent(const LocalAgentOptions& options);
// Whether an agent holds the lock of its data directory.
bool local_agent_alive(const std::string& data_dir);

// The same for this machine's gateway, which outlives the head so that endpoints are still served.
Status ensure_local_gateway(const std::string& data_dir,
                            const std::string& head_address,
                            const std::vector<std::string>& listen,
                            const std::string& region,
                            const std::vector<std::string>& webhook_hosts);
bool local_gateway_alive(const std::string& data_dir);
// Runs a program detached from this process, with its output in a log.
Status start_detached(std::vector<std::string> args, int log_fd, std::uint64_t open_files = 0);

}  // namespace billow::head
