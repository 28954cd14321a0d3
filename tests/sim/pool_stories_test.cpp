// Pools against a provider with a meter of its own: fresh stories in every run, whose first seed is
// printed. `./dev sim --stories 10000` tells more of them.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "base/log.h"
#include "pool_story.h"

namespace billow::sim {
namespace {

TEST(PoolStories, TheBooksEqualTheProvidersMeterAndNoMachineIsForgotten) {
  configure_log({.level = LogLevel::error});
  constexpr std::uint64_t stories = 200;
  const std::uint64_t first = std::random_device()();
  std::printf("fresh stories from %llu; again: ./dev sim --stories %llu --from %llu\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(stories),
              static_cast<unsigned long long>(first));
  std::fflush(stdout);  // also if a story ends the process
  StoryFigures figures;
  for (std::uint64_t seed = first; seed < first + stories; ++seed)
    ASSERT_EQ(tell_pool_story(seed, figures), "");
  EXPECT_EQ(figures.booked.value, figures.metered.value);
  EXPECT_EQ(figures.left, 0u);
  EXPECT_GT(figures.machines, stories) << "the stories rent too little";
  EXPECT_GT(figures.heads, stories / 2);
  EXPECT_GT(figures.twins, stories / 20) << "too few orders are carried out twice";
  std::printf("%zu machines, %zu of them with a twin; longest billed without a job: %.0f s\n",
              figures.machines, figures.twins, static_cast<double>(figures.idle_max.ns) / 1e9);
}

}  // namespace
}  // namespace billow::sim
