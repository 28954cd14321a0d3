// Which devices a job sees. A job sees the device nodes of its own GPUs only: it has a private /dev
// in its own mount namespace. If the agent may not create that, CUDA_VISIBLE_DEVICES is the only
// isolation, and `billow doctor` says so.
#pragma once

#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"

namespace billow::agent {

enum class SandboxKind {
  private_dev,     // mount namespace, as root
  user_namespace,  // mount namespace inside a user namespace
  variables_only,  // not permitted here
};

struct DeviceNode {
  std::string path;  // relative to /dev: "nvidia3", "dri/renderD131"
  int gpu = 0;       // index on this node
};

class Sandbox {
 public:
  // Tries it once, in a child process, so that no job fails because of it.
  static Sandbox detect();
  explicit Sandbox(SandboxKind kind, std::string why = {}) : kind_(kind), why_(std::move(why)) {}
  // What the node's root helper has found out about its own rights.
  static Sandbox of_helper(bool private_dev, std::string seen_processes) {
    Sandbox sandbox(private_dev ? SandboxKind::private_dev : SandboxKind::variables_only,
                    "the root helper may not mount");
    sandbox.seen_processes_ = std::move(seen_processes);
    return sandbox;
  }

  SandboxKind kind() const { return kind_; }
  // Hides the nodes of GPUs that the job does not have. Nodes shared by all GPUs (nvidiactl,
  // nvidia-uvm) are not listed and stay visible.
  void apply_to(TaskSpec& spec,
                const std::vector<DeviceNode>& nodes,
                const std::vector<int>& granted) const;
  // Mounts volumes in the job's own namespace. An error if this agent may not mount, or a volume is
  // not on this node.
  Status bind_to(TaskSpec& spec, const std::vector<BoundVolume>& volumes) const;
  // Whether a job of another user can have a /tmp of its own.
  bool makes_private_tmp() const { return kind_ == SandboxKind::private_dev; }
  // Whether it can have a /proc that does not show the processes of others.
  bool hides_processes() const { return seen_processes_.empty(); }
  const std::string& seen_processes() const { return seen_processes_; }
  // Lines for `billow doctor`.
  std::string report() const;
  std::string report_processes() const;

 private:
  SandboxKind kind_ = SandboxKind::variables_only;
  std::string why_;
  std::string seen_processes_ = "not tried";  // why they cannot be hidden; empty: they can
};

// The device nodes that belong to single GPUs, from the files that each GPU reports by index
// ("/dev/nvidia3", "/dev/dri/renderD131"): for any vendor.
std::vector<DeviceNode> device_nodes(const std::vector<std::vector<std::string>>& files_by_gpu);

}  // namespace billow::agent
