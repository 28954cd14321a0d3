#include "gateway/pure/prefix_index.h"

#include <gtest/gtest.h>

#include <string>

namespace billow::gateway {
namespace {

using Candidate = PrefixIndex::Candidate;

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

TEST(PrefixIndex, AConversationStaysAndTheLongestBeginningWins) {
  PrefixIndex index;
  const std::vector<Candidate> idle = {{1, 0, true}, {2, 0, true}};
  const auto first = prefix_of(text('s', 1) + text('a', 3));
  ASSERT_EQ(index.choose(first, idle), 1);
  // The other has less to do, and gets another conversation with the same beginning.
  ASSERT_EQ(
      index.choose(prefix_of(text('t', 4)), std::vector<Candidate>{{1, 1, true}, {2, 0, true}}), 2);
  EXPECT_EQ(index.choose(prefix_of(text('s', 1) + text('a', 3) + text('b', 2)), idle), 1);
  EXPECT_EQ(index.choose(prefix_of(text('t', 6)), idle), 2);
}

TEST(PrefixIndex, ABusyReplicaIsPassedOver) {
  PrefixIndex index;
  const auto prompt = prefix_of(text('a', 4));
  ASSERT_EQ(index.choose(prompt, std::vector<Candidate>{{1, 0, true}, {2, 0, true}}), 1);
  EXPECT_EQ(index.choose(prompt, std::vector<Candidate>{{1, 1, true}, {2, 0, true}}), 1);
  EXPECT_EQ(index.choose(prompt, std::vector<Candidate>{{1, 8, true}, {2, 0, true}}), 2);
  // It has seen the prompt now.
  EXPECT_EQ(index.choose(prompt, std::vector<Candidate>{{1, 0, true}, {2, 0, true}}), 2);
  EXPECT_EQ(index.choose(prompt, std::vector<Candidate>{{1, 0, true}, {2, 0, false}}), 1);
  EXPECT_EQ(index.choose(prompt, std::vector<Candidate>{{1, 0, false}, {2, 0, false}}), 0);
}

TEST(PrefixIndex, IsBounded) {
  PrefixIndex index(10);
  for (char c = 'a'; c <= 'z'; ++c)
    index.choose(prefix_of(text(c, 4)), std::vector<Candidate>{{1, 0, true}});
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
