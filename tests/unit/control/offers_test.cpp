// Pools with offers: which offer a job gets, what a refusal covers and for how long, and that a
// gang's nodes come from one place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/rng.h"
#include "core/control/renting/pool_limits.h"
#include "core/control/renting/quote.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::offer_tests {
namespace {

MachineOffer offer_of(std::string instance,
                      std::string zone,
                      std::int64_t nano,
                      bool spot = false) {
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

TEST(Offers, TheCheapestThatFitsIsOrderedFirst) {
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "eu-1a", 900), offer_of("p5.48xlarge", "us-1a", 700),
                offer_of("p5.48xlarge", "us-1b", 800)});
  w.submit(8);
  EXPECT_EQ(w.asked(), "us-1a");
  EXPECT_EQ(w.wanted()[0].gpus, 8);
  EXPECT_EQ(w.wanted()[0].job, JobId(1));
  w.check_replay();
}

TEST(Offers, AMachineIsChosenByThePriceOfTheGpusThatWork) {
  PoolWorld w;
  MachineOffer small = offer_of("p5.4xlarge", "us-1a", 150);
  small.gpus = 1;
  w.add("aws", {offer_of("p5.48xlarge", "us-1b", 800), small});
  w.submit(1);
  EXPECT_EQ(w.asked(), "us-1a") << "one GPU for 150 is cheaper than one used GPU of eight for 800";

  PoolWorld many;
  many.add("aws", {offer_of("p5.48xlarge", "us-1b", 800), small});
  for (int i = 0; i < 8; ++i)
    many.submit(1);
  EXPECT_EQ(many.asked(), "us-1b") << "eight jobs share the large machine";
}

TEST(Offers, AMachinesDiskIsForTheJobsThatWillShareIt) {
  PoolWorld w;
  w.disk_mib_max = 1000 << 10;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 800)});
  JobSpec wants = PoolWorld::spec(1);
  wants.resources.disk_mib = 100 << 10;
  for (int i = 0; i < 3; ++i)
    w.submit(wants);
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 1u);
  EXPECT_EQ(w.wanted()[0].disk_mib, 300 << 10);
  wants.resources.disk_mib = 1001 << 10;
  const JobId large = w.submit(wants);
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 1u) << "no machine comes with such a disk";
  w.must(StopJob{large});
  // A gang needs its disk on every node, once.
  wants.nodes = 2;
  wants.resources.gpus = 8;
  wants.resources.disk_mib = 500 << 10;
  w.submit(wants);
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().back().disk_mib, 500 << 10);
  w.check_replay();
}

// Each job is looked at on its own, up to a limit: it must not be what a burst of jobs meets.
TEST(Offers, AHundredJobsOrderAHundredMachinesAtOnce) {
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 700)}, true, 200);
  for (int i = 0; i < 100; ++i)
    w.submit(8);
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 100u);
}

TEST(Offers, OnlySpotJobsGetSpotMachinesAndReservedCapacityComesFirst) {
  PoolWorld w;
  MachineOffer paid = offer_of("p5.48xlarge", "us-1c", 2000);
  paid.reservation = "cr-1";
  w.add("aws",
        {offer_of("p5.48xlarge", "us-1a", 300, true), offer_of("p5.48xlarge", "us-1b", 800)});
  w.submit(8);
  EXPECT_EQ(w.asked(), "us-1b");
  PoolWorld spot;
  spot.add("aws",
           {offer_of("p5.48xlarge", "us-1a", 300, true), offer_of("p5.48xlarge", "us-1b", 800)});
  spot.submit(8, 1, true);
  EXPECT_EQ(spot.asked(), "us-1a");
  PoolWorld reserved;
  reserved.add("aws", {offer_of("p5.48xlarge", "us-1b", 800), paid});
  reserved.submit(8);
  EXPECT_EQ(reserved.asked(), "us-1c");
}

TEST(Offers, TheHighestPriceOfAJobIsPerGpuAndHour) {
  PoolWorld w;  // 8 GPUs for 8 × 1,000,000 nano-dollars a second: $3.60 per GPU and hour
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 8'000'000)});
  const JobId poor = w.submit(8, 1, false, NanoUsd{3'500'000'000});
  EXPECT_EQ(w.asked(), "0 machines");
  const auto notes = pool_notes(w.state(), *w.state().find_job(poor), w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0],
            "Pool aws orders no machine for it: its cheapest offer, p5.48xlarge in us-1a (on "
            "demand, $28.80/h), exceeds --max-price $3.50 per GPU and hour.");
  w.submit(8, 1, false, NanoUsd{3'599'999'999});
  EXPECT_EQ(w.asked(), "0 machines");
  w.submit(8, 1, false, NanoUsd{3'600'000'000});
  EXPECT_EQ(w.asked(), "us-1a");
}

TEST(Offers, APriceIsNamedForOneMachineAndForAllOfAGang) {
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 8'000'000)});
  const ProjectId project = w.state().projects.begin()->first;
  const auto one = rent_quote(w.state(), PoolWorld::spec(8), project, w.now);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->text, "p5.48xlarge in us-1a (on demand, $28.80/h)");
  const auto gang = rent_quote(w.state(), PoolWorld::spec(8, 3), project, w.now);
  ASSERT_TRUE(gang);
  EXPECT_EQ(gang->text, "3 × p5.48xlarge in us-1a (on demand, $28.80/h): $86.40/h in all");
}

TEST(Offers, ARefusalIsRememberedForItsScopeAndTheNextOfferIsOrdered) {
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 700), offer_of("p5.48xlarge", "us-1b", 701),
                offer_of("p5.48xlarge", "eu-1a", 702), offer_of("p5.48xlarge", "ap-1a", 703)});
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
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 700), offer_of("p5.48xlarge", "us-1b", 701)});
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
    PoolWorld w;
    w.add("aws", {offer_of("p5.48xlarge", "us-1a", 700), offer_of("p5.48xlarge", "us-1b", 701)},
          several);
    w.submit(8, 4);
    w.must(PlanPools{});
    std::uint32_t nodes = 0;
    for (const Machine& m : w.wanted()) {
      EXPECT_EQ(m.offer->zone, "us-1a");
      nodes += m.nodes;
    }
    EXPECT_EQ(nodes, 4u);
    EXPECT_EQ(w.wanted().size(), several ? 1u : 4u);
    w.refuse(RefusalKind::capacity);
    for (const Machine& m : w.wanted())
      ADD_FAILURE() << m.name << " is kept although the gang cannot be complete there";
    w.must(PlanPools{});
    nodes = 0;
    for (const Machine& m : w.wanted()) {
      EXPECT_EQ(m.offer->zone, "us-1b");
      nodes += m.nodes;
    }
    EXPECT_EQ(nodes, 4u);
    w.check_replay();
  }
}

TEST(Offers, WhatTheProviderAcceptedAndCouldNotKeepCountsAsRefused) {
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 700), offer_of("p5.48xlarge", "us-1b", 701)});
  w.submit(8);
  EXPECT_EQ(w.asked(), "us-1a");
  const std::string first = w.wanted()[0].name;
  const PoolId pool = w.wanted()[0].pool;
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
  const std::string second = w.wanted()[0].name;
  dead.name = second;
  dead.ended = false;
  w.must(PoolSeen{pool, {dead}, w.now});
  EXPECT_EQ(w.state().machines.at(second).state, MachineState::releasing);
  w.check_replay();
}

TEST(Offers, AMachineThatIsMissingFromTheListIsKeptUntilTheListCanBeTrusted) {
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 700)});
  w.submit(8);
  w.asked();
  const Machine m = w.wanted()[0];
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-1", .note = {}, .ends_at = {}}}, w.now});
  w.now = w.now + minutes(1);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_TRUE(w.state().machines.contains(m.name));
  w.now = w.now + minutes(5);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_FALSE(w.state().machines.contains(m.name));
}

TEST(Offers, AMachineWhoseAgentNeverConnectsIsGivenBack) {
  PoolWorld w;
  w.add("aws", {offer_of("p5.48xlarge", "us-1a", 700)}, true, 1);
  w.submit(8);
  w.asked();
  const Machine m = w.wanted()[0];
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-1", .note = {}, .ends_at = {}}}, w.now});
  w.now = w.now + limits::machine_join_max + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.state().machines.at(m.name).state, MachineState::releasing);
}

TEST(Offers, OffersAreReplacedAndChecked) {
  PoolWorld w;
  w.add("aws", {});
  w.submit(8);
  EXPECT_EQ(w.asked(), "0 machines");
  const PoolId pool = w.state().pools.begin()->first;
  EXPECT_TRUE(w.run(SetOffers{pool, {offer_of("p5.48xlarge", "us-1a", 700)}}));
  EXPECT_EQ(w.asked(), "us-1a");
  MachineOffer wrong = offer_of("p5.48xlarge", "us-1a", 700);
  wrong.gpus = -1;
  EXPECT_FALSE(w.run(SetOffers{pool, {wrong}})) << "the older ones remain";
  EXPECT_EQ(w.state().pools.at(pool).offers.size(), 1u);
  EXPECT_TRUE(w.run(SetOffers{pool, {wrong, offer_of("p5.48xlarge", "us-1b", 700)}}));
  ASSERT_EQ(w.state().pools.at(pool).offers.size(), 1u) << "one that is wrong is left out";
  EXPECT_EQ(w.state().pools.at(pool).offers[0].zone, "us-1b");
  // Too many: the dearest are left out.
  std::vector<MachineOffer> many(limits::pool_offers_max, offer_of("p", "us-1a", 900));
  many.insert(many.begin(), offer_of("dear", "us-1c", 1000));
  many.push_back(offer_of("cheap", "us-1d", 100));
  EXPECT_TRUE(w.run(SetOffers{pool, many}));
  const std::vector<MachineOffer>& kept = w.state().pools.at(pool).offers;
  ASSERT_EQ(kept.size(), limits::pool_offers_max);
  EXPECT_EQ(kept.front().zone, "us-1d");
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(),
                          [](const MachineOffer& each) { return each.zone == "us-1c"; }),
            0);
  w.check_replay();
}

// Whatever is refused, in whatever order: no more machines than the pool may have, and the state
// replays.
TEST(Offers, RandomAnswersKeepTheInvariants) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    PoolWorld w;
    std::vector<MachineOffer> offers;
    for (int i = 0; i < 12; ++i)
      offers.push_back(offer_of(i % 2 ? "p5.48xlarge" : "p4d.24xlarge",
                                fmt::format("r{}{}", i / 4, static_cast<char>('a' + i % 4)),
                                700 + i, i % 3 == 0));
    w.add("aws", offers, rng.chance(0.5), 6);
    for (int step = 0; step < 120; ++step) {
      w.now = w.now + seconds(static_cast<std::int64_t>(rng.below(90)));
      const auto wanted = w.wanted();
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
