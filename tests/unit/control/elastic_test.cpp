// Elastic gangs: lost members are replaced.
#include <fmt/format.h>

#include "core/control/decide/decide.h"
#include "sharing_world.h"

namespace billow::control::sharing_tests {
namespace {

TEST(Elastic, ALostMemberIsReplacedAndTheOthersContinue) {
  World w;
  for (const char* name : {"a", "b", "c"})
    w.must(AgentHello{offer(name, 8), {}});
  auto gang = w.job(8);
  gang.spec.nodes = 2;
  gang.spec.elastic = true;
  const JobId id = w.submit(gang);
  ASSERT_EQ(w.state(id), JobState::running);
  const std::vector<TaskId> before = w.core.state().find_job(id)->tasks;
  const NodeId lost = w.core.state().find_task(before[1])->node;
  w.effects.clear();
  w.must(NodeSilent{lost});
  w.must(NodeFenced{lost});
  const Job& j = *w.core.state().find_job(id);
  EXPECT_EQ(j.state, JobState::running);
  EXPECT_EQ(j.tasks[0], before[0]) << "the other member was not touched";
  ASSERT_NE(j.tasks[1], before[1]);
  const Task& fresh = *w.core.state().find_task(j.tasks[1]);
  EXPECT_EQ(fresh.rank, 1u);
  EXPECT_NE(fresh.node, lost);
  int starts = 0, stops = 0;
  for (const Effect& e : w.effects) {
    starts += holds_alternative<Start>(e.message);
    stops += holds_alternative<wire::agent_v1::Stop>(e.message);
  }
  EXPECT_EQ(starts, 1);
  EXPECT_EQ(stops, 0);
  w.end(id);
  EXPECT_EQ(w.finished.back().job.state, JobState::succeeded);
  w.check_replay();
}

TEST(Elastic, AMemberThatEndsByItselfIsNotReplaced) {
  World w;
  for (const char* name : {"a", "b", "c"})
    w.must(AgentHello{offer(name, 8), {}});
  auto gang = w.job(8);
  gang.spec.nodes = 2;
  gang.spec.elastic = true;
  const JobId id = w.submit(gang);
  const std::vector<TaskId> tasks = w.core.state().find_job(id)->tasks;
  w.must(AgentReport{w.core.state().find_task(tasks[1])->node,
                     {.task = tasks[1], .state = TaskState::ended, .ended_at = w.now, .exit = {}}});
  EXPECT_EQ(w.core.state().find_job(id)->tasks, tasks);
  w.check_replay();
}

// A gang continues when a member has ended, and its node may be removed. The others can still be
// stopped, and started again on a node whose agent has forgotten them.
TEST(Elastic, TheNodeOfAnEndedMemberMayBeRemoved) {
  World w;
  for (const char* name : {"a", "b"})
    w.must(AgentHello{offer(name, 8), {}});
  auto gang = w.job(8);
  gang.spec.nodes = 2;
  const JobId id = w.submit(gang);
  const std::vector<TaskId> tasks = w.core.state().find_job(id)->tasks;
  const NodeId first = w.core.state().find_task(tasks[0])->node,
               second = w.core.state().find_task(tasks[1])->node;
  w.must(AgentReport{first,
                     {.task = tasks[0], .state = TaskState::ended, .ended_at = w.now, .exit = {}}});
  w.must(NodeSilent{first});
  w.must(RemoveNode{first});
  ASSERT_FALSE(w.core.state().nodes.contains(first));
  const auto again = hello_effects(w.core.state(), second, {});
  ASSERT_EQ(again.size(), 1u);
  const auto* start = get_if<Start>(&again[0].message);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->env.at("BILLOW_NODES"), fmt::format("node-{}.invalid,b", first.value));
  w.must(StopJob{id, "", false});
  EXPECT_EQ(w.core.state().find_job(id)->stopping, StopCause::request);
  w.check_replay();
}

TEST(Elastic, SimultaneousFailuresAreReplacedWithinTheRetries) {
  World w;
  for (const char* name : {"a", "b", "c"})
    w.must(AgentHello{offer(name, 8), {}});
  auto gang = w.job(8);
  gang.spec.nodes = 3;
  gang.spec.elastic = true;
  gang.spec.retries = 1;
  const JobId id = w.submit(gang);
  const std::vector<TaskId> tasks = w.core.state().find_job(id)->tasks;
  for (std::uint64_t node : {1, 2, 3})
    w.must(DrainNode{NodeId(node), "nothing starts there"});
  // The later number is heard of first; neither has a new place yet.
  for (std::size_t rank : {2u, 1u}) {
    EXPECT_EQ(w.core.state().find_job(id)->stopping, StopCause::none);
    w.must(AgentReport{w.core.state().find_task(tasks[rank])->node,
                       {.task = tasks[rank],
                        .state = TaskState::ended,
                        .ended_at = w.now,
                        .exit = {ExitKind::signaled, 0, 11}}});
    w.check_replay();
  }
  EXPECT_EQ(w.core.state().find_job(id)->stopping, StopCause::rank_failed);
  EXPECT_TRUE(w.core.state().index.waiting_for_members().empty());
}

TEST(Elastic, WithoutAFreeNodeTheWholeGangRestarts) {
  World w;
  for (const char* name : {"a", "b"})
    w.must(AgentHello{offer(name, 8), {}});
  auto gang = w.job(8);
  gang.spec.nodes = 2;
  gang.spec.elastic = true;
  const JobId id = w.submit(gang);
  const NodeId lost = w.core.state().find_task(w.core.state().find_job(id)->tasks[1])->node;
  w.must(NodeSilent{lost});
  w.must(NodeFenced{lost});
  w.wait(minutes(9));
  EXPECT_EQ(w.core.state().find_job(id)->stopping, StopCause::none);
  w.wait(minutes(2));
  EXPECT_EQ(w.core.state().find_job(id)->stopping, StopCause::rank_failed);
  const TaskId left = w.core.state().find_job(id)->tasks[0];
  w.must(AgentReport{w.core.state().find_task(left)->node,
                     {.task = left,
                      .state = TaskState::ended,
                      .ended_at = w.now,
                      .exit = {.kind = ExitKind::stopped}}});
  EXPECT_EQ(w.state(id), JobState::held) << "it comes again after its back-off";
  w.check_replay();
}

// ---- what is learned

}  // namespace
}  // namespace billow::control::sharing_tests
