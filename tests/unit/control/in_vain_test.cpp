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

}  // namespace
}  // namespace billow::control::in_vain_tests
