// Groups: jobs whose tasks differ. All members start or none, and members may share nodes.
#include <set>

#include "support.h"

namespace billow::sched {
using namespace test;
namespace {

RolePart role(std::string name, int tasks, int gpus, int milli = 1000, std::string type = "") {
  RolePart part{.name = std::move(name), .resources = job(1, gpus, milli).resources};
  part.tasks = tasks;
  if (!type.empty())
    part.resources.gpu_types = {type};
  return part;
}

JobRequest group(std::uint64_t id, std::vector<RolePart> parts) {
  JobRequest j = job(id, 0, 0);
  j.tasks = 0;
  j.elastic = true;
  j.resources = parts.front().resources;
  for (const RolePart& part : parts)
    j.tasks += part.tasks;
  j.parts = std::move(parts);
  return j;
}

std::vector<JobId> step(SchedIndex& index, WallTime now) {
  const Plan p = plan(index, now);
  std::vector<JobId> started;
  for (const Start& s : p.starts)
    started.push_back(s.job);
  carry_out(index, p, now);
  return started;
}

TEST(Group, MembersWithDifferentNeedsStartTogetherAndShareANode) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  index.enqueue(
      group(1, {role("trainer", 1, 4), role("rollout", 3, 1), role("reward", 2, 1, 500)}));
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  ASSERT_EQ(p.starts[0].placements.size(), 6u);
  EXPECT_EQ(p.starts[0].placements[0].gpus.size(), 4u);
  EXPECT_EQ(p.starts[0].placements[4].gpus[0].share.milli, 500);
  carry_out(index, p, t0);
  EXPECT_EQ(index.free_milli(NodeId{1}), 0);
  EXPECT_EQ(index.running_milli(ProjectId{1}), 8000);
}

TEST(Group, NothingStartsUnlessEveryMemberFits) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  index.enqueue(job(1, 2));
  ASSERT_EQ(step(index, t0), std::vector{JobId{1}});
  index.enqueue(group(2, {role("trainer", 1, 4), role("rollout", 3, 1)}));
  EXPECT_TRUE(plan(index, t0).starts.empty()) << "six of seven GPUs are free";
  const Explanation why = explain(index, JobId{2}, t0);
  EXPECT_NE(why.reasons.front().text.find("start together"), std::string::npos)
      << why.reasons.front().text;
  index.ended(JobId{1}, t0);
  EXPECT_EQ(step(index, t0), std::vector{JobId{2}});
}

TEST(Group, AMemberOfAKindThatIsInUseIsNamed) {
  SchedIndex index;
  index.upsert_node(node(1, 8, "A100"));
  index.upsert_node(node(2, 1, "H100"));
  JobRequest other = job(1, 1);
  other.resources.gpu_types = {"H100"};
  index.enqueue(other);
  step(index, t0);
  index.enqueue(group(2, {role("trainer", 1, 4), role("reward", 1, 1, 1000, "H100")}));
  EXPECT_TRUE(plan(index, t0).starts.empty());
  const std::string text = explain(index, JobId{2}, t0).reasons.front().text;
  EXPECT_NE(text.find("role reward does not fit: No H100 GPU is free"), std::string::npos) << text;
}

TEST(Group, TwoGroupsThatNeedTheSameNodesRunOneAfterTheOther) {
  SchedIndex index;
  for (std::uint64_t n : {1, 2})
    index.upsert_node(node(n, 4));
  index.enqueue(group(1, {role("a", 1, 3), role("b", 1, 3)}));
  index.enqueue(group(2, {role("a", 1, 3), role("b", 1, 3)}));
  EXPECT_EQ(step(index, t0), std::vector{JobId{1}});
  EXPECT_TRUE(step(index, t0 + seconds(1)).empty());
  EXPECT_EQ(index.free_milli(NodeId{1}) + index.free_milli(NodeId{2}), 2000);
  index.ended(JobId{1}, t0 + minutes(1));
  EXPECT_EQ(step(index, t0 + minutes(1)), std::vector{JobId{2}});
}

TEST(Group, AFlexibleMemberLeavesTheRareCardsToTheOthers) {
  for (const bool flexible_first : {true, false}) {
    SchedIndex index;
    index.upsert_node(node(1, 2, "H100"));
    index.upsert_node(node(2, 2, "A100"));
    std::vector<RolePart> parts = {role("any", 1, 2), role("h", 2, 1, 1000, "H100")};
    if (!flexible_first)
      std::swap(parts[0], parts[1]);
    index.enqueue(group(1, parts));
    EXPECT_EQ(step(index, t0), std::vector{JobId{1}});
  }
}

TEST(Group, EqualMembersAreFoundPlacesByGoingBack) {
  // Best fit alone puts the one-GPU member on the smaller node, where only two members of two fit.
  SchedIndex index;
  index.upsert_node(node(1, 4));
  index.upsert_node(node(2, 3));
  index.enqueue(group(1, {role("small", 1, 1), role("large", 3, 2)}));
  EXPECT_EQ(step(index, t0), std::vector{JobId{1}});
}

// What is kept for two members on one node is the sum of both.
TEST(Group, BackfillDoesNotDelayMembersThatShareANode) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  JobRequest first = job(1, 6);
  first.time_limit = minutes(10);
  index.enqueue(first);
  step(index, t0);
  JobRequest waits = group(2, {role("a", 1, 4), role("b", 1, 4)});
  waits.submitted = {};
  index.enqueue(waits);
  JobRequest late = job(3, 2);
  late.time_limit = hours(1);
  index.enqueue(late);
  EXPECT_TRUE(step(index, t0).empty()) << "job 3 would hold two of the eight GPUs for an hour";
  JobRequest brief = job(4, 2);
  brief.time_limit = minutes(5);
  index.enqueue(brief);
  EXPECT_EQ(step(index, t0), std::vector{JobId{4}});
  index.ended(JobId{4}, t0 + minutes(5));
  index.ended(JobId{1}, t0 + minutes(10));
  EXPECT_EQ(step(index, t0 + minutes(10)), std::vector{JobId{2}});
}

// A group of one member is placed like any group, also beside a hold.
TEST(Group, OneMemberGetsWhatItsRoleAsksFor) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  JobRequest first = job(1, 4);
  first.time_limit = minutes(10);
  index.enqueue(first);
  step(index, t0);
  JobRequest waits = job(2, 8);
  waits.submitted = {};
  index.enqueue(waits);
  JobRequest one = group(3, {role("only", 1, 2)});
  one.resources.gpus = 3;
  one.time_limit = minutes(5);
  index.enqueue(one);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].job, JobId{3});
  EXPECT_EQ(p.starts[0].placements[0].gpus.size(), 2u);
}

TEST(Group, SpotJobsLeaveForAGroup) {
  SchedIndex index;
  for (std::uint64_t n : {1, 2})
    index.upsert_node(node(n, 4));
  for (std::uint64_t id = 1; id <= 8; ++id) {
    JobRequest spot = job(id, 1);
    spot.spot = true;
    spot.yields = Yields::by_requeue;
    index.enqueue(spot);
  }
  step(index, t0);
  index.enqueue(group(20, {role("a", 1, 3), role("b", 2, 1)}));
  const WallTime later = t0 + hours(1);
  const Plan p = plan(index, later);
  EXPECT_EQ(p.preempts.size(), 5u) << "as many as it needs, and no more";
  carry_out(index, p, later);
  EXPECT_EQ(step(index, later), std::vector{JobId{20}});
}

TEST(Group, AGroupThatWaitsTooLongIsNotPassedForEver) {
  SchedSettings settings;
  settings.starve_after = hours(1);
  SchedIndex index(settings);
  index.upsert_node(node(1, 4));
  std::uint64_t next = 1;
  std::vector<JobId> running;
  for (; next <= 4; ++next)
    index.enqueue(job(next, 1));
  for (JobId id : step(index, t0))
    running.push_back(id);
  index.enqueue(group(1000, {role("a", 1, 2), role("b", 2, 1)}));
  WallTime now = t0;
  bool started = false;
  for (int round = 0; round < 40 && !started; ++round) {
    now = now + minutes(10);
    index.ended(running.front(), now);  // nobody knows before when a job ends
    running.erase(running.begin());
    JobRequest fresh = job(next++, 1);
    fresh.submitted = now;
    index.enqueue(fresh);
    for (JobId id : step(index, now)) {
      started = started || id == JobId{1000};
      running.push_back(id);
    }
  }
  EXPECT_TRUE(started);
}

TEST(Group, ALostMemberIsReplacedWhereItWas) {
  SchedIndex index;
  for (std::uint64_t n : {1, 2, 3})
    index.upsert_node(node(n, 2));
  index.enqueue(group(1, {role("a", 1, 2), role("b", 1, 2)}));
  step(index, t0);
  const NodeId was = index.running(JobId{1})->placements[1].node;
  index.member_lost(JobId{1}, 1, t0);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.repairs.size(), 1u);
  EXPECT_EQ(p.repairs[0].task_index, 1);
  EXPECT_EQ(p.repairs[0].placement.node, was);
  EXPECT_EQ(p.repairs[0].placement.gpus.size(), 2u);
  carry_out(index, p, t0);
}

// The answer is kept until the nodes' shapes change.
TEST(Group, WhetherMembersFitTogetherFollowsTheNodes) {
  SchedIndex index;
  index.upsert_node(node(1, 4));
  const JobRequest wanted = group(1, {role("a", 2, 3)});
  for (int again = 0; again < 2; ++again)
    EXPECT_FALSE(feasible(index, wanted)) << "one node has 4 GPUs, 6 are needed";
  EXPECT_TRUE(feasible(index, group(1, {role("a", 1, 3)})));
  index.upsert_node(node(2, 4));
  for (int again = 0; again < 2; ++again)
    EXPECT_TRUE(feasible(index, wanted));
  NodeShape away = node(2, 4);
  away.use = NodeUse::unreachable;
  index.upsert_node(away);
  EXPECT_TRUE(feasible(index, wanted)) << "an unreachable node may come back";
  NodeShape broken = away;
  broken.gpus[0].healthy = broken.gpus[1].healthy = false;
  index.upsert_node(broken);
  EXPECT_FALSE(feasible(index, wanted)) << "two cards of node 2 are broken";
  index.upsert_node(away);
  EXPECT_TRUE(feasible(index, wanted));
  index.remove_node(NodeId{2});
  EXPECT_FALSE(feasible(index, wanted));
}

TEST(Group, WhatCanNeverFitIsRefused) {
  SchedIndex index;
  index.upsert_node(node(1, 4));
  index.upsert_node(node(2, 4));
  EXPECT_TRUE(feasible(index, group(1, {role("a", 2, 3), role("b", 2, 1)})));
  const Status together = feasible(index, group(1, {role("a", 3, 3)}));
  ASSERT_FALSE(together);
  EXPECT_NE(together.error().message.find("3 members"), std::string::npos);
  const Status alone = feasible(index, group(1, {role("a", 1, 1), role("b", 1, 5)}));
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("role b"), std::string::npos) << alone.error().message;
}

}  // namespace
}  // namespace billow::sched
