#include "agent/mig_claims.h"

#include <fmt/format.h>

#include <cstdlib>

namespace billow::agent {

Result<std::string> MigClaims::claim(TaskId task, const GpuInfo& card, const GpuGrant& grant) {
  const MigInstance* chosen = nullptr;
  std::string free;
  for (const MigInstance& instance : card.mig.instances) {
    if (instance.uuid.empty() || held_.contains(instance.uuid)) continue;
    free += (free.empty() ? "" : ", ") + instance.profile;
    // Sizes of neighbouring profiles differ by a factor of two; what the driver keeps for itself is a few percent.
    if (std::llabs(instance.mem_mib - grant.share.mem_mib) * 10 > grant.share.mem_mib * 3) continue;
    if (!chosen || static_cast<std::int32_t>(instance.placement.start) == grant.mig_start) chosen = &instance;
  }
  if (!chosen)
    return fail(Code::conflict, fmt::format("GPU {} has no free MIG instance of about {} MiB (free: {})", card.index, grant.share.mem_mib, free.empty() ? "none" : free),
                "an administrator makes instances: nvidia-smi mig -cgi PROFILE -C");
  held_[chosen->uuid] = task;
  return chosen->uuid;
}

}  // namespace billow::agent
