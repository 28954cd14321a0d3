// What is agreed between a restore and the head that starts on it. After the backup was made heads
// gave out numbers that nodes remember, and a node never starts a task of a number it knows. A
// restore leaps ahead with the epoch, by which agents also know it as the newest; a head whose
// epoch leapt begins its numbers far beyond those it cannot know of.
#pragma once

#include <cstdint>

namespace billow {

inline constexpr std::int64_t restored_epoch_leap = 1'000;
inline constexpr std::uint64_t restored_number_leap = 1'000'000;

}  // namespace billow
