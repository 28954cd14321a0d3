#include "core/model/timed_min.h"

#include <gtest/gtest.h>

namespace billow {
namespace {

// 1970-01-01 was a Thursday.
WallTime on(int day, int hour, int minute = 0) {
  return {((day * 24 + hour) * 60LL + minute) * 60'000'000'000};
}

TEST(TimedMin, AppliesOnItsDaysAndHours) {
  const auto at = parse_timed_min("Mon-Fri 08:00-18:30=2");
  ASSERT_TRUE(at);
  EXPECT_EQ(at->min, 2u);
  EXPECT_FALSE(at->applies(on(0, 7, 59)));
  EXPECT_TRUE(at->applies(on(0, 8)));
  EXPECT_TRUE(at->applies(on(1, 18, 29)));
  EXPECT_FALSE(at->applies(on(1, 18, 30)));
  EXPECT_FALSE(at->applies(on(2, 12))) << "Saturday";
  EXPECT_TRUE(at->applies(on(4, 12))) << "Monday";
}

TEST(TimedMin, AnEveningMayLastUntilTheNextDay) {
  const auto at = parse_timed_min("fri,sat 22:00-06:00=1");
  ASSERT_TRUE(at);
  EXPECT_FALSE(at->applies(on(1, 5))) << "the night of Thursday";
  EXPECT_TRUE(at->applies(on(1, 23)));
  EXPECT_TRUE(at->applies(on(2, 5)));
  EXPECT_TRUE(at->applies(on(3, 5)));
  EXPECT_FALSE(at->applies(on(3, 6)));
}

TEST(TimedMin, TheLargestOfThoseThatApplyCounts) {
  const std::vector<TimedMin> all = {*parse_timed_min("00:00-24:00=1"),
                                     *parse_timed_min("Sun-Mon 10:00-11:00=5")};
  EXPECT_EQ(timed_min(all, on(0, 10)), 1u);
  EXPECT_EQ(timed_min(all, on(3, 10)), 5u);
  EXPECT_EQ(timed_min({}, on(3, 10)), 0u);
}

TEST(TimedMin, MistakesAreNamed) {
  for (const char* text :
       {"", "08:00-18:00", "Mo 08:00-18:00=2", "08:00=2", "8-18=2", "25:00-26:00=1",
        "08:00-08:00=1", "08:00-18:00=x", "24:00-08:00=1", "Mon-Fri=2", "Mon 08:00-09:60=1"}) {
    const auto at = parse_timed_min(text);
    ASSERT_FALSE(at) << text;
    EXPECT_NE(at.error().hint.find("--min-at"), std::string::npos);
  }
}

}  // namespace
}  // namespace billow
