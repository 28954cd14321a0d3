// Reads points in time from text. Answers of clouds, catalogues, bills, traces and our own
// documents all write them in some form of ISO 8601; there is one reader, so that no form is read
// wrongly in one place only.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace billow {

// "2026-11-16", "2026-11-16 08:50", "2026-11-16T08:50:16.123-08:00": a date, then a time of day,
// then its distance to UTC ("Z", "+01:00", "UTC" or "GMT"; UTC if there is none). Dates that do not
// exist, years before 1970 and trailing text are errors. Times after 2262 become the last that can
// be stored.
Result<WallTime> parse_utc(std::string_view text);

// For fields of documents that may lack a time: zero if the text is none.
WallTime utc_or_zero(std::string_view text);

}  // namespace billow
