#include "client/frame/when.h"

#include <fmt/format.h>

#include <array>

#include "base/relative_time.h"
#include "base/text.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

constexpr std::int64_t day_s = 86400;

// Days since 1970-01-01 of a date of the civil calendar, or nothing where there is no such date.
std::optional<std::int64_t> days_of(std::int64_t year, std::int64_t month, std::int64_t day) {
  const std::array<int, 12> lengths{
      31, year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28,
      31, 30,
      31, 30,
      31, 31,
      30, 31,
      30, 31};
  if (year < 1970 || year > 9999 || month < 1 || month > 12 || day < 1 ||
      day > lengths[static_cast<std::size_t>(month - 1)])
    return std::nullopt;
  std::int64_t days = day - 1;
  for (std::int64_t m = 1; m < month; ++m)
    days += lengths[static_cast<std::size_t>(m - 1)];
  const std::int64_t y = year - 1;
  return days + (year - 1970) * 365 + (y / 4 - y / 100 + y / 400) -
         (1969 / 4 - 1969 / 100 + 1969 / 400);
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
    return fail(
        Code::invalid, fmt::format("\"{}\" is not a time", given),
        "use now, +2h, 18:00, 2026-11-16, \"2026-11-16 18:00\" or 2026-11-16T18:00:00Z (UTC)");
  };
  std::string_view text = trim(given);
  if (text == "now")
    return now;
  if (text.starts_with('+')) {
    const auto span = parse_duration(text.substr(1));
    if (!span)
      return bad();
    return now + *span;
  }
  if (text.ends_with('Z') || text.ends_with('z'))
    text.remove_suffix(1);
  const std::int64_t now_s = now.ns / 1'000'000'000;
  if (const auto of_day = seconds_of(text)) {
    std::int64_t at = now_s / day_s * day_s + *of_day;
    if (at <= now_s)
      at += day_s;
    return WallTime{at * 1'000'000'000};
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
  const auto days = days_of(ymd[0], ymd[1], ymd[2]);
  if (!days)
    return bad();
  std::int64_t of_day = 0;
  if (text.size() > 10) {
    if (text[10] != ' ' && text[10] != 'T' && text[10] != 't')
      return bad();
    const auto s = seconds_of(text.substr(11));
    if (!s)
      return bad();
    of_day = *s;
  }
  return WallTime{(*days * day_s + of_day) * 1'000'000'000};
}

std::string time_text(const Json& utc, WallTime now, std::string_view fallback) {
  const WallTime at = parse_utc(utc.str_or(""));
  return at ? relative_time(at, now, Zone::local) : std::string(fallback);
}

}  // namespace billow::client
