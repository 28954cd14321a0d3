// Times for people: relative first, then the clock. Machines get format_utc (base/clock.h). Defined
// in clock.cpp.
#pragma once

#include <string>

#include "base/clock.h"

namespace billow {

// As exact as a person needs: "35 s", "4 min", "2 h 10 min", "3 d".
std::string rough_duration(Duration d);

// The zone of the clock: a client knows its reader's zone, a head does not.
enum class Zone { local, utc };

// "in 39 s, at 14:02", "4 min ago, at 13:57", and with the date on another day: "in 3 d, on
// 2026-11-19 at 18:00". A UTC clock time is put in parentheses: "in 39 s (14:02 UTC)". For texts
// that are read at once.
std::string relative_time(WallTime at, WallTime now, Zone zone);

// "2026-11-19 18:00 UTC": for texts that are stored and read later, when "in 39 s" would be wrong.
std::string utc_minute(WallTime at);

// "14:02:33" on the day of `now`, else "2026-11-13": the time of a line in a list, in local time.
std::string clock_or_date(WallTime at, WallTime now);

}  // namespace billow
