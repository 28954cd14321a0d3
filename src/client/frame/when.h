// Moments as people type them.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace billow::client {

// "now", "+2h", "18:00" (the next such time), "2026-11-16", "2026-11-16 18:00",
// "2026-11-16T18:00:00Z". All in UTC.
Result<WallTime> parse_when(std::string_view text, WallTime now);

}  // namespace billow::client
