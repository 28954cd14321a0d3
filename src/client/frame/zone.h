// The reader's time zone.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace billow::client {

// The local zone at that time: "CET". Where its name is a number: "UTC+02".
std::string zone_name(WallTime at);
// Local time minus UTC.
std::int64_t zone_offset_s(WallTime at);

}  // namespace billow::client
