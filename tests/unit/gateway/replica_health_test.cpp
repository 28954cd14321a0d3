// Sick replicas: which get no requests, which return, and which are replaced; and how requests are
// spread over healthy ones.
#include "endpoint_stage.h"

namespace billow::gateway {
namespace {

// Two healthy replicas of the serving revision.
struct Serving : Stage {
  Serving() {
    row.serving = 1;
    row.policy.min = row.policy.max = 2;
    add(1, 1);
    add(2, 1);
    healthy(1);
    healthy(2);
    said.clear();
  }
  void check(std::uint64_t job, Check result) {
    endpoint.checked(job, result, now);
    endpoint.steer(now);
  }
  Phase phase(std::uint64_t job) { return endpoint.router.find(job)->phase; }
  bool asked_for(std::uint64_t job) {
    const auto due = endpoint.due_checks(now);
    return std::find(due.begin(), due.end(), job) != due.end();
  }
};

TEST(LiveEndpoint, HealthIsAskedForAsLongAsAReplicaLives) {
  Serving s;
  EXPECT_FALSE(s.asked_for(1)) << "just now it was healthy";
  s.now = s.now + seconds(6);
  EXPECT_TRUE(s.asked_for(1));
  s.check(1, Check::good);
  EXPECT_EQ(s.phase(1), Phase::ready);
  EXPECT_FALSE(s.asked_for(1));
}

TEST(LiveEndpoint, ASickReplicaIsShownAsSickNotAsStarting) {
  Serving s;
  for (int i = 0; i < 3; ++i) {
    s.now = s.now + seconds(6);
    s.check(1, Check::bad);
  }
  EndpointFigures f = s.endpoint.figures();
  EXPECT_EQ(f.ready, 1u);
  EXPECT_EQ(f.sick, 1u);
  EXPECT_EQ(f.coming, 0u);
  ASSERT_EQ(f.notes.size(), 1u);
  EXPECT_NE(f.notes[0].find("replica (job 1) is sick: it fails its health check"),
            std::string::npos)
      << f.notes[0];
  s.now = s.now + seconds(12);
  s.check(1, Check::good);
  f = s.endpoint.figures();
  EXPECT_EQ(f.ready, 2u);
  EXPECT_EQ(f.sick, 0u);
  EXPECT_TRUE(f.notes.empty());
  for (int i = 0; i < 5; ++i)
    s.endpoint.answered(2, Answered::error, s.now);
  f = s.endpoint.figures();
  EXPECT_EQ(f.sick, 1u) << "errors count, too";
}

TEST(LiveEndpoint, AReplicaThatSaysItIsSickGetsNoRequestsAndReturns) {
  Serving s;
  for (int i = 0; i < 3; ++i)
    s.check(1, Check::bad);
  EXPECT_EQ(s.phase(1), Phase::starting);
  EXPECT_EQ(s.endpoint.totals.left_out, 1u);
  for (RequestId id = 1; id <= 4; ++id)
    EXPECT_EQ(s.endpoint.router.arrive(id, s.now, s.now + seconds(60)).replica, 2u);
  for (int i = 0; i < 5; ++i)
    s.check(2, Check::bad);
  EXPECT_EQ(s.phase(2), Phase::ready) << "the last one stays";
  s.check(1, Check::good);
  EXPECT_EQ(s.phase(1), Phase::starting) << "not yet";
  s.now = s.now + seconds(11);
  s.check(1, Check::good);
  EXPECT_EQ(s.phase(1), Phase::ready);
  EXPECT_EQ(s.endpoint.totals.cold_starts, 0u) << "both ran before this gateway saw them";
}

TEST(LiveEndpoint, AReplicaThatStaysSickIsReplaced) {
  Serving s;
  for (int i = 0; i < 40; ++i) {
    s.check(1, Check::bad);
    s.now = s.now + seconds(1);
  }
  ASSERT_EQ(s.all<MoveReplica>().size(), 1u);
  EXPECT_EQ(s.all<MoveReplica>()[0].job, 1u);
  EXPECT_EQ(s.all<MoveReplica>()[0].what, "stop");
  EXPECT_EQ(s.all<StartReplica>().size(), 1u);
}

TEST(LiveEndpoint, ABusyReplicaThatDoesNotAnswerItsCheckIsNotSick) {
  Serving s;
  ASSERT_EQ(s.endpoint.router.arrive(1, s.now, s.now + seconds(600)).replica, 1u);
  for (int i = 0; i < 40; ++i) {
    s.check(1, Check::no_answer);
    s.now = s.now + seconds(1);
  }
  EXPECT_EQ(s.phase(1), Phase::ready);
  EXPECT_TRUE(s.all<MoveReplica>().empty());
}

TEST(LiveEndpoint, AReplicaThatLetsRequestsTimeOutIsLeftOutAndAfterThatLonger) {
  Serving s;
  s.endpoint.answered(1, Answered::timed_out, s.now);
  s.endpoint.answered(1, Answered::timed_out, s.now);
  s.endpoint.answered(1, Answered::well, s.now);
  s.endpoint.answered(1, Answered::timed_out, s.now);
  EXPECT_EQ(s.phase(1), Phase::ready) << "not in a row";
  for (int i = 0; i < 2; ++i)
    s.endpoint.answered(1, Answered::timed_out, s.now);
  EXPECT_EQ(s.phase(1), Phase::starting);
  s.now = s.now + seconds(11);
  s.check(1, Check::good);
  ASSERT_EQ(s.phase(1), Phase::ready);
  for (int i = 0; i < 3; ++i)
    s.endpoint.answered(1, Answered::timed_out, s.now);
  s.now = s.now + seconds(11);
  s.check(1, Check::good);
  EXPECT_EQ(s.phase(1), Phase::starting) << "20 s now";
  s.now = s.now + seconds(10);
  s.check(1, Check::good);
  EXPECT_EQ(s.phase(1), Phase::ready);
}

TEST(LiveEndpoint, ErrorsOfAllReplicasDoNotCloseTheEndpoint) {
  Serving s;
  for (int i = 0; i < 50; ++i)
    for (std::uint64_t job : {1, 2})
      s.endpoint.answered(job, Answered::error, s.now);
  EXPECT_EQ((s.phase(1) == Phase::ready) + (s.phase(2) == Phase::ready), 1);
}

TEST(LiveEndpoint, OneCallerCannotTakeMoreThanHalfOfTheReplicasOut) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.min = s.row.policy.max = 4;
  for (std::uint64_t job : {1, 2, 3, 4}) {
    s.add(job, 1);
    s.healthy(job);
  }
  for (int i = 0; i < 100; ++i)
    for (std::uint64_t job : {1, 2, 3, 4})
      if (s.endpoint.router.find(job)->phase == Phase::ready)
        s.endpoint.answered(job, Answered::error, s.now);
  EXPECT_EQ(s.endpoint.counts().ready, 2u);
}

TEST(LiveEndpoint, ASleeperWhoseGpuIsTakenDoesNotBlockAFreshStart) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.max = 1;
  s.row.policy.idle = seconds(1);
  s.row.policy.keep_suspended = minutes(10);
  s.add(1, 1);
  s.healthy(1);
  s.row.replicas[0].job_state = JobState::suspended;
  s.row.replicas[0].task_state = TaskState::suspended;
  s.show();
  s.said.clear();
  EXPECT_EQ(s.endpoint.router.arrive(1, s.now, s.now + seconds(60)).verdict, Router::Verdict::held);
  s.show();
  ASSERT_EQ(s.all<MoveReplica>().size(), 1u);
  EXPECT_EQ(s.all<MoveReplica>()[0].what, "resume");
  s.row.replicas[0].resume_wanted = true;
  s.now = s.now + seconds(1);
  s.show();
  EXPECT_TRUE(s.all<StartReplica>().empty()) << "it may wake any moment";
  s.now = s.now + seconds(2);
  s.show();
  EXPECT_EQ(s.all<StartReplica>().size(), 1u);
}

TEST(Router, RequestsAreSpreadOverTheReplicasThatTheLoadNeeds) {
  const SteadyTime now{1};
  Router router({.concurrency = 2});
  for (ReplicaKey key : {1, 2, 3})
    router.set_phase(key, Phase::ready, now);
  router.spread_over(2);
  std::vector<ReplicaKey> went;
  for (RequestId id = 1; id <= 6; ++id)
    went.push_back(router.arrive(id, now, now + seconds(9)).replica);
  EXPECT_EQ(went, (std::vector<ReplicaKey>{1, 2, 1, 2, 3, 3}))
      << "the third only when both are full";
  router.finished(1, now);
  EXPECT_EQ(router.arrive(7, now, now + seconds(9), 1).replica, 0u + 1)
      << "the one that failed it, since no other is free";
}

}  // namespace
}  // namespace billow::gateway
