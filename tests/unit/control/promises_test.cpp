// What is promised and must hold though much happens in between: room for who moves, room before
// and after a reservation begins, where a project's data may be; and that many who wait for one job
// cost little each.
#include <fmt/format.h>

#include "base/crypto.h"
#include "core/control/residency.h"
#include "core/model/surroundings.h"
#include "world.h"

namespace billow::control {
namespace {

using wire::agent_v1::Suspend;

TEST(Moving, PromisedCapacityIsKeptUntilTheJobArrives) {
  Fleet w;
  w.join("n1", 2);
  w.join("n2", 2);
  SubmitJob moving = w.job();
  moving.spec.suspendable = Suspendable::yes;
  moving.spec.checkpoint_every = minutes(1);
  moving.spec.checkpoint_signal = 10;
  moving.spec.checkpoint_dir = "/shared";
  const JobId stays = w.submit(w.job()), leaves = w.submit(w.job()), moves = w.submit(moving);
  w.report(w.task_of(leaves), TaskState::ended);
  ASSERT_NE(w.node_of(stays), w.node_of(moves));
  TaskStatus running{.task = w.task_of(moves), .state = TaskState::running, .started_at = w.now};
  running.checkpoint = {"/shared/job-3/1", w.now + seconds(1), 100};
  w.must(AgentReport{w.node_of(moves), running});
  const JobId large = w.submit(w.job(2));
  w.wait(minutes(11));
  ASSERT_EQ(w.core.state().find_job(moves)->stopping, StopCause::moved);
  // Somebody comes while it saves its work: there is a GPU free, and it is not for him.
  const JobId second = w.submit(w.job());
  EXPECT_EQ(w.state(second), JobState::queued);
  w.wait(seconds(30));
  EXPECT_EQ(w.state(second), JobState::queued);
  w.report(w.task_of(moves), TaskState::ended, {.kind = ExitKind::stopped, .code = 143});
  EXPECT_EQ(w.state(large), JobState::running);
  EXPECT_EQ(w.state(moves), JobState::running);
  EXPECT_EQ(w.node_of(moves), w.node_of(stays));
  EXPECT_EQ(w.state(second), JobState::queued);
  EXPECT_FALSE(w.core.state().find_job(moves)->gives_way_to) << "it has arrived";
  w.check_replay();
}

TEST(Moving, ASnapshotKeepsTheMove) {
  Fleet w;
  w.join("n1", 2);
  w.join("n2", 2);
  SubmitJob moving = w.job();
  moving.spec.spot = true;
  moving.spec.checkpoint_every = minutes(1);
  moving.spec.checkpoint_signal = 10;
  moving.spec.checkpoint_dir = "/shared";
  const JobId stays = w.submit(w.job()), leaves = w.submit(w.job()), moves = w.submit(moving);
  w.report(w.task_of(leaves), TaskState::ended);
  TaskStatus running{.task = w.task_of(moves), .state = TaskState::running, .started_at = w.now};
  running.checkpoint = {"/shared/job-3/1", w.now + seconds(1), 100};
  w.must(AgentReport{w.node_of(moves), running});
  w.now = w.now + minutes(11);
  w.submit(w.job(2));
  ASSERT_EQ(w.core.state().find_job(moves)->stopping, StopCause::moved);
  w.check_replay();  // the index rebuilt from an image equals this one, those that move included
  EXPECT_TRUE(restore(image(w.core.state()))->index.equals(w.core.state().index));
  w.report(w.task_of(moves), TaskState::ended, {.kind = ExitKind::stopped, .code = 143});
  EXPECT_EQ(w.node_of(moves), w.node_of(stays));
  EXPECT_TRUE(restore(image(w.core.state()))->index.equals(w.core.state().index));
}

// The wall's clock was stepped: leases go by the clock of bills, and what the scheduler knows of
// limits by the wall's, also after a restart.
TEST(Snapshot, KnowsWhenAJobWasPlacedByTheWallsClock) {
  Fleet w;
  w.join("n1", 1);
  const WallTime billed = w.now + minutes(10);
  w.now = w.now + hours(3);
  const JobId id(w.core.state().next_job);
  auto step = w.core.execute(w.job(), {"user:ana", "r1"}, w.now, billed);
  ASSERT_TRUE(step);
  w.take(std::move(*step));
  w.take(w.core.plan(w.now, billed));
  ASSERT_EQ(w.state(id), JobState::running);
  ASSERT_EQ(w.core.state().find_task(w.task_of(id))->lease_from, billed);
  EXPECT_EQ(restore(image(w.core.state()))->index.running(id)->started, w.now);
  w.check_replay();
}

TEST(Snapshot, KeepsEndedMembersInAnyOrder) {
  Fleet w;
  for (const char* name : {"n1", "n2", "n3"})
    w.join(name, 1);
  SubmitJob gang = w.job(1);
  gang.spec.nodes = 3;
  const JobId id = w.submit(gang);
  for (const std::size_t rank : {2u, 0u})
    w.report(w.core.state().find_job(id)->tasks.at(rank), TaskState::ended);
  EXPECT_EQ(w.core.state().index.running(id)->done, (std::vector<std::int32_t>{0, 2}));
  w.check_replay();
}

TEST(Reservations, SpotJobsRunUntilOneBeginsAndOthersGetAdvice) {
  Fleet w;
  w.join("n1", 2);
  w.must(w.reserve(2, hours(20), hours(4)));
  SubmitJob spot = w.job(2);
  spot.spec.spot = true;
  const JobId id = w.submit(spot);
  ASSERT_EQ(w.state(id), JobState::running) << "it leaves when the reservation begins";
  w.report(w.task_of(id), TaskState::running);
  w.now = w.now + hours(19) + minutes(59);
  w.must(Tick{});
  EXPECT_EQ(w.core.state().find_job(id)->suspension.phase, SuspendPhase::none);
  w.wait(minutes(1));
  EXPECT_EQ(w.core.state().find_job(id)->suspension.phase, SuspendPhase::suspending);
  EXPECT_EQ(w.core.state().find_job(id)->reason, "preempted by a reservation");
  w.check_replay();

  Fleet v;
  v.join("n1", 2);
  v.must(v.reserve(2, hours(20), hours(4)));
  const JobId firm = v.submit(v.job(1));
  ASSERT_EQ(v.state(firm), JobState::queued);
  const auto why = sched::explain(v.core.state().index, firm, v.now);
  EXPECT_EQ(why.reasons.at(0).kind, sched::ReasonKind::reserved);
  EXPECT_EQ(why.would_start_now, "--time 19h50m or --spot would start now");
}

TEST(Reservations, AJobThatOutlivesItsOwnCountsForTheNext) {
  Fleet w;
  w.join("n1", 2);
  w.must(w.reserve(2, hours(1), hours(1)));
  w.wait(hours(1));
  SubmitJob inside = w.job(2);
  inside.spec.reservation = ReservationId(1);
  ASSERT_EQ(w.state(w.submit(inside)), JobState::running);
  EXPECT_FALSE(w.run(w.reserve(1, hours(3), hours(1))))
      << "when its reservation is over it goes on, and nobody knows how long";
}

TEST(Residency, ContentIsSentOnlyToNodesOfItsJobs) {
  Fleet w;
  w.join("us", 8, {{"region", "us-1"}});
  w.join("eu", 8, {{"region", "eu-1"}});
  w.must(SetProject{.name = "default", .regions = std::vector<std::string>{"eu-1"}});
  const std::string digest(64, 'a'), other(64, 'b');
  SubmitJob j = w.job();
  j.env = {{surroundings::files, digest}};
  const JobId id = w.submit(j);
  ASSERT_EQ(w.node_of(id), NodeId(2));
  EXPECT_TRUE(may_send(w.core.state(), NodeId(2), digest));
  EXPECT_FALSE(may_send(w.core.state(), NodeId(1), digest)) << "no job that has it is there";
  EXPECT_FALSE(may_send(w.core.state(), NodeId(2), other));
  EXPECT_EQ(projects_at(w.core.state(), NodeId(2)).size(), 1u);
  EXPECT_TRUE(projects_at(w.core.state(), NodeId(1)).empty());
  w.must(AddProject{.name = "other"});
  const std::vector<std::string> there{"default", "other", "unheard-of"};
  EXPECT_EQ(must_leave(w.core.state(), NodeId(1), there),
            (std::vector<std::string>{"default", "unheard-of"}));
  EXPECT_EQ(must_leave(w.core.state(), NodeId(2), there), std::vector<std::string>{"unheard-of"});
  w.report(w.task_of(id), TaskState::ended);
  EXPECT_FALSE(may_send(w.core.state(), NodeId(2), digest)) << "nobody needs it there any more";
}

TEST(Residency, ARestrictionIsRefusedWhileJobsAreOutsideIt) {
  Fleet w;
  w.join("us", 1, {{"region", "us-1"}});
  const JobId id = w.submit(w.job());
  w.report(w.task_of(id), TaskState::running);
  const SetProject to_eu{.name = "default", .regions = std::vector<std::string>{"eu-1"}};
  const Status running = w.run(to_eu);
  ASSERT_FALSE(running);
  EXPECT_NE(running.error().message.find(fmt::format("job {} (running on us)", id.value)),
            std::string::npos)
      << running.error().message;
  w.must(SuspendJob{.job = id, .reason = "lunch"});
  const Task task = *w.core.state().find_task(w.task_of(id));
  w.must(AgentReport{task.node,
                     {.task = task.id,
                      .state = TaskState::suspended,
                      .started_at = task.started_at,
                      .order = w.core.state().find_job(id)->suspension.order,
                      .order_at = w.now,
                      .ram_mib = 2048}});
  const Status suspended = w.run(to_eu);
  ASSERT_FALSE(suspended) << "its image is kept there";
  EXPECT_NE(suspended.error().message.find("suspended on us"), std::string::npos)
      << suspended.error().message;
  w.must(SetProject{.name = "default", .regions = std::vector<std::string>{"us-1"}});
  // The image resumes where it is, though another node of the region is free.
  w.join("us2", 1, {{"region", "us-1"}});
  w.must(ResumeJob{id});
  EXPECT_EQ(w.node_of(id), NodeId(1));
  w.must(StopJob{.job = id, .reason = "", .force = true});
  w.report(w.task_of(id), TaskState::ended, {.kind = ExitKind::stopped});
  w.must(to_eu);
  w.check_replay();
}

// Ten times as many cost about ten times as much, whichever way they leave. Comparisons and moves
// are counted, not time.
TEST(Dependents, ManyOfOneJobCostLittleEach) {
  for (const bool stopped : {true, false}) {
    Fleet w;
    w.join("n1", 1);
    constexpr std::uint64_t n = 4000;
    const JobId first = w.submit(w.job());
    SubmitJob many = w.job();
    many.spec.array = ArraySpec{.first = 0, .last = n - 1};
    many.spec.after = {{.job = first}};
    const JobId array = w.submit(many);
    ASSERT_EQ(w.core.state().dependents.of(first).size(), n);
    const std::uint64_t before = w.core.state().dependents.work();
    if (stopped)
      w.must(StopJob{.job = array, .reason = "enough"});
    else
      w.report(w.task_of(first), TaskState::ended);
    EXPECT_TRUE(w.core.state().dependents.of(first).empty());
    EXPECT_LT(w.core.state().dependents.work() - before, n * 16)
        << "12 halvings and at most two moves each";
    EXPECT_EQ(w.core.state().count.contains(JobState::held), false);
  }
}

TEST(Dependents, LeaveInAnyOrderAndComeAgain) {
  Rng rng(7);
  Dependents d;
  std::map<std::uint64_t, std::set<JobId>> model;
  std::uint64_t next = 10;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t on = 1 + rng.below(3);
    if (rng.chance(0.55)) {
      const JobId who{++next};
      d.add(JobId{on}, who);
      model[on].insert(who);
    } else if (!model[on].empty()) {
      auto at = model[on].begin();
      std::advance(
          at, static_cast<std::ptrdiff_t>(rng.below(std::min<std::uint64_t>(model[on].size(), 5))));
      if (rng.chance(0.3))
        at = std::prev(model[on].end());
      d.forget(JobId{on}, *at);
      model[on].erase(at);
    }
    if (step % 500 != 0)
      continue;
    ASSERT_EQ(d.of(JobId{on}), std::vector<JobId>(model[on].begin(), model[on].end()));
  }
}

}  // namespace
}  // namespace billow::control
