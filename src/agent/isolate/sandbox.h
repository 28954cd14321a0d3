// Which devices a job sees. A job is given its own GPUs' nodes and nobody else's, by a private /dev
// in a mount namespace of its own; where that is not permitted, CUDA_VISIBLE_DEVICES is all there
// is, and `billow doctor` says so.
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
  // Tries it out once, in a child of its own, so that no job finds out.
  static Sandbox detect();
  explicit Sandbox(SandboxKind kind, std::string why = {}) : kind_(kind), why_(std::move(why)) {}

  SandboxKind kind() const { return kind_; }
  // Hides from the job every node whose GPU it was not given. Nodes that belong to all (nvidiactl,
  // nvidia-uvm) are not listed and stay.
  void apply_to(TaskSpec& spec,
                const std::vector<DeviceNode>& nodes,
                const std::vector<int>& granted) const;
  // Mounts volumes in a namespace of the job's own. An error where this agent may not mount, or a
  // volume is not on this node.
  Status bind_to(TaskSpec& spec, const std::vector<BoundVolume>& volumes) const;
  // A line for `billow doctor`.
  std::string report() const;

 private:
  SandboxKind kind_ = SandboxKind::variables_only;
  std::string why_;
};

// The same from what each GPU, by index, says its own files are ("/dev/nvidia3",
// "/dev/dri/renderD131"): for any vendor.
std::vector<DeviceNode> device_nodes(const std::vector<std::vector<std::string>>& files_by_gpu);
// The device nodes of this machine that belong to single GPUs: /dev/nvidiaN by its number (the
// node's minor, which `minor_to_gpu` turns into the GPU's index; identity where empty).
std::vector<DeviceNode> list_nvidia_nodes(const std::vector<int>& minor_to_gpu,
                                          const std::string& dev = "/dev");

}  // namespace billow::agent
