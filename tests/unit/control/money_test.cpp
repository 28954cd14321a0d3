// Money in the core: books that add up whatever happens, budgets that hold, warn and stop, idleness
// that ends jobs.
#include "core/control/money.h"
#include "base/limits.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/control/core.h"

namespace billow::control {
namespace {

constexpr std::int64_t start_ns =
    20'000 * day_ns + 3600ll * 1'000'000'000;  // 01:00 UTC of some day

NodeOffer offer(std::string name, int gpus, bool bills = false) {
  NodeOffer o;
  o.name = std::move(name);
  o.boot_id = "boot";
  for (int i = 0; i < gpus; ++i)
    o.gpus.push_back({.index = i,
                      .uuid = o.name + "-" + std::to_string(i),
                      .vendor = "nvidia",
                      .model = "NVIDIA H100",
                      .type = "H100",
                      .mem_mib = 81559,
                      .nvlink_domain = 0});
  o.cpu_milli = 16000;
  o.mem_mib = 65536;
  if (bills)
    o.labels = {{"pool", "cloud"}, {"bills", "yes"}};
  return o;
}

struct World {
  Core core{State{}, prices()};
  std::vector<Event> history;
  std::vector<Effect> effects;
  std::vector<FinishedJob> finished;
  std::vector<ClosedLease> leases;
  std::vector<ledger::Entry> entries;
  std::vector<NodeDay> node_days;
  WallTime wall{start_ns}, billed{start_ns};

  static ledger::PriceBook prices() {
    ledger::PriceBook book;
    book.set("H100", PriceClass::on_demand, Rate{1'000'000});  // $3.60/h
    book.set("H100", PriceClass::spot, Rate{400'000});
    book.set(ledger::PriceBook::memory_type, PriceClass::suspended, Rate{900});
    return book;
  }
  World() {
    must(StartHead{.version = "1",
                   .epoch = 1,
                   .admin = "ana",
                   .admin_token_hash = "h",
                   .node_token_hash = "n"});
  }

  void take(Step step) {
    for (auto& e : step.events) {
      const auto decoded = decode_event(
          e.seq, e.at,
          std::visit([](const auto& b) { return std::decay_t<decltype(b)>::kind; }, e.body),
          encode_event(e));
      ASSERT_TRUE(decoded) << decoded.error().message;
      history.push_back(*decoded);
    }
    for (auto& e : step.effects)
      effects.push_back(std::move(e));
    for (auto& j : step.jobs)
      finished.push_back(std::move(j));
    for (auto& l : step.leases)
      leases.push_back(std::move(l));
    for (auto& e : step.entries)
      entries.push_back(std::move(e));
    for (auto& d : step.node_days)
      node_days.push_back(std::move(d));
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  Status run(const Command& command) {
    take(core.catch_up(wall, billed));
    auto step = core.execute(command, {"user:ana", "r"}, wall, billed);
    if (!step)
      return pass(step.error());
    take(std::move(*step));
    do
      take(core.plan(wall, billed));
    while (core.more());
    return {};
  }
  void must(const Command& command) {
    const Status s = run(command);
    ASSERT_TRUE(s) << s.error().message;
  }
  void pass_time(Duration d) {
    wall = wall + d;
    billed = billed + d;
  }
  JobId submit(int gpus = 1, bool spot = false) {
    SubmitJob c;
    c.spec.argv = {"true"};
    c.spec.resources.gpus = gpus;
    c.spec.resources.share = {1000, 0};
    c.spec.spot = spot;
    c.user = core.state().users.begin()->first;
    const JobId id(core.state().next_job);
    must(c);
    return id;
  }
  const Job* job(JobId id) { return core.state().find_job(id); }
  void end(TaskId task, int code = 0, TaskMeter meter = {}) {
    TaskStatus status{
        .task = task, .state = TaskState::ended, .started_at = wall, .ended_at = wall};
    status.exit.code = code;
    status.usage.meter = meter;
    must(AgentReport{core.state().find_task(task)->node, status});
  }
  template <class E>
  std::vector<E> all() const {
    std::vector<E> out;
    for (const Event& e : history)
      if (const auto* x = std::get_if<E>(&e.body))
        out.push_back(*x);
    return out;
  }
  void check_replay() {
    Core again(State{}, {});
    for (const Event& e : history)
      again.replay(e);
    EXPECT_EQ(image(again.state()), image(core.state()));
    const auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(image(*restored), image(core.state()));
  }
  void crash() {  // from the snapshot, as after a restart
    auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored);
    core = Core(std::move(*restored), prices());
  }
};

BudgetKey project_budget(World& w,
                         NanoUsd limit,
                         BudgetPeriod period = BudgetPeriod::monthly,
                         bool stops = true) {
  const ProjectId project = w.core.state().projects.begin()->first;
  w.must(SetBudget{{BudgetScope::project, project.value, period, limit, stops, minutes(10)}, {}});
  return {BudgetScope::project, project.value, period};
}

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

TEST(Money, APriceHoldsForLeasesThatBeginAfterItAndForNodesAtOnce) {
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

TEST(Money, AJobWhoseMinimumCannotBePaidIsHeldWithTheReasonAndGoesOnWhenThereIsMoney) {
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

TEST(Money, ABudgetWarnsThreeTimesAndEndsWhatItPaysFor) {
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

TEST(Money, WhatABudgetSuspendedGoesOnWhenTheBudgetIsRaised) {
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

TEST(Money, ALeaseSaysHowLongItIsPaidFor) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  w.submit(1);
  EXPECT_EQ(std::get<wire::agent_v1::Start>(w.effects.back().message).paid_for.ns, 0)
      << "no budget, no limit";
  project_budget(w, {4'000'000'000});
  w.submit(1);
  const Duration paid = std::get<wire::agent_v1::Start>(w.effects.back().message).paid_for;
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
  EXPECT_TRUE(std::get<wire::agent_v1::Leave>(w.effects.back().message).give_back);
  w.must(NodeSilent{w.core.state().node_by_name("rented")->id});
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

TEST(Money, StorageIsPartOfWhatANodeCostsAndALeaseIsChargedWhereThePoolPricesIt) {
  World w;
  NodeOffer rented = offer("n1", 2, true);
  rented.labels["disk-gib"] = "1000";
  w.must(AgentHello{rented, {}});
  const std::int64_t bare = w.core.state().money.books.node_rate(NodeId(1)).nano_usd_per_s;
  w.must(SetPrice{{.of = "pool:cloud", .storage_gib_month = {100'000'000}}});  // $0.10
  const std::int64_t disk = 100'000'000'000 / 2'629'800;  // of 1,000 GiB, a second
  EXPECT_NEAR(
      static_cast<double>(w.core.state().money.books.node_rate(NodeId(1)).nano_usd_per_s - bare),
      static_cast<double>(disk), 1);
  const JobId id = w.submit(1);
  const Rate rate = w.core.state().find_task(w.job(id)->tasks.front())->rate;
  EXPECT_NEAR(static_cast<double>(rate.nano_usd_per_s), 1'000'000 + static_cast<double>(disk) / 2,
              1)
      << "half of the GPUs, half of the disk";
  w.pass_time(seconds(100));
  w.end(w.job(id)->tasks.front());
  EXPECT_EQ(w.finished[0].job.cost.value, 100 * rate.nano_usd_per_s);
  const auto totals = w.core.state().money.books.totals({start_ns}, w.billed);
  EXPECT_EQ((totals.active + totals.idle + totals.unallocated).value, totals.fleet.value);
  w.check_replay();
}

TEST(Money, EgressIsChargedWhereThePoolPricesIt) {
  World w;
  w.must(AgentHello{offer("n1", 2, true), {}});
  w.must(SetPrice{{.of = "pool:cloud",
                   .egress_gib = {90'000'001}}});  // $0.09 and a bit, so that rounding shows
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  const Rate rate = w.core.state().find_task(task)->rate;
  const WallTime began = w.billed;
  const auto mark = [&](std::int64_t bytes) {
    w.must(MeterMarks{NodeId(1),
                      {{task, {.active = seconds(100), .measured = true, .egress_bytes = bytes}}}});
  };
  const std::int64_t gib = 1 << 30;
  w.pass_time(seconds(100));
  for (int i = 1; i <= 7; ++i)
    mark(3 * gib / 7 * i);
  mark(3 * gib);
  mark(3 * gib);  // said again
  mark(gib);      // an agent that came back and knows less
  EXPECT_EQ(egress_so_far(w.core.state(), task).value, 3 * 90'000'001)
      << "however often it is told";
  w.crash();
  EXPECT_EQ(egress_so_far(w.core.state(), task).value, 3 * 90'000'001);
  w.must(SetPrice{{.of = "pool:cloud", .egress_gib = {50'000'000}}});  // from here on
  w.pass_time(seconds(100));
  w.end(task, 0, {.active = seconds(200), .measured = true, .egress_bytes = 5 * gib});
  const std::int64_t traffic = 3 * 90'000'001 + 2 * 50'000'000, time = 200 * rate.nano_usd_per_s;
  EXPECT_EQ(w.finished[0].job.cost.value, time + traffic);
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].charge.value, time + traffic);
  EXPECT_EQ(w.leases[0].egress.value, traffic);
  EXPECT_EQ(w.leases[0].egress_bytes, 5 * gib);
  const auto totals = w.core.state().money.books.totals(began, w.billed);
  EXPECT_EQ((totals.active + totals.idle + totals.unallocated).value, totals.fleet.value);
  EXPECT_EQ(totals.charge.value, time + traffic);
  EXPECT_GE(totals.active.value, traffic) << "the traffic is a cost of the fleet, and this lease's";
  w.check_replay();
}

TEST(Money, EgressWithoutAPriceIsKeptAndNotChargedAndCountsAgainstABudgetWhereItHasOne) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  const JobId free = w.submit(1);
  w.pass_time(seconds(10));
  w.end(w.job(free)->tasks.front(), 0, {.egress_bytes = 12345});
  EXPECT_EQ(w.leases[0].egress_bytes, 12345);
  EXPECT_EQ(w.leases[0].egress.value, 0);
  w.must(SetPrice{{.of = "node:n1", .egress_gib = {1'000'000'000}}});
  const BudgetKey key = project_budget(w, {100'000'000'000});
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  const NanoUsd before = budget_uses(w.core.state(), w.billed).at(key).spent;
  w.must(MeterMarks{NodeId(1), {{task, {.egress_bytes = 2ll << 30}}}});
  w.pass_time(seconds(1));
  const std::int64_t second = w.core.state().find_task(task)->rate.nano_usd_per_s;
  EXPECT_EQ((budget_uses(w.core.state(), w.billed).at(key).spent - before).value,
            2'000'000'000 + second);
  w.end(task);
  EXPECT_EQ((budget_uses(w.core.state(), w.billed).at(key).spent - before).value,
            2'000'000'000 + second)
      << "the same once it has ended, though its end said nothing of traffic";
  w.check_replay();
}

TEST(Money, ANodeThatLeftIsKnownByItsNameAndItsProvidersWordForIt) {
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
  const auto* renewed = std::get_if<wire::agent_v1::LeaseRenew>(&w.effects.back().message);
  ASSERT_NE(renewed, nullptr);
  EXPECT_EQ(renewed->tasks, w.job(id)->tasks);
  EXPECT_EQ(renewed->paid_for, seconds(3000));
}

// Whatever happens (crashes, clocks that are set, price changes, marks that are late or wrong, days
// that end), what is posted adds up to what the nodes cost, each lease is charged for exactly the
// seconds it was held, and replay gives the identical ledger.
TEST(Money, ReconcilesToZeroForRandomHistories) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    World w;
    for (int n = 0; n < 3; ++n)
      w.must(AgentHello{offer("n" + std::to_string(n), 4), {}});
    std::set<TaskId> open;
    const auto look = [&] {
      open.clear();
      for (const auto& [id, task] : w.core.state().tasks)
        if (task.state != TaskState::ended)
          open.insert(id);
    };
    for (int step = 0; step < 150; ++step) {
      w.pass_time(seconds(rng.between(0, rng.chance(0.05) ? 90'000 : 900)));
      if (rng.chance(0.1))
        w.wall = w.wall + seconds(rng.between(-20'000, 20'000));  // somebody sets the clock
      if (rng.chance(0.08))
        w.crash();
      const auto& state = w.core.state();
      const double what = rng.unit();
      if (what < 0.35) {
        w.submit(static_cast<int>(rng.between(1, 3)), rng.chance(0.3));
      } else if (what < 0.6 && !open.empty()) {
        auto at = open.begin();
        std::advance(at, rng.between(0, static_cast<std::int64_t>(open.size()) - 1));
        const TaskId id = *at;
        if (state.find_task(id))
          w.end(id, rng.chance(0.2) ? 1 : 0,
                {.active = seconds(rng.between(0, 50'000)),
                 .energy_mj = rng.between(0, 1'000'000),
                 .measured = true,
                 .egress_bytes = rng.between(0, 1ll << 40)});
      } else if (what < 0.75 && !open.empty()) {
        MeterMarks marks;
        const TaskId id = *open.begin();
        if (const Task* task = state.find_task(id)) {
          marks.node = task->node;
          marks.marks.push_back({id,
                                 {.active = seconds(rng.between(0, 100'000)),
                                  .energy_mj = rng.between(0, 1'000'000),
                                  .measured = true,
                                  .egress_bytes = rng.between(0, 1ll << 40)}});
          w.must(marks);
        }
      } else if (what < 0.85) {
        w.must(SetPrice{{.of = rng.chance(0.5) ? "gpu:H100" : "node:n1",
                         .cost = Rate{rng.between(1, 5'000'000)},
                         .egress_gib = {rng.between(0, 120'000'000)}}});
      } else if (what < 0.9) {
        if (!state.jobs.empty())
          w.must(StopJob{state.jobs.begin()->first, "", false});
      } else if (what < 0.95 && !open.empty()) {
        const Task* task = state.find_task(*open.begin());
        const Job* job = task ? state.find_job(task->job) : nullptr;
        if (job && job->stopping == StopCause::none) {
          if (!task->started_at)
            w.must(AgentReport{
                task->node, {.task = task->id, .state = TaskState::running, .started_at = w.wall}});
          else if (job->state == JobState::suspended)
            w.must(ResumeJob{job->id});
          else if (job->suspension.phase == SuspendPhase::none)
            (void)w.run(SuspendJob{job->id, "", SuspendCause::request, SuspendMode::warm});
          else
            w.must(AgentReport{
                task->node,
                {.task = task->id,
                 .state = job->suspension.phase == SuspendPhase::suspending ? TaskState::suspended
                                                                            : TaskState::running,
                 .started_at = w.wall,
                 .order = job->suspension.order,
                 .ram_mib = 4096}});
        }
      } else {
        w.must(MoneyTick{});
      }
      look();
    }
    look();
    for (const TaskId id : open)
      if (w.core.state().find_task(id))
        w.end(id);
    w.pass_time(hours(25));  // what came late is posted when the next day is closed
    w.must(MoneyTick{});
    // From the journal alone: every lease from its opening to its end, no second twice or lost.
    std::map<TaskId, Task> held;
    std::map<TaskId, NanoUsd> traffic;  // as the head reckoned it, which never shrinks
    NanoUsd charged, by_job, egress;
    const auto close = [&](Task& task, WallTime to, NanoUsd cost, NanoUsd sent = {}) {
      EXPECT_GE(to.ns, task.lease_from.ns);
      EXPECT_EQ(cost, amount(task.rate, to - task.lease_from, ledger::charged_milli(task)) + sent);
      egress += sent;
      charged += cost;
      task.lease_from = to;
      ++task.lease_number;
    };
    for (const Event& e : w.history) {
      if (const auto* p = std::get_if<JobPlaced>(&e.body))
        for (const Task& t : p->tasks)
          held[t.id] = t;
      if (const auto* t = std::get_if<TaskEnded>(&e.body)) {
        EXPECT_GE(t->usage.meter.egress, traffic[t->task]);
        close(held.at(t->task), t->lease_to, t->cost, t->usage.meter.egress);
      }
      if (const auto* m = std::get_if<MeterMarked>(&e.body))
        for (const TaskMark& mark : m->marks) {
          EXPECT_GE(mark.meter.egress, traffic[mark.task]);
          traffic[mark.task] = mark.meter.egress;
        }
      if (const auto* t = std::get_if<TaskSuspended>(&e.body)) {
        close(held.at(t->task), t->lease_to, t->cost);
        held.at(t->task).price_class = PriceClass::suspended, held.at(t->task).rate = t->rate,
        held.at(t->task).ram_mib = t->ram_mib;
      }
      if (const auto* t = std::get_if<JobResuming>(&e.body)) {
        close(held.at(t->task), t->lease_to, t->cost);
        held.at(t->task).price_class = t->price_class, held.at(t->task).rate = t->rate,
        held.at(t->task).gpus = t->gpus;
      }
    }
    NanoUsd by_lease;
    for (const ClosedLease& lease : w.leases)
      if (!lease.open)
        by_job += lease.charge, by_lease += lease.egress;
    EXPECT_EQ(charged.value, by_job.value) << "the books charge what the journal says";
    EXPECT_EQ(egress.value, by_lease.value) << "traffic included";
    // The entries: what was posted is what the nodes cost up to the last midnight.
    const auto& books = w.core.state().money.books;
    const WallTime midnight{w.core.state().money.days_closed * day_ns};
    NanoUsd posted, by_events;
    for (const ledger::Entry& e : w.entries)
      if (e.kind != ledger::EntryKind::charge && e.kind != ledger::EntryKind::egress)
        posted += e.amount;
    for (const DayClosed& d : w.all<DayClosed>()) {
      EXPECT_EQ((d.active + d.idle + d.unallocated).value, d.fleet.value);
      by_events += d.fleet;
    }
    NanoUsd fleet;
    for (const auto& [id, node] : w.core.state().nodes)
      fleet += books.fleet_between(id, {}, midnight);
    EXPECT_EQ(posted.value, fleet.value);
    EXPECT_EQ(by_events.value, fleet.value);
    NanoUsd by_day;
    for (const NodeDay& day : w.node_days)
      by_day += day.cost;
    EXPECT_EQ(by_day.value, fleet.value) << "so do the days in the store";
    const auto totals = books.totals(midnight, w.billed);
    EXPECT_EQ((totals.active + totals.idle + totals.unallocated).value, totals.fleet.value);
    EXPECT_GE(totals.unallocated.value, 0);
    w.check_replay();
  }
}

}  // namespace
}  // namespace billow::control
