#include "gateway/pure/prefix_index.h"

#include <gtest/gtest.h>

#include <string>

namespace billow::gateway {
namespace {

std::string text(char c, std::size_t blocks) {
  return std::string(blocks * prefix_block_bytes, c);
}

TEST(PrefixIndex, EqualBeginningsHaveEqualHashes) {
  const auto a = prefix_of(text('a', 2) + text('b', 1)), b = prefix_of(text('a', 2) + text('c', 1));
  ASSERT_EQ(a.size(), 3);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
  EXPECT_NE(a[0], a[1]);
  EXPECT_TRUE(prefix_of("short").empty());
}

TEST(PrefixIndex, LongPromptsAreKnownToTheirEndByFewBlocks) {
  EXPECT_EQ(prefix_bytes_of(1), prefix_block_bytes);
  EXPECT_EQ(prefix_bytes_of(prefix_blocks_max), 576u << 10);
  for (std::size_t i = 0; i < prefix_blocks_max; ++i)
    ASSERT_LT(prefix_bytes_of(i), prefix_bytes_of(i + 1));
  const std::string prompt(600 << 10, 'a');
  EXPECT_EQ(prefix_of(prompt).size(), prefix_blocks_max);
  std::string other = prompt;
  other[500 << 10] = 'b';
  const auto a = prefix_of(prompt), b = prefix_of(other);
  std::size_t same = 0;
  while (a[same] == b[same])
    ++same;
  EXPECT_LE(prefix_bytes_of(same), 500u << 10);
  EXPECT_GT(prefix_bytes_of(same + 1), 500u << 10);
}

TEST(PrefixIndex, TellsHowMuchEachReplicaHasSeen) {
  PrefixIndex index;
  index.learn(prefix_of(text('s', 1) + text('a', 3)), 1, 100);
  index.learn(prefix_of(text('s', 1) + text('b', 1)), 2, 50);
  PrefixIndex::Asked asked[] = {{.replica = 1}, {.replica = 2}, {.replica = 3}};
  index.ask(prefix_of(text('s', 1) + text('a', 5)), asked);
  EXPECT_EQ(asked[0].blocks, 4u);
  EXPECT_EQ(asked[0].least_at, 100u);
  EXPECT_EQ(asked[1].blocks, 1u);
  EXPECT_EQ(asked[1].least_at, 50u);
  EXPECT_EQ(asked[2].blocks, 0u);
}

TEST(PrefixIndex, WhatWasSeenTooLongAgoDoesNotCount) {
  PrefixIndex index;
  const auto all = prefix_of(text('a', 4)), half = prefix_of(text('a', 2));
  index.learn(all, 1, 10);
  index.learn(half, 1, 20);
  PrefixIndex::Asked asked[] = {{.replica = 1, .oldest = 11}};
  index.ask(all, asked);
  EXPECT_EQ(asked[0].blocks, 2u);
}

TEST(PrefixIndex, IsBounded) {
  PrefixIndex index(10);
  for (char c = 'a'; c <= 'z'; ++c)
    index.learn(prefix_of(text(c, 4)), 1, 1);
  EXPECT_EQ(index.size(), 10);
}

TEST(PrefixIndex, ReadsThePromptOfBothKindsOfRequests) {
  EXPECT_EQ(prompt_of(R"({"model":"m","prompt":"hello","max_tokens":3})"), "\"hello\"");
  EXPECT_EQ(prompt_of(R"({"messages": [{"role":"user","content":"a]}\"b"}], "n":1})"),
            R"([{"role":"user","content":"a]}\"b"}])");
  EXPECT_EQ(prompt_of(R"({"input":"x"})"), "");
  EXPECT_EQ(prompt_of("no JSON"), "");
}

}  // namespace
}  // namespace billow::gateway
