// The inventory for others: the GPUs that an agent offers to the head, and the findings of
// `doctor`.
#pragma once

#include <string>
#include <vector>

#include "core/model/node.h"
#include "gpu/backend.h"
#include "gpu/device.h"

namespace billow {

// `mig_changes`: instances may be created on cards whose MIG mode is on.
std::vector<NodeGpu> node_gpus(const GpuInventory& inventory, bool mig_changes = false);

// The findings of `doctor` about this machine's GPUs; `ok` is false if something needs attention.
struct GpuFinding {
  bool ok = true;
  std::string text;
  std::string hint;
};
std::vector<GpuFinding> diagnose_gpus(const GpuBackendOptions& options);

}  // namespace billow
