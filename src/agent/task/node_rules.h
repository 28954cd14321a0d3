// What the machine's owner decides about the jobs that it runs (agent/node/node_policy.h reads it).
#pragma once

#include <cstdint>
#include <optional>

namespace billow::agent {

struct NodeRules {
  // For plain jobs of users other than the agent's.
  // Whether they have a /tmp and a /dev/shm of their own. Missing: where the node can.
  std::optional<bool> private_tmp = {};
  bool private_proc = true;  // a /proc without the processes of others, where the node can
  // Jobs that cannot be kept from the cloud's metadata service are refused. Missing: as the
  // agent's options say.
  std::optional<bool> metadata_closed;
  // Whether replicas answer gateways alone (isolate/replica_guard.h). Missing: where the node can.
  std::optional<bool> replicas_closed = {};
  // Jobs that the kernel cannot keep from GPUs they do not have are refused.
  bool devices_closed = false;
  // Of the node's disk, for a job that does not say --disk; 0: no limit. Missing: half of what is
  // free when the job begins.
  std::optional<std::int64_t> disk_bytes;
};

}  // namespace billow::agent
