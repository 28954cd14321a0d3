// The MIG shapes of the simulated cards, as NVIDIA's MIG user guide lists them. Only the simulator
// uses this: the product asks the library, real or simulated, and trusts its answer.
#pragma once

#include <string>
#include <vector>

#include "gpu/types.h"

namespace billow {

struct SimMigProfile {
  unsigned number;  // NVML_GPU_INSTANCE_PROFILE_…: for queries
  unsigned id;      // for creating one
  std::string name;
  unsigned compute_slices;
  unsigned memory_slices;
  unsigned instances_max;
  long long mem_mib;
  std::vector<unsigned> starts;
};
std::vector<SimMigProfile> sim_mig_profiles(const GpuTypeFacts& facts);

}  // namespace billow
