// Cron expressions of five fields (minute hour day-of-month month day-of-week), in UTC: lists,
// ranges, steps, *, and the usual @hourly … @yearly. As in cron, when both day fields are
// restricted either may match.
#pragma once

#include <bitset>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace billow::control {

struct Cron {
  std::bitset<60> minutes;
  std::bitset<24> hours;
  std::bitset<32> days;     // 1–31
  std::bitset<13> months;   // 1–12
  std::bitset<7> weekdays;  // 0 = Sunday
  bool days_restricted = false, weekdays_restricted = false;
};
Result<Cron> parse_cron(std::string_view text);
// The first matching minute after `after`; zero if none comes within eight years (30 February).
WallTime next_match(const Cron& cron, WallTime after);

}  // namespace billow::control
