// Nodes that go away: what runs there is kept and not charged for a time in which nobody heard of
// it, what is stopped is over for people at once, and nothing starts on a node that this head has
// not heard of.
#include "world.h"

namespace billow::control {
namespace {

StartHead head_of(Epoch epoch) {
  return {.version = "1",
          .epoch = epoch,
          .admin = "ana",
          .admin_token_hash = "h",
          .node_token_hash = "n"};
}

struct Nodes : World {
  TaskId start(JobId id) {
    const TaskId task = task_of(id);
    report(task, TaskState::running);
    return task;
  }
  const Node& node(std::uint64_t id) { return core.state().nodes.at(NodeId(id)); }
  NanoUsd charged(TaskId id) {
    return core.state().money.books.charge_between(ledger::lease_id(*core.state().find_task(id)),
                                                   {}, core.state().billed);
  }
  // The clock moves with something that the journal has.
  void pass(Duration d) {
    now = now + d;
    must(AddProject{.name = "p" + std::to_string(core.state().next_project)});
  }
};

constexpr std::int64_t rate = 1'000'000;  // of an H100 a second

TEST(Nodes, NothingStartsOnANodeThatHasNotSaidHelloToThisHead) {
  Nodes w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(AgentHello{offer("n2", 1), {}});
  w.must(w.job(1));
  const TaskId running = w.start(JobId(1));
  w.must(head_of(2));
  EXPECT_FALSE(w.node(1).reachable);
  EXPECT_FALSE(w.node(2).reachable);
  w.must(w.job(1));
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::queued);
  ASSERT_EQ(w.core.state().find_job(JobId(1))->state, JobState::running) << "what runs goes on";
  const NodeId there = w.core.state().find_task(running)->node;
  const NodeId other(3 - there.value);
  w.must(AgentHello{w.core.state().nodes.at(there).offer,
                    {{.task = running, .state = TaskState::running}}});
  EXPECT_EQ(w.core.state().find_task(running)->state, TaskState::running);
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::queued)
      << "the other one is still away";
  w.must(AgentHello{w.core.state().nodes.at(other).offer, {}});
  EXPECT_EQ(w.core.state().find_task(w.task_of(JobId(2)))->node, other);
  w.check_replay();
}

TEST(Nodes, JobsThatRanDuringSilenceAreChargedAfterwards) {
  Nodes w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  const TaskId task = w.start(JobId(1));
  w.pass(seconds(100));
  w.must(NodeSilent{NodeId(1)});
  w.pass(seconds(1000));
  EXPECT_EQ(w.charged(task).value, 100 * rate);
  w.must(AgentHello{offer("n1", 1), {{.task = task, .state = TaskState::running}}});
  EXPECT_EQ(w.charged(task).value, 1100 * rate) << "it did run";
  w.pass(seconds(10));
  w.report(task, TaskState::ended);
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.cost.value, 1110 * rate);
  w.check_replay();
}

TEST(Nodes, EndedJobsAreChargedToTheirEndAndLostOnesToTheLastContact) {
  Nodes w;
  w.must(AgentHello{offer("n1", 2), {}});
  w.must(w.job(1));
  w.must(w.job(1));
  const TaskId ended = w.start(JobId(1)), lost = w.start(JobId(2));
  w.pass(seconds(100));
  w.must(NodeSilent{NodeId(1)});
  const WallTime end = w.now + seconds(50);
  w.pass(seconds(1000));
  const LeaseId lease = ledger::lease_id(*w.core.state().find_task(ended));
  w.must(AgentHello{offer("n1", 2), {{.task = ended, .state = TaskState::ended, .ended_at = end}}});
  ASSERT_EQ(w.finished.size(), 2u);
  for (const FinishedJob& f : w.finished)
    EXPECT_EQ(f.job.cost.value, (f.job.id == JobId(1) ? 150 : 100) * rate)
        << "job " << f.job.id.value;
  EXPECT_EQ(w.core.state().money.books.charge_between(lease, {}, w.now).value, 150 * rate)
      << "and the books say the same";
  (void)lost;
  w.check_replay();
}

TEST(Nodes, AStopOnASilentNodeEndsAtOnceAndBlocksTheNodeUntilObeyed) {
  Nodes w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  const TaskId task = w.start(JobId(1));
  w.pass(seconds(100));
  w.must(NodeSilent{NodeId(1)});
  w.pass(seconds(100));
  w.must(StopJob{JobId(1), "", false});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::stopped);
  EXPECT_EQ(w.finished[0].job.cost.value, 100 * rate);
  w.must(w.job(1));
  const std::vector<TaskStatus> has = {{.task = task, .state = TaskState::running}};
  w.must(AgentHello{offer("n1", 1), has});
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::queued) << "the GPU is still held";
  const auto orders = orders_after_hello(w.core.state(), NodeId(1), has);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(get<Settle>(orders[0].message).unknown, std::vector<TaskId>{task});
  w.must(AgentHello{offer("n1", 1), {}});
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::running);
  w.check_replay();
}

TEST(Nodes, AnUndeliveredStopEndsWhenTheNodeIsGivenUp) {
  Nodes w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  w.start(JobId(1));
  w.must(StopJob{JobId(1), "", false});
  EXPECT_TRUE(w.finished.empty());
  w.must(NodeSilent{NodeId(1)});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::stopped);
}

TEST(Nodes, ARemovedNodeThatJoinsAgainEndsItsFormerTasksFirst) {
  Nodes w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  const TaskId task = w.start(JobId(1));
  w.must(NodeSilent{NodeId(1)});
  w.must(RemoveNode{NodeId(1)});
  w.must(w.job(1));
  w.must(AgentHello{offer("n1", 1), {{.task = task, .state = TaskState::running}}});
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::queued);
  w.must(AgentHello{offer("n1", 1), {}});
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::running);
  w.check_replay();
}

}  // namespace
}  // namespace billow::control
