#include "simulate/prefix_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace billow::gateway {
namespace {

TEST(PrefixReplay, ConversationsAreInferredFromSizesAndTimes) {
  const std::vector<TraceCall> trace = {
      {0, 1000, 100}, {60, 1200, 50}, {61, 5000, 10}, {61.2, 1250, 10}, {2000, 1300, 10}};
  const auto calls = infer_conversations(trace, {});
  EXPECT_TRUE(calls[1].continues);
  EXPECT_EQ(calls[1].conversation, calls[0].conversation);
  EXPECT_FALSE(calls[2].continues);
  EXPECT_FALSE(calls[3].continues);  // the answer that it would follow is not complete
  EXPECT_FALSE(calls[4].continues);  // too late
}

// A trace that tells which blocks are equal is believed, whatever the sizes are.
TEST(PrefixReplay, BlocksOfATraceAreUsed) {
  const std::vector<TraceCall> trace = {{0, 1024, 1, {7, 8}},
                                        {60, 1536, 1, {7, 8, 9}},
                                        {120, 1536, 1, {7, 10, 11}},
                                        {180, 1024, 1, {12, 13}}};
  const auto calls = infer_conversations(trace, {});
  EXPECT_FALSE(calls[0].continues);
  EXPECT_TRUE(calls[1].continues);
  EXPECT_TRUE(calls[2].continues);
  EXPECT_FALSE(calls[3].continues);
  const auto result = replay_prefixes(calls, PrefixPolicy::prefix, {.replicas = 1});
  EXPECT_NEAR(result.hit_pct, 100.0 * (1024 + 512) / (1024 + 1536 + 1536 + 1024), 0.01);
}

// Many conversations over few engines: where a turn goes decides what the cache is worth.
TEST(PrefixReplay, PrefixesBeatRandomAndLeastLoadedAndKeepTheLoadEven) {
  std::vector<ConversationCall> calls;
  std::vector<std::uint64_t> order(40);
  std::iota(order.begin(), order.end(), 1);
  std::mt19937 random_order(1);
  for (int turn = 0; turn < 10; ++turn) {
    std::shuffle(order.begin(), order.end(), random_order);
    for (std::size_t i = 0; i < order.size(); ++i)
      calls.push_back({.call = {turn * 10 + static_cast<double>(i) * 0.2,
                                static_cast<std::uint32_t>(1000 + turn * 400), 100},
                       .conversation = order[i],
                       .continues = turn > 0});
  }
  const PrefixOptions options{.cache_tokens = 100'000};
  const auto random = replay_prefixes(calls, PrefixPolicy::random, options);
  const auto least = replay_prefixes(calls, PrefixPolicy::least_loaded, options);
  const auto prefix = replay_prefixes(calls, PrefixPolicy::prefix, options);
  EXPECT_GT(prefix.hit_pct, 70);
  EXPECT_GT(prefix.hit_pct, random.hit_pct + 20);
  EXPECT_GT(prefix.hit_pct, least.hit_pct + 20);
  EXPECT_LT(prefix.first_token_mean_s, random.first_token_mean_s);
  EXPECT_LT(prefix.first_token_mean_s, least.first_token_mean_s);
  EXPECT_LT(prefix.load_max_over_mean, 1.5);
}

// Prompts of very different lengths, with caches that hold all of them or nearly none: counting
// requests misjudges how long a replica reads, and a believed hit must not cost more than it saves.
TEST(PrefixReplay, TheFirstTokenComesEarlierWithLargeAndSmallCachesAtAnyLoad) {
  std::mt19937_64 random_calls(7);
  std::vector<ConversationCall> calls;
  std::vector<std::uint32_t> sizes(60, 0);
  std::vector<std::uint64_t> conversation(sizes.size());
  std::uint64_t number = 0;
  double at_s = 0;
  for (int i = 0; i < 3000; ++i) {
    at_s += 0.4 * -std::log(1 - static_cast<double>(random_calls() % 1000) / 1000);
    const std::size_t who = random_calls() % sizes.size();
    const bool continues = sizes[who] > 0 && random_calls() % 4 != 0;
    if (!continues)
      sizes[who] = 0;
    const auto more =
        static_cast<std::uint32_t>(200 + random_calls() % (i % 7 == 0 ? 30'000 : 2'000));
    sizes[who] += more;
    if (!continues)
      conversation[who] = ++number;
    calls.push_back({.call = {at_s, sizes[who], 100},
                     .conversation = conversation[who],
                     .continues = continues});
  }
  for (const std::uint64_t cache : {50'000u, 2'000'000u})
    for (const double speed : {0.5, 1.0})
      for (const bool reported : {true, false}) {
        const PrefixOptions options{
            .cache_tokens = cache, .speed = speed, .cached_reported = reported};
        const auto random = replay_prefixes(calls, PrefixPolicy::random, options);
        const auto least = replay_prefixes(calls, PrefixPolicy::least_loaded, options);
        const auto prefix = replay_prefixes(calls, PrefixPolicy::prefix, options);
        SCOPED_TRACE(testing::Message() << cache << " tokens, " << speed << " times, " << reported);
        EXPECT_GT(prefix.hit_pct, least.hit_pct);
        EXPECT_LT(prefix.first_token_mean_s, 0.9 * least.first_token_mean_s);
        EXPECT_LT(prefix.first_token_p95_s, least.first_token_p95_s);
        EXPECT_LT(prefix.first_token_mean_s, 0.9 * random.first_token_mean_s);
        EXPECT_LT(prefix.first_token_p95_s, random.first_token_p95_s);
      }
}

TEST(PrefixReplay, WithoutACacheNothingIsHit) {
  const std::vector<ConversationCall> calls = {{{0, 640, 10}, 1, false}, {{9, 704, 10}, 1, true}};
  EXPECT_EQ(replay_prefixes(calls, PrefixPolicy::prefix, {.cache_tokens = 0}).hit_pct, 0);
  EXPECT_GT(replay_prefixes(calls, PrefixPolicy::prefix, {}).hit_pct, 40);
}

}  // namespace
}  // namespace billow::gateway
