// One endpoint's decisions over the tables it is shown: revisions that take over or fail, and
// replicas that end. No socket, no clock.
#include "endpoint_stage.h"
#include "gateway/pure/ports.h"

namespace billow::gateway {
namespace {

TEST(LiveEndpoint, ARevisionTakesOverWhenItIsHealthy) {
  Stage s;
  s.row.rolling = 1;
  s.show();
  ASSERT_EQ(s.all<StartReplica>().size(), 1u);
  s.add(1, 1);
  EXPECT_TRUE(s.all<RevisionJudged>().empty());
  s.healthy(1);
  ASSERT_EQ(s.all<RevisionJudged>().size(), 1u);
  EXPECT_TRUE(s.all<RevisionJudged>()[0].healthy);
}

TEST(LiveEndpoint, ABrokenRevisionFailsAndTheNextIsNotCondemnedForIt) {
  Stage s;
  s.row.rolling = 1;
  s.show();
  s.add(1, 1);
  s.fails(1, "exit code 3");
  ASSERT_EQ(s.all<RevisionJudged>().size(), 1u);
  EXPECT_FALSE(s.all<RevisionJudged>()[0].healthy);
  EXPECT_EQ(s.all<RevisionJudged>()[0].reason, "exit code 3");
  s.row.rolling = 0;
  s.show();
  EXPECT_EQ(s.endpoint.hopeless(s.now), "exit code 3");
  s.said.clear();
  s.row.rolling = 2;
  s.show();
  EXPECT_TRUE(s.all<RevisionJudged>().empty()) << "it has not even started";
  EXPECT_EQ(s.all<StartReplica>().size(), 1u);
  EXPECT_EQ(s.endpoint.hopeless(s.now), "") << "whoever calls now is held for it";
}

TEST(LiveEndpoint, ABrokenRevisionOfSeveralReplicasFailsWithTheFirstThatEnds) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.min = s.row.policy.max = 2;
  s.add(1, 1);
  s.add(2, 1);
  s.healthy(1);
  s.healthy(2);
  s.row.rolling = 2;
  s.show();
  s.add(3, 2);
  s.add(4, 2);
  s.fails(3, "exit code 1");
  ASSERT_EQ(s.all<RevisionJudged>().size(), 1u);
  EXPECT_FALSE(s.all<RevisionJudged>()[0].healthy);
  EXPECT_EQ(s.endpoint.hopeless(s.now), "");
  EXPECT_EQ(s.endpoint.figures().ready, 2u) << "the old ones serve on";
}

TEST(LiveEndpoint, AnUnacknowledgedVerdictIsRepeated) {
  Stage s;
  s.row.rolling = 1;
  s.show();
  s.add(1, 1);
  s.healthy(1);
  s.now = s.now + seconds(1);
  s.show();
  EXPECT_EQ(s.all<RevisionJudged>().size(), 1u);
  s.now = s.now + seconds(10);
  s.show();
  EXPECT_EQ(s.all<RevisionJudged>().size(), 2u);
}

TEST(LiveEndpoint, AHeadThatDoesNotKnowItsNodesYetTakesNoReplicaAway) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1);
  s.healthy(1);
  s.row.replicas[0].address.clear();
  s.show();
  EXPECT_EQ(s.endpoint.figures().ready, 1u);
  EXPECT_NE(s.endpoint.upstream(1), nullptr);
  EXPECT_EQ(s.endpoint.row().replicas[0].address, "127.0.0.1:9") << "it is kept on disk too";
}

TEST(LiveEndpoint, WithoutMoneyCallersGetTheReasonAndWithItTheyWait) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1);
  s.healthy(1);
  s.row.held_back = "budget: it is used up";
  s.show();
  EXPECT_EQ(s.endpoint.hopeless(s.now), "") << "the one that runs serves on";
  s.row.replicas[0].job_state = JobState::suspended;
  s.row.replicas[0].task_state = TaskState::suspended;
  s.show();
  EXPECT_EQ(s.endpoint.hopeless(s.now), "budget: it is used up");
  s.row.held_back.clear();
  s.show();
  EXPECT_EQ(s.endpoint.hopeless(s.now), "");
}

TEST(LiveEndpoint, AStaleHealthAnswerMakesNoReplicaReady) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1);
  ASSERT_EQ(s.endpoint.due_checks(s.now), std::vector<ReplicaKey>{1});
  s.row.replicas[0].job_state = JobState::suspended;
  s.row.replicas[0].task_state = TaskState::suspended;
  s.show();
  s.healthy(1);  // the answer that was on its way
  EXPECT_FALSE(s.endpoint.awake()) << "a request given to it now would wait for a frozen process";
  EXPECT_EQ(s.endpoint.router.arrive(1, s.now, s.now + seconds(60)).verdict, Router::Verdict::held);
  s.endpoint.steer(s.now);
  ASSERT_EQ(s.all<MoveReplica>().size(), 1u);
  EXPECT_EQ(s.all<MoveReplica>()[0].what, "resume");
}

// Fifty endpoints that are deployed together are given their ports before any of their replicas has
// bound its own.
TEST(Ports, NoPortIsAssignedTwice) {
  Ports ports({.from = 20000, .to = 20060});
  SteadyTime now{1'000'000'000'000};
  std::set<std::uint16_t> given;
  for (std::uint64_t i = 0; i < 50; ++i)
    EXPECT_TRUE(given
                    .insert(ports
                                .propose(
                                    {}, [](std::uint16_t) { return true; }, i % 3, now)
                                .value())
                    .second)
        << "the " << i << "th";
  // Known from the table they stay taken, however long ago they were proposed.
  now = now + minutes(10);
  const std::uint64_t left = 60 - given.size() - (given.contains(20055) ? 0 : 1);
  for (std::uint64_t i = 0; i < left + 3; ++i) {
    const auto port = ports.propose(
        given, [](std::uint16_t p) { return p != 20055; }, i, now);
    // When those that are left are gone nothing is proposed, rather than somebody else's.
    ASSERT_EQ(port.has_value(), i < left) << i;
    if (!port) {
      EXPECT_EQ(port.error().code, Code::exhausted);
      continue;
    }
    EXPECT_NE(*port, 20055) << "somebody else's on this machine";
    EXPECT_TRUE(given.insert(*port).second);
  }
}

// Ports taken in a row, as one who squats takes them, do not hide the free ones behind them.
TEST(Ports, ARowOfTakenPortsIsSteppedOver) {
  Ports ports;
  int asked = 0;
  const auto port = ports.propose(
      {},
      [&](std::uint16_t p) {
        ++asked;
        return p < 20000 || p >= 26000;
      },
      0, SteadyTime{1'000'000'000'000});
  ASSERT_TRUE(port.has_value());
  EXPECT_GE(*port, 26000);
  EXPECT_LT(asked, 20);
}

// ---- who has a replica's port

TEST(LiveEndpoint, AReplicaIsAskedAndCalledOnlyOnceItsAgentVouchesForItsPort) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1, PortHolder::nobody);
  EXPECT_TRUE(s.endpoint.due_checks(s.now).empty()) << "whoever answers there may be anybody";
  s.healthy(1);  // an answer all the same
  EXPECT_FALSE(s.endpoint.awake());
  s.row.replicas[0].port_holder = PortHolder::task;
  s.show();
  ASSERT_EQ(s.endpoint.due_checks(s.now), std::vector<ReplicaKey>{1})
      << "at once, however long the pause had become";
  s.healthy(1);
  EXPECT_TRUE(s.endpoint.awake());
}

TEST(LiveEndpoint, OlderAgentsAreTrustedWithoutAPortCheck) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1, PortHolder::unsaid);
  s.healthy(1);
  EXPECT_TRUE(s.endpoint.awake());
  s.endpoint.unreachable(1, s.now);
  EXPECT_TRUE(s.all<LookAtReplica>().empty()) << "it would not understand";
  s.healthy(1);
  EXPECT_TRUE(s.endpoint.awake());
}

TEST(LiveEndpoint, AfterAFailedConnectionThePortIsLookedAtAgainFirst) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1, PortHolder::task);
  s.healthy(1);
  ASSERT_TRUE(s.endpoint.awake());
  s.endpoint.unreachable(1, s.now);
  ASSERT_EQ(s.all<LookAtReplica>().size(), 1u);
  const auto asked = s.all<LookAtReplica>()[0].number;
  s.show();  // a table from before the question
  EXPECT_TRUE(s.endpoint.due_checks(s.now).empty());
  s.healthy(1);
  EXPECT_FALSE(s.endpoint.awake()) << "its neighbour answers as well as it does";
  s.row.replicas[0].port_look = asked;
  s.show();
  EXPECT_EQ(s.endpoint.due_checks(s.now), std::vector<ReplicaKey>{1});
  s.healthy(1);
  EXPECT_TRUE(s.endpoint.awake());
}

TEST(LiveEndpoint, PortChecksAreRepeatedAndWithoutAHeadTheLastAnswerCounts) {
  Stage s;
  bool head = true;
  s.endpoint.set_head_is_here([&] { return head; });
  s.row.serving = 1;
  s.add(1, 1, PortHolder::task);
  s.healthy(1);
  s.endpoint.unreachable(1, s.now);
  s.now = s.now + milliseconds(1100);
  s.endpoint.steer(s.now);
  ASSERT_EQ(s.all<LookAtReplica>().size(), 2u);
  EXPECT_GT(s.all<LookAtReplica>()[1].number, s.all<LookAtReplica>()[0].number);
  EXPECT_TRUE(s.endpoint.due_checks(s.now).empty());
  head = false;
  EXPECT_EQ(s.endpoint.due_checks(s.now), std::vector<ReplicaKey>{1});
  s.healthy(1);
  EXPECT_TRUE(s.endpoint.awake());
}

TEST(LiveEndpoint, AReplicaThatLosesItsPortIsOutOfServiceAtOnceAlsoWhenItWakes) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1, PortHolder::task);
  s.healthy(1);
  s.row.replicas[0].port_holder = PortHolder::nobody;
  s.show();
  EXPECT_FALSE(s.endpoint.awake());
  s.row.replicas[0].port_holder = PortHolder::task;
  s.show();
  s.healthy(1);
  ASSERT_TRUE(s.endpoint.awake());
  s.row.replicas[0].job_state = JobState::suspended;
  s.row.replicas[0].task_state = TaskState::suspended;
  s.show();
  // Vouched for before, it is ready as soon as it runs…
  s.endpoint.router.set_phase(1, Phase::resuming, s.now);
  s.row.replicas[0].job_state = JobState::running;
  s.row.replicas[0].task_state = TaskState::running;
  s.show();
  EXPECT_TRUE(s.endpoint.awake());
  // …and not where its agent says with its waking that it has lost its port.
  s.row.replicas[0].job_state = JobState::suspended;
  s.row.replicas[0].task_state = TaskState::suspended;
  s.show();
  s.endpoint.router.set_phase(1, Phase::resuming, s.now);
  s.row.replicas[0].job_state = JobState::running;
  s.row.replicas[0].task_state = TaskState::running;
  s.row.replicas[0].port_holder = PortHolder::nobody;
  s.show();
  EXPECT_FALSE(s.endpoint.awake());
}

TEST(LiveEndpoint, ARestartedHeadDoesNotRevokeAConfirmedPort) {
  Stage s;
  s.row.serving = 1;
  s.add(1, 1, PortHolder::task);
  s.healthy(1);
  s.row.replicas[0].address.clear();
  s.row.replicas[0].port_holder = PortHolder::unsaid;
  s.show();
  EXPECT_TRUE(s.endpoint.awake());
  s.endpoint.unreachable(1, s.now);
  EXPECT_EQ(s.all<LookAtReplica>().size(), 1u) << "it is still known as one whose agent looks";
}

TEST(LiveEndpoint, ARevisionFailsOnlyAfterFiveTakenPorts) {
  Stage s;
  s.row.rolling = 1;
  s.show();
  s.row.failed_port_taken = true;
  for (std::uint64_t job = 1; job <= 5; ++job) {
    ASSERT_EQ(s.all<StartReplica>().size(), job) << "each gets a successor, with another port";
    EXPECT_TRUE(s.all<RevisionJudged>().empty());
    s.add(job, 1, PortHolder::nobody);
    s.fails(job, "port 20001 is held by a process that is not its own");
  }
  ASSERT_EQ(s.all<RevisionJudged>().size(), 1u);
  EXPECT_FALSE(s.all<RevisionJudged>()[0].healthy);
  EXPECT_EQ(s.all<RevisionJudged>()[0].job, JobId(5));
  EXPECT_NE(s.all<RevisionJudged>()[0].reason.find("20001"), std::string::npos);
}

TEST(LiveEndpoint, WithoutAFreePortNothingStartsAndTheReasonIsShown) {
  std::vector<FromGateway> said;
  LiveEndpoint endpoint{"app", [&](FromGateway m) { said.push_back(std::move(m)); },
                        []() -> Result<std::uint16_t> {
                          return fail(Code::exhausted, "no port is free");
                        }};
  const SteadyTime now{1'000'000'000'000};
  EndpointRow row{.name = "app"};
  row.serving = 1;
  endpoint.update(row, now);
  endpoint.router.arrive(1, now, now + seconds(60));
  endpoint.steer(now);
  EXPECT_TRUE(said.empty());
  EXPECT_EQ(endpoint.hopeless(now), "no port is free");
}

// The request that meets a replica on its way to sleep: the order to wake follows the order to
// sleep at once, no other replica is asked for, and nothing that was said before the order to sleep
// is taken for an answer to it.
TEST(LiveEndpoint, ARequestCallsBackAReplicaFallingAsleep) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.max = 4;
  s.row.policy.idle = seconds(5);
  s.add(1, 1);
  s.healthy(1);
  s.now = s.now + seconds(10);
  s.endpoint.steer(s.now);
  const auto moves = [&] {
    std::vector<std::string> out;
    for (const auto& m : s.all<MoveReplica>())
      out.push_back(m.what);
    return out;
  };
  ASSERT_EQ(moves(), std::vector<std::string>{"suspend"});
  s.endpoint.scaler.arrived(s.now);
  EXPECT_EQ(s.endpoint.router.arrive(1, s.now, s.now + seconds(60)).verdict, Router::Verdict::held);
  s.endpoint.steer(s.now);
  EXPECT_EQ(moves(), (std::vector<std::string>{"suspend", "resume"}));
  EXPECT_TRUE(s.all<StartReplica>().empty());
  s.show();  // a table from before the order
  EXPECT_EQ(s.endpoint.figures().ready, 0u);
  const auto shown = [&](JobState job, TaskState task, bool wanted) {
    s.now = s.now + milliseconds(5);
    s.row.replicas[0].job_state = job;
    s.row.replicas[0].task_state = task;
    s.row.replicas[0].resume_wanted = wanted;
    s.show();
  };
  shown(JobState::running, TaskState::suspending, true);
  shown(JobState::suspended, TaskState::suspended, true);
  shown(JobState::running, TaskState::resuming, false);
  EXPECT_EQ(s.endpoint.figures().ready, 0u);
  shown(JobState::running, TaskState::running, false);
  EXPECT_EQ(s.endpoint.figures().ready, 1u);
  EXPECT_EQ(moves().size(), 2u) << "who waits for it is there: it is not put to sleep again";
  EXPECT_EQ(s.endpoint.router.dispatch(s.now).size(), 1u);
}

TEST(LiveEndpoint, AnOrderToSleepThatWasRefusedIsForgottenWhenItIsCalledBack) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.idle = seconds(5);
  s.add(1, 1);
  s.healthy(1);
  s.now = s.now + seconds(10);
  s.endpoint.steer(s.now);
  s.endpoint.scaler.arrived(s.now);
  (void)s.endpoint.router.arrive(1, s.now, s.now + seconds(60));
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.figures().ready, 0u);
  s.now = s.now + milliseconds(1100);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.figures().ready, 1u);
}

TEST(LiveEndpoint, ReplicasOfOtherRegionsAreLeftAlone) {
  Stage s;
  s.row.rolling = 1;
  s.row.steered = false;
  s.row.elsewhere = {{"us", 1}};
  s.row.policy.min = 2;
  s.show();
  s.row.rolling = 0;
  s.row.serving = 1;
  s.show();
  EXPECT_TRUE(s.said.empty());
}

TEST(LiveEndpoint, AReplicaThatFailedInAnotherRegionStopsNothingHere) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.min = 1;
  s.row.elsewhere = {{"us", 1}};
  s.row.failed_job = 7;
  s.show();
  s.row.failed_job = 8;
  s.row.failed_reason = "exit code 3";
  s.show();
  EXPECT_EQ(s.endpoint.hopeless(s.now), "");
}

TEST(LiveEndpoint, OneThatCrashesAfterItServedIsReplacedAtOnce) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.min = 1;
  s.add(1, 1);
  s.healthy(1);
  s.said.clear();
  s.fails(1, "signal 9");
  EXPECT_EQ(s.all<StartReplica>().size(), 1u);
  EXPECT_EQ(s.endpoint.hopeless(s.now), "") << "requests are held, not refused";
  // Again and again: it pauses, and says why.
  s.add(2, 1);
  s.healthy(2);
  s.said.clear();
  s.now = s.now + seconds(1);
  s.fails(2, "signal 11");
  EXPECT_TRUE(s.all<StartReplica>().empty());
  EXPECT_EQ(s.endpoint.hopeless(s.now), "signal 11");
  s.now = s.now + seconds(3);
  s.show();
  EXPECT_EQ(s.all<StartReplica>().size(), 1u);
}

}  // namespace
}  // namespace billow::gateway
