// How an endpoint is operated: liveness and start-up probes, rollouts without room for two
// revisions, times to drain, and replicas that are awake whatever the requests are.
#include "endpoint_stage.h"
#include "gateway/pure/query_value.h"

namespace billow::gateway {
namespace {

struct Served : Stage {
  explicit Served(std::uint32_t replicas = 1) {
    row.serving = 1;
    row.policy.min = row.policy.max = replicas;
    row.policy.access = EndpointAccess::key;
    for (std::uint64_t job = 1; job <= replicas; ++job) {
      add(job, 1);
      healthy(job);
    }
    said.clear();
  }
  void rolls(RolloutStrategy strategy, std::string no_room = {}) {
    row.rolling = 2;
    row.rolling_policy = row.policy;
    row.rolling_policy.rollout.strategy = strategy;
    row.no_room = std::move(no_room);
    show();
  }
  void gone(std::uint64_t job) {
    std::erase_if(row.replicas, [&](const ReplicaRow& r) { return r.job == job; });
    show();
  }
  std::vector<std::uint64_t> stopped() const {
    std::vector<std::uint64_t> out;
    for (const MoveReplica& m : all<MoveReplica>())
      if (m.what == "stop")
        out.push_back(m.job);
    return out;
  }
};
using Jobs = std::vector<std::uint64_t>;

TEST(Probes, LivenessReplacesAndReadinessDoesNot) {
  Served s(2);
  s.row.policy.health = "/ready";
  s.row.policy.probes.live = "/live";
  s.row.policy.probes.threshold = 2;
  s.show();
  for (int i = 0; i < 60; ++i) {
    s.endpoint.checked(1, Check::bad, s.now);
    s.now = s.now + seconds(1);
    s.endpoint.steer(s.now);
  }
  EXPECT_EQ(s.endpoint.router.find(1)->phase, Phase::starting);
  EXPECT_EQ(s.stopped(), Jobs{}) << "it may become ready again";
  s.now = s.now + seconds(6);
  ASSERT_EQ(s.endpoint.due_live_checks(s.now), (Jobs{1, 2}));
  EXPECT_EQ(s.endpoint.question(2, Probe::live).first, "/live");
  EXPECT_EQ(s.endpoint.question(2, Probe::ready).first, "/ready");
  s.endpoint.live_checked(1, Check::good, s.now);
  s.endpoint.live_checked(2, Check::no_answer, s.now);
  s.endpoint.live_checked(2, Check::good, s.now);
  s.endpoint.live_checked(2, Check::bad, s.now);
  EXPECT_EQ(s.stopped(), Jobs{}) << "not twice in a row";
  s.endpoint.live_checked(2, Check::bad, s.now);
  EXPECT_EQ(s.stopped(), Jobs{2});
}

TEST(Probes, PeriodAndThresholdAreThoseOfTheRevision) {
  Served s(2);
  s.row.policy.probes.period = seconds(30);
  s.row.policy.probes.threshold = 5;
  s.show();
  s.healthy(1);
  s.now = s.now + seconds(29);
  EXPECT_EQ(s.endpoint.due_checks(s.now), Jobs{2});
  for (int i = 0; i < 4; ++i)
    s.endpoint.checked(2, Check::bad, s.now);
  EXPECT_EQ(s.endpoint.router.find(2)->phase, Phase::ready);
  s.endpoint.checked(2, Check::bad, s.now);
  EXPECT_EQ(s.endpoint.router.find(2)->phase, Phase::starting);
  s.rolls(RolloutStrategy::rolling);
  s.row.rolling_policy.health = "/new";
  s.add(9, 2);
  EXPECT_EQ(s.endpoint.question(9, Probe::ready).first, "/new");
  EXPECT_EQ(s.endpoint.question(1, Probe::ready).first, "");
}

TEST(Probes, TheStartUpProbeComesFirst) {
  Stage s;
  s.row.rolling = 1;
  s.row.policy.health = "/ready";
  s.row.policy.probes.start = "/started";
  s.add(1, 1);
  EXPECT_EQ(s.endpoint.question(1, Probe::ready).first, "/started");
  s.healthy(1);
  EXPECT_TRUE(s.all<RevisionJudged>().empty()) << "it has started and is not ready yet";
  EXPECT_EQ(s.endpoint.question(1, Probe::ready).first, "/ready");
  s.healthy(1);
  ASSERT_EQ(s.all<RevisionJudged>().size(), 1u);
}

TEST(Probes, AReplicaThatDoesNotStartInTimeIsReplaced) {
  Served s;
  s.row.policy.max = 2;
  s.row.policy.min = 2;
  s.row.policy.start_timeout = minutes(1);
  s.add(2, 1);
  s.said.clear();
  s.now = s.now + seconds(59);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.stopped(), Jobs{});
  s.now = s.now + seconds(2);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.stopped(), Jobs{2});
}

TEST(Rollout, ARevisionThatGetsNoCapacityIsNotCalledUnhealthy) {
  Stage s;
  s.row.rolling = 1;
  s.row.policy.start_timeout = seconds(6);
  s.row.replicas.push_back({.job = 7, .revision = 1, .job_state = JobState::queued});
  s.show();
  s.now = s.now + seconds(7);
  s.show();
  const auto judged = s.all<RevisionJudged>();
  ASSERT_EQ(judged.size(), 1u);
  EXPECT_FALSE(judged[0].healthy);
  EXPECT_EQ(judged[0].reason, "it got no capacity within 6.0 s");
  EXPECT_EQ(judged[0].job, JobId(7)) << "the head says what it waits for";
}

TEST(Rollout, WithoutRoomTheOldRevisionMakesRoomAndOneHealthyReplicaIsEnough) {
  Served s(2);
  ASSERT_EQ(s.endpoint.router.arrive(1, s.now, s.now + hours(1)).replica, 1u);
  s.rolls(RolloutStrategy::automatic);
  EXPECT_EQ(s.all<StartReplica>().size(), 2u);
  EXPECT_EQ(s.stopped(), Jobs{});
  s.row.no_room = "everything is in use";
  s.show();
  EXPECT_EQ(s.stopped(), Jobs{2}) << "1 has a request";
  EXPECT_EQ(s.endpoint.router.arrive(2, s.now, s.now + hours(1)).verdict, Router::Verdict::held);
  ASSERT_EQ(s.endpoint.notes().size(), 1u);
  EXPECT_NE(s.endpoint.notes()[0].find("does not fit beside revision 1"), std::string::npos);
  s.now = s.now + minutes(5);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.router.find(1)->phase, Phase::leaving) << "there is no limit to its time";
  s.said.clear();
  s.endpoint.router.finished(1, s.now);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.stopped(), Jobs{1});
  s.gone(1);
  s.gone(2);
  EXPECT_EQ(s.endpoint.hopeless(s.now), "");
  s.add(3, 2);
  s.healthy(3);
  ASSERT_EQ(s.all<RevisionJudged>().size(), 1u);
  EXPECT_TRUE(s.all<RevisionJudged>()[0].healthy);
}

TEST(Rollout, RollingWaitsAndRecreateStartsAfterwards) {
  Served waits;
  waits.rolls(RolloutStrategy::rolling, "everything is in use");
  EXPECT_EQ(waits.stopped(), Jobs{});
  Served s;
  s.rolls(RolloutStrategy::recreate);
  EXPECT_EQ(s.stopped(), Jobs{1});
  EXPECT_TRUE(s.all<StartReplica>().empty());
  s.gone(1);
  ASSERT_EQ(s.all<StartReplica>().size(), 1u);
  EXPECT_EQ(s.all<StartReplica>()[0].revision, 2u);
}

TEST(Rollout, IfTheNewRevisionFailsTheOldOneIsStartedAgain) {
  Served s;
  s.rolls(RolloutStrategy::recreate);
  s.gone(1);
  s.add(2, 2);
  s.fails(2, "exit code 3");
  ASSERT_EQ(s.all<RevisionJudged>().size(), 1u);
  EXPECT_FALSE(s.all<RevisionJudged>()[0].healthy);
  s.said.clear();
  s.row.rolling = 0;
  s.now = s.now + seconds(10);
  s.show();
  ASSERT_EQ(s.all<StartReplica>().size(), 1u);
  EXPECT_EQ(s.all<StartReplica>()[0].revision, 1u);
}

TEST(Rollout, ALeavingReplicaHasItsTimeToDrain) {
  Served s;
  s.row.policy.rollout.drain = seconds(30);
  s.show();
  ASSERT_EQ(s.endpoint.router.arrive(1, s.now, s.now + hours(1)).replica, 1u);
  s.row.serving = 2;
  s.add(2, 2);
  s.now = s.now + seconds(29);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.stopped(), Jobs{});
  s.now = s.now + seconds(2);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.stopped(), Jobs{1});
}

TEST(Floor, TheClockAndTheQueryKeepReplicasAwake) {
  Stage s;
  WallTime wall{0};  // a Thursday
  s.endpoint.set_wall_clock([&] { return wall; });
  s.row.serving = 1;
  s.row.policy.max = 5;
  s.row.policy.scaling.min_at = {"Thu 00:00-08:00=2"};
  s.row.policy.scaling.query = {.url = "http://m", .query = "q", .target = 10};
  s.show();
  EXPECT_EQ(s.endpoint.scaler.wanted(), 2u);
  ASSERT_TRUE(s.endpoint.query_due(s.now));
  EXPECT_FALSE(s.endpoint.query_due(s.now)) << "one at a time";
  s.endpoint.query_answered("q", 31.0, s.now);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.scaler.wanted(), 4u);
  s.endpoint.query_answered("q", fail(Code::unavailable, "refused"), s.now);
  EXPECT_EQ(s.endpoint.notes().size(), 1u);
  s.now = s.now + minutes(6);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.scaler.wanted(), 2u) << "an old answer counts no more";
  wall = wall + hours(9);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.scaler.wanted(), 0u);
}

TEST(Floor, LoadOfEarlierDaysIsExpectedAgain) {
  Stage s;
  WallTime wall{};
  s.endpoint.set_wall_clock([&] { return wall; });
  s.row.serving = 1;
  s.row.policy.max = 5;
  s.row.policy.concurrency = 1;
  s.row.policy.scaling.predict = true;
  s.add(1, 1);
  s.healthy(1);
  wall = wall + hours(9);
  for (RequestId id = 1; id <= 3; ++id)
    (void)s.endpoint.router.arrive(id, s.now, s.now + hours(9));
  s.endpoint.steer(s.now);
  for (RequestId id = 1; id <= 3; ++id)
    (void)s.endpoint.router.cancel(id);
  s.endpoint.router.finished(1, s.now);
  wall = wall + minutes(10);
  s.now = s.now + minutes(10);
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.scaler.wanted(), 0u);
  const Duration nearly_a_day = hours(24) - minutes(10) - seconds(20);
  wall = wall + nearly_a_day;
  s.now = s.now + nearly_a_day;
  s.endpoint.steer(s.now);
  EXPECT_EQ(s.endpoint.scaler.wanted(), 3u) << "the same time of the next day begins";
  EXPECT_EQ(s.endpoint.totals.daily_peaks.size(), DailyPattern::slots);
  EXPECT_TRUE(s.endpoint.figures().daily_peaks.empty());
}

TEST(Floor, WhatCannotBePaidForIsNotStarted) {
  Stage s;
  s.row.serving = 1;
  s.row.policy.min = s.row.policy.max = 4;
  s.row.awake_max = 2;
  s.row.awake_max_why = "the limit";
  s.show();
  EXPECT_EQ(s.all<StartReplica>().size(), 2u);
  EXPECT_EQ(s.endpoint.notes(), std::vector<std::string>{"the limit"});
  Stage none;
  none.row = s.row;
  none.row.awake_max = 0;
  none.show();
  EXPECT_TRUE(none.all<StartReplica>().empty());
  EXPECT_EQ(none.endpoint.hopeless(none.now), "the limit");
}

TEST(QueryValue, NumbersAndSumsOfSeries) {
  const auto vector = [](const std::string& result) {
    return query_value(
        200, R"({"status":"success","data":{"resultType":"vector","result":)" + result + "}}");
  };
  EXPECT_EQ(vector(R"([{"value":[1,"3"]},{"value":[1,"4.5"]}])").value_or(0), 7.5);
  EXPECT_FALSE(vector("[]"));
  EXPECT_FALSE(vector(R"([{"value":[1,"NaN"]}])"));
  EXPECT_EQ(
      query_value(200, R"({"status":"success","data":{"resultType":"scalar","result":[1,"2"]}})")
          .value_or(0),
      2);
  EXPECT_EQ(query_value(400, R"({"status":"error","error":"parse error"})").error().message,
            "HTTP 400: parse error");
  EXPECT_FALSE(query_value(200, "<html>"));
}

}  // namespace
}  // namespace billow::gateway
