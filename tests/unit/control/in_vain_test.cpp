// Machines that are rented for nothing, each by another way: gangs that are ordered node by node,
// machines that die or never connect, allocations that run without an agent, lists that are wrong.
// Whatever the way is, the pool stops after some of them. And clocks that are set change no bill.
#include "base/limits.h"
#include "core/control/renting/bills.h"
#include "core/control/renting/pool_limits.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::in_vain_tests {
namespace {

constexpr NanoUsd price_h{3'600'000'000};

struct Renting : PoolWorld {
  std::size_t joined = 0;         // machines ever
  std::set<std::string> ordered;  // ever

  Pool rented(std::string name = "lp") {
    Pool p = pool(std::move(name), "cloud");
    p.capabilities = PoolCapabilities{.bills_from_order = true};
    p.machines_max = 16;
    p.idle = seconds(30);
    p.price = {price_h.value / 3600};
    return p;
  }
  const Pool& only_pool() const { return state().pools.begin()->second; }
  void joins(const Machine& m, int gpus) {
    for (std::uint32_t i = 0; i < m.nodes; ++i) {
      const std::string node = m.nodes > 1 ? m.name + "." + std::to_string(i) : m.name;
      must(AgentHello{node_offer(node, gpus), {}, credential(node, &m)});
    }
    ++joined;
  }
  void pass(Duration d) {
    now = now + d;
    if (billed)
      billed = billed + d;
  }
  // Machines come as `comes` says, and those that are given back end; the provider lists the rest.
  void live(Duration lasts,
            const std::function<void(const Machine&)>& comes,
            Duration step = seconds(20)) {
    for (const WallTime until = now + lasts; now < until && !::testing::Test::HasFatalFailure();
         pass(step)) {
      must(PlanPools{});
      for (const Machine& m : wanted()) {
        ordered.insert(m.name);
        comes(m);
      }
      list();
    }
  }
  void list() {
    PoolSeen seen{only_pool().id, {}, now + seconds(30)};
    for (const Machine& m : machines(""))
      if (m.state != MachineState::releasing)
        seen.machines.push_back(
            {.name = m.name, .external = "i-" + m.name, .note = m.note, .ends_at = m.ends_at});
    must(seen);
  }
  std::size_t count(MachineState in) const { return machines(in).size(); }
};

// ---- gangs that are ordered node by node

TEST(InVain, AGangThatCannotStartGivesItsNodesBackAndStopsThePool) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId gang = w.submit(8, 2);
  w.live(hours(6), [&](const Machine& m) { w.joins(m, 7); });
  EXPECT_TRUE(w.machines("").empty()) << "they would be billed for ever";
  EXPECT_LE(w.ordered.size(), limits::pool_unused_max + 1) << "two at a time, until the pool stops";
  EXPECT_FALSE(w.only_pool().stopped.empty());
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::queued);
  w.check_replay();
}

// Of a gang two machines count, however many came: after three rounds the pool stops.
TEST(InVain, APoolThatAGangStoppedNamesTheJobAndWhatCame) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId gang = w.submit(8, 5);
  w.live(hours(6), [&](const Machine& m) { w.joins(m, 7); });
  EXPECT_EQ(w.ordered.size(), 15u);
  EXPECT_EQ(w.only_pool().stopped,
            fmt::format("its last 6 machines ran no job although job {0} waited, and the last one "
                        "had 7 of 8 GPUs; find out why (billow explain {0}), then: billow pool "
                        "retry lp",
                        gang.value));
  w.must(RetryPool{"lp"});
  w.live(minutes(1), [&](const Machine& m) { w.joins(m, 8); });
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.check_replay();
}

TEST(InVain, AGangWithOneNodeThatLacksAGpuIsOrderedAnew) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId gang = w.submit(8, 3);
  w.live(hours(6), [&](const Machine& m) { w.joins(m, w.joined == 1 ? 7 : 8); });
  EXPECT_EQ(w.ordered.size(), 6u) << "the other three are whole";
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.check_replay();
}

TEST(InVain, AGangThatNeverGetsAllItsNodesStopsThePool) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId gang = w.submit(8, 2);
  w.live(hours(12), [&](const Machine& m) {
    if (w.count(MachineState::here) == 0)
      w.joins(m, 8);
    else
      w.must(OrderFailed{m.name, "sold out"});
  });
  EXPECT_TRUE(w.machines("").empty());
  EXPECT_EQ(w.joined, limits::pool_unused_max) << "one that lacks its siblings is ordered again";
  EXPECT_FALSE(w.only_pool().stopped.empty());
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::queued);
  w.must(RetryPool{"lp"});
  w.live(minutes(1), [&](const Machine& m) { w.joins(m, 8); });
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.check_replay();
}

TEST(InVain, AGangWhoseNodesNeverConnectStopsThePool) {
  Renting w;
  w.must(AddPool{w.rented()});
  w.submit(8, 2);
  w.live(hours(12), [](const Machine&) {});
  EXPECT_TRUE(w.machines("").empty());
  EXPECT_LE(w.ordered.size(), limits::pool_unused_max + 1) << "two at a time";
  EXPECT_FALSE(w.only_pool().stopped.empty());
  w.check_replay();
}

TEST(InVain, ANodeOfAGangWaitsAsLongAsAnotherMayTakeToJoin) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId gang = w.submit(8, 3);
  w.live(minutes(20), [&](const Machine& m) {
    if (w.joined == 0) {
      w.joins(m, 8);
    } else if (w.joined == 1 && m.wanted_at + minutes(9) < w.now) {
      w.joins(m, 8);
    } else if (w.joined == 2 && m.wanted_at + minutes(13) < w.now) {
      w.joins(m, 8);
    }
  });
  EXPECT_EQ(w.ordered.size(), 3u);
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.check_replay();
}

TEST(InVain, ANodeOfAGangWaitsForOneThatWasOrderedAgain) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId gang = w.submit(8, 2);
  bool refused = false;
  w.live(minutes(30), [&](const Machine& m) {
    if (w.joined == 0)
      return w.joins(m, 8);
    if (!refused && m.wanted_at + minutes(7) < w.now) {
      refused = true;
      return w.must(OrderFailed{m.name, "sold out"});
    }
    if (refused && m.wanted_at + minutes(8) < w.now)
      w.joins(m, 8);
  });
  EXPECT_LE(w.ordered.size(), 4u) << "the first one counts, and one of two more is not needed";
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.check_replay();
}

// ---- machines that end by themselves

TEST(InVain, AMachineThatCameInVainAndVanishedIsNotOrderedAgain) {
  for (const bool listed : {false, true}) {
    SCOPED_TRACE(listed ? "listed as ended" : "not listed");
    Renting w;
    Pool p = w.rented();
    p.idle = hours(1);
    w.must(AddPool{p});
    w.submit(8);
    for (int i = 0; i < 20; ++i) {
      w.must(PlanPools{});
      for (const Machine& m : w.wanted()) {
        NodeOffer broken = node_offer(m.name, 8);
        broken.gpus[3].unhealthy = "XID 79";
        w.must(AgentHello{broken, {}, w.credential(m.name, &m)});
        ++w.joined;
        w.list();
        w.pass(minutes(3));
        w.must(PlanPools{});
        w.must(NodeSilent{w.state().node_by_name(m.name)->id, minutes(1)});
        PoolSeen seen{m.pool, {}, w.now};
        if (listed)
          seen.machines = {{.name = m.name, .external = "i-" + m.name, .ended = true}};
        w.must(seen);
      }
      w.pass(minutes(6));
    }
    EXPECT_EQ(w.joined, 1u);
    EXPECT_EQ(w.only_pool().unused_in_row, 1u);
    w.check_replay();
  }
}

TEST(InVain, AMachineThatDiedAtOnceIsOrderedAgain) {
  Renting w;
  w.must(AddPool{w.rented()});
  w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.wanted().at(0);
  NodeOffer broken = node_offer(m.name, 8);
  broken.gpus[3].unhealthy = "XID 79";
  w.must(AgentHello{broken, {}, w.credential(m.name, &m)});
  w.pass(seconds(3));
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-" + m.name, .ended = true}}, w.now});
  EXPECT_EQ(w.only_pool().unused_in_row, 0u) << "nobody knows what it would have run";
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 1u);
}

TEST(InVain, AMachineThatWasReclaimedAsItCameIsOrderedAgain) {
  Renting w;
  w.must(AddPool{w.rented()});
  w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.wanted().at(0);
  NodeOffer busy = node_offer(m.name, 8);
  busy.gpus[3].unhealthy = "XID 79";
  w.must(AgentHello{busy, {}, w.credential(m.name, &m)});
  w.must(NodeReclaimed{w.state().node_by_name(m.name)->id, "spot"});
  w.pass(seconds(20));
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i", .ended = true}}, w.now});
  EXPECT_EQ(w.only_pool().unused_in_row, 0u);
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 1u);
}

TEST(InVain, AMachineOfAGangThatIsReclaimedAgainAndAgainStopsThePool) {
  Renting w;
  w.must(AddPool{w.rented()});
  w.submit(8, 2);
  w.live(
      hours(12),
      [&](const Machine& m) {
        for (const Machine& other : w.machines(MachineState::here)) {
          w.must(NodeSilent{w.state().node_by_name(other.name)->id, minutes(1)});
          w.must(PoolSeen{other.pool,
                          {{.name = other.name, .external = "i-" + other.name, .ended = true},
                           {.name = m.name, .external = "i-" + m.name}},
                          w.now});
        }
        if (w.state().machines.contains(m.name) && w.count(MachineState::here) == 0)
          w.joins(m, 8);
      },
      minutes(1));
  EXPECT_LE(w.joined, 2 * limits::pool_unused_max + 2) << "every second one ends at once";
  EXPECT_FALSE(w.only_pool().stopped.empty());
  w.check_replay();
}

// ---- machines that never connect

TEST(InVain, AMinimumOfMachinesThatNeverConnectStopsThePool) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies ? "each ends by itself" : "each is given back");
    Renting w;
    Pool p = w.rented();
    p.machines_min = 1;
    w.must(AddPool{p});
    w.live(
        hours(12),
        [&](const Machine& m) {
          if (dies && m.wanted_at + minutes(2) < w.now)
            w.must(PoolSeen{
                m.pool, {{.name = m.name, .external = "i-" + m.name, .ended = true}}, w.now});
        },
        minutes(1));
    EXPECT_EQ(w.ordered.size(), limits::pool_unused_max);
    EXPECT_TRUE(w.machines("").empty());
    EXPECT_NE(w.only_pool().stopped.find("did not connect"), std::string::npos)
        << w.only_pool().stopped;
    w.check_replay();
  }
}

TEST(InVain, AnAllocationThatRunsWithoutItsAgentIsGivenBack) {
  Renting w;
  Pool p = w.pool("fast");
  p.time = hours(8);
  w.must(AddPool{p});
  w.submit(8);
  w.must(PlanPools{});
  const auto seen = [&](const std::string& note, WallTime ends_at, WallTime began) {
    PoolSeen list{w.only_pool().id, {}, w.now};
    for (const Machine& m : w.wanted())
      list.machines.push_back({.name = m.name,
                               .external = "n-" + m.name,
                               .note = note,
                               .ends_at = ends_at,
                               .billed_from = began});
    w.must(list);
    w.must(PlanPools{});
  };
  for (int i = 0; i < 10; ++i) {
    seen("PENDING (Resources)", {}, {});
    w.pass(hours(1));
  }
  ASSERT_EQ(w.wanted().size(), 1u) << "an allocation may wait for days";
  const WallTime began = w.now, end = w.now + hours(8);
  seen("RUNNING", end, began);
  w.pass(limits::machine_join_max - seconds(1));
  seen("RUNNING", end, began);
  ASSERT_EQ(w.wanted().size(), 1u);
  w.pass(seconds(2));
  seen("RUNNING", end, began);
  ASSERT_EQ(w.count(MachineState::releasing), 1u);
  EXPECT_NE(w.machines(MachineState::releasing)[0].reason.find("did not connect"),
            std::string::npos);
  EXPECT_EQ(w.only_pool().unused_in_row, 1u);
  w.check_replay();
}

TEST(InVain, AClockThatIsSetForwardEndsNoMachineThatStarts) {
  Renting w;
  w.billed = w.now;
  w.must(AddPool{w.rented()});
  w.submit(8);
  w.must(PlanPools{});
  w.pass(minutes(3));
  w.now = w.now + hours(6);
  w.must(PlanPools{});
  EXPECT_EQ(w.count(MachineState::releasing), 0u);
  w.pass(minutes(12));
  w.must(PlanPools{});
  EXPECT_EQ(w.count(MachineState::releasing), 1u);
  w.check_replay();
}

// ---- what lists and nodes say

TEST(InVain, AHeadThatHasJustStartedWaitsForAgentsBeforeItBelievesAList) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  w.joins(w.wanted().at(0), 8);
  w.list();
  ASSERT_EQ(w.state().find_job(job)->state, JobState::running);
  w.pass(hours(1));
  w.must(StartHead{.version = "1", .epoch = 2, .admin = "ana"});
  const PoolId pool = w.only_pool().id;
  w.must(PoolSeen{pool, {}, w.now});
  w.pass(limits::agent_unreachable_after);
  w.must(PoolSeen{pool, {}, w.now});
  ASSERT_TRUE(w.state().find_job(job)) << "its agent may be about to connect";
  EXPECT_EQ(w.state().find_job(job)->state, JobState::running);
  w.pass(seconds(1));
  w.must(PoolSeen{pool, {}, w.now});
  EXPECT_TRUE(w.machines("").empty());
  w.check_replay();
}

MachineOffer eight(std::string instance = "p5.48xlarge") {
  MachineOffer o;
  o.instance = std::move(instance);
  o.region = "us-1";
  o.zone = "us-1a";
  o.gpu_type = "H100";
  o.gpus = 8;
  o.price_h = price_h;
  o.price = {price_h.value / 3600};
  return o;
}

TEST(InVain, AMachineThatLacksAGpuIsNoMeasureForOthersOfItsOffer) {
  Renting w;
  w.add("aws", {eight()});
  const JobId first = w.submit(1);
  w.must(PlanPools{});
  w.joins(w.wanted().at(0), 7);
  ASSERT_EQ(w.state().find_job(first)->state, JobState::running);
  EXPECT_TRUE(admissible(w.state(), PoolWorld::spec(8)));
  const JobId large = w.submit(8);
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 1u);
  w.joins(w.wanted()[0], 8);
  EXPECT_EQ(w.state().find_job(large)->state, JobState::running);
  // What else was learned of it counts.
  JobSpec cores = PoolWorld::spec(8);
  cores.resources.cpu_milli = 65'000;
  EXPECT_FALSE(admissible(w.state(), cores));
}

// Its pool has no offers: what an administrator said of its machines holds.
TEST(InVain, AMachineThatLacksAGpuIsNoMeasureForOthersOfItsPool) {
  for (const int gpus : {7, 0}) {
    SCOPED_TRACE(gpus);
    Renting w;
    w.must(AddPool{w.rented()});
    const JobId first = w.submit(gpus > 0 ? 1 : 0);
    w.must(PlanPools{});
    w.joins(w.wanted().at(0), gpus);
    ASSERT_EQ(w.state().find_job(first)->state, JobState::running);
    EXPECT_TRUE(admissible(w.state(), PoolWorld::spec(8)));
    const JobId large = w.submit(8);
    w.must(PlanPools{});
    ASSERT_EQ(w.wanted().size(), 1u);
    w.joins(w.wanted()[0], 8);
    EXPECT_EQ(w.state().find_job(large)->state, JobState::running);
    w.check_replay();
  }
}

// It says 8 GPUs, and its machines have 4.
TEST(InVain, APoolWhoseMachinesAreSmallerThanItSaysStops) {
  Renting w;
  Pool p = w.rented();
  p.machines_max = 2;
  w.must(AddPool{p});
  for (int i = 0; i < 20; ++i)
    w.submit(8);
  w.live(hours(12), [&](const Machine& m) { w.joins(m, 4); });
  EXPECT_LE(w.ordered.size(), limits::pool_unused_max + 1) << "each job tries one at most";
  EXPECT_TRUE(w.machines("").empty());
  const std::string& why = w.only_pool().stopped;
  EXPECT_NE(why.find("the last one had 4 of 8 GPUs"), std::string::npos) << why;
  w.check_replay();
}

// What stops it has nothing to do with the machine that lacked a GPU earlier.
TEST(InVain, APoolThatStopsBecauseNoAgentConnectsBlamesNoOtherJob) {
  Renting w;
  w.must(AddPool{w.rented()});
  const JobId large = w.submit(8);
  w.live(minutes(30), [&](const Machine& m) { w.joins(m, 7); });
  ASSERT_EQ(w.state().find_job(large)->state, JobState::queued);
  const JobId small = w.submit(4);
  w.live(minutes(1), [&](const Machine& m) { w.joins(m, 7); });
  ASSERT_EQ(w.state().find_job(small)->state, JobState::running);
  ASSERT_EQ(w.only_pool().unused_in_row, 0u);
  w.submit(7);
  w.live(hours(3), [](const Machine&) {});
  const std::string& why = w.only_pool().stopped;
  ASSERT_FALSE(why.empty());
  EXPECT_EQ(why.find("of 8 GPUs"), std::string::npos) << why;
  EXPECT_EQ(why.find(fmt::format("explain {}", large.value)), std::string::npos) << why;
  w.check_replay();
}

// As many earlier machines lacked a GPU as now do not connect, each before one that was used.
TEST(InVain, APoolThatStopsNamesTheJobThatWaitsNow) {
  Renting w;
  w.must(AddPool{w.rented()});
  std::vector<JobId> large;
  for (std::uint32_t i = 0; i < limits::pool_unused_max; ++i) {
    large.push_back(w.submit(8));
    w.live(minutes(10), [&](const Machine& m) { w.joins(m, 7); });
    ASSERT_EQ(w.state().find_job(large.back())->state, JobState::queued);
    const JobId small = w.submit(4);
    w.live(minutes(1), [&](const Machine& m) { w.joins(m, 7); });
    w.ends(small);
    w.live(minutes(2), [&](const Machine& m) { w.joins(m, 7); });
  }
  ASSERT_EQ(w.only_pool().unused_in_row, 0u);
  ASSERT_EQ(w.only_pool().unused.size(), limits::pool_unused_max);
  const JobId now = w.submit(7);
  w.live(hours(3), [](const Machine&) {});
  const std::string& why = w.only_pool().stopped;
  EXPECT_EQ(why.find("of 8 GPUs"), std::string::npos) << why;
  EXPECT_NE(why.find(fmt::format("although job {} waited", now.value)), std::string::npos) << why;
  const auto notes = pool_notes(w.state(), *w.state().find_job(now), w.now);
  w.must(RetryPool{"lp"});
  w.live(minutes(1), [&](const Machine& m) { w.joins(m, 8); });
  EXPECT_EQ(w.state().find_job(now)->state, JobState::running);
  w.check_replay();
}

// "The pool is full" would be wrong: the machines in it are its own.
TEST(InVain, AGangIsToldHowManyOfItsMachinesHaveJoined) {
  Renting w;
  Pool p = w.rented();
  p.machines_max = 3;
  p.idle = minutes(20);
  w.must(AddPool{p});
  const JobId gang = w.submit(8, 3);
  const auto note = [&] {
    const auto notes = pool_notes(w.state(), *w.state().find_job(gang), w.now);
    return notes.empty() ? std::string() : notes[0];
  };
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 3u);
  w.joins(w.wanted()[0], 8);
  w.joins(w.wanted()[0], 8);
  EXPECT_TRUE(note().starts_with("Pool lp: 2 of 3 nodes for it have joined; lp-3 was ordered"))
      << note();
  w.must(OrderFailed{w.wanted()[0].name, "sold out"});
  w.pass(limits::pool_denied_pause);
  w.must(PlanPools{});
  ASSERT_TRUE(w.wanted().empty()) << "with three more there would be five";
  EXPECT_TRUE(note().starts_with("Pool lp: 2 of 3 nodes for it have joined.")) << note();
}

// ---- bills of providers that tell no times

TEST(InVain, AClockThatIsSetChangesNoBill) {
  for (const Duration step : {hours(6), hours(-6)}) {
    SCOPED_TRACE(step.ns > 0 ? "forwards" : "backwards");
    Renting w;
    w.billed = w.now;
    w.must(AddPool{w.rented()});
    w.submit(8);
    w.must(PlanPools{});
    const Machine m = w.wanted().at(0);
    w.list();
    w.pass(minutes(1));
    w.joins(m, 8);
    w.pass(minutes(19));
    w.now = w.now + step;
    w.must(PlanPools{});
    w.pass(minutes(10));
    w.must(NodeSilent{w.state().nodes.begin()->first, minutes(1)});
    w.must(PoolSeen{m.pool, {{.name = m.name, .external = "i-" + m.name, .ended = true}}, w.now});
    ASSERT_EQ(w.state().machine_bills.size(), 1u);
    const MachineBill& bill = w.state().machine_bills[0];
    EXPECT_EQ(bill.amount.value, price_h.value / 2);
    EXPECT_EQ((bill.to - bill.from).ns, minutes(30).ns);
    EXPECT_EQ(w.state().money.books.totals({}, {w.billed.ns + 1}).fleet.value, price_h.value / 2);
    w.check_replay();
  }
}

// Lists have lacked it for ten minutes, because its job must not run twice.
TEST(InVain, AMachineThatVanishedIsBilledUntilListsLackedItWhateverTheClockSays) {
  for (const Duration step : {hours(0), hours(6)}) {
    Renting w;
    w.billed = w.now;
    w.must(AddPool{w.rented()});
    w.submit(8);
    w.must(PlanPools{});
    const Machine m = w.wanted().at(0);
    w.list();
    w.pass(minutes(1));
    w.joins(m, 8);
    w.pass(minutes(19));
    w.now = w.now + step;
    w.pass(minutes(10));
    w.must(NodeSilent{w.state().nodes.begin()->first, minutes(10)});
    w.must(PoolSeen{m.pool, {}, w.now, {{m.name, minutes(10)}}});
    ASSERT_EQ(w.state().machine_bills.size(), 1u);
    EXPECT_EQ(w.state().machine_bills[0].amount.value, price_h.value / 3);
    EXPECT_EQ(w.state().money.books.totals({}, {w.billed.ns + 1}).fleet.value, price_h.value / 3);
    w.check_replay();
  }
}

}  // namespace
}  // namespace billow::control::in_vain_tests
