#include "base/formats/utc.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>

namespace billow {
namespace {

constexpr WallTime base{1'794'830'400LL * 1'000'000'000};  // 2026-11-16T12:00:00Z

TEST(Utc, ReadsTheFormsOfCloudsBillsAndTraces) {
  EXPECT_EQ(*parse_utc("2026-11-16T12:00:00Z"), base);
  EXPECT_EQ(*parse_utc("2026-11-16 12:00:00"), base);
  EXPECT_EQ(*parse_utc("2026-11-16 12:00"), base);
  EXPECT_EQ(*parse_utc("2026-11-16"), base - hours(12));
  EXPECT_EQ(*parse_utc("2026-11-16 12:00:00 UTC"), base);
  EXPECT_EQ(*parse_utc("2026-11-16T12:00:00UTC"), base);
  EXPECT_EQ(*parse_utc("2026-11-16 12:00:00 GMT"), base);
  EXPECT_EQ(*parse_utc(" 2026-11-16t12:00:00z "), base);
}

TEST(Utc, TakesOffTheDistanceToUtc) {
  EXPECT_EQ(*parse_utc("2026-11-16T04:00:00.000-08:00"), base);
  EXPECT_EQ(*parse_utc("2026-11-16T17:30:00+05:30"), base);
  EXPECT_EQ(*parse_utc("2026-11-16T12:00:00+0000"), base);
  EXPECT_EQ(*parse_utc("2026-11-17T01:00:00+13:00"), base) << "the day before";
}

TEST(Utc, KeepsFractionsOfASecondToTheNanosecond) {
  EXPECT_EQ(*parse_utc("2026-11-16T12:00:00.25Z"), base + milliseconds(250));
  EXPECT_EQ(*parse_utc("2026-11-16 12:00:00.9799600"), base + nanoseconds(979'960'000));
  EXPECT_EQ(*parse_utc("2026-11-16T12:00:00.0000000019Z"), base + nanoseconds(1));
}

TEST(Utc, RefusesWhatIsNoTime) {
  for (const char* wrong : {"",
                            "-",
                            "2026",
                            "2026-11",
                            "2026-13-01",
                            "2026-00-10",
                            "2026-02-30",
                            "2025-02-29",
                            "15.11.2026",
                            "2026-1-2",
                            "2026-11-16T",
                            "2026-11-16T25:00:00Z",
                            "2026-11-16T12:60:00Z",
                            "2026-11-16T12:00:00.Z",
                            "2026-11-16T12:00:00Q",
                            "2026-11-16T12:00:00Z.",
                            "yesterday",
                            "2026-11-16T12:00:00+1:00",
                            "2026-11-16T-1:00:00Z",
                            "+026-11-16",
                            "1969-12-31",
                            "0001-01-01T00:00:00Z"}) {
    const auto read = parse_utc(wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_NE(read.error().message.find(wrong), std::string::npos) << "it names the text";
    EXPECT_FALSE(utc_or_zero(wrong)) << wrong;
  }
}

TEST(Utc, TimesBeyondTheLastAreTheLast) {
  EXPECT_EQ(*parse_utc("9999-12-31T23:59:59Z"), WallTime{INT64_MAX});
  EXPECT_LT(*parse_utc("2262-04-01"), WallTime{INT64_MAX});
}

TEST(Utc, ReadsWhatIsWritten) {
  rc::check([](std::uint32_t s) {
    const WallTime at = WallTime{} + seconds(s);
    RC_ASSERT(utc_or_zero(format_utc(at)) == at);
  });
}

}  // namespace
}  // namespace billow
