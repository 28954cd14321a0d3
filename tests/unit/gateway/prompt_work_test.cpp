#include "gateway/pure/prompt_work.h"

#include <gtest/gtest.h>

#include "gateway/pure/router.h"

namespace billow::gateway {
namespace {

constexpr std::uint64_t kib = 1024;

SteadyTime at(double s) {
  return {static_cast<std::int64_t>((s + 100) * 1e9)};
}

// A text that begins with `shared` bytes of one letter.
Prompt prompt(char letter, std::uint64_t shared, char rest = '.', std::uint64_t more = 0) {
  const std::string text = std::string(shared, letter) + std::string(more, rest);
  return {prefix_of(text), text.size()};
}

struct PromptStage {
  Router router{{.concurrency = 0, .balance = EndpointBalance::prefix}};
  RequestId last = 0;

  explicit PromptStage(std::uint32_t replicas) {
    for (ReplicaKey key = 1; key <= replicas; ++key)
      router.set_phase(key, Phase::ready, at(0));
  }
  ReplicaKey arrive(Prompt prompt, double s) {
    Wish wish;
    wish.prompt = std::move(prompt);
    return router.arrive(++last, at(s), at(s + 60), 0, std::move(wish)).replica;
  }
  void read(RequestId id, double s, bool streamed = true) {
    router.prompts().read(id, streamed, at(s));
  }
};

TEST(PromptWork, AConversationStaysWhereItsBeginningIsCached) {
  PromptStage s(3);
  ASSERT_EQ(s.arrive(prompt('a', 40 * kib), 0), 1u);
  ASSERT_EQ(s.arrive(prompt('b', 40 * kib), 0), 2u);
  s.read(1, 1);
  s.read(2, 1);
  EXPECT_EQ(s.arrive(prompt('b', 40 * kib, 'x', 2 * kib), 2), 2u);
  EXPECT_EQ(s.arrive(prompt('a', 40 * kib, 'x', 2 * kib), 2), 1u);
  EXPECT_EQ(s.arrive(prompt('c', 4 * kib), 2), 3u) << "nothing waits there";
}

// The rule itself: bytes that wait against bytes that are saved.
TEST(PromptWork, AHitWinsIfItSavesMoreThanItWaits) {
  for (const bool saves_more : {true, false}) {
    PromptStage s(2);
    ASSERT_EQ(s.arrive(prompt('a', 40 * kib), 0), 1u);
    s.read(1, 1);
    // Now 1 reads something else, which is shorter or longer than what it would save.
    ASSERT_EQ(s.arrive(prompt('a', 40 * kib, 'x', saves_more ? 30 * kib : 50 * kib), 1), 1u);
    EXPECT_EQ(s.arrive(prompt('a', 40 * kib, 'y', kib), 1), saves_more ? 1u : 2u);
  }
}

TEST(PromptWork, ThePromptsThatWaitCountNotTheRequests) {
  PromptStage s(2);
  ASSERT_EQ(s.arrive(prompt('a', 100 * kib), 0), 1u);
  for (char c = 'b'; c < 'h'; ++c)
    EXPECT_EQ(s.arrive(prompt(c, 8 * kib), 0), 2u);
  // All are read: only now does the number of requests decide.
  for (RequestId id = 1; id <= s.last; ++id)
    s.read(id, 5);
  EXPECT_EQ(s.arrive(prompt('z', 8 * kib), 6), 1u);
}

TEST(PromptWork, WhatAReplicaShouldHaveReadMeanwhileDoesNotWait) {
  PromptStage s(2);
  s.arrive(prompt('a', 100 * kib), 0);
  s.read(1, 1);  // so 100 KiB a second
  s.router.finished(1, at(1), 1);
  ASSERT_EQ(s.arrive(prompt('b', 100 * kib), 2), 1u);
  EXPECT_NEAR(s.router.prompts().waiting_bytes(1, at(2.5)), 50 * kib, kib);
  EXPECT_NEAR(s.router.prompts().waiting_bytes(1, at(9)), 10 * kib, kib) << "it has not answered";
  s.read(2, 10);
  EXPECT_EQ(s.router.prompts().waiting_bytes(1, at(10)), 0);
}

// The first byte of an answer that is not streamed comes after the last token.
TEST(PromptWork, OnlyStreamedAnswersTellHowFastPromptsAreRead) {
  PromptStage s(1);
  s.arrive(prompt('a', 100 * kib), 0);
  s.read(1, 60, false);
  s.arrive(prompt('b', 100 * kib), 60);
  EXPECT_EQ(s.router.prompts().waiting_bytes(1, at(61)), 100 * kib);
}

TEST(PromptWork, ACacheThatReportsLessThanExpectedReachesLessFarBack) {
  PromptStage s(2);
  const Prompt first = prompt('a', 200 * kib);
  ASSERT_EQ(s.arrive(first, 0), 1u);
  s.read(1, 1);
  ASSERT_EQ(s.arrive(prompt('b', 200 * kib), 1), 2u);
  s.read(2, 2);
  // 1 reads much else, which displaces the first prompt in its cache.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(s.arrive(prompt(static_cast<char>('0' + i), 200 * kib), 2), 1u);
    s.read(s.last, 3);
    s.router.finished(1, at(3), s.last);
  }
  ASSERT_EQ(s.arrive(first, 4), 1u);
  EXPECT_EQ(s.router.prompts().waiting_bytes(1, at(4)), 0) << "all of it is expected to be cached";
  s.read(s.last, 5);
  s.router.prompts().reported(s.last, 50'000, 0);
  s.router.finished(1, at(5), s.last);
  for (int i = 0; i < 3; ++i) {
    s.arrive(prompt(static_cast<char>('3' + i), 200 * kib), 6);
    s.arrive(prompt(static_cast<char>('6' + i), 200 * kib), 6);
    s.read(s.last, 7);
    s.read(s.last - 1, 7);
  }
  s.arrive(first, 8);
  EXPECT_EQ(s.router.prompts().waiting_bytes(1, at(8)) + s.router.prompts().waiting_bytes(2, at(8)),
            200 * kib)
      << "nothing of it is expected to be cached any more";
}

TEST(PromptWork, RequestsThatEndAnyWayLeaveNothingBehind) {
  PromptStage s(2);
  ASSERT_EQ(s.arrive(prompt('a', 40 * kib), 0), 1u);
  s.router.finished(1, at(1), 1);  // its client has gone
  EXPECT_EQ(s.router.prompts().waiting_bytes(1, at(1)), 0);
  ASSERT_EQ(s.arrive(prompt('b', 40 * kib), 1), 1u);
  // A retry elsewhere: the same request, another replica.
  Wish wish;
  wish.prompt = prompt('b', 40 * kib);
  s.router.finished(1, at(2), 2);
  EXPECT_EQ(s.router.arrive(2, at(2), at(60), 1, wish).replica, 2u);
  EXPECT_EQ(s.router.prompts().waiting_bytes(1, at(2)), 0);
  EXPECT_EQ(s.router.prompts().waiting_bytes(2, at(2)), 40 * kib);
  s.router.remove(2);
  EXPECT_EQ(s.router.prompts().requests(), 0u);
  s.router.finished(2, at(3), 2);
}

// A full replica gets nothing, whatever it has cached.
TEST(PromptWork, FreeSlotsComeFirst) {
  Router router({.concurrency = 1, .balance = EndpointBalance::prefix});
  router.set_phase(1, Phase::ready, at(0));
  router.set_phase(2, Phase::ready, at(0));
  Wish wish;
  wish.prompt = prompt('a', 40 * kib);
  EXPECT_EQ(router.arrive(1, at(0), at(60), 0, wish).replica, 1u);
  EXPECT_EQ(router.arrive(2, at(0), at(60), 0, wish).replica, 2u);
  EXPECT_EQ(router.arrive(3, at(0), at(60), 0, wish).verdict, Router::Verdict::held);
  router.finished(2, at(1), 2);
  const auto given = router.dispatch(at(1));
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(given[0].replica, 2u);
  EXPECT_EQ(router.prompts().requests(), 2u);
}

}  // namespace
}  // namespace billow::gateway
