// Where a MIG instance may lie and where it had best lie. Pure: it knows profiles and placements as
// NVML lists them, not the library. Instances cannot be moved, so a 1g put in the wrong place
// blocks every 3g until it ends.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/device.h"

namespace billow {

inline constexpr std::uint32_t mig_compute_slices_max = 7;

// The profile of that name; the error lists what the card has.
Result<const MigProfile*> find_mig_profile(std::span<const MigProfile> profiles,
                                           std::string_view name);

// Every placement of `profile` that is free beside `instances`, in order of start.
std::vector<MigPlacement> free_placements(const MigProfile& profile,
                                          std::span<const MigInstance> instances);

// The free placement after which the most remains possible: for every profile the number that would
// still fit, larger profiles first. Code::exhausted where none is free, naming what is in the way.
Result<MigPlacement> best_placement(std::span<const MigProfile> profiles,
                                    const MigProfile& profile,
                                    std::span<const MigInstance> instances);

}  // namespace billow
