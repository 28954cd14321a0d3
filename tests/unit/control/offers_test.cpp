// Pools with offers: which offer a job gets, what a refusal covers and for how long, and that a
// gang's nodes come from one place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/rng.h"
#include "core/control/core.h"
#include "tests/unit/control/plan_all.h"

namespace billow::control::offer_tests {
namespace {

MachineOffer offer(std::string instance, std::string zone, std::int64_t nano, bool spot = false) {
  MachineOffer o;
  o.instance = std::move(instance);
  o.region = zone.substr(0, zone.size() - 1);
  o.zone = std::move(zone);
  o.spot = spot;
  o.gpu_type = "H100";
  o.gpus = 8;
  o.cpus = 192;
  o.memory_mib = 2 << 20;
  o.price = {nano};
  return o;
}

struct Cloud {
  Core core{State{}, {}};
  std::vector<Event> history;
  WallTime now{1'000'000'000'000};

  Cloud() {
    must(StartHead{.version = "1",
                   .epoch = 1,
                   .admin = "ana",
                   .admin_token_hash = "h",
                   .node_token_hash = "n"});
  }
  const State& state() const { return core.state(); }
  Status run(const Command& command) {
    auto step = core.execute(command, {"head", ""}, now);
    if (!step)
      return pass(step.error());
    keep(std::move(*step));
    plan_all(core, [&] { keep(core.plan(now)); });
    return {};
  }
  void keep(Step step) {
    for (Event& e : step.events)
      history.push_back(e);
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  void must(const Command& command) {
    const Status s = run(command);
    ASSERT_TRUE(s) << s.error().message;
  }
  void add(std::string name, std::vector<MachineOffer> offers, bool several = true, int max = 16) {
    Pool p;
    p.name = std::move(name);
    p.kind = "ec2";
    p.capabilities = PoolCapabilities{.sizes_to_demand = false,
                                      .several_nodes_at_once = several,
                                      .list_is_final = false,
                                      .from_offers = true,
                                      .list_lag = minutes(5)};
    p.machines_max = static_cast<std::uint32_t>(max);
    p.offers = std::move(offers);
    must(AddPool{p});
  }
  JobId submit(int gpus, std::uint32_t nodes = 1, bool spot = false, NanoUsd max_price = {}) {
    SubmitJob job;
    job.spec.argv = {"true"};
    job.spec.resources.gpus = gpus;
    job.spec.resources.share = {1000, 0};
    job.spec.nodes = nodes;
    job.spec.spot = spot;
    job.spec.place.max_price = max_price;
    job.user = state().users.begin()->first;
    const JobId id(state().next_job);
    must(job);
    return id;
  }
  std::vector<Machine> machines(MachineState in = MachineState::wanted) const {
    std::vector<Machine> out;
    for (const auto& [name, m] : state().machines)
      if (m.state == in)
        out.push_back(m);
    return out;
  }
  // Plans, and returns the zone of the only machine that is wanted.
  std::string asked() {
    must(PlanPools{});
    const auto wanted = machines();
    return wanted.size() == 1 ? wanted[0].offer->zone : fmt::format("{} machines", wanted.size());
  }
  void refuse(RefusalKind kind, std::string reason = "sold out") {
    must(OrderFailed{machines().front().name, std::move(reason), kind});
  }
  void check_replay() const {
    Core again(State{}, {});
    for (const Event& e : history)
      again.replay(e);
    EXPECT_EQ(image(again.state()), image(core.state()));
    const auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored);
    EXPECT_EQ(image(*restored), image(core.state()));
  }
};

TEST(Offers, TheCheapestThatFitsIsOrderedFirst) {
  Cloud w;
  w.add("aws", {offer("p5.48xlarge", "eu-1a", 900), offer("p5.48xlarge", "us-1a", 700),
                offer("p5.48xlarge", "us-1b", 800)});
  w.submit(8);
  EXPECT_EQ(w.asked(), "us-1a");
  EXPECT_EQ(w.machines()[0].gpus, 8);
  EXPECT_EQ(w.machines()[0].job, JobId(1));
  w.check_replay();
}

TEST(Offers, AMachineIsChosenByThePriceOfTheGpusThatWork) {
  Cloud w;
  MachineOffer small = offer("p5.4xlarge", "us-1a", 150);
  small.gpus = 1;
  w.add("aws", {offer("p5.48xlarge", "us-1b", 800), small});
  w.submit(1);
  EXPECT_EQ(w.asked(), "us-1a") << "one GPU for 150 is cheaper than one used GPU of eight for 800";

  Cloud many;
  many.add("aws", {offer("p5.48xlarge", "us-1b", 800), small});
  for (int i = 0; i < 8; ++i)
    many.submit(1);
  EXPECT_EQ(many.asked(), "us-1b") << "eight jobs share the large machine";
}

TEST(Offers, OnlySpotJobsGetSpotMachinesAndReservedCapacityComesFirst) {
  Cloud w;
  MachineOffer paid = offer("p5.48xlarge", "us-1c", 2000);
  paid.reservation = "cr-1";
  w.add("aws", {offer("p5.48xlarge", "us-1a", 300, true), offer("p5.48xlarge", "us-1b", 800)});
  w.submit(8);
  EXPECT_EQ(w.asked(), "us-1b");
  Cloud spot;
  spot.add("aws", {offer("p5.48xlarge", "us-1a", 300, true), offer("p5.48xlarge", "us-1b", 800)});
  spot.submit(8, 1, true);
  EXPECT_EQ(spot.asked(), "us-1a");
  Cloud reserved;
  reserved.add("aws", {offer("p5.48xlarge", "us-1b", 800), paid});
  reserved.submit(8);
  EXPECT_EQ(reserved.asked(), "us-1c");
}

TEST(Offers, TheHighestPriceOfAJobIsPerGpuAndHour) {
  Cloud w;  // 8 GPUs for 8 × 1,000,000 nano-dollars a second: $3.60 per GPU and hour
  w.add("aws", {offer("p5.48xlarge", "us-1a", 8'000'000)});
  w.submit(8, 1, false, NanoUsd{3'599'999'999});
  EXPECT_EQ(w.asked(), "0 machines");
  w.submit(8, 1, false, NanoUsd{3'600'000'000});
  EXPECT_EQ(w.asked(), "us-1a");
}

TEST(Offers, ARefusalIsRememberedForItsScopeAndTheNextOfferIsOrdered) {
  Cloud w;
  w.add("aws", {offer("p5.48xlarge", "us-1a", 700), offer("p5.48xlarge", "us-1b", 701),
                offer("p5.48xlarge", "eu-1a", 702), offer("p5.48xlarge", "ap-1a", 703)});
  const JobId job = w.submit(8);
  EXPECT_EQ(w.asked(), "us-1a");
  w.refuse(RefusalKind::capacity, "InsufficientInstanceCapacity");
  EXPECT_EQ(w.asked(), "us-1b") << "capacity: the next zone";
  w.refuse(RefusalKind::quota, "VcpuLimitExceeded");
  EXPECT_EQ(w.asked(), "eu-1a") << "quota: the next region";
  w.refuse(RefusalKind::not_offered, "Unsupported");
  EXPECT_EQ(w.asked(), "ap-1a");
  w.check_replay();

  const auto notes = order_notes(w.state(), *w.state().find_job(job), w.now);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_NE(notes[0].find("us-1a"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("no capacity (InsufficientInstanceCapacity)"), std::string::npos);
  EXPECT_NE(notes[1].find("us-1b"), std::string::npos) << notes[1];
  EXPECT_NE(notes[1].find("quota exceeded"), std::string::npos);
  EXPECT_NE(notes[2].find("not offered"), std::string::npos) << notes[2];

  w.refuse(RefusalKind::capacity);
  EXPECT_EQ(w.asked(), "0 machines");
  w.now = w.now + limits::offer_capacity_pause + seconds(1);
  EXPECT_EQ(w.asked(), "ap-1a") << "us-1a is under the region's quota as well";
  w.refuse(RefusalKind::capacity);
  w.now = w.now + limits::offer_quota_pause + seconds(1);
  EXPECT_EQ(w.asked(), "us-1a");
}

TEST(Offers, WrongSettingsStopTheWholePoolUntilSomebodyRetries) {
  Cloud w;
  w.add("aws", {offer("p5.48xlarge", "us-1a", 700), offer("p5.48xlarge", "us-1b", 701)});
  const JobId job = w.submit(8);
  EXPECT_EQ(w.asked(), "us-1a");
  w.refuse(RefusalKind::settings, "UnauthorizedOperation");
  EXPECT_EQ(w.asked(), "0 machines");
  const auto notes = pool_notes(w.state(), *w.state().find_job(job), w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("UnauthorizedOperation"), std::string::npos) << notes[0];
  w.must(RetryPool{"aws"});
  EXPECT_EQ(w.asked(), "us-1a");
  w.check_replay();
}

TEST(Offers, AGangComesFromOnePlaceAllOrNone) {
  for (const bool several : {true, false}) {
    Cloud w;
    w.add("aws", {offer("p5.48xlarge", "us-1a", 700), offer("p5.48xlarge", "us-1b", 701)}, several);
    w.submit(8, 4);
    w.must(PlanPools{});
    std::uint32_t nodes = 0;
    for (const Machine& m : w.machines()) {
      EXPECT_EQ(m.offer->zone, "us-1a");
      nodes += m.nodes;
    }
    EXPECT_EQ(nodes, 4u);
    EXPECT_EQ(w.machines().size(), several ? 1u : 4u);
    w.refuse(RefusalKind::capacity);
    for (const Machine& m : w.machines())
      ADD_FAILURE() << m.name << " is kept although the gang cannot be complete there";
    w.must(PlanPools{});
    nodes = 0;
    for (const Machine& m : w.machines()) {
      EXPECT_EQ(m.offer->zone, "us-1b");
      nodes += m.nodes;
    }
    EXPECT_EQ(nodes, 4u);
    w.check_replay();
  }
}

TEST(Offers, WhatTheProviderAcceptedAndCouldNotKeepCountsAsRefused) {
  Cloud w;
  w.add("aws", {offer("p5.48xlarge", "us-1a", 700), offer("p5.48xlarge", "us-1b", 701)});
  w.submit(8);
  EXPECT_EQ(w.asked(), "us-1a");
  const std::string first = w.machines()[0].name;
  const PoolId pool = w.machines()[0].pool;
  MachineSighting dead{.name = first,
                       .external = "i-1",
                       .note = "terminated: Server.InsufficientInstanceCapacity",
                       .ends_at = {},
                       .failed = RefusalKind::capacity,
                       .ended = true};
  w.must(PoolSeen{pool, {dead}, w.now});
  EXPECT_FALSE(w.state().machines.contains(first));
  EXPECT_EQ(w.asked(), "us-1b");
  // One of which something is left is released until it is no longer listed.
  const std::string second = w.machines()[0].name;
  dead.name = second;
  dead.ended = false;
  w.must(PoolSeen{pool, {dead}, w.now});
  EXPECT_EQ(w.state().machines.at(second).state, MachineState::releasing);
  w.check_replay();
}

TEST(Offers, AMachineThatIsMissingFromTheListIsKeptUntilTheListCanBeTrusted) {
  Cloud w;
  w.add("aws", {offer("p5.48xlarge", "us-1a", 700)});
  w.submit(8);
  w.asked();
  const Machine m = w.machines()[0];
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-1", .note = {}, .ends_at = {}}}, w.now});
  w.now = w.now + minutes(1);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_TRUE(w.state().machines.contains(m.name));
  w.now = w.now + minutes(5);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_FALSE(w.state().machines.contains(m.name));
}

TEST(Offers, AMachineWhoseAgentNeverConnectsIsGivenBack) {
  Cloud w;
  w.add("aws", {offer("p5.48xlarge", "us-1a", 700)}, true, 1);
  w.submit(8);
  w.asked();
  const Machine m = w.machines()[0];
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-1", .note = {}, .ends_at = {}}}, w.now});
  w.now = w.now + limits::pool_join_max + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.state().machines.at(m.name).state, MachineState::releasing);
}

TEST(Offers, OffersAreReplacedAndChecked) {
  Cloud w;
  w.add("aws", {});
  w.submit(8);
  EXPECT_EQ(w.asked(), "0 machines");
  const PoolId pool = w.state().pools.begin()->first;
  EXPECT_TRUE(w.run(SetOffers{pool, {offer("p5.48xlarge", "us-1a", 700)}}));
  EXPECT_EQ(w.asked(), "us-1a");
  MachineOffer wrong = offer("p5.48xlarge", "us-1a", 700);
  wrong.gpus = -1;
  EXPECT_FALSE(w.run(SetOffers{pool, {wrong}}));
  EXPECT_FALSE(w.run(SetOffers{
      pool, std::vector<MachineOffer>(limits::pool_offers_max + 1, offer("p", "us-1a", 1))}));
  w.check_replay();
}

// Whatever is refused, in whatever order: no more machines than the pool may have, and the state
// replays.
TEST(Offers, RandomAnswersKeepTheInvariants) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Cloud w;
    std::vector<MachineOffer> offers;
    for (int i = 0; i < 12; ++i)
      offers.push_back(offer(i % 2 ? "p5.48xlarge" : "p4d.24xlarge",
                             fmt::format("r{}{}", i / 4, static_cast<char>('a' + i % 4)), 700 + i,
                             i % 3 == 0));
    w.add("aws", offers, rng.chance(0.5), 6);
    for (int step = 0; step < 120; ++step) {
      w.now = w.now + seconds(static_cast<std::int64_t>(rng.below(90)));
      const auto wanted = w.machines();
      if (rng.chance(0.3))
        w.submit(8, rng.chance(0.3) ? 3 : 1, rng.chance(0.5));
      else if (!wanted.empty() && rng.chance(0.6)) {
        const Machine& m = wanted[rng.below(wanted.size())];
        if (rng.chance(0.5))
          w.must(OrderFailed{m.name, "no", static_cast<RefusalKind>(1 + rng.below(3))});
        else
          w.must(PoolSeen{m.pool,
                          {{.name = m.name,
                            .external = "i",
                            .note = "n",
                            .ends_at = {},
                            .failed = RefusalKind::capacity,
                            .ended = rng.chance(0.5)}},
                          w.now});
      } else {
        w.must(PlanPools{});
      }
    }
    w.check_replay();
  }
}

}  // namespace
}  // namespace billow::control::offer_tests
