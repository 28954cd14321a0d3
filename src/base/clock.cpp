#include "base/clock.h"

#include <fmt/format.h>
#include <time.h>

#include "base/platform.h"

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

}  // namespace billow
