// What running work has cost so far: lists, the dashboard, endpoints and the bill must agree to the
// nano-dollar, whatever is done to the wall clock.
#include "view/cost.h"

#include "core/control/money.h"
#include "tests/unit/view/rig.h"
#include "view/endpoint_document.h"
#include "view/live_rows.h"
#include "view/timeline.h"

namespace billow::view {
namespace {

// The same moment as each reader shows it.
struct Shown {
  std::int64_t list = 0, dashboard = 0;
};
Shown shown(const Rig& rig, JobId id) {
  const Job& job = rig.live(id);
  const Json document = live_job_document(rig.state(), job, rig.moment(), no_readings);
  std::string row;
  put_job(row, rig.state(), job, "", nullptr, rig.moment());
  const auto parsed = parse_json(row);
  EXPECT_TRUE(parsed) << row;
  return {document["cost_nano_usd"].int_or(-1), (*parsed)["cost_nano"].int_or(-1)};
}

TEST(CostSoFar, AWallClockSetThreeHoursAheadAddsNothing) {
  Rig rig;
  rig.must(SetPrice{{.of = "pool:cloud", .egress_gib = {90'000'001}}});
  const JobId id = rig.submit();
  rig.begin(id);
  rig.pass_time(seconds(1000) + milliseconds(7));
  rig.sent(id, 3ll << 30);
  const std::int64_t expected = cost_so_far(rig.state(), rig.live(id), rig.billed).value;
  ASSERT_GT(expected, 3 * 90'000'001) << "rent and traffic";

  rig.wall = rig.wall + hours(3);
  const Shown now = shown(rig, id);
  EXPECT_EQ(now.list, expected) << "billow ps, describe, GET /v1/jobs";
  EXPECT_EQ(now.dashboard, expected) << "GET /v1/live";

  // The lease closes at this very instant: its node's clock was set ahead as well.
  rig.end(id);
  ASSERT_EQ(rig.leases.size(), 1u);
  EXPECT_EQ(rig.leases[0].charge.value, expected) << "the bill";
  EXPECT_EQ(rig.finished.at(0).job.cost.value, expected);
}

TEST(CostSoFar, AnEndpointCostsWhatItsReplicasDo) {
  Rig rig;
  rig.must(SetPrice{{.of = "pool:cloud", .egress_gib = {90'000'001}}});
  DeployEndpoint deploy{.name = "hello", .user = rig.state().users.begin()->first};
  deploy.spec.argv = {"serve"};
  deploy.spec.resources.gpus = 1;
  deploy.spec.resources.share = {1000, 0};
  rig.must(deploy);
  const JobId replica(rig.state().next_job);
  rig.must(StartReplica{.endpoint = "hello", .revision = 1, .port = 20000});
  ASSERT_TRUE(rig.state().replicas.contains("hello"));
  rig.begin(replica);
  rig.pass_time(seconds(500));
  rig.sent(replica, 5ll << 30);
  rig.wall = rig.wall + hours(3);

  const Endpoint& endpoint = rig.state().endpoints.at("hello");
  const NanoUsd cost = cost_so_far(rig.state(), endpoint, rig.billed);
  EXPECT_EQ(cost.value, shown(rig, replica).list);
  const Json document = endpoint_document(rig.state(), endpoint, {}, rig.moment());
  EXPECT_DOUBLE_EQ(document["cost_usd"].double_or(-1), static_cast<double>(cost.value) / 1e9);

  rig.end(replica);
  ASSERT_EQ(rig.leases.size(), 1u);
  EXPECT_EQ(rig.leases[0].charge.value, cost.value) << "the bill";
  EXPECT_EQ(cost_so_far(rig.state(), rig.state().endpoints.at("hello"), rig.billed).value,
            cost.value)
      << "a replica that has ended still counts";
}

TEST(CostSoFar, AWallClockSetBackTakesNothingAway) {
  Rig rig;
  const JobId id = rig.submit(2);
  rig.begin(id);
  rig.pass_time(seconds(600));
  rig.wall = rig.wall + hours(-1);
  EXPECT_EQ(shown(rig, id).list, 600 * 2 * 1'000'003);
  EXPECT_EQ(shown(rig, id).dashboard, 600 * 2 * 1'000'003);
}

TEST(CostSoFar, NothingIsChargedAfterANodeWasLastHeardOf) {
  Rig rig;
  const JobId id = rig.submit();
  rig.begin(id);
  rig.pass_time(seconds(100));
  rig.must(NodeSilent{rig.node_of(id)});
  const std::int64_t then = shown(rig, id).list;
  EXPECT_EQ(charge_rate_now(rig.state(), rig.live(id)), 0);
  rig.pass_time(seconds(900));
  EXPECT_EQ(shown(rig, id).list, then);
  EXPECT_EQ(shown(rig, id).dashboard, then);
  EXPECT_LE(then, 100 * 1'000'003);
}

// Its image is being pulled: that time is not charged.
TEST(CostSoFar, AJobThatHasNotBegunCostsNothing) {
  for (const bool begins : {false, true}) {
    SCOPED_TRACE(begins);
    Rig rig;
    const JobId id = rig.submit();
    rig.pass_time(seconds(300));
    EXPECT_EQ(shown(rig, id).list, 0);
    EXPECT_EQ(shown(rig, id).dashboard, 0);
    EXPECT_EQ(charge_rate_now(rig.state(), rig.live(id)), 0) << "the dashboard adds it up";
    if (begins) {
      rig.begin(id);
      rig.pass_time(seconds(10));
      EXPECT_EQ(shown(rig, id).list, 10 * 1'000'003);
      rig.end(id);
      EXPECT_EQ(rig.leases.at(0).charge.value, 10 * 1'000'003);
    } else {
      TaskStatus status{.task = rig.task_of(id), .state = TaskState::ended};
      status.ended_at = rig.wall;
      status.never_began = true;
      rig.must(AgentReport{rig.node_of(id), status});
      EXPECT_EQ(rig.leases.at(0).charge.value, 0) << "it never began";
    }
  }
}

// The sums on the dashboard, in metrics and in the history of an endpoint are made of these.
TEST(CostSoFar, TheRateOfAJobIsThatOfItsTasks) {
  Rig rig;
  const JobId id = rig.submit(2);
  const auto task = [&]() -> const Task& {
    return rig.state().tasks.at(rig.task_of(id));
  };
  EXPECT_EQ(charge_rate_now(rig.state(), task()), 0) << "its image is being pulled";
  rig.begin(id);
  EXPECT_EQ(charge_rate_now(rig.state(), task()), 2 * 1'000'003);
  EXPECT_EQ(charge_rate_now(rig.state(), rig.live(id)), 2 * 1'000'003);
  rig.must(NodeSilent{rig.node_of(id)});
  EXPECT_EQ(charge_rate_now(rig.state(), task()), 0) << "its node does not answer";
}

TEST(CostSoFar, AReplicaThatHasNotBegunCostsNothing) {
  Rig rig;
  DeployEndpoint deploy{.name = "hello", .user = rig.state().users.begin()->first};
  deploy.spec.argv = {"serve"};
  deploy.spec.resources.gpus = 1;
  deploy.spec.resources.share = {1000, 0};
  rig.must(deploy);
  rig.must(StartReplica{.endpoint = "hello", .revision = 1, .port = 20000});
  rig.pass_time(seconds(300));
  const Endpoint& endpoint = rig.state().endpoints.at("hello");
  EXPECT_EQ(cost_so_far(rig.state(), endpoint, rig.billed).value, 0);
}

TEST(CostSoFar, AJobThatHasNotBegunWhenItsNodeIsGivenUpCostsNothing) {
  for (const bool removed : {false, true}) {
    SCOPED_TRACE(removed);
    Rig rig;
    const JobId id = rig.submit();
    rig.pass_time(seconds(300));
    rig.must(NodeSilent{rig.node_of(id)});
    const NodeId node = rig.node_of(id);
    if (removed)
      rig.must(RemoveNode{node});
    else
      rig.must(StopJob{.job = id, .reason = "", .force = false});
    ASSERT_EQ(rig.leases.size(), 1u);
    EXPECT_EQ(rig.leases[0].charge.value, 0);
  }
}

TEST(CostSoFar, TheRateIsThatOfTheLeasesHeldNow) {
  Rig rig;
  const JobId two = rig.submit(2);
  rig.begin(two);
  EXPECT_EQ(charge_rate_now(rig.state(), rig.live(two)), 2 * 1'000'003);
  SubmitJob spot = rig.job();
  spot.spec.spot = true;
  const JobId cheap = rig.submit(spot);
  rig.begin(cheap);
  EXPECT_EQ(charge_rate_now(rig.state(), rig.live(cheap)), 400'001);
}

// Nodes over time, `billow waste` and the bill: one figure of what a job did not use.
TEST(CostSoFar, ARunningJobWastesOverTimeWhatItsBillSays) {
  Rig rig;
  rig.must(SetPrice{{.of = "pool:cloud", .cost = Rate{2'000'000}}});
  const JobId id = rig.submit(2);
  rig.begin(id);
  rig.pass_time(seconds(600));
  rig.must(
      MeterMarks{rig.node_of(id), {{rig.task_of(id), {.active = seconds(200), .measured = true}}}});
  rig.pass_time(seconds(60));
  const Json drawn = timeline(rig.state(),
                              {.from = rig.wall + hours(-1),
                               .to = rig.wall,
                               .now = rig.wall,
                               .node = {},
                               .visible = [](ProjectId) { return true; },
                               .readings = no_readings},
                              {}, {}, false);
  double idle = 0;
  for (const Json& node : drawn["nodes"].items())
    for (const Json& card : node["gpus"].items())
      for (const Json& block : card["blocks"].items())
        if (block["kind"].str_or("") == "run")
          idle += block["waste_usd"].double_or(0);
  const auto sums = rig.state().money.books.totals(rig.wall + hours(-1), rig.wall);
  EXPECT_GT(sums.idle.value, 0);
  EXPECT_NEAR(idle, static_cast<double>(sums.idle.value) / 1e9, 1e-6);
}

}  // namespace
}  // namespace billow::view
