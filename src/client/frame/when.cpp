#include "client/frame/when.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <optional>

#include "base/formats/utc.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "client/frame/zone.h"

namespace billow::client {
namespace {

constexpr std::int64_t day_s = 86400;

// The time of a civil date and a time of day, or nothing where there is no such date.
std::optional<std::int64_t> seconds_at(
    std::int64_t year, std::int64_t month, std::int64_t day, std::int64_t of_day, bool utc) {
  if (year < 1970 || year > 9999 || month < 1 || month > 12 || day < 1 || day > 31)
    return std::nullopt;
  std::tm tm{};
  tm.tm_year = static_cast<int>(year - 1900);
  tm.tm_mon = static_cast<int>(month - 1);
  tm.tm_mday = static_cast<int>(day);
  tm.tm_hour = static_cast<int>(of_day / 3600);
  tm.tm_min = static_cast<int>(of_day / 60 % 60);
  tm.tm_sec = static_cast<int>(of_day % 60);
  tm.tm_isdst = -1;
  const std::time_t at = utc ? ::timegm(&tm) : ::mktime(&tm);
  if (tm.tm_mday != day)
    return std::nullopt;  // the 31st of a shorter month
  return static_cast<std::int64_t>(at);
}

// "18:00" or "18:00:30": seconds of the day.
std::optional<std::int64_t> seconds_of(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3)
    return std::nullopt;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto n = parts[i].empty() || parts[i].size() > 2
                       ? Result<std::int64_t>(fail(Code::invalid, ""))
                       : parse_int(parts[i], 0, i == 0 ? 23 : 59);
    if (!n)
      return std::nullopt;
    total = total * 60 + *n;
  }
  return parts.size() == 2 ? total * 60 : total;
}

}  // namespace

Result<WallTime> parse_when(std::string_view given, WallTime now) {
  const auto bad = [&] {
    return fail(Code::invalid, fmt::format("\"{}\" is not a time", given),
                "use local time (18:00, 2026-11-16 or \"2026-11-16 18:00\"), +2h, now, or UTC: "
                "2026-11-16T18:00:00Z");
  };
  std::string_view text = trim(given);
  if (text == "now")
    return now;
  if (text.starts_with('+')) {
    const auto span = duration_with_unit(text.substr(1));
    if (!span)
      return pass(span.error());
    return now + *span;
  }
  const bool utc = text.ends_with('Z') || text.ends_with('z');
  if (utc)
    text.remove_suffix(1);
  const auto found = [](std::int64_t at_s) {
    return WallTime{} + seconds(at_s);
  };
  if (const auto of_day = seconds_of(text)) {
    const auto now_s = static_cast<std::time_t>(now.ns / 1'000'000'000);
    std::tm today{};
    utc ? ::gmtime_r(&now_s, &today) : ::localtime_r(&now_s, &today);
    const auto at = seconds_at(today.tm_year + 1900, today.tm_mon + 1, today.tm_mday, *of_day, utc);
    if (!at)
      return bad();
    if (*at > now_s)
      return found(*at);
    const std::time_t noon_s = *at - *of_day + day_s + day_s / 2;  // of the next day
    utc ? ::gmtime_r(&noon_s, &today) : ::localtime_r(&noon_s, &today);
    const auto next =
        seconds_at(today.tm_year + 1900, today.tm_mon + 1, today.tm_mday, *of_day, utc);
    return next ? Result<WallTime>(found(*next)) : bad();
  }
  const auto parts = split(text.substr(0, std::min<std::size_t>(10, text.size())), '-');
  if (parts.size() != 3 || parts[0].size() != 4)
    return bad();
  std::array<std::int64_t, 3> ymd{};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto n = parse_int(parts[i], 0, 9999);
    if (!n)
      return bad();
    ymd[i] = *n;
  }
  std::int64_t of_day = 0;
  if (text.size() > 10) {
    if (text[10] != ' ' && text[10] != 'T' && text[10] != 't')
      return bad();
    const auto s = seconds_of(text.substr(11));
    if (!s)
      return bad();
    of_day = *s;
  }
  const auto at = seconds_at(ymd[0], ymd[1], ymd[2], of_day, utc);
  return at ? Result<WallTime>(found(*at)) : bad();
}

std::int64_t zone_offset_s(WallTime at) {
  const auto s = static_cast<std::time_t>(at.ns / 1'000'000'000);
  std::tm local{};
  ::localtime_r(&s, &local);
  return local.tm_gmtoff;
}

std::string zone_name(WallTime at) {
  const auto s = static_cast<std::time_t>(at.ns / 1'000'000'000);
  std::tm local{};
  ::localtime_r(&s, &local);
  const std::string name = local.tm_zone ? local.tm_zone : "UTC";
  return name.starts_with('+') || name.starts_with('-') ? "UTC" + name : name;
}

std::string time_text(const Json& utc, WallTime now, std::string_view fallback) {
  const WallTime at = utc_or_zero(utc.str_or(""));
  return at ? relative_time(at, now, Zone::local) : std::string(fallback);
}

namespace {

// The UTC time that ends at the end of this text, and where it begins.
struct ClockTime {
  std::size_t from = 0;
  WallTime at;
  bool date = false;
};
std::optional<ClockTime> clock_at_end(std::string_view text, WallTime now) {
  for (const std::size_t size : {std::size_t{16}, std::size_t{5}}) {  // with a date, without
    if (text.size() < size)
      continue;
    const std::string_view clock = text.substr(text.size() - size);
    // Times are written with two digits; " 3:00" is a text about every day, not a moment.
    if (clock.find(':') == std::string_view::npos || clock.front() == ' ' ||
        clock.find_first_not_of("0123456789:- ") != std::string_view::npos)
      continue;
    // Without a date it is the one nearest to now.
    const auto at = parse_when(std::string(clock) + "Z", size == 5 ? now - hours(12) : now);
    if (at)
      return ClockTime{text.size() - size, *at, size == 16};
  }
  return std::nullopt;
}

}  // namespace

std::string in_local_time(std::string_view text, WallTime now) {
  constexpr std::string_view mark = " UTC";
  std::string out;
  for (std::size_t found; (found = text.find(mark)) != std::string_view::npos;) {
    const auto clock = clock_at_end(text.substr(0, found), now);
    if (!clock) {
      out += text.substr(0, found + mark.size());
    } else {
      const std::string local = format_utc(clock->at + seconds(zone_offset_s(clock->at)));
      out += text.substr(0, clock->from);
      if (clock->date ||
          local.substr(0, 10) != format_utc(now + seconds(zone_offset_s(now))).substr(0, 10))
        out += local.substr(0, 10) + " ";
      out += local.substr(11, 5);
    }
    text.remove_prefix(found + mark.size());
  }
  return out += text;
}

}  // namespace billow::client
