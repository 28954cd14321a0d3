// The inventory in the forms others need it: rows for a table, a JSON document, and the offer an
// agent makes to the head.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "core/model/node.h"
#include "gpu/backend.h"
#include "gpu/device.h"

namespace billow {

struct GpuTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};
// One row per card: index, type, memory, link, NUMA node, MIG, health, driver. For `billow nodes`
// and `doctor`.
GpuTable gpu_table(const GpuInventory& inventory);
// The columns aligned, two spaces between them, no colours.
std::string table_text(const GpuTable& table);
// The same matrix `nvidia-smi topo -m` shows, in our words.
GpuTable topology_table(const GpuTopology& topology);

Json gpu_json(const GpuInventory& inventory);
// `mig_changes`: instances may be made, where MIG mode is on.
std::vector<NodeGpu> node_gpus(const GpuInventory& inventory, bool mig_changes = false);

// What `doctor` says about this machine's GPUs, one finding a line; `ok` false where something
// needs doing.
struct GpuFinding {
  bool ok = true;
  std::string text;
  std::string hint;
};
std::vector<GpuFinding> diagnose_gpus(const GpuBackendOptions& options);

}  // namespace billow
