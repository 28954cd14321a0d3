// The smallest number of awake replicas by the clock: "Mon-Fri 08:00-18:00=2". Times are UTC, like
// those of schedules. A period that ends before it begins lasts until the next day and belongs to
// the day on which it begins.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace billow {

struct TimedMin {
  std::uint8_t days = 0x7f;      // bit 0: Monday
  std::int32_t from_minute = 0;  // of the day
  std::int32_t to_minute = 1440;
  std::uint32_t min = 0;
  bool operator==(const TimedMin&) const = default;
  bool applies(WallTime now) const;
};

Result<TimedMin> parse_timed_min(std::string_view text);
// The largest minimum of the periods that apply; zero: none does. Invalid ones are skipped.
std::uint32_t timed_min(const std::vector<TimedMin>& periods, WallTime now);

}  // namespace billow
