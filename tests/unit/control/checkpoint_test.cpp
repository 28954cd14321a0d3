// Checkpoints in the core: what a report of one comes to, what the next start is told, and what a
// reclaimed node's jobs do.
#include "world.h"

namespace billow::control {
namespace {

SubmitJob checkpointing(World& w) {
  SubmitJob c = w.job(1);
  c.spec.checkpoint_every = minutes(20);
  c.spec.checkpoint_signal = 10;
  c.spec.checkpoint_dir = "/shared";
  return c;
}

TEST(Reclaimed, ANodeThatBootsAnewTakesWorkAgainUnlessAPersonDrainedIt) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  const NodeId n1 = w.core.state().node_by_name("n1")->id;
  const auto drained = [&] {
    return w.core.state().node_by_name("n1")->drained;
  };
  w.must(NodeReclaimed{n1, "AWS takes it back"});
  EXPECT_EQ(drained(), "taken away: AWS takes it back");
  w.must(AgentHello{offer("n1", 1), {}});
  EXPECT_EQ(drained(), "taken away: AWS takes it back") << "the same boot: the notice stands";
  w.must(AgentHello{offer("n1", 1, "boot-2"), {}});
  EXPECT_EQ(drained(), "");
  w.must(w.job(1));
  EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::running);
  // What a person said holds over restarts, whether it came before the notice or after it.
  w.must(NodeReclaimed{n1, "again"});
  w.must(DrainNode{n1, "a bad fan"});
  w.must(AgentHello{offer("n1", 1, "boot-3"), {}});
  EXPECT_EQ(drained(), "a bad fan");
  w.must(NodeReclaimed{n1, "and again"});
  w.must(AgentHello{offer("n1", 1, "boot-4"), {}});
  EXPECT_EQ(drained(), "a bad fan");
}

TEST(Checkpoints, TheNextStartGetsTheNewest) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(checkpointing(w));
  EXPECT_TRUE(w.core.state().find_job(JobId(1))->spec->rerun_if_lost);
  const Task task = *w.core.state().find_task(w.task_of(JobId(1)));
  EXPECT_FALSE(get<Start>(w.effects.back().message).env.contains("BILLOW_CHECKPOINT"));
  TaskStatus status{.task = task.id,
                    .state = TaskState::running,
                    .started_at = w.now,
                    .checkpoint = {"/shared/job-1/2", w.now + seconds(2), 1500}};
  w.must(AgentReport{task.node, status});
  status.checkpoint = {"/shared/job-1/1", w.now + seconds(1), 1500};  // late
  w.must(AgentReport{task.node, status});
  EXPECT_EQ(w.core.state().find_job(JobId(1))->checkpoint.path, "/shared/job-1/2");
  w.check_replay();
  w.must(AgentHello{offer("n1", 1, "boot-2"), {}});
  w.now = w.now + minutes(1);
  w.must(Tick{});
  EXPECT_EQ(get<Start>(w.effects.back().message).env.at("BILLOW_CHECKPOINT"), "/shared/job-1/2");
  w.check_replay();
}

TEST(Checkpoints, AReclaimedNodesJobsLeaveWithTheirLastOne) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(AgentHello{offer("n2", 0), {}});
  w.must(checkpointing(w));
  const Task task = *w.core.state().find_task(w.task_of(JobId(1)));
  w.report(task.id, TaskState::running);
  w.must(DrainNode{task.node, "the provider wants it back", true});
  EXPECT_TRUE(holds_alternative<Stop>(w.effects.back().message));
  TaskStatus ended{.task = task.id,
                   .state = TaskState::ended,
                   .started_at = w.now,
                   .ended_at = w.now,
                   .exit = {.kind = ExitKind::stopped, .code = 143},
                   .checkpoint = {"/shared/job-1/9", w.now, 100}};
  w.must(AgentReport{task.node, ended});
  EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::queued);
  EXPECT_EQ(w.core.state().find_job(JobId(1))->checkpoint.path, "/shared/job-1/9");
  w.check_replay();
}

TEST(Checkpoints, NeedAWayAndAPlace) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  SubmitJob c = checkpointing(w);
  c.spec.checkpoint_dir.clear();
  EXPECT_FALSE(w.run(c));
  c = checkpointing(w);
  c.spec.checkpoint_signal = 0;
  EXPECT_FALSE(w.run(c));
  c.spec.checkpoint_cmd = "touch x";
  c.spec.checkpoint_signal = 10;
  EXPECT_FALSE(w.run(c));
}

TEST(Checkpoints, TheIntervalThatLosesLeast) {
  // Young: sqrt(2 · 60 s · 24 h) = 3220 s; Daly's terms add 20 s and take the checkpoint's own time
  // off.
  const Duration best = checkpoint_interval(seconds(60), hours(24));
  EXPECT_NEAR(best.seconds(), 3180, 5);
  // By its own measure nothing near it is better: time lost per second of work is C/T + (T + C)/(2
  // M).
  const auto lost = [](double t) {
    return 60 / t + (t + 60) / (2 * 86400.0);
  };
  EXPECT_LT(lost(best.seconds()), lost(best.seconds() * 1.3));
  EXPECT_LT(lost(best.seconds()), lost(best.seconds() / 1.3));
  EXPECT_EQ(checkpoint_interval(Duration{0}, hours(24)).ns, 0);
  EXPECT_EQ(checkpoint_interval(hours(50), hours(24)).ns, hours(24).ns);
}

}  // namespace
}  // namespace billow::control
