// Times as people type and read them.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"

namespace billow::client {

// "now", "+2h", "18:00" (the next such time), "2026-11-16", "2026-11-16 18:00",
// "2026-11-16T18:00:00Z". Local time, unless a Z marks UTC.
Result<WallTime> parse_when(std::string_view text, WallTime now);

// A UTC time of an API document for people (base/relative_time.h), in local time; the fallback if
// the document has none.
std::string time_text(const Json& utc, WallTime now, std::string_view fallback);

// A head does not know its reader's zone and writes times of the clock in UTC: "(14:02 UTC)",
// "2026-11-19 18:00 UTC". The same text with local times.
std::string in_local_time(std::string_view text, WallTime now);

}  // namespace billow::client
