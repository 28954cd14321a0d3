// Nodes that go away: announced, silent, rebooted, removed.
#include "world.h"

namespace billow::control {
namespace {

// One rule for every way in which a node is about to go. The agent reports the end of the process
// before the job is queued again, so this needs no --rerun-if-lost.
TEST(NodeGone, EveryJobOfANodeThatIsAboutToGoIsStoppedAndQueuedAgain) {
  for (const Command& announcement :
       {Command(DrainNode{NodeId(1), "the provider wants it back", true}),
        Command(NodeReclaimed{NodeId(1), "the provider wants it back"})}) {
    World w;
    w.must(AgentHello{offer("n1", 1), {}});
    w.must(w.job(1));
    const TaskId task = w.task_of(JobId(1));
    w.report(task, TaskState::running);
    w.must(announcement);
    EXPECT_EQ(w.core.state().find_job(JobId(1))->stopping, StopCause::preempted);
    EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::running)
        << "it is queued only when its process has ended";
    w.report(task, TaskState::ended, {.kind = ExitKind::stopped, .code = 143});
    EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::queued);
    w.check_replay();
  }
}

TEST(NodeGone, ADrainWithoutReclaimLeavesJobsAlone) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  w.report(w.task_of(JobId(1)), TaskState::running);
  w.must(DrainNode{NodeId(1), "a bad fan"});
  EXPECT_EQ(w.core.state().find_job(JobId(1))->stopping, StopCause::none);
}

TEST(NodeGone, AnUnreachableNodeKeepsItsLeasesUntilItsAgentHasFencedItself) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  auto keep = w.job(0.5), rerun = w.job(0.5);
  rerun.spec.rerun_if_lost = true;
  w.must(keep);
  w.must(rerun);
  const TaskId kept = w.task_of(JobId(1)), fenced = w.task_of(JobId(2));
  w.report(kept, TaskState::running);
  w.report(fenced, TaskState::running);
  w.must(NodeSilent{NodeId(1)});
  EXPECT_EQ(w.core.state().find_task(kept)->state, TaskState::unreachable);
  w.must(NodeFenced{NodeId(1)});
  EXPECT_EQ(w.core.state().find_task(kept)->state, TaskState::unreachable);
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::held);
  w.must(AgentHello{offer("n1", 1),
                    {{.task = kept, .state = TaskState::running},
                     {.task = fenced, .state = TaskState::running}}});
  EXPECT_FALSE(w.core.state().nodes.at(NodeId(1)).reachable)
      << "what is not its own any more still runs there";
  w.must(AgentHello{offer("n1", 1), {{.task = kept, .state = TaskState::running}}});
  EXPECT_EQ(w.core.state().find_task(kept)->state, TaskState::running);
  const auto effects = hello_effects(
      w.core.state(), NodeId(1),
      {{.task = fenced, .state = TaskState::running}, {.task = kept, .state = TaskState::running}});
  ASSERT_FALSE(effects.empty());
  EXPECT_EQ(get<Settle>(effects[0].message).unknown, std::vector<TaskId>{fenced});
  w.check_replay();
}

TEST(NodeGone, ARebootLosesTasksAndARestartedAgentGetsItsOrdersAgain) {
  World w;
  w.must(AgentHello{offer("n1", 2), {}});
  w.must(w.job(1));
  w.must(w.job(1));
  w.report(w.task_of(JobId(1)), TaskState::running);
  // The agent restarts and knows only the first: the second's start is sent again.
  const std::vector<TaskStatus> known = {
      {.task = w.task_of(JobId(1)), .state = TaskState::running}};
  w.must(AgentHello{offer("n1", 2), known});
  const auto effects = orders_after_hello(w.core.state(), NodeId(1), known);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(get<Start>(effects[0].message).task, w.task_of(JobId(2)));
  // The machine restarts: what ran is lost, what never ran may run.
  w.must(AgentHello{offer("n1", 2, "boot-2"), {}});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::lost);
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::held);
  w.check_replay();
}

// What follows was found by the fault simulator, or by reading the code while it was built.

TEST(NodeGone, PreemptionAndLossUseNoRetries) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  auto job = w.job(1);
  job.spec.retries = 1;
  job.spec.rerun_if_lost = true;
  w.must(job);
  for (int i = 0; i < 3; ++i) {  // lost three times over
    const TaskId task = w.task_of(JobId(1));
    w.report(task, TaskState::running);
    w.report(task, TaskState::ended, {.kind = ExitKind::lost});
    w.now = w.now + hours(1);
    w.must(Tick{});
  }
  w.report(w.task_of(JobId(1)), TaskState::ended, {.kind = ExitKind::exited, .code = 3});
  ASSERT_TRUE(w.finished.empty()) << "its one retry was not given";
  w.now = w.now + hours(1);
  w.must(Tick{});
  w.report(w.task_of(JobId(1)), TaskState::ended, {.kind = ExitKind::exited, .code = 3});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::failed);
  w.check_replay();
}

TEST(NodeGone, JobsThatMayHaveStartedOnARemovedNodeDoNotRestart) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));  // the start goes out; whether it was carried out, nobody hears
  const NodeId node = w.core.state().nodes.begin()->first;
  w.must(NodeSilent{node});
  w.must(RemoveNode{node});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::lost);
}

TEST(NodeGone, AGangThatBeganOnOneNodeDoesNotBeginAgainBecauseOfTheOther) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(AgentHello{offer("n2", 1), {}});
  auto gang = w.job(1);
  gang.spec.nodes = 2;
  w.must(gang);
  const auto tasks = w.core.state().find_job(JobId(1))->tasks;
  w.report(tasks[0], TaskState::running);
  const std::string name =
      w.core.state().nodes.at(w.core.state().find_task(tasks[1])->node).offer.name;
  w.must(AgentHello{offer(name, 1, "boot-2"), {}});  // it restarted before it began
  w.report(tasks[0], TaskState::ended, {.kind = ExitKind::stopped});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::lost);
}

TEST(NodeGone, AForcedStopIsForcedAgainAfterAReconnect) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  const TaskId task = w.task_of(JobId(1));
  w.must(StopJob{JobId(1), "", true});
  const auto effects = orders_after_hello(w.core.state(), w.core.state().find_task(task)->node,
                                          {{.task = task, .state = TaskState::running}});
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(get<Stop>(effects[0].message).grace, Duration{0});
}

}  // namespace
}  // namespace billow::control
