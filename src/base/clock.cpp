#include "base/clock.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "base/platform.h"
#include "base/relative_time.h"

namespace billow {
namespace {

std::int64_t read_clock(clockid_t id) {
  timespec ts{};
  ::clock_gettime(id, &ts);
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

class SystemClock final : public Clock {
 public:
  WallTime wall() const override { return {read_clock(CLOCK_REALTIME)}; }
  SteadyTime steady() const override { return {platform::boot_clock_ns()}; }
};

tm broken_down(WallTime time, Zone zone) {
  const auto s = static_cast<time_t>(time.ns / 1'000'000'000);
  tm out{};
  zone == Zone::local ? ::localtime_r(&s, &out) : ::gmtime_r(&s, &out);
  return out;
}

bool same_day(const tm& a, const tm& b) {
  return a.tm_year == b.tm_year && a.tm_yday == b.tm_yday;
}

std::string date_of(const tm& t) {
  return fmt::format("{:04}-{:02}-{:02}", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday);
}

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

std::string format_utc(WallTime time) {
  if (!time)
    return "-";
  const time_t secs = static_cast<time_t>(time.ns / 1'000'000'000);
  tm parts{};
  ::gmtime_r(&secs, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string rough_duration(Duration d) {
  const std::int64_t s = std::max<std::int64_t>(d.ns / 1'000'000'000, 1);
  if (s < 100)
    return fmt::format("{} s", s);
  const std::int64_t min = (s + 30) / 60;
  if (min < 100)
    return fmt::format("{} min", min);
  if (min < 48 * 60)
    return min % 60 == 0 ? fmt::format("{} h", min / 60)
                         : fmt::format("{} h {} min", min / 60, min % 60);
  return fmt::format("{} d", (min + 12 * 60) / (24 * 60));
}

std::string relative_time(WallTime at, WallTime now, Zone zone) {
  const bool ahead = now < at;
  const std::string span =
      ahead ? "in " + rough_duration(at - now) : rough_duration(now - at) + " ago";
  const tm then = broken_down(at, zone);
  const bool today = same_day(then, broken_down(now, zone));
  if (zone == Zone::utc)
    return fmt::format("{} ({}{:02}:{:02} UTC)", span, today ? "" : date_of(then) + " ",
                       then.tm_hour, then.tm_min);
  return fmt::format("{}, {}at {:02}:{:02}", span,
                     today ? "" : fmt::format("on {} ", date_of(then)), then.tm_hour, then.tm_min);
}

std::string utc_minute(WallTime at) {
  const tm then = broken_down(at, Zone::utc);
  return fmt::format("{} {:02}:{:02} UTC", date_of(then), then.tm_hour, then.tm_min);
}

std::string clock_or_date(WallTime at, WallTime now) {
  const tm then = broken_down(at, Zone::local);
  if (!same_day(then, broken_down(now, Zone::local)))
    return date_of(then);
  return fmt::format("{:02}:{:02}:{:02}", then.tm_hour, then.tm_min, then.tm_sec);
}

}  // namespace billow
