// What a pod's status means for Billow: waiting, running, leaving or ended, and why, in words for
// people. Kubernetes' own words are kept where they say more than ours could.
#pragma once

#include <string>

#include "base/json.h"

namespace billow::pool {

enum class PodStage {
  waiting,   // no node yet
  starting,  // on a node; its container does not run yet
  stuck,     // its container cannot start, and Kubernetes retries without an end
  running,
  leaving,  // is being deleted
  ended,
};

struct PodSeen {
  std::string name, uid, machine, node;
  std::string address;      // of the pod, for other pods; empty: not known yet
  std::string secret;       // with its join token
  std::uint32_t nodes = 1;  // of its machine
  PodStage stage = PodStage::waiting;
  std::string note;            // "running on gpu-7", "Unschedulable: 0/3 nodes are available…"
  bool has_reason = false;     // `note` says why it ends
  bool taken = false;          // somebody takes it away: its own end is no failure of its image
  std::int64_t created_s = 0;  // seconds since 1970
  std::int64_t ends_at_s = 0;  // 0: not known
};

// The name of its node in Billow: "k-1", or "k-1.0" in a gang.
std::string billow_node_of(const PodSeen& pod);
PodSeen read_pod(const Json& pod);

}  // namespace billow::pool
