// Where a MIG instance may be placed, and the best place for it. Pure: it knows profiles and
// placements as NVML lists them, not the library. Instances cannot be moved, so a 1g in the wrong
// place blocks every 3g until it ends.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/device.h"

namespace billow {

inline constexpr std::uint32_t mig_compute_slices_max = 7;

// The profile with this name; the error lists those of the card.
Result<const MigProfile*> find_mig_profile(std::span<const MigProfile> profiles,
                                           std::string_view name);

// Every placement of `profile` that is free beside `instances`, in order of start.
std::vector<MigPlacement> free_placements(const MigProfile& profile,
                                          std::span<const MigInstance> instances);

// The free placement that leaves the most possible: for every profile the number that would still
// fit, larger profiles first. Code::exhausted if none is free, naming what blocks it.
Result<MigPlacement> best_placement(std::span<const MigProfile> profiles,
                                    const MigProfile& profile,
                                    std::span<const MigInstance> instances);

}  // namespace billow
