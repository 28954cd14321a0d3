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
// It serves strangers, so a head that is root starts it as another user. It reaches nothing of the
// head's data directory but two directories that it gets as descriptors: its own (gateway/), and
// one with the head's socket and its token (for-gateway/), which it cannot change.
struct LocalGatewayOptions {
  std::string data_dir;
  std::vector<std::string> listen;
  std::string region;
  std::vector<std::string> webhook_hosts;
  std::string user;  // empty: billow-gateway if this machine has it, else nobody
  std::string otlp = {}, trace_sample = {}, sample_to = {};
  std::vector<std::string> arguments = {};  // more of its options
};
// One that runs and was started by another version, or with other options, is replaced: its
// successor takes over its connections.
Result<int> ensure_local_gateway(const LocalGatewayOptions& options);
bool local_gateway_alive(const std::string& data_dir);
// What the gateway needs of the head, before the head listens there: the directory and the token.
Status prepare_for_gateway(const std::string& data_dir, const std::string& token);
std::string gateway_socket(const std::string& data_dir);

}  // namespace billow::head
