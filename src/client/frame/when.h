// Times as people type and read them.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"

namespace billow::client {

// "now", "+2h", "18:00" (the next such time), "2026-11-16", "2026-11-16 18:00",
// "2026-11-16T18:00:00Z". All in UTC.
Result<WallTime> parse_when(std::string_view text, WallTime now);

// Relative first, then the local clock: "in 39s, at 14:02", "5m 3s ago, at 13:57", and with the
// date where it is another day: "in 3d 4h, on 2026-11-19 at 18:00".
std::string time_text(WallTime at, WallTime now);
// The same for a UTC time of an API document; the fallback where it has none.
std::string time_text(const Json& utc, WallTime now, std::string_view fallback);

}  // namespace billow::client
