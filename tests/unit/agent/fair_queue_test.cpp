#include "core/agent/fair_queue.h"

#include <gtest/gtest.h>

namespace billow::agent {
namespace {

FairQueue::Item item(std::uint64_t task, std::uint32_t user, std::string what = {}) {
  return {TaskId(task), user, what.empty() ? "image-" + std::to_string(task) : std::move(what)};
}

TEST(FairQueue, OneUserNeverHasMoreThanItsPart) {
  FairQueue queue({.running_max = 4, .per_user_max = 2});
  for (std::uint64_t task = 1; task <= 10; ++task)
    ASSERT_TRUE(queue.add(item(task, 7)));
  EXPECT_EQ(queue.next()->task, TaskId(1));
  EXPECT_EQ(queue.next()->task, TaskId(2));
  EXPECT_FALSE(queue.next());
  ASSERT_TRUE(queue.add(item(11, 8)));
  EXPECT_EQ(queue.next()->task, TaskId(11));  // who comes late is not behind the other's eight
  queue.ended(item(1, 7), true);
  EXPECT_EQ(queue.next()->task, TaskId(3));
  EXPECT_EQ(queue.running(), 3u);
}

TEST(FairQueue, AFreePlaceGoesToWhoeverHasFewestAndWaitedLongest) {
  FairQueue queue({.running_max = 3, .per_user_max = 3});
  for (std::uint64_t task = 1; task <= 4; ++task)
    ASSERT_TRUE(queue.add(item(task, 1)));
  for (std::uint64_t task = 11; task <= 12; ++task)
    ASSERT_TRUE(queue.add(item(task, 2)));
  ASSERT_TRUE(queue.add(item(21, 3)));
  std::vector<std::uint64_t> begun;
  while (const auto one = queue.next())
    begun.push_back(one->task.value);
  EXPECT_EQ(begun, (std::vector<std::uint64_t>{1, 11, 21}));
  queue.ended(item(1, 1), true);
  queue.ended(item(11, 2), true);
  queue.ended(item(21, 3), true);
  begun.clear();
  while (const auto one = queue.next())
    begun.push_back(one->task.value);
  EXPECT_EQ(begun, (std::vector<std::uint64_t>{2, 12, 3}));
}

TEST(FairQueue, WhatIsBeingBroughtIsNotBroughtTwiceAndTakesNoPlaceMeanwhile) {
  FairQueue queue({.running_max = 4, .per_user_max = 2});
  ASSERT_TRUE(queue.add(item(1, 1, "torch")));
  ASSERT_TRUE(queue.add(item(2, 1, "torch")));
  ASSERT_TRUE(queue.add(item(3, 1, "torch")));
  ASSERT_TRUE(queue.add(item(4, 1, "other")));
  ASSERT_TRUE(queue.add(item(5, 2, "torch")));  // of another user, who has a store of its own
  EXPECT_EQ(queue.next()->task, TaskId(1));
  EXPECT_EQ(queue.next()->task, TaskId(5));
  EXPECT_EQ(queue.next()->task, TaskId(4));
  EXPECT_FALSE(queue.next());
  queue.ended(item(4, 1, "other"), false);
  EXPECT_FALSE(queue.next());
  queue.ended(item(1, 1, "torch"), true);
  EXPECT_EQ(queue.next()->task, TaskId(2));  // it is here: both at once
  EXPECT_EQ(queue.next()->task, TaskId(3));
  queue.ended(item(2, 1, "torch"), false);  // and went again
  queue.ended(item(3, 1, "torch"), false);
  ASSERT_TRUE(queue.add(item(6, 1, "torch")));
  ASSERT_TRUE(queue.add(item(7, 1, "torch")));
  EXPECT_EQ(queue.next()->task, TaskId(6));
  EXPECT_FALSE(queue.next());
}

TEST(FairQueue, OneThatIsGivenUpWhileItWaitsIsNotBegunAndAUsersQueueIsBounded) {
  FairQueue queue({.running_max = 1, .per_user_max = 1, .waiting_max = 2});
  ASSERT_TRUE(queue.add(item(1, 1)));
  ASSERT_TRUE(queue.add(item(2, 1)));
  EXPECT_EQ(queue.add(item(3, 1)).error().code, Code::exhausted);
  ASSERT_TRUE(queue.add(item(4, 2)));  // another's is its own
  queue.remove(TaskId(1));
  EXPECT_EQ(queue.next()->task, TaskId(2));
  queue.ended(item(2, 1), true);
  EXPECT_EQ(queue.next()->task, TaskId(4));
}

}  // namespace
}  // namespace billow::agent
