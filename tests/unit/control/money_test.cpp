// Money in the core: books that add up whatever happens, budgets that hold, warn and stop, idleness
// that ends jobs.
#include "money_world.h"

namespace billow::control::money_tests {
namespace {

TEST(Money, ANodeCostsWhatItsPriceSaysAndALeasePartOfIt) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  w.pass_time(seconds(100));
  const JobId id = w.submit(1);
  w.pass_time(seconds(50));
  w.end(w.job(id)->tasks.front(), 0,
        {.active = seconds(20), .energy_mj = 5'000'000, .measured = true});
  const auto totals = w.core.state().money.books.totals({start_ns}, w.billed);
  EXPECT_EQ(totals.fleet.value, 150 * 4'000'000);
  EXPECT_EQ(totals.active.value, 20 * 1'000'000);
  EXPECT_EQ(totals.idle.value, 30 * 1'000'000);
  EXPECT_EQ(totals.unallocated.value, 150 * 4'000'000 - 50 * 1'000'000);
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].idle.value, 30'000'000);
  EXPECT_EQ(w.leases[0].energy_mj, 5'000'000);
  w.check_replay();
}

// A node may report anything; the bills show what its cards can have used.
TEST(Money, ANodeReportsNoMoreEnergyThanItsCardsCanUse) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  const JobId id = w.submit(1);
  w.pass_time(seconds(50));
  w.end(w.job(id)->tasks.front(), 0,
        {.active = seconds(1), .energy_mj = 9'000'000'000'000'000'000, .measured = true});
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_LE(w.leases[0].energy_mj, 60 * 2'000'000) << "a card of 2 kW for a minute";
}

TEST(Money, APriceAppliesToNewLeasesAndToNodesAtOnce) {
  World w;
  w.must(AgentHello{offer("n1", 2), {}});
  const JobId before = w.submit(1);
  w.must(SetPrice{{.of = "gpu:H100", .cost = Rate{2'000'000}, .charge = Rate{3'000'000}}});
  const JobId after = w.submit(1);
  w.pass_time(seconds(10));
  w.end(w.job(before)->tasks.front());
  w.end(w.job(after)->tasks.front());
  EXPECT_EQ(w.finished[0].job.cost.value, 10 * 1'000'000) << "the rate it began with";
  EXPECT_EQ(w.finished[1].job.cost.value, 10 * 3'000'000) << "charged apart from cost";
  EXPECT_EQ(w.leases[1].cost.value, 10 * 2'000'000);
  EXPECT_FALSE(w.run(SetPrice{{.of = "gpu:H100", .cost = Rate{0}}})) << "zero is no price";
  EXPECT_FALSE(w.run(SetPrice{{.of = "gpu:H100", .cost = Rate{5}, .charge_spot = Rate{5}}}))
      << "spot is below on-demand";
  EXPECT_FALSE(w.run(SetPrice{{.of = "H100", .cost = Rate{5}}}));
  w.must(SetPrice{{.of = "node:n1", .cost = Rate{7'000'000}}});
  EXPECT_EQ(w.core.state().money.books.node_rate(NodeId(1)).nano_usd_per_s, 14'000'000)
      << "the narrowest counts";
  w.must(RemovePrice{"node:n1"});
  EXPECT_EQ(w.core.state().money.books.node_rate(NodeId(1)).nano_usd_per_s, 4'000'000);
  w.check_replay();
}

TEST(Money, AJobWithoutMoneyForItsMinimumIsHeldUntilThereIsSome) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  project_budget(w, {500'000'000});  // ten minutes of one GPU cost 600,000,000
  const JobId id = w.submit(1);
  ASSERT_EQ(w.job(id)->state, JobState::held);
  EXPECT_NE(w.job(id)->reason.find("budget"), std::string::npos);
  EXPECT_NE(w.job(id)->reason.find("project default"), std::string::npos) << w.job(id)->reason;
  w.must(MoneyTick{});
  EXPECT_EQ(w.job(id)->state, JobState::held) << "nothing has changed";
  project_budget(w, {700'000'000});
  w.must(MoneyTick{});
  EXPECT_EQ(w.job(id)->state, JobState::running);
  const JobId second = w.submit(1);
  EXPECT_EQ(w.job(second)->state, JobState::held)
      << "what the first one needs at least is reserved";
  w.must(StopJob{second, "", false});
  EXPECT_EQ(w.job(second), nullptr);
  w.check_replay();
}

// Whoever is held leaves its place to those behind it at once: nothing else may happen for hours.
TEST(Money, AJobThatIsHeldLeavesItsPlaceToTheNext) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(AddProject{"rich"});
  w.must(SetMember{"rich", "ana", "admin"});
  const JobId first = w.submit(1);
  std::vector<JobId> poor;
  for (int i = 0; i < 3; ++i)
    poor.push_back(w.submit(1));
  SubmitJob c;
  c.spec.argv = {"true"};
  c.spec.resources.gpus = 1;
  c.spec.resources.share = {1000, 0};
  c.user = w.core.state().users.begin()->first;
  c.spec.priority = -1;  // the others are before it
  c.project = "rich";
  const JobId rich(w.core.state().next_job);
  w.must(c);
  project_budget(w, {500'000'000});  // ten minutes of one GPU cost 600,000,000
  w.end(w.job(first)->tasks.front());
  EXPECT_EQ(w.job(rich)->state, JobState::running);
  for (JobId id : poor)
    EXPECT_NE(w.job(id)->state, JobState::running);
  w.check_replay();
}

TEST(Money, ABudgetWarnsThreeTimesAndStopsItsJobs) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  const JobId id = w.submit(1);
  project_budget(w, {1'000'000'000});  // 1000 s
  for (int i = 0; i < 1200 && w.job(id)->stopping == StopCause::none; i += 10) {
    w.pass_time(seconds(10));
    w.must(MoneyTick{});
  }
  std::vector<std::int32_t> marks;
  for (const BudgetWarned& e : w.all<BudgetWarned>())
    if (e.action != BudgetAction::none)
      marks.push_back(e.pct);
  EXPECT_EQ(marks, (std::vector<std::int32_t>{50, 80, 100}));
  ASSERT_EQ(w.job(id)->stopping, StopCause::request);
  EXPECT_NE(w.job(id)->reason.find("budget"), std::string::npos);
  EXPECT_LE((w.billed - WallTime{start_ns}).ns, seconds(1010).ns) << "not a tick after the cap";
  w.end(w.job(id)->tasks.front(), 143);
  EXPECT_EQ(w.finished.back().job.state, JobState::stopped);
  const JobId next = w.submit(1);
  EXPECT_EQ(w.job(next)->state, JobState::held);
  w.pass_time(hours(24 * 31));
  w.must(MoneyTick{});
  EXPECT_EQ(w.job(next)->state, JobState::running) << "a new month";
  w.check_replay();
}

TEST(Money, AtTheCapARunningJobIsSuspendedAndAfterTheGraceStopped) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  w.must(AgentReport{NodeId(1), {.task = task, .state = TaskState::running, .started_at = w.wall}});
  project_budget(w, {1'000'000'000});
  w.pass_time(seconds(1001));
  w.must(MoneyTick{});
  ASSERT_EQ(w.job(id)->suspension.phase, SuspendPhase::suspending);
  EXPECT_EQ(w.job(id)->suspension.cause, SuspendCause::budget);
  w.must(AgentReport{NodeId(1),
                     {.task = task, .state = TaskState::suspended, .order = 1, .ram_mib = 2048}});
  ASSERT_EQ(w.job(id)->state, JobState::suspended);
  w.pass_time(minutes(5));
  w.must(MoneyTick{});
  EXPECT_EQ(w.job(id)->stopping, StopCause::none) << "the grace runs";
  w.must(ResumeJob{id});
  EXPECT_EQ(w.job(id)->state, JobState::suspended)
      << "nobody resumes it on money that is not there";
  EXPECT_NE(w.job(id)->reason.find("budget"), std::string::npos);
  w.pass_time(minutes(6));
  w.must(MoneyTick{});
  EXPECT_EQ(w.job(id)->stopping, StopCause::request);
  w.end(task, 143);
  ASSERT_GE(w.leases.size(), 2u);
  EXPECT_EQ(w.leases[0].charge.value, 1001 * 1'000'000);
  EXPECT_FALSE(w.leases[0].open);
  NanoUsd spent;
  for (const ClosedLease& lease : w.leases)
    if (!lease.open)
      spent += lease.charge;
  EXPECT_EQ(spent.value, w.finished.back().job.cost.value)
      << "what was suspended and resumed is billed once";
  w.check_replay();
}

TEST(Money, SuspendedJobsResumeWhenTheBudgetIsRaised) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  w.must(AgentReport{NodeId(1), {.task = task, .state = TaskState::running, .started_at = w.wall}});
  project_budget(w, {1'000'000'000});
  w.pass_time(seconds(1001));
  w.must(MoneyTick{});
  w.must(AgentReport{NodeId(1),
                     {.task = task, .state = TaskState::suspended, .order = 1, .ram_mib = 2048}});
  project_budget(w, {9'000'000'000});
  w.must(MoneyTick{});
  EXPECT_EQ(w.job(id)->state, JobState::running);
  EXPECT_EQ(w.job(id)->suspension.phase, SuspendPhase::resuming);
  w.check_replay();
}

TEST(Money, ALeaseCarriesItsPaidTime) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  w.submit(1);
  EXPECT_EQ(get<wire::agent_v1::Start>(w.effects.back().message).paid_for.ns, 0)
      << "no budget, no limit";
  project_budget(w, {4'000'000'000});
  w.submit(1);
  const Duration paid = get<wire::agent_v1::Start>(w.effects.back().message).paid_for;
  EXPECT_EQ(paid.ns, seconds(2000).ns) << "two burn from it";
  const auto uses = budget_uses(w.core.state(), w.billed);
  for (const auto& [id, task] : w.core.state().tasks)
    EXPECT_EQ(task_paid_for(w.core.state(), task, uses).ns, seconds(2000).ns);
}

TEST(Money, IdleTasksEndTheirJobOnlyWhenAllOfThemIdle) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(AgentHello{offer("n2", 1), {}});
  SubmitJob gang;
  gang.spec.argv = {"true"};
  gang.spec.resources.gpus = 1;
  gang.spec.resources.share = {1000, 0};
  gang.spec.nodes = 2;
  gang.user = w.core.state().users.begin()->first;
  w.must(gang);
  const JobId id(1);
  ASSERT_EQ(w.job(id)->tasks.size(), 2u);
  const TaskId a = w.job(id)->tasks[0], b = w.job(id)->tasks[1];
  const auto node = [&](TaskId t) {
    return w.core.state().find_task(t)->node;
  };
  w.must(
      IdleReported{node(a), a, IdleState::idle, IdleAction::warn, "idle 10m: …; stopping in 12m"});
  w.must(IdleReported{node(a), a, IdleState::idle, IdleAction::stop, "idle 22m"});
  EXPECT_EQ(w.job(id)->stopping, StopCause::none) << "the other rank works";
  w.must(IdleReported{node(a), a, IdleState::active, IdleAction::recovered, "working again"});
  w.must(IdleReported{node(b), b, IdleState::hung, IdleAction::stop, "hung 22m"});
  EXPECT_EQ(w.job(id)->stopping, StopCause::none) << "now the first one works";
  w.must(IdleReported{node(a), a, IdleState::idle, IdleAction::stop, "idle 22m"});
  EXPECT_EQ(w.job(id)->stopping, StopCause::request);
  EXPECT_EQ(w.job(id)->reason, "idle 22m");
  ASSERT_EQ(w.all<IdleActed>().size(), 1u);
  w.must(IdleReported{node(b), a, IdleState::idle, IdleAction::stop, "not its own"});
  w.check_replay();
}

// A replica that an endpoint keeps awake is paid for while it waits, on purpose: idleness does not
// touch it, on its node neither.
TEST(Money, ReplicasThatAreKeptAwakeOnPurposeAreLeftAlone) {
  for (const std::uint32_t min : {1u, 0u}) {
    SCOPED_TRACE(min);
    World w;
    w.must(AgentHello{offer("n1", 1), {}});
    DeployEndpoint deploy;
    deploy.name = "chat";
    deploy.user = w.core.state().users.begin()->first;
    deploy.spec.argv = {"serve"};
    deploy.spec.resources.gpus = 1;
    deploy.spec.resources.share = {1000, 0};
    deploy.policy.min = min;
    w.must(deploy);
    w.must(StartReplica{.endpoint = "chat", .revision = 1, .port = 9000});
    w.must(JudgeRevision{"chat", 1, true, ""});
    const JobId id(1);
    const TaskId task = w.job(id)->tasks.front();
    const NodeId node = w.core.state().find_task(task)->node;
    w.must(AgentReport{node, {.task = task, .state = TaskState::running, .started_at = w.wall}});
    EXPECT_EQ(idle_rules(w.core.state(), *w.job(id)).policy.enabled, min == 0);
    w.must(IdleReported{node, task, IdleState::idle, IdleAction::suspend, "idle 15m"});
    EXPECT_EQ(w.job(id)->suspension.phase,
              min == 0 ? SuspendPhase::suspending : SuspendPhase::none);
    EXPECT_EQ(w.all<IdleActed>().size(), min == 0 ? 1u : 0u);
    w.check_replay();
  }
}

TEST(Money, ABillingNodeIsGivenBackWhenEmptyAndAnOwnedOneStays) {
  World w;
  w.must(AgentHello{offer("own", 1), {}});
  w.must(AgentHello{offer("rented", 1, true), {}});
  w.pass_time(limits::node_give_back_after - seconds(30));
  w.must(MoneyTick{});
  EXPECT_TRUE(w.all<NodeReleased>().empty());
  w.pass_time(minutes(2));
  w.must(MoneyTick{});
  ASSERT_EQ(w.all<NodeReleased>().size(), 1u);
  EXPECT_TRUE(get<wire::agent_v1::Leave>(w.effects.back().message).give_back);
  w.must(NodeSilent{w.core.state().node_by_name("rented")->id, limits::agent_unreachable_after});
  w.pass_time(limits::agent_unreachable_after + seconds(1));
  w.must(MoneyTick{});
  EXPECT_EQ(w.core.state().node_by_name("rented"), nullptr);
  ASSERT_EQ(w.node_days.size(), 1u) << "what it cost today is written down when it leaves";
  EXPECT_NE(w.core.state().node_by_name("own"), nullptr);
  const NanoUsd before = w.core.state().money.books.totals({start_ns}, w.billed).fleet;
  w.pass_time(hours(1));
  EXPECT_EQ((w.core.state().money.books.totals({start_ns}, w.billed).fleet - before).value,
            3600ll * 1'000'000)
      << "only the owned one costs from here on";
  w.pass_time(hours(24));
  w.must(MoneyTick{});
  NanoUsd by_day;
  for (const NodeDay& day : w.node_days)
    by_day += day.cost;
  EXPECT_EQ(by_day.value, w.core.state()
                              .money.books.totals({}, {w.core.state().money.days_closed * day_ns})
                              .fleet.value)
      << "the days hold what the fleet cost, nodes that left included";
  w.check_replay();
}

// Its agent was told to end the machine and could not; a person puts it into service again.
TEST(Money, AMachineThatReturnsIsGivenBackAgainWhenItIsEmptyAgain) {
  World w;
  w.must(AgentHello{offer("rented", 1, true), {}});
  const NodeId node = w.core.state().node_by_name("rented")->id;
  w.pass_time(limits::node_give_back_after + minutes(1));
  w.must(MoneyTick{});
  ASSERT_EQ(w.all<NodeReleased>().size(), 1u);
  w.must(DrainNode{node, ""});
  w.must(MoneyTick{});
  EXPECT_EQ(w.all<NodeReleased>().size(), 1u) << "the time without jobs begins anew";
  w.pass_time(limits::node_give_back_after + minutes(1));
  w.must(MoneyTick{});
  EXPECT_EQ(w.all<NodeReleased>().size(), 2u) << "otherwise it would bill without end";
  w.check_replay();
}

// The order to start is lost with a connection: the node learns of it when it is back.
TEST(Money, AJobIsChargedFromTheBeginningOfItsProcess) {
  World w;
  w.must(AgentHello{offer("n", 1), {}});
  const NodeId node = w.core.state().node_by_name("n")->id;
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  w.pass_time(seconds(10));
  w.must(NodeSilent{node});
  w.pass_time(seconds(90));
  w.must(AgentHello{offer("n", 1), {}});
  w.pass_time(seconds(1));
  const WallTime began = w.wall;
  w.must(AgentReport{node, {.task = task, .state = TaskState::running, .started_at = began}});
  EXPECT_EQ(w.job(id)->started_at, began);
  w.pass_time(seconds(5));
  w.end(task);
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].charge.value, 5 * 1'000'000);
  EXPECT_EQ(w.core.state().money.books.totals({start_ns}, w.billed).charge.value, 5 * 1'000'000);
  w.check_replay();
}

// A machine vanishes: what it did after its last message nobody knows, so nobody pays for it.
TEST(Money, AJobWhoseNodeVanishesIsChargedUntilTheNodeWasLastHeardFrom) {
  World w;
  w.must(AgentHello{offer("n", 1), {}});
  const NodeId node = w.core.state().node_by_name("n")->id;
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  w.must(AgentReport{node, {.task = task, .state = TaskState::running, .started_at = w.wall}});
  w.pass_time(seconds(6));
  w.pass_time(seconds(11));
  w.must(NodeSilent{node, seconds(11)});
  EXPECT_EQ(w.core.state().money.books.totals({start_ns}, w.billed).charge.value, 6 * 1'000'000);
  w.pass_time(seconds(60));
  w.must(RemoveNode{node});
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].charge.value, 6 * 1'000'000);
  EXPECT_EQ(w.core.state().money.books.totals({start_ns}, w.billed).charge.value, 6 * 1'000'000);
  w.check_replay();
}

TEST(Money, AJobWhoseNodeWasOnlySilentPaysForAllOfIt) {
  World w;
  w.must(AgentHello{offer("n", 1), {}});
  const NodeId node = w.core.state().node_by_name("n")->id;
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  const WallTime began = w.wall;
  w.must(AgentReport{node, {.task = task, .state = TaskState::running, .started_at = began}});
  w.pass_time(seconds(17));
  w.must(NodeSilent{node, seconds(11)});
  w.pass_time(seconds(20));
  w.must(AgentHello{offer("n", 1),
                    {{.task = task, .state = TaskState::running, .started_at = began}}});
  w.pass_time(seconds(3));
  w.end(task);
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].charge.value, 40 * 1'000'000);
  EXPECT_EQ(w.core.state().money.books.totals({start_ns}, w.billed).charge.value, 40 * 1'000'000);
  w.check_replay();
}

TEST(Money, AStoppedJobOnASilentNodePaysUntilTheNodeWasLastHeardFrom) {
  World w;
  w.must(AgentHello{offer("n", 1), {}});
  const NodeId node = w.core.state().node_by_name("n")->id;
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  w.must(AgentReport{node, {.task = task, .state = TaskState::running, .started_at = w.wall}});
  w.pass_time(seconds(20));
  w.must(StopJob{.job = id, .reason = "", .force = false});
  w.must(NodeSilent{node, seconds(11)});
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].charge.value, 9 * 1'000'000);
  w.check_replay();
}

TEST(Money, AShortJobWhoseStartNobodyHeardOfPaysForItsProcess) {
  World w;
  w.must(AgentHello{offer("n", 1), {}});
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  const WallTime placed = w.wall;
  w.pass_time(seconds(60));
  TaskStatus status{.task = task,
                    .state = TaskState::ended,
                    .started_at = placed + seconds(57),
                    .ended_at = placed + seconds(60)};
  w.must(AgentReport{w.core.state().find_task(task)->node, status});
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].charge.value, 3 * 1'000'000);
  EXPECT_EQ(w.core.state().money.books.totals({start_ns}, w.billed).charge.value, 3 * 1'000'000);
  w.check_replay();
}

TEST(Money, ARemovedNodeKeepsItsNameAndProviderId) {
  World w;
  NodeOffer rented = offer("gpu-7", 1, true);
  rented.labels["provider-id"] = "i-0abc";
  w.must(AgentHello{rented, {}});
  const NodeId node = w.core.state().node_by_name("gpu-7")->id;
  const JobId id = w.submit(1);
  w.pass_time(seconds(60));
  w.must(NodeSilent{node});
  w.must(RemoveNode{node});
  ASSERT_EQ(w.node_days.size(), 1u);
  EXPECT_EQ(w.node_days[0].name, "gpu-7");
  EXPECT_EQ(w.node_days[0].pool, "cloud");
  EXPECT_EQ(w.node_days[0].provider_id, "i-0abc");
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].node_name, "gpu-7") << "the lease that ended with it, too";
  EXPECT_EQ(w.leases[0].gpu_type, "H100");
  (void)id;
}

TEST(Money, ABudgetThatIsSetTellsTheAgentsAtOnceHowLongIsPaid) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  const JobId id = w.submit(1);
  w.effects.clear();
  project_budget(w, {3'000'000'000}, BudgetPeriod::total);  // 3,000 seconds of it
  ASSERT_FALSE(w.effects.empty());
  const auto* renewed = get_if<wire::agent_v1::LeaseRenew>(&w.effects.back().message);
  ASSERT_NE(renewed, nullptr);
  EXPECT_EQ(renewed->tasks, w.job(id)->tasks);
  EXPECT_EQ(renewed->paid_for, seconds(3000));
}

}  // namespace
}  // namespace billow::control::money_tests
