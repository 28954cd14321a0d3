#include "gateway/pure/release_watch.h"

#include <gtest/gtest.h>

#include <random>

namespace billow::gateway {
namespace {

using Who = ReleaseWatch::Who;

RevisionSample sample(std::uint64_t requests, std::uint64_t errors, Duration latency) {
  RevisionSample out{.requests = requests, .errors = errors, .latency = {}};
  for (std::uint64_t i = errors; i < requests; ++i)
    out.latency.add(latency);
  return out;
}

TEST(ReleaseWatch, WilsonBoundsAreThoseOfTheTextbook) {
  const Bounds b = wilson(10, 100, 1.96);
  EXPECT_NEAR(b.low, 0.0552, 0.0005);
  EXPECT_NEAR(b.high, 0.1744, 0.0005);
  EXPECT_EQ(wilson(0, 0, 3).low, 0);
  EXPECT_EQ(wilson(0, 0, 3).high, 1);
}

TEST(ReleaseWatch, ManyMoreErrorsEndACanaryAndFewRequestsDoNot) {
  const auto old = sample(180, 0, milliseconds(10));
  EXPECT_EQ(worse(old, sample(9, 9, milliseconds(10)), ReleaseGuard::on), "");
  EXPECT_NE(worse(old, sample(10, 10, milliseconds(10)), ReleaseGuard::on), "");
  EXPECT_EQ(worse(old, sample(20, 1, milliseconds(10)), ReleaseGuard::on), "");
  EXPECT_EQ(worse(old, sample(10, 10, milliseconds(10)), ReleaseGuard::off), "");
  EXPECT_NE(worse(old, sample(10, 10, milliseconds(10)), ReleaseGuard::errors), "");
}

TEST(ReleaseWatch, AnErrorOfBothSpeaksAgainstNeither) {
  EXPECT_EQ(worse(sample(200, 200, {}), sample(40, 40, {}), ReleaseGuard::on), "");
  EXPECT_EQ(
      worse(sample(200, 20, milliseconds(5)), sample(40, 6, milliseconds(5)), ReleaseGuard::on),
      "");
}

TEST(ReleaseWatch, NothingToCompareWithEndsNothing) {
  EXPECT_EQ(worse(sample(0, 0, {}), sample(50, 50, {}), ReleaseGuard::on), "");
}

TEST(ReleaseWatch, ASlowCanaryEndsUnlessOnlyErrorsCount) {
  const auto old = sample(200, 0, milliseconds(10));
  EXPECT_NE(worse(old, sample(60, 0, milliseconds(30)), ReleaseGuard::on), "");
  EXPECT_EQ(worse(old, sample(60, 0, milliseconds(30)), ReleaseGuard::errors), "");
  EXPECT_EQ(worse(old, sample(60, 0, milliseconds(11)), ReleaseGuard::on), "");
  EXPECT_EQ(worse(old, sample(40, 0, milliseconds(30)), ReleaseGuard::on), "");
}

// Both revisions draw from the same figures: a rollback would be a false alarm.
TEST(ReleaseWatch, EqualRevisionsAreRarelyRolledBack) {
  int alarms = 0;
  constexpr int runs = 50;
  for (int run = 0; run < runs; ++run) {
    std::mt19937 random(static_cast<unsigned>(run));
    std::bernoulli_distribution fails(0.03);
    std::lognormal_distribution<double> latency_ms(3, 0.8);
    ReleaseWatch watch;
    watch.begin(2);
    SteadyTime now{1'000'000'000'000};
    bool alarm = false;
    for (int i = 0; i < 20'000 && !alarm; ++i) {
      now = now + milliseconds(20);
      watch.served(watch.next(100) ? Who::canary : Who::old, fails(random),
                   nanoseconds(static_cast<std::int64_t>(latency_ms(random) * 1e6)), now);
      alarm = !watch.verdict(ReleaseGuard::on, now).empty();
    }
    alarms += alarm ? 1 : 0;
  }
  RecordProperty("alarms", alarms);
  EXPECT_LE(alarms, runs / 20);
}

TEST(ReleaseWatch, AFaultThatBeginsLateIsSeen) {
  ReleaseWatch watch;
  watch.begin(2);
  SteadyTime now{1'000'000'000'000};
  std::string why;
  int after = 0;
  for (int i = 0; i < 60'000 && why.empty(); ++i) {
    now = now + milliseconds(20);
    const bool canary = watch.next(100);
    const bool broken = canary && i > 30'000;
    after += broken ? 1 : 0;
    watch.served(canary ? Who::canary : Who::old, broken, milliseconds(10), now);
    why = watch.verdict(ReleaseGuard::on, now);
  }
  EXPECT_NE(why, "");
  EXPECT_LT(after, 100);
}

TEST(ReleaseWatch, ThePartIsExactAndEvenlySpread) {
  ReleaseWatch watch;
  watch.begin(2);
  int chosen = 0;
  for (int i = 0; i < 1000; ++i) {
    chosen += watch.next(125) ? 1 : 0;
    if (i % 8 == 7) {
      EXPECT_EQ(chosen, (i + 1) / 8);
    }
  }
  EXPECT_EQ(chosen, 125);
}

TEST(ReleaseWatch, AClientKeepsItsRevisionAndALargerPartOnlyAdds) {
  int ten = 0, thirty = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string client = "client-" + std::to_string(i);
    const bool a = ReleaseWatch::chosen(client, 100), b = ReleaseWatch::chosen(client, 300);
    EXPECT_TRUE(!a || b);
    ten += a ? 1 : 0;
    thirty += b ? 1 : 0;
  }
  EXPECT_NEAR(ten, 1000, 150);
  EXPECT_NEAR(thirty, 3000, 250);
}

}  // namespace
}  // namespace billow::gateway
