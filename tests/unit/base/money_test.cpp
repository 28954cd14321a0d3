// Money never drifts: spans billed one by one add up to the whole, and no input overflows silently.
#include "base/money.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace billow {
namespace {

TEST(Money, SpansBilledOneByOneAddUpToTheWhole) {
  Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    const Rate rate{rng.between(1, 5'000'000'000)};
    const auto milli = rng.between(1, 1000);
    Duration at{};
    NanoUsd billed{};
    for (int i = 0; i < 50; ++i) {
      const Duration next = at + Duration{rng.between(0, 90'000'000'000)};
      billed += amount(rate, next, milli) - amount(rate, at, milli);
      at = next;
    }
    ASSERT_EQ(billed, amount(rate, at, milli));
  }
}

TEST(Money, AmountsAreRoundedDownAndSaturate) {
  EXPECT_EQ(amount(Rate{3}, milliseconds(999)), NanoUsd{2});
  EXPECT_EQ(amount(Rate{1'000'000'000}, hours(1), 250), NanoUsd{900'000'000'000});
  EXPECT_EQ(amount(Rate{INT64_MAX}, hours(1'000'000)), NanoUsd{INT64_MAX});
  EXPECT_EQ(amount(Rate{7}, seconds(0)), NanoUsd{0});
}

TEST(MoneyDeathTest, ANegativeTimeIsABug) {
  EXPECT_DEATH((void)amount(Rate{1}, seconds(-1)), "negative time");
}

TEST(Money, AmountsForPeople) {
  EXPECT_EQ(format_usd({1'230'000'000}), "$1.23");
  EXPECT_EQ(format_usd({-3'100'000'000}), "-$3.10");
  EXPECT_EQ(format_usd({0}), "$0.00");
  EXPECT_EQ(format_usd({4'200'000}), "$0.0042");
  EXPECT_EQ(format_usd({1}), "$0.000000001");
  EXPECT_EQ(format_usd({995'000'000}), "$1.00") << "rounded to cents";
  EXPECT_EQ(format_usd({INT64_MIN}), "-$9223372036.85");
  EXPECT_EQ(format_rate_per_hour({830'555'556}), "$2990.00/h");
}

TEST(Money, AmountsFromPeople) {
  EXPECT_EQ(parse_usd("2.99"), NanoUsd{2'990'000'000});
  EXPECT_EQ(parse_usd("$2.99"), NanoUsd{2'990'000'000});
  EXPECT_EQ(parse_usd("-$1"), NanoUsd{-1'000'000'000});
  EXPECT_EQ(parse_usd(".5"), NanoUsd{500'000'000});
  EXPECT_EQ(parse_usd("0.000000001"), NanoUsd{1});
  EXPECT_EQ(parse_usd("9223372036.854775807"), NanoUsd{INT64_MAX});
  for (const char* bad : {"", "$", "-", ".", "1.0000000001", "1,50", "1e3", "9223372036.854775808",
                          "99999999999999999999", "1 ", "--1", "$-1", "1.2.3", "one"})
    EXPECT_FALSE(parse_usd(bad)) << bad;
}

TEST(Money, WhatIsShownInCentsIsReadBack) {
  for (std::int64_t cents = 1; cents < 100'000; cents += 37) {
    const NanoUsd value{cents * 10'000'000};
    ASSERT_EQ(parse_usd(format_usd(value)), value);
  }
}

}  // namespace
}  // namespace billow
