// What a job on simulated GPUs needs for its `nvidia-smi` (inside/simulated_smi.cpp): a program of
// that name in its PATH, and a description of its cards.
#pragma once

#include <string>
#include <vector>

#include "core/wire/agent_v1.h"
#include "gpu/device.h"

namespace billow::agent {

struct SimulatedCards {
  const std::vector<GpuInfo>& cards;  // one for each grant
  const std::vector<std::string>& mig_uuids;
  std::string directory;  // of this agent, where jobs can read
};
void add_simulated_smi(const wire::agent_v1::Start& start,
                       const SimulatedCards& granted,
                       Environment& env);

}  // namespace billow::agent
