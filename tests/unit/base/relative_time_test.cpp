#include "base/relative_time.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace billow {
namespace {

constexpr WallTime noon{1'794'830'400LL * 1'000'000'000};  // 2026-11-16T12:00:00Z

TEST(RelativeTime, RoundsToWhatAPersonNeeds) {
  EXPECT_EQ(rough_duration(milliseconds(20)), "1 s");
  EXPECT_EQ(rough_duration(seconds(99)), "99 s");
  EXPECT_EQ(rough_duration(seconds(240)), "4 min");
  EXPECT_EQ(rough_duration(minutes(130)), "2 h 10 min");
  EXPECT_EQ(rough_duration(hours(3)), "3 h");
  EXPECT_EQ(rough_duration(hours(71)), "3 d");
}

TEST(RelativeTime, ComesBeforeTheClockAndTheDate) {
  EXPECT_EQ(relative_time(noon + seconds(39), noon, Zone::utc), "in 39 s (12:00 UTC)");
  EXPECT_EQ(relative_time(noon - minutes(4), noon, Zone::utc), "4 min ago (11:56 UTC)");
  EXPECT_EQ(relative_time(noon + hours(78), noon, Zone::utc), "in 3 d (2026-11-19 18:00 UTC)");
  EXPECT_EQ(relative_time(noon + hours(13), noon, Zone::utc), "in 13 h (2026-11-17 01:00 UTC)")
      << "the date tells tomorrow from today";
}

// Sets the zone of this process for one test.
class LocalZone {
 public:
  explicit LocalZone(const char* zone) {
    if (const char* was = std::getenv("TZ"))
      was_ = was;
    ::setenv("TZ", zone, 1);
    ::tzset();
  }
  ~LocalZone() {
    was_.empty() ? ::unsetenv("TZ") : ::setenv("TZ", was_.c_str(), 1);
    ::tzset();
  }

 private:
  std::string was_;
};

TEST(RelativeTime, UsesTheReadersZoneOnTheClient) {
  const LocalZone zone("CET-1");
  EXPECT_EQ(relative_time(noon + seconds(39), noon, Zone::local), "in 39 s, at 13:00");
  EXPECT_EQ(relative_time(noon - minutes(4), noon, Zone::local), "4 min ago, at 12:56");
  EXPECT_EQ(relative_time(noon + hours(11), noon, Zone::local), "in 11 h, on 2026-11-17 at 00:00")
      << "midnight is that of the reader";
  EXPECT_EQ(clock_or_date(noon - seconds(27), noon), "12:59:33");
  EXPECT_EQ(clock_or_date(noon - hours(14), noon), "2026-11-15");
}

TEST(RelativeTime, StoredTextsKeepTheirMeaning) {
  EXPECT_EQ(utc_minute(noon + seconds(59)), "2026-11-16 12:00 UTC");
}

}  // namespace
}  // namespace billow
