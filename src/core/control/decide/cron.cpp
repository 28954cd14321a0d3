#include "core/control/decide/cron.h"

#include <fmt/format.h>
#include <time.h>

#include "base/text.h"

namespace billow::control {
namespace {

template <std::size_t N>
Status read_field(
    std::string_view field, std::string_view name, int min, int max, std::bitset<N>& out) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("cron: {} \"{}\": {}", name, field, why));
  };
  for (const std::string& part : split(field, ',')) {
    std::string_view range = part;
    int step = 1;
    if (const auto at = range.find('/'); at != std::string_view::npos) {
      const auto n = parse_int(range.substr(at + 1), 1, max);
      if (!n)
        return bad(n.error().message);
      step = static_cast<int>(*n);
      range = range.substr(0, at);
    }
    int first = min, last = max;
    if (range != "*") {
      const auto dash = range.find('-');
      const auto a = parse_int(range.substr(0, dash), min, max);
      if (!a)
        return bad(a.error().message);
      first = last = static_cast<int>(*a);
      if (dash != std::string_view::npos) {
        const auto b = parse_int(range.substr(dash + 1), min, max);
        if (!b)
          return bad(b.error().message);
        last = static_cast<int>(*b);
      } else if (step > 1) {
        last = max;
      }
      if (last < first)
        return bad("the range runs backwards");
    }
    for (int i = first; i <= last; i += step)
      out.set(static_cast<std::size_t>(i));
  }
  return {};
}

}  // namespace

Result<Cron> parse_cron(std::string_view text) {
  text = trim(text);
  if (text == "@hourly")
    text = "0 * * * *";
  else if (text == "@daily" || text == "@midnight")
    text = "0 0 * * *";
  else if (text == "@weekly")
    text = "0 0 * * 0";
  else if (text == "@monthly")
    text = "0 0 1 * *";
  else if (text == "@yearly" || text == "@annually")
    text = "0 0 1 1 *";
  std::vector<std::string> fields;
  for (const std::string& field : split(text, ' '))
    if (!field.empty())
      fields.push_back(field);
  if (fields.size() != 5)
    return fail(Code::invalid,
                fmt::format("cron: \"{}\" has {} fields, not 5", text, fields.size()),
                "write it like \"30 2 * * 1-5\" (minute hour day month weekday, UTC)");
  Cron cron;
  std::bitset<8> weekdays;
  BILLOW_TRY_VOID(read_field(fields[0], "minute", 0, 59, cron.minutes));
  BILLOW_TRY_VOID(read_field(fields[1], "hour", 0, 23, cron.hours));
  BILLOW_TRY_VOID(read_field(fields[2], "day", 1, 31, cron.days));
  BILLOW_TRY_VOID(read_field(fields[3], "month", 1, 12, cron.months));
  BILLOW_TRY_VOID(read_field(fields[4], "weekday", 0, 7, weekdays));
  for (std::size_t i = 0; i < 8; ++i)
    if (weekdays[i])
      cron.weekdays.set(i % 7);
  cron.days_restricted = fields[2] != "*";
  cron.weekdays_restricted = fields[4] != "*";
  return cron;
}

WallTime next_match(const Cron& cron, WallTime after) {
  time_t t = static_cast<time_t>(after.ns / 1'000'000'000) / 60 * 60 + 60;
  const time_t end = t + static_cast<time_t>(8) * 366 * 86400;
  while (t < end) {
    tm parts{};
    ::gmtime_r(&t, &parts);
    const auto index = [](int i) {
      return static_cast<std::size_t>(i);
    };
    const bool day = cron.days[index(parts.tm_mday)], weekday = cron.weekdays[index(parts.tm_wday)];
    const bool day_ok =
        cron.days_restricted && cron.weekdays_restricted ? day || weekday : day && weekday;
    if (!cron.months[index(parts.tm_mon + 1)] || !day_ok)
      t += 86400 - (parts.tm_hour * 3600 + parts.tm_min * 60);
    else if (!cron.hours[index(parts.tm_hour)])
      t += 3600 - parts.tm_min * 60;
    else if (!cron.minutes[index(parts.tm_min)])
      t += 60;
    else
      return {static_cast<std::int64_t>(t) * 1'000'000'000};
  }
  return {};
}

}  // namespace billow::control
