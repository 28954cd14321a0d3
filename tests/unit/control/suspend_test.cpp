// Suspend and resume in the core: what is held, what it costs, who comes back when, and what
// happens when it cannot be done.
#include "world.h"

namespace billow::control {
namespace {

using wire::agent_v1::Resume;
using wire::agent_v1::Suspend;

struct SuspendWorld : World {
  SuspendWorld() { must(AgentHello{offer("n1", 1), {}}); }
  const Job& at(int id) { return *core.state().find_job(JobId(static_cast<std::uint64_t>(id))); }
  Task the_task(int id) { return *core.state().find_task(at(id).tasks.front()); }
  JobId submit(double gpus, bool spot = false) {
    SubmitJob c = job(gpus);
    c.spec.spot = spot;
    const JobId id(core.state().next_job);
    must(c);
    if (at(static_cast<int>(id.value)).state == JobState::running)
      report(task_of(id), TaskState::running);
    return id;
  }
  // The agent's answer to the last order.
  void answer(int id, TaskState state, std::string error = {}, std::int64_t ram_mib = 2048) {
    const Task task = the_task(id);
    must(AgentReport{task.node,
                     {.task = task.id,
                      .state = state,
                      .started_at = task.started_at,
                      .order = at(id).suspension.order,
                      .order_error = std::move(error),
                      .order_at = now,
                      .ram_mib = ram_mib}});
  }
  template <class T>
  std::size_t sent() const {
    return static_cast<std::size_t>(
        std::count_if(effects.begin(), effects.end(),
                      [](const Effect& e) { return holds_alternative<T>(e.message); }));
  }
  void pass(int s) { now = now + seconds(s); }
};

TEST(Suspend, GivesTheGpuBackAndCostsMemoryOnly) {
  SuspendWorld w;
  w.submit(1);
  w.pass(10);
  w.must(SuspendJob{.job = JobId(1), .reason = "lunch"});
  EXPECT_EQ(w.sent<Suspend>(), 1u);
  EXPECT_EQ(w.at(1).state, JobState::running);  // it holds its GPU until its agent says otherwise
  EXPECT_EQ(w.core.state().index.free_milli(NodeId(1)), 0);
  w.pass(5);
  w.answer(1, TaskState::suspended);
  EXPECT_EQ(w.at(1).state, JobState::suspended);
  EXPECT_EQ(w.at(1).reason, "lunch");
  EXPECT_EQ(w.core.state().index.free_milli(NodeId(1)), 1000);
  EXPECT_EQ(w.at(1).cost.value, 15'000'000);
  w.submit(1);  // somebody else uses the GPU meanwhile
  EXPECT_EQ(w.at(2).state, JobState::running);
  w.pass(100);
  EXPECT_EQ(ledger::lease_cost(w.the_task(1), w.now).value, 100 * 2 * 1'000);  // 2 GiB
  w.report(w.task_of(JobId(2)), TaskState::ended);
  EXPECT_EQ(w.at(1).state, JobState::suspended);  // nobody asked for it
  w.must(ResumeJob{JobId(1)});
  EXPECT_EQ(w.at(1).state, JobState::running);
  EXPECT_EQ(w.the_task(1).state, TaskState::resuming);
  ASSERT_EQ(w.sent<Resume>(), 1u);
  w.pass(2);
  w.answer(1, TaskState::running);
  EXPECT_EQ(w.the_task(1).state, TaskState::running);
  w.pass(8);
  w.report(w.task_of(JobId(1)), TaskState::ended);
  ASSERT_EQ(w.finished.size(), 2u);
  EXPECT_EQ(w.finished[1].job.state, JobState::succeeded);
  EXPECT_EQ(w.finished[1].job.cost.value, 15'000'000 + 200'000 + 10'000'000);
  w.check_replay();
}

TEST(Suspend, APreemptedJobIsSuspendedAndComesBackByItself) {
  SuspendWorld w;
  w.submit(1, true);
  w.submit(1);
  EXPECT_EQ(w.at(2).state, JobState::queued);
  EXPECT_EQ(w.sent<Suspend>(), 1u);
  EXPECT_EQ(w.sent<Stop>(), 0u);
  w.answer(1, TaskState::suspended);
  EXPECT_EQ(w.at(1).state, JobState::suspended);
  EXPECT_EQ(w.at(2).state, JobState::running);
  EXPECT_EQ(w.at(1).attempt, 1u);
  w.check_replay();
  w.report(w.task_of(JobId(2)), TaskState::running);
  w.report(w.task_of(JobId(2)), TaskState::ended);
  EXPECT_EQ(w.the_task(1).state, TaskState::resuming);
  w.answer(1, TaskState::running);
  EXPECT_EQ(w.the_task(1).state, TaskState::running);
  EXPECT_EQ(w.at(1).attempt, 1u);
  w.check_replay();
}

TEST(Suspend, AUsersSuspendOutweighsThePreemption) {
  SuspendWorld w;
  w.submit(1, true);
  w.submit(1);
  w.answer(1, TaskState::suspended);
  w.must(SuspendJob{.job = JobId(1), .reason = "stay"});
  w.report(w.task_of(JobId(2)), TaskState::running);
  w.report(w.task_of(JobId(2)), TaskState::ended);
  EXPECT_EQ(w.at(1).state, JobState::suspended);
  w.must(ResumeJob{JobId(1)});
  EXPECT_EQ(w.the_task(1).state, TaskState::resuming);
}

TEST(Suspend, ComesBackToTheCardsItsImageCameFrom) {
  SuspendWorld w;
  w.must(AgentHello{offer("n2", 2), {}});
  SubmitJob pinned = w.job(1);
  pinned.spec.name = "pinned";
  w.must(pinned);
  const Task before = w.the_task(1);
  w.report(before.id, TaskState::running);
  w.must(SuspendJob{.job = JobId(1)});
  w.answer(1, TaskState::suspended);
  // Every card but two is free; the one it came from is taken, so it waits although others are
  // free.
  SubmitJob other = w.job(1);
  std::vector<JobId> others;
  while (w.core.state().index.free_milli(before.node) > 0) {
    ASSERT_LT(others.size(), 16u) << "jobs are submitted, and none takes the free cards";
    others.push_back(JobId(w.core.state().next_job));
    w.must(other);
  }
  w.must(ResumeJob{JobId(1)});
  EXPECT_EQ(w.at(1).state, JobState::suspended);
  for (JobId id : others) {
    if (w.core.state().find_task(w.task_of(id))->node != before.node ||
        w.core.state().find_task(w.task_of(id))->gpus != before.gpus)
      continue;
    w.report(w.task_of(id), TaskState::running);
    w.report(w.task_of(id), TaskState::ended);
  }
  EXPECT_EQ(w.at(1).state, JobState::running);
  EXPECT_EQ(w.the_task(1).gpus, before.gpus);
  EXPECT_EQ(w.the_task(1).node, before.node);
}

TEST(Suspend, AFailedSuspendKeepsTheJobRunningWithTheReason) {
  SuspendWorld w;
  w.submit(1);
  w.must(SuspendJob{.job = JobId(1)});
  w.answer(1, TaskState::running, "no room in the arena");
  EXPECT_EQ(w.at(1).state, JobState::running);
  EXPECT_EQ(w.the_task(1).state, TaskState::running);
  EXPECT_NE(w.at(1).reason.find("no room in the arena"), std::string::npos);
  w.check_replay();
  // Asked for again it is told again: the failure was of that moment.
  w.must(SuspendJob{.job = JobId(1)});
  EXPECT_EQ(w.sent<Suspend>(), 2u);
}

TEST(Suspend, AVictimThatCannotBeSuspendedIsEndedAndQueuedAgain) {
  SuspendWorld w;
  w.submit(1, true);
  w.submit(1);
  w.answer(1, TaskState::running, "no room in the arena");
  EXPECT_EQ(w.sent<Stop>(), 1u);
  w.report(w.task_of(JobId(1)), TaskState::ended, {.kind = ExitKind::stopped, .code = 143});
  EXPECT_EQ(w.at(1).state, JobState::queued);
  EXPECT_EQ(w.at(2).state, JobState::running);
  w.check_replay();
}

TEST(Suspend, DeclaredUnsuspendableIsNeverTried) {
  SuspendWorld w;
  w.submit(1, true);
  const Task task = w.the_task(1);
  w.must(AgentReport{task.node,
                     {.task = task.id,
                      .state = TaskState::running,
                      .started_at = w.now,
                      .unsuspendable = "it uses managed memory"}});
  const Status asked = w.run(SuspendJob{.job = JobId(1)});
  ASSERT_FALSE(asked);
  EXPECT_NE(asked.error().message.find("it uses managed memory"), std::string::npos);
  w.submit(1);
  EXPECT_EQ(w.sent<Suspend>(), 0u);
  EXPECT_EQ(w.sent<Stop>(), 1u);
}

TEST(Suspend, GangsAndOptedOutJobsAreRefused) {
  SuspendWorld w;
  SubmitJob no = w.job(0.5);
  no.spec.suspendable = Suspendable::no;
  w.must(no);
  w.report(w.task_of(JobId(1)), TaskState::running);
  EXPECT_FALSE(w.run(SuspendJob{.job = JobId(1)}));
  w.submit(1);
  EXPECT_FALSE(w.run(SuspendJob{.job = JobId(2)}));  // queued
  EXPECT_FALSE(w.run(ResumeJob{JobId(2)}));
  EXPECT_FALSE(w.run(ResumeJob{JobId(99)}));
}

TEST(Suspend, LateAndDoubledReportsChangeNothing) {
  SuspendWorld w;
  w.submit(1);
  w.must(SuspendJob{.job = JobId(1)});
  w.answer(1, TaskState::suspended);
  w.must(ResumeJob{JobId(1)});
  const Task task = w.the_task(1);
  TaskStatus late{.task = task.id,
                  .state = TaskState::suspended,
                  .started_at = task.started_at,
                  .order = 1,
                  .order_at = w.now,
                  .ram_mib = 2048};
  w.must(AgentReport{task.node, late});
  EXPECT_EQ(w.the_task(1).state, TaskState::resuming);
  w.answer(1, TaskState::running);
  w.must(AgentReport{task.node, late});
  EXPECT_EQ(w.the_task(1).state, TaskState::running);
}

TEST(Suspend, AResumeThatFailsLeavesItSuspended) {
  SuspendWorld w;
  w.submit(1);
  w.must(SuspendJob{.job = JobId(1)});
  w.answer(1, TaskState::suspended);
  w.must(ResumeJob{JobId(1)});
  w.pass(3);
  w.answer(1, TaskState::suspended, "the GPU has no memory left");
  EXPECT_EQ(w.at(1).state, JobState::suspended);
  EXPECT_NE(w.at(1).reason.find("no memory left"), std::string::npos);
  EXPECT_EQ(w.core.state().index.free_milli(NodeId(1)), 1000);
  w.must(ResumeJob{JobId(1)});
  w.answer(1, TaskState::running);
  EXPECT_EQ(w.the_task(1).state, TaskState::running);
  w.check_replay();
}

TEST(Suspend, ASuspendedJobCanBeStopped) {
  SuspendWorld w;
  w.submit(1);
  w.must(SuspendJob{.job = JobId(1)});
  w.answer(1, TaskState::suspended);
  w.must(ResumeJob{JobId(1)});
  w.must(StopJob{JobId(1), "enough"});
  EXPECT_EQ(w.sent<Stop>(), 1u);
  w.report(w.task_of(JobId(1)), TaskState::ended, {.kind = ExitKind::stopped, .code = 143});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::stopped);
  w.check_replay();
}

TEST(Suspend, TheImageIsLostWithItsNode) {
  for (const bool may_rerun : {false, true}) {
    SuspendWorld w;
    SubmitJob c = w.job(1);
    c.spec.rerun_if_lost = may_rerun;
    w.must(c);
    w.report(w.task_of(JobId(1)), TaskState::running);
    w.must(SuspendJob{.job = JobId(1)});
    w.answer(1, TaskState::suspended);
    w.check_replay();
    w.must(AgentHello{offer("n1", 1, "boot-2"), {}});
    if (may_rerun) {
      w.pass(60);
      w.must(Tick{});
      EXPECT_EQ(w.at(1).state, JobState::running);
      EXPECT_EQ(w.at(1).attempt, 2u);
    } else {
      ASSERT_EQ(w.finished.size(), 1u);
      EXPECT_EQ(w.finished[0].job.state, JobState::lost);
    }
    w.check_replay();
  }
}

TEST(Suspend, OrdersAreRepeatedToANodeThatComesBack) {
  SuspendWorld w;
  w.submit(1);
  w.must(SuspendJob{.job = JobId(1)});
  const Task task = w.the_task(1);
  w.must(NodeSilent{task.node});
  EXPECT_EQ(w.the_task(1).state, TaskState::unreachable);
  TaskStatus running{.task = task.id, .state = TaskState::running, .started_at = task.started_at};
  w.must(AgentHello{offer("n1", 1), {running}});
  EXPECT_EQ(w.the_task(1).state, TaskState::suspending);
  const auto again = orders_after_hello(w.core.state(), task.node, {running});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(get<Suspend>(again[0].message).order, 1u);
  w.answer(1, TaskState::suspended);
  // The memory it asked for stays its own while it is suspended.
  EXPECT_EQ(w.at(1).state, JobState::suspended);
}

TEST(Suspend, ASuspendedJobKeepsItsNodeMemory) {
  SuspendWorld w;
  SubmitJob c = w.job(1);
  c.spec.resources.mem_mib = 60'000;
  w.must(c);
  w.report(w.task_of(JobId(1)), TaskState::running);
  w.must(SuspendJob{.job = JobId(1)});
  w.answer(1, TaskState::suspended);
  EXPECT_EQ(w.core.state().index.free_mem_mib(NodeId(1)), 65'536 - 60'000);
  w.must(ResumeJob{JobId(1)});
  EXPECT_EQ(w.at(1).state, JobState::running);
  EXPECT_EQ(w.core.state().index.free_mem_mib(NodeId(1)), 65'536 - 60'000);
  w.answer(1, TaskState::running);
  w.report(w.task_of(JobId(1)), TaskState::ended);
  EXPECT_EQ(w.core.state().index.free_mem_mib(NodeId(1)), 65'536);
}

}  // namespace
}  // namespace billow::control
