// A node's GPUs as Prometheus metrics, under the names of NVIDIA's dcgm-exporter, so that
// dashboards made for it work unchanged. The head writes all nodes with it, an agent its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/exposition.h"
#include "core/model/node.h"
#include "core/wire/agent_v1.h"

namespace billow::wire {

// gpu, UUID, device, modelName and Hostname, as dcgm-exporter has them.
std::string gpu_labels(const NodeGpu& gpu, std::string_view node);
void add_gpus(Exposition& out,
              std::string_view node,
              const std::vector<NodeGpu>& gpus,
              const agent_v1::Heartbeat& beat);

}  // namespace billow::wire
