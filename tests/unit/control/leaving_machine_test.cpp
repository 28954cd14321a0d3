// Machines that are being released: what their nodes still do, and what no longer happens there.
#include <gtest/gtest.h>

#include "tests/unit/control/pool_world.h"

namespace billow::control::pool_tests {
namespace {

TEST(LeavingMachine, IsGivenBackWhenIdleAndNotBeforeAndStaysClosed) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  w.arrives(w.machines()[0]);
  EXPECT_EQ(w.state().find_job(job)->state, JobState::running);
  EXPECT_FALSE(w.machines()[0].idle_since);
  w.now = w.now + hours(3);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::here);
  w.ends(job);
  w.now = w.now + minutes(4);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::here);
  w.now = w.now + minutes(2);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::releasing);
  // Nothing new starts on a machine that is on its way out, whoever opens or drains its node.
  const NodeId leaving = w.state().nodes.begin()->first;
  const std::string why = w.state().nodes.at(leaving).drained;
  const Status opened = w.run(DrainNode{leaving, ""});
  ASSERT_FALSE(opened) << "a job would start there and be lost with the machine";
  EXPECT_EQ(opened.error().message, "fast-1 is being released: idle for 5m");
  EXPECT_EQ(opened.error().hint, "its pool rents another machine if a job needs one");
  w.must(DrainNode{leaving, "a bad fan"});
  EXPECT_EQ(w.state().nodes.at(leaving).drained, why);
  const JobId late = w.submit(8);
  EXPECT_EQ(w.state().find_job(late)->state, JobState::queued);
  const auto why_not = sched::explain(w.state().index, late, w.now);
  EXPECT_NE(why_not.reasons.front().text.find("fast-1 (being released)"), std::string::npos)
      << why_not.reasons.front().text;
  EXPECT_EQ(why_not.would_start_now.find("undrain"), std::string::npos) << why_not.would_start_now;
  w.now = w.now + minutes(1);
  w.must(PoolSeen{w.machines()[0].pool, {}, w.now});
  for (const Machine& m : w.machines())
    EXPECT_NE(m.state, MachineState::releasing);
  EXPECT_TRUE(w.state().nodes.empty());
  EXPECT_FALSE(w.state().token_by_hash.contains("hash-fast-1"))
      << "the credential goes with the machine";
  w.check_replay();
}

// A job ends in the grace that the release of its machine leaves it, while its node cannot tell.
TEST(LeavingMachine, ANodeWhoseMachineIsGivenBackStillTellsHowItsJobsEnded) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  const TokenId credential = w.credential(m.name, &m);
  w.must(AgentHello{node_offer(m.name, m.gpus), {}, credential});
  const TaskId task = w.state().find_job(job)->tasks.front();
  const NodeId node = w.state().find_task(task)->node;
  w.must(ReleaseMachine{m.name, "no longer needed"});
  ASSERT_EQ(w.machines()[0].state, MachineState::releasing);
  w.must(NodeSilent{node, seconds(20)});
  w.now = w.now + seconds(5);
  const TaskStatus ended{
      .task = task, .state = TaskState::ended, .started_at = w.now, .ended_at = w.now};
  w.must(AgentHello{node_offer(m.name, m.gpus), {ended}, credential});
  const Job* after = w.state().find_job(job);
  EXPECT_TRUE(!after || after->state == JobState::succeeded) << "it would run a second time";
  EXPECT_FALSE(w.state().nodes.at(node).drained.empty()) << "but nothing new starts there";
  const Status stranger = w.run(AgentHello{node_offer(m.name + "-2", 8), {}, credential});
  EXPECT_FALSE(stranger);
  w.check_replay();
}

// Its agent was killed, the job may have come to its end, and somebody gives the machine back.
TEST(LeavingMachine, AJobThatMayNotRunTwiceIsNotStartedAgainIfItsNodeIsSilent) {
  for (const bool may : {false, true}) {
    PoolWorld w;
    w.must(AddPool{w.pool("fast")});
    JobSpec asked = PoolWorld::spec(8);
    asked.rerun_if_lost = may;
    const JobId job = w.submit(asked);
    w.must(PlanPools{});
    const Machine m = w.machines()[0];
    w.arrives(m);
    const TaskId task = w.state().find_job(job)->tasks.front();
    const NodeId node = w.state().find_task(task)->node;
    w.must(AgentReport{node, {.task = task, .state = TaskState::running, .started_at = w.now}});
    w.must(NodeSilent{node, seconds(20)});
    w.must(ReleaseMachine{m.name, "no longer needed"});
    w.now = w.now + minutes(5);
    w.must(PoolSeen{m.pool, {}, w.now});
    ASSERT_FALSE(w.state().machines.contains(m.name));
    const Job* after = w.state().find_job(job);
    EXPECT_EQ(after != nullptr && after->state == JobState::queued, may);
    w.check_replay();
  }
}

// The order hangs, its machine joins and is given back; then the provider says that it failed.
TEST(LeavingMachine, AnOrderThatFailsLateEndsNoJobOfItsMachine) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  w.arrives(m);
  w.must(ReleaseMachine{m.name, "no longer needed"});
  w.must(OrderFailed{m.name, "the request timed out"});
  ASSERT_EQ(w.machines().size(), 1u);
  EXPECT_EQ(w.state().find_job(job)->tasks.size(), 1u);
  EXPECT_FALSE(w.state().nodes.empty()) << "its job has its time to end";
  w.check_replay();
}

}  // namespace
}  // namespace billow::control::pool_tests
