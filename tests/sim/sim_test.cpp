// Thousands of short runs, fresh seeds in every test run, and the proof that such runs find bugs:
// each planted bug must be found.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "base/log.h"
#include "world.h"

namespace billow::sim {
namespace {

volatile unsigned long long current_seed = 0;

void on_abort(int) {
  char text[96];
  const int n = std::snprintf(text, sizeof(text),
                              "the process aborted in seed %llu; again: ./dev sim --seed %llu\n",
                              current_seed, current_seed);
  (void)!::write(2, text, static_cast<std::size_t>(n));
}

struct Quiet : ::testing::Test {
  static void SetUpTestSuite() {
    configure_log({.level = LogLevel::error});
    ::signal(SIGABRT, on_abort);
  }
};

struct Seeds : Quiet, ::testing::WithParamInterface<std::uint64_t> {};

constexpr std::uint64_t seeds_per_case = 300;

TEST_P(Seeds, KeepEveryPromise) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + seeds_per_case; ++seed) {
    current_seed = seed;
    const Outcome outcome = simulate(seed);
    ASSERT_FALSE(outcome.failure) << *outcome.failure;
  }
}
INSTANTIATE_TEST_SUITE_P(
    From, Seeds, ::testing::Range<std::uint64_t>(1, 1 + 10 * seeds_per_case, seeds_per_case));
INSTANTIATE_TEST_SUITE_P(WithSecrets, Seeds, ::testing::Values(first_seed_with_secrets));

// The seeds above are always the same. These differ in every run, so that CI explores more over
// time. The first seed is printed, and a failure names its seed, so that both can be repeated.
TEST_F(Quiet, FreshSeedsKeepEveryPromise) {
  constexpr auto time_limit = std::chrono::seconds(10);
  constexpr std::uint64_t most = 2000;
  const std::uint64_t first = 1'000'000 + std::random_device()();
  const auto end = std::chrono::steady_clock::now() + time_limit;
  std::uint64_t seed = first;
  std::printf("fresh seeds from %llu; again: ./dev sim --from %llu\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(first));
  std::fflush(stdout);
  for (; seed < first + most && std::chrono::steady_clock::now() < end; ++seed) {
    current_seed = seed;
    const Outcome outcome = simulate(seed);
    ASSERT_FALSE(outcome.failure) << *outcome.failure;
  }
  RecordProperty("fresh_seeds", static_cast<int>(seed - first));
  EXPECT_GT(seed, first) << "no seed finished in time";
}

TEST_F(Quiet, TheSameSeedTellsTheSameStory) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Outcome a = simulate(seed, Mutation::none, true),
                  b = simulate(seed, Mutation::none, true);
    EXPECT_EQ(a.steps, b.steps);
    std::size_t at = 0;
    while (at < std::min(a.story.size(), b.story.size()) && a.story[at] == b.story[at])
      ++at;
    const std::size_t line = a.story.rfind('\n', at) + 1;
    EXPECT_TRUE(a.story == b.story) << "seed " << seed << ":\n"
                                    << a.story.substr(line, 200) << "\n"
                                    << b.story.substr(line, 200);
  }
}

// Long runs check less often and remember what they have read; they still repeat themselves
// exactly, and a thorough run that reads everything anew has the same history.
TEST_F(Quiet, TheSameSeedMakesTheSameDay) {
  for (std::uint64_t seed = first_seed_with_secrets; seed < first_seed_with_secrets + 2; ++seed) {
    current_seed = seed;
    const Outcome a = simulate(seed, Mutation::none, false, hours(24)),
                  b = simulate(seed, Mutation::none, false, hours(24)),
                  thorough = simulate(seed, Mutation::none, true, hours(24));
    ASSERT_FALSE(a.failure) << *a.failure;
    EXPECT_EQ(a.steps, b.steps);
    EXPECT_EQ(a.virtual_s, b.virtual_s);
    EXPECT_EQ(a.counts.faults, b.counts.faults);
    EXPECT_EQ(a.counts.jobs, b.counts.jobs);
    EXPECT_EQ(a.counts.history, b.counts.history);
    EXPECT_EQ(a.counts.history, thorough.counts.history);
  }
}

struct Planted : Quiet, ::testing::WithParamInterface<std::pair<Mutation, const char*>> {};

TEST_P(Planted, BugIsFound) {
  const bool of_secrets =
      GetParam().first == Mutation::secret_unminded || GetParam().first == Mutation::secret_stale;
  const std::uint64_t first = of_secrets ? first_seed_with_secrets : 1;
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    current_seed = seed;
    if (simulate(seed, GetParam().first).failure) {
      RecordProperty("seeds_until_found", static_cast<int>(seed - first + 1));
      return;
    }
  }
  FAIL() << "300 seeds did not find the planted bug: " << GetParam().second;
}

TEST_P(Planted, BugIsFoundInALongRun) {
  constexpr std::uint64_t days = 30;
  for (std::uint64_t seed = first_seed_with_secrets; seed < first_seed_with_secrets + days;
       ++seed) {
    current_seed = seed;
    if (simulate(seed, GetParam().first, false, hours(24)).failure) {
      RecordProperty("days_until_found", static_cast<int>(seed - first_seed_with_secrets + 1));
      return;
    }
  }
  FAIL() << days << " days did not find the planted bug: " << GetParam().second;
}
INSTANTIATE_TEST_SUITE_P(
    Bug,
    Planted,
    ::testing::Values(std::pair{Mutation::ack_before_durable, "AckBeforeDurable"},
                      std::pair{Mutation::deliver_before_durable, "DeliverBeforeDurable"},
                      std::pair{Mutation::start_twice, "StartTwice"},
                      std::pair{Mutation::lease_freed_early, "LeaseFreedEarly"},
                      std::pair{Mutation::exit_mangled, "ExitMangled"},
                      std::pair{Mutation::epoch_forgotten, "EpochForgotten"},
                      std::pair{Mutation::suspended_early, "SuspendedEarly"},
                      std::pair{Mutation::orders_forgotten, "OrdersForgotten"},
                      std::pair{Mutation::secret_unminded, "SecretUnminded"},
                      std::pair{Mutation::secret_stale, "SecretStale"},
                      std::pair{Mutation::snapshot_inexact, "SnapshotInexact"}),
    [](const auto& info) { return std::string(info.param.second); });

}  // namespace
}  // namespace billow::sim
