#include "core/model/timed_min.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"

namespace billow {
namespace {

constexpr std::array<std::string_view, 7> day_names = {"mon", "tue", "wed", "thu",
                                                       "fri", "sat", "sun"};
constexpr std::int32_t day_minutes = 1440;

Error wrong_period(std::string_view text, std::string what) {
  return {Code::invalid, fmt::format("--min-at \"{}\": {}", text, what),
          "write for example --min-at \"Mon-Fri 08:00-18:00=2\" (UTC)"};
}

std::optional<std::size_t> day_number(std::string_view name) {
  const std::string small = lower(name);
  for (std::size_t i = 0; i < day_names.size(); ++i)
    if (small == day_names[i])
      return i;
  return std::nullopt;
}

// "Mon-Fri", "Sat,Sun", "Mon,Wed-Fri". Zero: not valid.
std::uint8_t days_of(std::string_view text) {
  std::uint8_t days = 0;
  for (const auto& part : split(text, ',')) {
    const std::string_view range = part;
    const auto dash = range.find('-');
    const auto first = day_number(range.substr(0, dash));
    const auto last = dash == range.npos ? first : day_number(range.substr(dash + 1));
    if (!first || !last)
      return 0;
    for (std::size_t day = *first;; day = (day + 1) % day_names.size()) {
      days = static_cast<std::uint8_t>(days | (1u << day));
      if (day == *last)
        break;
    }
  }
  return days;
}

// "08:00" as minutes of the day; 24:00 is the end of a day.
std::optional<std::int32_t> minute_of(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == text.npos || text.size() - colon != 3)
    return std::nullopt;
  const auto hour = parse_int(text.substr(0, colon), 0, 24);
  const auto minute = parse_int(text.substr(colon + 1), 0, 59);
  if (!hour || !minute || *hour * 60 + *minute > day_minutes)
    return std::nullopt;
  return static_cast<std::int32_t>(*hour * 60 + *minute);
}

}  // namespace

bool TimedMin::applies(WallTime now) const {
  constexpr std::int64_t minute_ns = 60'000'000'000;
  const std::int64_t minutes = now.ns / minute_ns;
  const std::int64_t day = minutes / day_minutes;
  const auto minute = static_cast<std::int32_t>(minutes % day_minutes);
  const auto on = [&](std::int64_t which) {
    return ((days >> ((which + 3) % 7)) & 1) != 0;  // the first of January 1970 was a Thursday
  };
  if (from_minute < to_minute)
    return on(day) && minute >= from_minute && minute < to_minute;
  return (on(day) && minute >= from_minute) || (on(day - 1) && minute < to_minute);
}

Result<TimedMin> parse_timed_min(std::string_view text) {
  TimedMin out;
  std::string_view rest = trim(text);
  const auto equals = rest.rfind('=');
  if (equals == rest.npos)
    return pass(wrong_period(text, "the number of replicas is missing"));
  const auto min = parse_int(trim(rest.substr(equals + 1)), 0, 1'000'000);
  if (!min)
    return pass(wrong_period(text, "the number of replicas is not valid"));
  out.min = static_cast<std::uint32_t>(*min);
  rest = trim(rest.substr(0, equals));
  if (const auto space = rest.rfind(' '); space != rest.npos) {
    out.days = days_of(trim(rest.substr(0, space)));
    if (out.days == 0)
      return pass(
          wrong_period(text, "the days are not valid; use Mon, Tue, Wed, Thu, Fri, Sat and Sun"));
    rest = trim(rest.substr(space + 1));
  }
  const auto dash = rest.find('-');
  const auto from = minute_of(rest.substr(0, dash));
  const auto to = dash == rest.npos ? std::nullopt : minute_of(rest.substr(dash + 1));
  if (!from || !to || *from == *to || *from == day_minutes)
    return pass(wrong_period(text, "the times are not valid"));
  out.from_minute = *from;
  out.to_minute = *to;
  return out;
}

std::uint32_t timed_min(const std::vector<TimedMin>& periods, WallTime now) {
  std::uint32_t min = 0;
  for (const TimedMin& period : periods)
    if (period.applies(now))
      min = std::max(min, period.min);
  return min;
}

}  // namespace billow
