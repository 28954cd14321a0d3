// What pools must never do with money: rent for jobs that cannot run there, for jobs that a quota
// holds back, or again and again. And what machines cost: from the order on, as the provider bills.
#include "base/limits.h"
#include "base/rng.h"
#include "core/control/renting/bills.h"
#include "core/control/renting/pool_limits.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::renting_tests {
namespace {

constexpr std::int64_t price_h = 3'600'000'000;  // nano-dollars: $3.60

struct Renting : PoolWorld {
  std::size_t ordered = 0;  // machines ever

  void add_small(std::string name = "lp", std::uint32_t max = 2) {
    Pool p = pool(std::move(name), "command");
    p.capabilities = PoolCapabilities{.bills_from_order = true};
    p.gpus = 2;
    p.machines_max = max;
    p.idle = seconds(10);
    p.price = {price_h / 3600};
    must(AddPool{p});
  }
  // Its agent has two cores and no label.
  void small_joins(const Machine& m) {
    NodeOffer o = node_offer(m.name, 2);
    o.cpu_milli = 2000;
    o.mem_mib = 8192;
    must(AgentHello{o, {}, credential(m.name, &m)});
  }
  // A minute in which every machine that is ordered exists and joins at once.
  void live(Duration lasts = minutes(1), bool joins = true, Duration step = seconds(2)) {
    for (const WallTime until = now + lasts; now < until; now = now + step) {
      must(PlanPools{});
      std::map<PoolId, std::vector<MachineSighting>> listed;
      for (const auto& [id, p] : state().pools)
        listed[id] = {};
      for (const Machine& m : machines("")) {
        if (m.state == MachineState::wanted && m.external.empty())
          ++ordered;
        if (m.state != MachineState::releasing)
          listed[m.pool].push_back({.name = m.name, .external = "i", .note = "", .ends_at = {}});
        if (m.state == MachineState::wanted && joins)
          small_joins(m);
      }
      for (const auto& [id, seen] : listed)
        must(PoolSeen{id, seen, now + seconds(30)});
    }
  }
};

// The commands with which a pool of two-core machines rented twelve machines in ninety seconds.
const std::vector<std::pair<const char*, void (*)(JobSpec&)>> asks = {
    {"--cpus 64",
     [](JobSpec& s) {
       s.resources.cpu_milli = 64'000;
     }},
    {"--mem 500G",
     [](JobSpec& s) {
       s.resources.mem_mib = 500 << 10;
     }},
    {"--disk 9T",
     [](JobSpec& s) {
       s.resources.disk_mib = 9 << 20;
     }},
    {"--zone b",
     [](JobSpec& s) {
       s.place.zones = {"b"};
     }},
    {"--region b",
     [](JobSpec& s) {
       s.place.regions = {"b"};
     }},
    {"--fabric infiniband",
     [](JobSpec& s) {
       s.place.fabrics = {"infiniband"};
     }},
    {"--gpu-mem 200G",
     [](JobSpec& s) {
       s.resources.share = {1000, 200 << 10};
     }},
    {"--placement-group pg1",
     [](JobSpec& s) {
       s.place.placement_group = "pg1";
     }},
    {"--node-label a=b",
     [](JobSpec& s) {
       s.node_labels["a"] = "b";
     }},
    {"--pool nosuch",
     [](JobSpec& s) {
       s.place.pools = {"nosuch"};
     }},
    {"--gpu-type L4",
     [](JobSpec& s) {
       s.resources.gpu_types = {"L4"};
     }},
    {"--exclusive --cpus 64", [](JobSpec& s) {
       s.resources.whole_node = true;
       s.resources.cpu_milli = 64'000;
     }}};

TEST(Renting, AJobThatNoMachineOfThePoolCanHoldRentsOneMachineAtMost) {
  for (const auto& [words, change] : asks) {
    SCOPED_TRACE(words);
    Renting w;
    w.add_small();
    JobSpec spec = PoolWorld::spec(1);
    change(spec);
    w.submit(spec);
    w.live();
    EXPECT_LE(w.ordered, 1u);
    EXPECT_TRUE(w.machines("").empty()) << "it is given back";
    w.check_replay();
    // It is told why no machine comes, not to wait for one.
    if (spec.place.pools.empty()) {
      EXPECT_EQ(pool_notes(w.state(), w.state().jobs.begin()->second, w.now).size(), 1u);
    }
    // Once the machines are known, none is rented, and the job is not even accepted.
    const std::size_t before = w.ordered;
    SubmitJob again;
    again.spec = spec;
    again.user = w.ana();
    (void)w.run(again);
    w.live();
    EXPECT_EQ(w.ordered, before);
    // A job that fits is served all the same.
    w.submit(1);
    w.live(seconds(5));
    EXPECT_EQ(w.ordered, before + 1);
  }
}

// Its own pool brings it as many machines as any other job gets.
TEST(Renting, AProjectThatMustStayInAPoolRentsAnotherMachineThere) {
  Renting w;
  w.add_small("elsewhere");
  w.add_small("lp");
  w.must(AddProject{"medical"});
  w.must(SetMember{"medical", "ana", "admin"});
  SetProject stay{.name = "medical"};
  stay.pools = std::vector<std::string>{"lp"};
  w.must(stay);
  const JobId first = w.submit(PoolWorld::spec(2), "medical");
  w.live(seconds(6));
  ASSERT_EQ(w.state().find_job(first)->state, JobState::running);
  const JobId second = w.submit(PoolWorld::spec(2), "medical");
  w.live(seconds(6));
  EXPECT_EQ(w.ordered, 2u) << "none in the other pool";
  EXPECT_EQ(w.state().find_job(second)->state, JobState::running);
  w.check_replay();
}

TEST(Renting, OnlyThePoolThatIsNamedRents) {
  Renting w;
  w.add_small("lp");
  w.add_small("lq");
  JobSpec spec = PoolWorld::spec(1);
  spec.place.pools = {"lq"};
  w.submit(spec);
  w.live(seconds(5));
  EXPECT_EQ(w.ordered, 1u);
  EXPECT_TRUE(w.machines("lp").empty());
  EXPECT_EQ(w.machines("lq").size(), 1u);
}

TEST(Renting, AProjectRentsNoMoreThanItsQuotaLetsStart) {
  Renting w;
  w.add_small("lp", 16);
  w.must(AddProject{.name = "pa"});
  w.must(SetMember{.project = "pa", .user = "ana", .role = roles::member});
  SetProject limit;
  limit.name = "pa";
  limit.limit_milli = 1000;
  w.must(limit);
  for (int i = 0; i < 70; ++i)
    w.submit(PoolWorld::spec(1), "pa");
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 1u);
  // And it keeps nobody else from getting a machine.
  w.submit(2);
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 2u);
}

// GPUs that are guaranteed to a project are not lent to jobs that cannot be preempted: a machine
// that would bring no more than those is not rented, neither once nor again and again.
TEST(Renting, AJobThatGuaranteesOfOthersKeepBackRentsNothing) {
  for (const bool lent : {false, true}) {
    Renting w;
    w.add_small();
    w.must(AddProject{"vision"});
    SetProject guarantee{.name = "vision"};
    guarantee.guaranteed_milli = 2000;
    if (lent) {  // the job that runs has borrowed what the second machine would add
      w.submit(2);
      w.live(seconds(6));
      ASSERT_EQ(w.ordered, 1u);
    }
    w.must(guarantee);
    const JobId waits = w.submit(2);
    w.live(minutes(3));
    EXPECT_EQ(w.ordered, lent ? 1u : 0u);
    EXPECT_EQ(w.state().find_job(waits)->state, JobState::queued);
    guarantee.guaranteed_milli = 0;
    w.must(guarantee);
    w.live(seconds(6));
    EXPECT_EQ(w.ordered, lent ? 2u : 1u);
    EXPECT_EQ(w.state().find_job(waits)->state, JobState::running);
    w.check_replay();
  }
}

// "A machine is about to be ordered" would be wrong for ever.
TEST(Renting, AJobBeyondItsUsersLimitIsToldSo) {
  Renting w;
  w.add_small();
  SetProject limit{.name = "default"};
  limit.user_limit_milli = 1000;
  w.must(limit);  // no node has joined, so the job is accepted
  const JobId waits = w.submit(2);
  w.live(seconds(6));
  EXPECT_EQ(w.ordered, 0u);
  const auto notes = pool_notes(w.state(), *w.state().find_job(waits), w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("limit of its project"), std::string::npos) << notes[0];
}

TEST(Renting, AJobWithoutMoneyRentsNothing) {
  Renting w;
  w.add_small();
  const ProjectId project = w.state().projects.begin()->first;
  w.must(SetBudget{Budget{.scope = BudgetScope::project,
                          .of = project.value,
                          .period = BudgetPeriod::total,
                          .limit = {1}}});
  const JobId waits = w.submit(1);
  w.live(minutes(1));
  EXPECT_EQ(w.ordered, 0u);
  const auto notes = pool_notes(w.state(), *w.state().find_job(waits), w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("budget"), std::string::npos) << notes[0];
}

// What counts is the price that the project pays, not the one that the provider takes.
TEST(Renting, AJobThatCannotPayWhatItIsChargedRentsNothing) {
  Renting w;
  w.add_small();
  w.must(SetPrice{{.of = "pool:lp", .charge = Rate{20 * price_h / 3600}}});
  const ProjectId project = w.state().projects.begin()->first;
  w.must(SetBudget{Budget{.scope = BudgetScope::project,
                          .of = project.value,
                          .period = BudgetPeriod::total,
                          .limit = {2 * price_h}}});
  for (int i = 0; i < 4; ++i)
    w.submit(2);
  w.live(minutes(2));
  EXPECT_EQ(w.ordered, 0u) << "ten minutes would be charged $24, and $7.20 are left";
}

// The brake: whatever the reason is, machines without a job stop the pool, and somebody must act.
TEST(Renting, APoolWhoseMachinesNeverRunAJobStops) {
  Renting w;
  w.add_small();
  w.submit(1);
  w.live(hours(4), false, minutes(1));
  EXPECT_EQ(w.ordered, limits::pool_unused_max);
  const Pool& stopped = w.state().pools.begin()->second;
  EXPECT_NE(stopped.stopped.find("billow pool retry lp"), std::string::npos) << stopped.stopped;
  EXPECT_TRUE(w.machines("").empty());
  const auto notes = pool_notes(w.state(), w.state().jobs.begin()->second, w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("has stopped"), std::string::npos) << notes[0];
  w.must(RetryPool{"lp"});
  w.live(seconds(5));
  EXPECT_EQ(w.ordered, limits::pool_unused_max + 1);
  w.check_replay();
}

TEST(Renting, APoolStaysBelowItsDollarsPerHourAndMachinesPerMinute) {
  Renting w;
  Pool p = w.pool("lp", "command");
  p.machines_max = 100;
  p.price = {price_h / 3600};
  p.spend_max_h = {10'000'000'000};  // two machines for $3.60, not three
  w.must(AddPool{p});
  for (int i = 0; i < 5; ++i)
    w.submit(8);
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 2u);

  Renting least;
  p.machines_min = 3;
  least.must(AddPool{p});
  least.must(PlanPools{});
  EXPECT_EQ(least.wanted().size(), 2u) << "a minimum costs no more than the pool may";

  Renting fast;
  Pool q = fast.pool("lq", "command");
  q.machines_max = 100;
  q.per_minute_max = 3;
  fast.must(AddPool{q});
  for (int i = 0; i < 9; ++i)
    fast.submit(8);
  fast.must(PlanPools{});
  EXPECT_EQ(fast.wanted().size(), 3u);
  fast.now = fast.now + seconds(59);
  fast.must(PlanPools{});
  EXPECT_EQ(fast.wanted().size(), 3u);
  fast.now = fast.now + seconds(2);
  fast.must(PlanPools{});
  EXPECT_EQ(fast.wanted().size(), 6u);
  fast.check_replay();
}

TEST(Renting, AListThatOmitsAConnectedMachineEndsNothing) {
  Renting w;
  w.add_small();
  const JobId job = w.submit(1);
  w.live(seconds(3));
  ASSERT_EQ(w.state().find_job(job)->state, JobState::running);
  w.now = w.now + minutes(10);
  const PoolId pool = w.state().pools.begin()->first;
  w.must(PoolSeen{pool, {}, w.now});
  EXPECT_EQ(w.state().find_job(job)->state, JobState::running);
  w.must(NodeSilent{w.state().nodes.begin()->first, limits::agent_unreachable_after + seconds(1)});
  w.must(PoolSeen{pool, {}, w.now});
  EXPECT_TRUE(w.machines("").empty()) << "a silent node does not outweigh it";
}

// ---- what machines cost

MachineOffer metered(Duration minimum, Duration step) {
  MachineOffer o;
  o.instance = "g6.xlarge";
  o.region = "us-1";
  o.zone = "us-1a";
  o.gpu_type = "H100";
  o.gpus = 8;
  o.price_h = {804'800'000};  // does not divide by 3600
  o.price = {o.price_h.value / 3600};
  o.bill_minimum = minimum;
  o.bill_step = step;
  return o;
}

NanoUsd fleet(const PoolWorld& w) {
  return w.state().money.books.totals({}, {w.now.ns + 1}).fleet;
}

TEST(Bills, TheProvidersRulesAreAppliedToTheHourlyPrice) {
  EXPECT_EQ(provider_amount({3600}, seconds(1), {}, {}).value, 1);
  EXPECT_EQ(provider_amount({804'800'000}, hours(1), {}, {}).value, 804'800'000);
  EXPECT_EQ(provider_amount({3600}, milliseconds(1), seconds(60), seconds(1)).value, 60);
  EXPECT_EQ(provider_amount({3600}, milliseconds(60'001), seconds(60), seconds(1)).value, 61);
  EXPECT_EQ(provider_amount({3600}, seconds(61), {}, minutes(10)).value, 600);
  EXPECT_EQ(provider_amount({3600}, Duration{-5}, {}, seconds(1)).value, 0);
}

TEST(Bills, TheBooksHoldWhatTheProviderBills) {
  for (const auto& [minimum, step, lasted, billed] :
       std::vector<std::tuple<Duration, Duration, Duration, Duration>>{
           {seconds(60), seconds(1), milliseconds(20'300), seconds(60)},
           {seconds(60), seconds(1), milliseconds(1'000'001), seconds(1001)},
           {{}, minutes(10), minutes(31), minutes(40)},
           {{}, {}, milliseconds(77'777), milliseconds(77'777)}}) {
    Renting w;
    w.add("aws", {metered(minimum, step)});
    const JobId job = w.submit(8);
    w.must(PlanPools{});
    const Machine m = w.wanted().at(0);
    const WallTime from = w.now + milliseconds(700);
    const auto seen = [&](bool ended) {
      return MachineSighting{.name = m.name,
                             .external = "i-1",
                             .note = "running",
                             .ended = ended,
                             .billed_from = from,
                             .billed_to = ended ? from + lasted : WallTime{}};
    };
    w.now = w.now + seconds(2);
    w.must(PoolSeen{m.pool, {seen(false)}, w.now});
    EXPECT_GT(fleet(w).value, 0) << "it costs before it has joined";
    w.arrives(m);
    w.now = w.now + lasted / 2;
    if (w.state().find_job(job))
      w.ends(job);
    w.now = from + lasted + seconds(3);
    w.must(PoolSeen{m.pool, {seen(true)}, w.now});
    EXPECT_TRUE(w.machines("").empty());
    EXPECT_EQ(fleet(w).value, provider_amount({804'800'000}, billed, {}, {}).value);
    ASSERT_EQ(w.state().machine_bills.size(), 1u);
    EXPECT_TRUE(w.state().machine_bills[0].used);
    w.check_replay();
  }
}

TEST(Bills, AMachineThatNeverJoinsCostsAndIsNamed) {
  Renting w;
  w.add("aws", {metered(seconds(60), seconds(1))}, true, 1);
  w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.wanted().at(0);
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-1"}}, w.now});
  w.now = w.now + limits::machine_join_max + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.state().machines.at(m.name).state, MachineState::releasing);
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-1", .ended = true}}, w.now});
  ASSERT_EQ(w.state().machine_bills.size(), 1u);
  const MachineBill& bill = w.state().machine_bills[0];
  EXPECT_EQ(bill.machine, m.name);
  EXPECT_FALSE(bill.used);
  EXPECT_EQ(bill.amount.value,
            provider_amount({804'800'000}, limits::machine_join_max + seconds(1), {}, {}).value);
  EXPECT_EQ(fleet(w).value, bill.amount.value);
  EXPECT_EQ(w.state().money.books.totals({}, {w.now.ns + 1}).unallocated.value, bill.amount.value);
  w.check_replay();
}

// It died between two lists, and the order took a while to be carried out.
TEST(Bills, AMachineThatIsFirstListedWhenItHasEndedCostsWhatTheProviderSays) {
  Renting w;
  w.add("aws", {metered({}, {})});
  w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.wanted().at(0);
  const WallTime from = w.now + seconds(40);
  w.now = w.now + minutes(2);
  w.must(PoolSeen{m.pool,
                  {{.name = m.name,
                    .external = "i-1",
                    .ended = true,
                    .billed_from = from,
                    .billed_to = from + seconds(30)}},
                  w.now});
  ASSERT_EQ(w.state().machine_bills.size(), 1u);
  EXPECT_EQ(w.state().machine_bills[0].amount.value,
            provider_amount({804'800'000}, seconds(30), {}, {}).value);
  EXPECT_EQ(fleet(w).value, w.state().machine_bills[0].amount.value);
}

// A provider with a meter of its own. Orders are created, refused, created late or never; machines
// join or do not, die, and are ended late; lists omit machines.
struct MeteredProvider {
  struct Instance {
    WallTime from, to;
  };
  std::map<std::string, Instance> instances;
  MachineOffer offer;
  NanoUsd total() const {
    NanoUsd sum;
    for (const auto& [name, i] : instances)
      sum += provider_amount(offer.price_h, i.to - i.from, offer.bill_minimum, offer.bill_step);
    return sum;
  }
};

void one_step(Renting& w, MeteredProvider& p, Rng& rng) {
  w.now = w.now + milliseconds(rng.between(1, 40'000));
  if (rng.chance(0.2))
    w.submit(static_cast<int>(rng.between(1, 8)));
  w.must(PlanPools{});
  for (const Machine& m : w.machines("")) {
    const auto made = p.instances.find(m.name);
    const bool runs = made != p.instances.end() && !made->second.to;
    if (m.state == MachineState::wanted && made == p.instances.end()) {
      if (rng.chance(0.3))
        w.must(OrderFailed{m.name, "sold out", RefusalKind::capacity});
      else if (rng.chance(0.6))
        p.instances[m.name] = {w.now, {}};
    } else if (m.state == MachineState::wanted && runs && rng.chance(0.5)) {
      w.arrives(m);
    } else if (runs && (m.state == MachineState::releasing ? rng.chance(0.7) : rng.chance(0.05))) {
      made->second.to = w.now;
      for (const auto& [id, node] : std::map(w.state().nodes))
        if (node.offer.name == m.name)
          w.must(NodeSilent{id});
    }
  }
  if (rng.chance(0.4) && !w.state().jobs.empty()) {
    const JobId job = w.state().jobs.begin()->first;
    if (w.state().find_job(job)->state == JobState::running)
      w.ends(job);
    else
      w.must(StopJob{.job = job, .reason = "enough"});
  }
  PoolSeen seen{w.state().pools.begin()->first, {}, w.now};
  for (const auto& [name, i] : p.instances) {
    const auto machine = w.state().machines.find(name);
    if (machine == w.state().machines.end())
      continue;
    // A list may omit a machine whose node answers.
    const bool here = machine->second.state == MachineState::here;
    if (i.to || !here || rng.chance(0.8))
      seen.machines.push_back({.name = name,
                               .external = "i-" + name,
                               .ended = static_cast<bool>(i.to),
                               .billed_from = i.from,
                               .billed_to = i.to});
  }
  w.must(seen);
}

TEST(Bills, RandomStoriesLeaveTheBooksEqualToTheMeter) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    MeteredProvider provider;
    provider.offer = metered(seconds(rng.chance(0.5) ? 60 : 0),
                             rng.chance(0.3) ? Duration{} : seconds(rng.between(1, 600)));
    Renting w;
    w.add("aws", {provider.offer}, true, 4);
    for (int step = 0; step < 80 && !::testing::Test::HasFatalFailure(); ++step)
      one_step(w, provider, rng);
    w.must(RemovePool{"aws"});
    for (int step = 0; step < 400 && !w.state().pools.empty(); ++step)
      one_step(w, provider, rng);
    EXPECT_TRUE(w.machines("").empty());
    for (const auto& [name, instance] : provider.instances)
      EXPECT_TRUE(instance.to) << name << " is forgotten";
    EXPECT_EQ(fleet(w).value, provider.total().value);
  }
}

TEST(Bills, ARefusedOrderCostsNothing) {
  Renting w;
  w.add("aws", {metered(seconds(60), seconds(1))}, true, 1);
  w.submit(8);
  w.must(PlanPools{});
  w.now = w.now + seconds(5);
  w.refuse(RefusalKind::capacity);
  EXPECT_EQ(fleet(w).value, 0);
  EXPECT_TRUE(w.state().machine_bills.empty());
}

TEST(Bills, SpotTurnsIntoOnDemandWhenTimeGetsShort) {
  Renting w;
  MachineOffer spot = metered({}, {});
  spot.spot = true;
  spot.zone = "us-1b";
  spot.price = {spot.price.nano_usd_per_s / 3};
  w.add("aws", {metered({}, {}), spot});
  JobSpec spec = PoolWorld::spec(8);
  spec.spot = true;
  spec.time_limit = hours(2);
  spec.labels["by"] = std::to_string((w.now + hours(4)).ns / 1'000'000'000);
  w.submit(spec);
  EXPECT_EQ(w.asked(), "us-1b");
  w.refuse(RefusalKind::capacity);
  w.now = w.now + hours(2);
  EXPECT_EQ(w.asked(), "us-1a") << "a reclaim would be too late now";
}

TEST(Renting, ExplainTellsWhyAMachineThatCameDoesNotRunItsJob) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(1);
  w.must(PlanPools{});
  Machine without_gpus = w.machines()[0];
  without_gpus.gpus = 0;
  w.arrives(without_gpus);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 1u) << "another would not help either";
  const auto notes = pool_notes(w.state(), *w.state().find_job(job), w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "Pool fast: fast-1 joined but cannot run it: its agent found 0 of 1 GPU.");
}

}  // namespace
}  // namespace billow::control::renting_tests
