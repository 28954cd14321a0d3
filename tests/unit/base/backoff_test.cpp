#include "base/backoff.h"

#include <gtest/gtest.h>

namespace billow {
namespace {

TEST(Backoff, DoublesUpToItsLimit) {
  Backoff backoff(milliseconds(100), seconds(1));
  Rng rng(1);
  for (const std::int64_t longest_ms : {100, 200, 400, 800, 1000, 1000, 1000}) {
    const Duration pause = backoff.next(rng);
    EXPECT_GE(pause, milliseconds(longest_ms) / 2);
    EXPECT_LE(pause, milliseconds(longest_ms));
  }
}

TEST(Backoff, PausesOfTwoClientsDiffer) {
  Backoff a(seconds(1), seconds(60)), b(seconds(1), seconds(60));
  Rng first(1), second(2);
  EXPECT_NE(a.next(first), b.next(second));
}

TEST(Backoff, ResetReturnsToTheFirstPause) {
  Backoff backoff(milliseconds(100), seconds(1));
  Rng rng(1);
  for (int i = 0; i < 5; ++i)
    backoff.next(rng);
  backoff.reset();
  EXPECT_LE(backoff.next(rng), milliseconds(100));
}

TEST(Backoff, ALimitBelowTheFirstPauseHoldsFromTheStart) {
  Backoff backoff(seconds(5), seconds(1));
  Rng rng(1);
  EXPECT_LE(backoff.next(rng), seconds(1));
}

TEST(Backoff, TheLongestLimitDoesNotOverflow) {
  Backoff backoff(seconds(1), Duration{INT64_MAX});
  Rng rng(1);
  Duration pause;
  for (int i = 0; i < 200; ++i) {
    pause = backoff.next(rng);
    ASSERT_GT(pause.ns, 0);
  }
  EXPECT_GE(pause.ns, INT64_MAX / 2);
}

}  // namespace
}  // namespace billow
