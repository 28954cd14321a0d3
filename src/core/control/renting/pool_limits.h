// Limits on what pools order by themselves. Internal to this module.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace billow::limits {

// A machine whose agent has not connected by then is released. The machine ends itself a little
// earlier (pool/boot.h).
inline constexpr Duration machine_join_max = minutes(14);
// Machines in a row that ran no job although one waited: then the pool stops.
inline constexpr std::uint32_t pool_unused_max = 5;
// Without --max-per-minute, a pool orders twice its maximum in a minute, or this many.
inline constexpr std::uint32_t pool_per_minute_min = 10;
inline constexpr std::size_t pool_unused_kept = 256;
inline constexpr std::size_t pool_learned_max = 256;
inline constexpr std::size_t machine_bills_kept = 256;
// A cache disk that no machine has used for this long is deleted.
inline constexpr Duration cache_kept = hours(24 * 14);
inline constexpr std::int64_t cache_gib_max = 16384;

}  // namespace billow::limits
