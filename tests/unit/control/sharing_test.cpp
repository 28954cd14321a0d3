// What projects share: quotas, reservations and their bill, elastic gangs, learned durations; and
// that replay and a snapshot know all of it.
#include "sharing_world.h"

namespace billow::control::sharing_tests {
namespace {

TEST(Endpoints, ReplicasKeepApartByDefault) {
  World w;
  for (const char* name : {"n1", "n2", "n3"})
    w.must(AgentHello{offer(name, 4), {}});
  DeployEndpoint deploy;
  deploy.name = "chat";
  deploy.user = w.ana();
  deploy.spec = w.job().spec;
  deploy.spec.resources.share.milli = 250;
  deploy.policy.max = 6;
  w.must(deploy);
  std::map<NodeId, int> on;
  for (std::uint16_t i = 0; i < 6; ++i)
    w.must(StartReplica{.endpoint = "chat",
                        .revision = 1,
                        .port = static_cast<std::uint16_t>(9000 + i),
                        .spot = false});
  for (const auto& [id, task] : w.core.state().tasks)
    ++on[task.node];
  ASSERT_EQ(on.size(), 3u);
  for (const auto& [node, count] : on)
    EXPECT_EQ(count, 2);
  w.check_replay();
}

TEST(Endpoints, AReplicaRunsInTheEnvironmentOfItsRevision) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  DeployEndpoint deploy;
  deploy.name = "chat";
  deploy.user = w.ana();
  deploy.spec = w.job().spec;
  deploy.spec.surroundings.image = "docker.io/library/python:3";
  w.must(deploy);
  w.must(StartReplica{.endpoint = "chat", .revision = 1, .port = 9000});
  ASSERT_EQ(w.core.state().replicas.at("chat").size(), 1u);
  EXPECT_EQ(w.core.state()
                .find_job(*w.core.state().replicas.at("chat").begin())
                ->spec->surroundings.image,
            deploy.spec.surroundings.image);
  deploy.spec.surroundings = {};
  deploy.spec.surroundings.volumes = {{"nosuch", "/data", false}};
  EXPECT_FALSE(w.run(deploy))
      << "a volume that is not there is told when it is deployed, not when a replica starts";
  w.check_replay();
}

TEST(Endpoints, AReplicaIsPlacedInTheRegionItIsFor) {
  World w;
  for (const char* region : {"eu", "us"}) {
    NodeOffer o = offer(std::string("n-") + region, 4);
    o.labels["region"] = region;
    w.must(AgentHello{o, {}});
  }
  DeployEndpoint deploy;
  deploy.name = "chat";
  deploy.user = w.ana();
  deploy.spec = w.job().spec;
  deploy.spec.place.regions = {"eu", "us"};
  deploy.policy.max = 2;
  w.must(deploy);
  const auto start = [](const char* region) {
    return StartReplica{
        .endpoint = "chat", .revision = 1, .port = 9000, .spot = false, .region = region};
  };
  for (int i = 0; i < 2; ++i)
    w.must(start("us"));
  for (const auto& [id, task] : w.core.state().tasks)
    EXPECT_EQ(w.core.state().nodes.at(task.node).offer.name, "n-us");
  EXPECT_FALSE(w.run(start("us"))) << "its maximum there";
  w.must(start("eu"));
  EXPECT_EQ(w.core.state().tasks.size(), 3u);
  EXPECT_FALSE(w.run(start("asia"))) << "it is not served there";
  w.check_replay();
}

// Two half-used nodes, and a job that needs a whole one.
TEST(Consolidation, AJobWithCheckpointsMovesAndContinuesElsewhere) {
  for (const bool has_checkpoint : {true, false}) {
    World w;
    w.must(AgentHello{offer("n1", 2), {}});
    w.must(AgentHello{offer("n2", 2), {}});
    SubmitJob moving = w.job();
    moving.spec.suspendable = Suspendable::yes;
    moving.spec.checkpoint_every = minutes(1);
    moving.spec.checkpoint_signal = 10;
    moving.spec.checkpoint_dir = "/shared";
    const JobId stays = w.submit(w.job()), leaves = w.submit(w.job()), moves = w.submit(moving);
    w.end(leaves);
    const auto node_of = [&](JobId id) {
      return w.core.state().tasks.at(w.core.state().find_job(id)->tasks.front()).node;
    };
    ASSERT_NE(node_of(stays), node_of(moves));
    const Task task = w.core.state().tasks.at(w.core.state().find_job(moves)->tasks.front());
    TaskStatus running{.task = task.id, .state = TaskState::running, .started_at = w.now};
    if (has_checkpoint)
      running.checkpoint = {"/shared/job-3/1", w.now + seconds(1), 100};
    w.must(AgentReport{task.node, running});
    const JobId large = w.submit(w.job(2));
    EXPECT_EQ(w.state(large), JobState::queued);
    EXPECT_EQ(w.core.state().find_job(moves)->stopping, StopCause::none)
        << "it has not run long enough";
    w.wait(minutes(11));
    if (!has_checkpoint) {
      EXPECT_EQ(w.core.state().find_job(moves)->stopping, StopCause::none)
          << "it would lose everything";
      continue;
    }
    EXPECT_EQ(w.core.state().find_job(moves)->stopping, StopCause::moved);
    EXPECT_NE(w.core.state().find_job(moves)->reason.find(
                  fmt::format("moved to make space for job {}", large.value)),
              std::string::npos);
    w.end(moves, {.kind = ExitKind::stopped, .code = 143});
    EXPECT_EQ(w.state(large), JobState::running);
    EXPECT_EQ(w.state(moves), JobState::running);
    EXPECT_EQ(node_of(moves), node_of(stays));
    const auto start = std::find_if(w.effects.rbegin(), w.effects.rend(), [&](const Effect& e) {
      const auto* s = get_if<Start>(&e.message);
      return s && s->job == moves;
    });
    ASSERT_NE(start, w.effects.rend());
    EXPECT_EQ(get<Start>(start->message).env.at("BILLOW_CHECKPOINT"), "/shared/job-3/1");
    w.check_replay();
  }
}

TEST(Policy, FairSharesBetweenUsersAndASnapshotKeepsTheirUsage) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(AddUser{"bo", "bo", roles::member});
  const UserId bo = w.core.state().users.rbegin()->first;
  w.must(SetMember{"default", "bo", roles::member});
  const JobId first = w.submit(w.job());
  w.wait(hours(2));
  const JobId hers = w.submit(w.job());
  SubmitJob his = w.job();
  his.user = bo;
  const JobId later = w.submit(his);
  w.check_replay();
  w.end(first);
  EXPECT_EQ(w.state(later), JobState::running);
  EXPECT_EQ(w.state(hers), JobState::queued);
  w.check_replay();
}

// ---- reservations

TEST(Reservations, KeepTheCapacityAndLetShortJobsPass) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(w.reserve(8, hours(2), hours(4)));
  const JobId endless = w.submit(w.job(1));
  EXPECT_EQ(w.state(endless), JobState::queued) << "it might still run when the reservation begins";
  auto brief = w.job(8);
  brief.spec.time_limit = hours(1);
  const JobId passes = w.submit(brief);
  EXPECT_EQ(w.state(passes), JobState::running);
  const auto why = sched::explain(w.core.state().index, endless, w.now);
  ASSERT_FALSE(why.reasons.empty());
  w.now = w.now + minutes(59);
  w.end(passes);
  auto inside = w.job(8);
  inside.spec.reservation = ReservationId(1);
  const JobId holder = w.submit(inside);
  EXPECT_EQ(w.state(holder), JobState::queued);
  const auto not_yet = sched::explain(w.core.state().index, holder, w.now);
  ASSERT_FALSE(not_yet.reasons.empty());
  EXPECT_EQ(not_yet.reasons[0].kind, sched::ReasonKind::reserved);
  EXPECT_EQ(not_yet.earliest_start, w.core.state().reservations.at(ReservationId(1)).from);
  w.wait(minutes(61));
  EXPECT_EQ(w.state(holder), JobState::running);
  EXPECT_EQ(w.state(endless), JobState::queued);
  w.check_replay();
}

TEST(Reservations, AreBilledWholeUsedOrNot) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(w.reserve(8, Duration{}, hours(1)));
  auto inside = w.job(2);
  inside.spec.reservation = ReservationId(1);
  const JobId first = w.submit(inside), second = w.submit(inside);
  ASSERT_EQ(w.state(first), JobState::running);
  ASSERT_EQ(w.state(second), JobState::running);
  w.now = w.now + minutes(30);
  w.end(first);
  EXPECT_EQ(w.finished.back().tasks[0].price_class, PriceClass::reserved);
  EXPECT_EQ(w.finished.back().job.cost.value, 2ll * 600'000 * 1800);
  w.wait(minutes(31));  // a minute after its end; the second job goes on
  EXPECT_TRUE(w.core.state().reservations.empty());
  EXPECT_EQ(w.state(second), JobState::running);
  ASSERT_GE(w.leases.size(), 2u);
  const ClosedLease& unused = w.leases[w.leases.size() - 2];
  EXPECT_FALSE(unused.task.job);
  EXPECT_EQ(unused.milli, 5000)
      << "GPU-hours stand where they were used: one and two of eight in the rows of the jobs";
  EXPECT_EQ(w.leases.back().task.job, second);
  EXPECT_EQ(w.leases.back().charge.value, 2ll * 600'000 * 3600);
  EXPECT_EQ(unused.task.price_class, PriceClass::reserved);
  // Eight GPUs for an hour, less two for half of it and two for all of it.
  EXPECT_EQ(unused.charge.value,
            600'000ll * 3600 * 8 - 600'000ll * 1800 * 2 - 600'000ll * 3600 * 2);
  w.end(second);
  w.check_replay();
}

TEST(Reservations, NeverPromiseACardTwiceAndSayWhenItWouldFit) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(w.reserve(6, hours(1), hours(2)));
  const Status too_much = w.run(w.reserve(4, hours(2), hours(2)));
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().code, Code::exhausted);
  EXPECT_NE(too_much.error().hint.find("--from"), std::string::npos) << too_much.error().hint;
  w.must(w.reserve(2, hours(2), hours(2)));
  w.must(w.reserve(4, hours(3), hours(2)));
  EXPECT_FALSE(w.run(w.reserve(9, hours(1), hours(1))));
  EXPECT_FALSE(w.run(w.reserve(1, hours(1), Duration{})));
  w.check_replay();
}

TEST(Reservations, CountJobsWithoutALimitAsStillRunning) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  const JobId endless = w.submit(w.job(4));
  ASSERT_EQ(w.state(endless), JobState::running);
  const Status refused = w.run(w.reserve(8, hours(24), hours(1)));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().hint.find("--time"), std::string::npos) << refused.error().hint;
  auto spot = w.job(4);
  spot.spec.spot = true;
  const JobId yields = w.submit(spot);
  ASSERT_EQ(w.state(yields), JobState::running);
  w.must(w.reserve(4, hours(1), hours(1)));
  w.wait(hours(1));  // it begins: spot work is asked to leave
  EXPECT_NE(w.core.state().find_job(yields)->stopping, StopCause::none);
  w.check_replay();
}

TEST(Reservations, CancelledBeforeTheyBeginTheyCostNothing) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(w.reserve(8, hours(1), hours(1)));
  auto inside = w.job(1);
  inside.spec.reservation = ReservationId(1);
  const JobId holder = w.submit(inside);
  w.must(CancelReservation{ReservationId(1), ""});
  EXPECT_TRUE(w.leases.empty());
  EXPECT_EQ(w.state(holder), JobState::queued)
      << "it was submitted at another price than that of the room there is";
  EXPECT_FALSE(w.run(CancelReservation{ReservationId(1), ""}));
  w.check_replay();
}

TEST(Reservations, MoveWhenTheirNodeIsGone) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(w.reserve(8, hours(1), hours(1)));
  w.must(AgentHello{offer("n2", 8), {}});
  w.must(NodeSilent{NodeId(1)});
  w.must(RemoveNode{NodeId(1)});
  for (int s = 0; s < 31; ++s)
    w.wait(seconds(1));
  EXPECT_EQ(w.core.state().reservations.at(ReservationId(1)).places.at(0).node, NodeId(2));
  w.check_replay();
}

// Both look for another place on the same tick.
TEST(Reservations, ThatLoseOneNodeMoveToDifferentGpus) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(w.reserve(4, hours(1), hours(1)));
  w.must(w.reserve(4, hours(1), hours(1)));
  w.must(AgentHello{offer("n2", 8), {}});
  w.must(NodeSilent{NodeId(1)});
  w.must(RemoveNode{NodeId(1)});
  for (int s = 0; s < 31; ++s)
    w.wait(seconds(1));
  std::set<std::int32_t> gpus;
  for (const auto& [id, r] : w.core.state().reservations)
    for (const ReservedPlace& place : r.places) {
      EXPECT_EQ(place.node, NodeId(2));
      for (const GpuGrant& grant : place.gpus)
        gpus.insert(grant.gpu);
    }
  EXPECT_EQ(gpus.size(), 8u);
  w.check_replay();
}

// ---- quotas

TEST(Quota, GuaranteedWorkTakesBackWhatSpotBorrowed) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(AddProject{"research", 100});
  w.must(SetProject{.name = "research", .guaranteed_milli = 4000});
  auto spot = w.job(8, "default");
  spot.spec.spot = true;
  const JobId borrows = w.submit(spot);
  ASSERT_EQ(w.state(borrows), JobState::running);
  const JobId owner = w.submit(w.job(4, "research"));
  EXPECT_EQ(w.core.state().find_job(borrows)->stopping, StopCause::preempted);
  w.end(borrows, {.kind = ExitKind::stopped});
  EXPECT_EQ(w.state(owner), JobState::running);
  w.check_replay();
}

TEST(Quota, JobsWithoutSpotDoNotBorrowGuaranteesAndAreTold) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(AddProject{"research", 100});
  w.must(SetProject{.name = "research", .guaranteed_milli = 6000});
  // It could never start, so it is refused, with what would help.
  const Status refused = w.run(w.job(4, "default"));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().hint.find("--spot"), std::string::npos) << refused.error().hint;
  const JobId small = w.submit(w.job(2, "default"));
  EXPECT_EQ(w.state(small), JobState::running);
}

TEST(Quota, LimitsHoldForProjectsAndUsers) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(SetProject{.name = "default", .limit_milli = 4000, .user_running_max = 3});
  std::vector<JobId> jobs;
  for (int i = 0; i < 5; ++i)
    jobs.push_back(w.submit(w.job(1)));
  EXPECT_EQ(w.core.state().count.at(JobState::running), 3u);
  EXPECT_EQ(sched::explain(w.core.state().index, jobs[4], w.now).reasons.at(0).kind,
            sched::ReasonKind::user_limit);
  w.must(SetProject{.name = "default", .user_running_max = -1});
  EXPECT_EQ(w.core.state().count.at(JobState::running), 4u);
  EXPECT_EQ(sched::explain(w.core.state().index, jobs[4], w.now).reasons.at(0).kind,
            sched::ReasonKind::project_limit);
  EXPECT_FALSE(w.run(w.job(5))) << "it could never run";
  EXPECT_FALSE(w.run(SetProject{.name = "default", .guaranteed_milli = 5000}))
      << "more than it is held to";
  EXPECT_FALSE(w.run(SetProject{.name = "default", .guaranteed_milli = 9000, .limit_milli = -1}))
      << "more than there is";
  EXPECT_FALSE(w.run(SetProject{.name = "nobody", .weight = 3}));
  w.check_replay();
}

TEST(Residency, HoldsForJobsAndAnswersForData) {
  World w;
  w.must(AgentHello{offer("us", 8, {{"region", "us-1"}}), {}});
  w.must(AgentHello{offer("eu", 1, {{"region", "eu-1"}}), {}});
  w.must(AgentHello{offer("nowhere", 8), {}});
  w.must(SetProject{.name = "default", .regions = std::vector<std::string>{"eu-1"}});
  const JobId first = w.submit(w.job(1)), second = w.submit(w.job(1));
  ASSERT_EQ(w.state(first), JobState::running);
  EXPECT_EQ(w.core.state().find_task(w.core.state().find_job(first)->tasks[0])->node, NodeId(2));
  EXPECT_EQ(w.state(second), JobState::queued);
  EXPECT_EQ(sched::explain(w.core.state().index, second, w.now).reasons.at(0).kind,
            sched::ReasonKind::residency);
  EXPECT_FALSE(w.run(w.job(2))) << "no node of its region has two";
  const ProjectId p = w.core.state().projects.begin()->first;
  EXPECT_TRUE(may_hold(w.core.state(), p, NodeId(2)));
  EXPECT_FALSE(may_hold(w.core.state(), p, NodeId(1)));
  EXPECT_FALSE(may_hold(w.core.state(), p, NodeId(3)));
  w.check_replay();
}

// ---- elastic gangs

TEST(Durations, AreLearnedFromEarlierRunsAndKept) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  for (int i = 0; i < 6; ++i) {
    const JobId id = w.submit(w.job(1));
    w.now = w.now + minutes(10) + seconds(i);
    w.end(id);
  }
  const JobId next = w.submit(w.job(1));
  const Expectation& e = w.core.state().find_job(next)->expected;
  EXPECT_EQ(e.runs, 6u);
  EXPECT_GE(e.likely, minutes(10));
  EXPECT_LE(e.likely, minutes(10) + seconds(5));
  EXPECT_STREQ(confidence(e), "high");
  auto other = w.job(1);
  other.spec.argv = {"python", "train.py", "--lr", "3"};  // the same program with other arguments
  EXPECT_GT(w.core.state().find_job(w.submit(other))->expected.runs, 0u);
  other.spec.argv = {"python", "eval.py"};
  EXPECT_EQ(w.core.state().find_job(w.submit(other))->expected.runs, 0u);
  const auto restored = restore(image(w.core.state()));
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->durations.expect(w.core.state().projects.begin()->first, w.job(1).spec), e);
  EXPECT_EQ(restored->index.learned(), w.core.state().index.learned());
  w.check_replay();
}

TEST(Durations, OfAnArrayAreLearnedFromItsFirstElements) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  auto array = w.job(1);
  array.spec.array = ArraySpec{0, 9, 1, 0};
  const JobId id = w.submit(array);
  const JobId first(id.value + 1), last(id.value + 10);
  EXPECT_EQ(w.core.state().find_job(last)->expected.runs, 0u);
  w.now = w.now + minutes(7);
  w.end(first);
  EXPECT_EQ(w.core.state().find_job(last)->expected.likely, minutes(7));
  // The next element runs now. Those that wait for it can be told when it ends.
  EXPECT_EQ(sched::forecast(w.core.state().index, JobId(id.value + 3), w.now), w.now + minutes(7));
  EXPECT_EQ(sched::forecast(w.core.state().index, last, w.now), w.now + minutes(7 * 8));
  w.check_replay();
}

TEST(Policy, ShortestGoesByWhatWasLearnedAndFifoDoesNot) {
  for (const OrderPolicy policy : {OrderPolicy::shortest, OrderPolicy::fifo}) {
    World w;
    w.must(AgentHello{offer("n1", 1), {}});
    w.must(SetProject{.name = "default", .policy = policy});
    auto brief = w.job(1), slow = w.job(1);
    brief.spec.argv = {"brief"};
    slow.spec.argv = {"slow"};
    for (int i = 0; i < 3; ++i) {
      JobId id = w.submit(brief);
      w.now = w.now + minutes(1);
      w.end(id);
      id = w.submit(slow);
      w.now = w.now + hours(5);
      w.end(id);
    }
    const JobId running = w.submit(slow), before = w.submit(slow), after = w.submit(brief);
    w.now = w.now + hours(5);
    w.end(running);
    EXPECT_EQ(w.state(after),
              policy == OrderPolicy::shortest ? JobState::running : JobState::queued);
    EXPECT_EQ(w.state(before),
              policy == OrderPolicy::shortest ? JobState::queued : JobState::running);
    w.check_replay();
  }
}

TEST(WholeNode, LeftoversOfTheJobDrainTheNode) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  auto bare = w.job(8);
  bare.spec.resources.whole_node = true;
  const JobId id = w.submit(bare);
  ASSERT_EQ(w.state(id), JobState::running);
  EXPECT_TRUE(get<Start>(w.effects.back().message).bare);
  const TaskId task = w.core.state().find_job(id)->tasks[0];
  w.must(AgentReport{NodeId(1),
                     {.task = task,
                      .state = TaskState::ended,
                      .ended_at = w.now,
                      .exit = {},
                      .left_behind = "GPU 3 holds 512 MiB"}});
  EXPECT_NE(w.core.state().nodes.at(NodeId(1)).drained.find("GPU 3"), std::string::npos);
  const JobId next = w.submit(w.job(1));
  EXPECT_EQ(w.state(next), JobState::queued);
  w.check_replay();
}

}  // namespace
}  // namespace billow::control::sharing_tests
