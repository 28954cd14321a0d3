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

}  // namespace billow::client
