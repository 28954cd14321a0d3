// The contract between `restore` and the head that starts on the restored data. Since the backup
// was made, heads have assigned ids that nodes remember, and a node never starts a task whose id it
// knows. A restore therefore raises the epoch by a large step, which also makes agents accept it as
// the newest; a head that sees such a step continues its ids far beyond any it cannot know of.
#pragma once

#include <cstdint>

namespace billow {

inline constexpr std::int64_t restored_epoch_leap = 1'000;
inline constexpr std::uint64_t restored_number_leap = 1'000'000;

}  // namespace billow
