// Brakes that must not stop a healthy pool: machines that were ordered for a job count as rented
// for nothing only if that job could have used them.
#include "base/limits.h"
#include "core/control/renting/pool_limits.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::healthy_pool_tests {
namespace {

struct Healthy : PoolWorld {
  Healthy() { must(AddPool{rented()}); }
  Pool rented() {
    Pool p = pool("lp", "cloud");
    p.capabilities = PoolCapabilities{.bills_from_order = true};
    p.machines_max = 16;
    p.idle = seconds(30);
    p.price = {1'000'000};
    return p;
  }
  const Pool& only_pool() const { return state().pools.begin()->second; }
  void passes(Duration lasts, Duration step = seconds(5)) {
    for (const WallTime until = now + lasts; now < until; now = now + step) {
      must(PlanPools{});
      list();
    }
  }
  // What was given back has ended.
  void list() {
    PoolSeen seen{only_pool().id, {}, now + seconds(30)};
    for (const Machine& m : machines(""))
      if (m.state != MachineState::releasing)
        seen.machines.push_back({.name = m.name, .external = "i-" + m.name});
    must(seen);
  }
  void own_node(const std::string& name, int gpus) {
    must(AgentHello{node_offer(name, gpus), {}, credential(name)});
  }
  void limit_project(std::int64_t milli) {
    SetProject limit;
    limit.name = "default";
    limit.limit_milli = milli;
    must(limit);
  }
  std::size_t running() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        state().jobs, [](const auto& entry) { return entry.second.state == JobState::running; }));
  }
};

TEST(HealthyPool, MachinesThatAreNotNeededBecauseEarlierJobsStartedElsewhereDoNotCount) {
  Healthy w;
  for (int i = 0; i < 12; ++i)
    w.submit(8);
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 12u);
  w.passes(seconds(5));
  for (int i = 0; i < 6; ++i)
    w.own_node("own" + std::to_string(i), 8);
  ASSERT_EQ(w.running(), 6u);
  w.passes(seconds(30));
  EXPECT_EQ(w.wanted().size(), 6u) << "the jobs that are left need only six";
  EXPECT_EQ(w.only_pool().unused_in_row, 0u);
  EXPECT_EQ(w.only_pool().stopped, "");
  for (const Machine& m : w.wanted())
    w.arrives(m);
  EXPECT_EQ(w.running(), 12u);
  w.check_replay();
}

TEST(HealthyPool, MachinesWhoseJobsAQuotaHoldsBackDoNotCount) {
  for (const bool come : {false, true}) {
    SCOPED_TRACE(come ? "the machines have come" : "they are on their way");
    Healthy w;
    for (int i = 0; i < 6; ++i)
      w.submit(8);
    w.must(PlanPools{});
    ASSERT_EQ(w.wanted().size(), 6u);
    w.limit_project(0);
    if (come)
      for (const Machine& m : w.wanted())
        w.arrives(m);
    w.passes(minutes(2));
    EXPECT_TRUE(w.machines("").empty());
    EXPECT_EQ(w.running(), 0u);
    EXPECT_EQ(w.only_pool().unused_in_row, 0u);
    EXPECT_EQ(w.only_pool().stopped, "");
    w.limit_project(-1);
    w.must(PlanPools{});
    EXPECT_EQ(w.wanted().size(), 6u) << "the jobs can have machines of this pool again";
    w.check_replay();
  }
}

TEST(HealthyPool, ALargeGangWithOneBadNodeIsOrderedAnew) {
  Healthy w;
  const JobId gang = w.submit(8, 8);
  std::size_t joined = 0;
  for (int i = 0; i < 120; ++i) {
    w.passes(seconds(20), seconds(20));
    for (Machine m : w.wanted()) {
      m.gpus = joined++ == 3 ? 7 : 8;
      w.arrives(m);
    }
  }
  EXPECT_EQ(joined, 16u);
  EXPECT_EQ(w.only_pool().stopped, "");
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.check_replay();
}

TEST(HealthyPool, MachinesThatComeTooLateForTheirJobsCount) {
  Healthy w;
  Pool slow = w.rented();
  slow.name = "lq";
  slow.price = {2'000'000};
  w.must(AddPool{slow});
  w.submit(8);
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().at(0).pool, w.only_pool().id);
  w.passes(minutes(3));
  ASSERT_EQ(w.wanted().size(), 1u);
  EXPECT_NE(w.wanted()[0].pool, w.only_pool().id) << "the next pool is asked";
  EXPECT_EQ(w.only_pool().unused_in_row, 1u);
}

// Slurm, or its administrator, may cut an allocation short.
TEST(HealthyPool, AnAllocationThatIsShorterThanAskedForHasTimeToJoin) {
  PoolWorld w;
  Pool p = w.pool("fast");
  p.time = hours(24);
  w.must(AddPool{p});
  w.submit(8);
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 1u);
  w.now = w.now + hours(3);
  const Machine m = w.wanted()[0];
  w.must(PoolSeen{
      m.pool,
      {{.name = m.name, .external = "1", .ends_at = w.now + hours(12), .billed_from = w.now}},
      w.now});
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 1u) << "it has just begun";
  w.check_replay();
}

// The clock of the cluster is an hour behind that of the head.
TEST(HealthyPool, AnAllocationHasTimeToJoinWhateverItsClusterSaysTheTimeIs) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.wanted().at(0);
  w.must(PoolSeen{
      m.pool, {{.name = m.name, .external = "1", .billed_from = w.now - hours(1)}}, w.now});
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 1u) << "it was ordered a moment ago";
  w.now = w.now + limits::machine_join_max + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines(MachineState::releasing).size(), 1u);
  w.check_replay();
}

MachineOffer offer(const std::string& instance, const std::string& type, std::int64_t price) {
  MachineOffer o;
  o.instance = instance;
  o.region = "us-1";
  o.gpu_type = type;
  o.gpus = 1;
  o.price = {price};
  o.price_h = {price * 3600};
  return o;
}

TEST(HealthyPool, AJobThatNeedsALargeCardRentsNoSmallOnes) {
  PoolWorld w;
  w.add("aws", {offer("g4dn.xlarge", "T4", 100), offer("g4dn.2xlarge", "T4", 200),
                offer("g6.xlarge", "L4", 300), offer("g6.2xlarge", "L4", 400),
                offer("g5.xlarge", "A10", 500), offer("a2.xlarge", "A100-40", 600),
                offer("p5.xlarge", "H100", 9000)});
  JobSpec spec = PoolWorld::spec(1);
  spec.resources.share = {1000, 60 << 10};
  w.submit(spec);
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 1u);
  EXPECT_EQ(w.wanted()[0].offer->instance, "p5.xlarge");
  w.refuse(RefusalKind::not_offered);
  EXPECT_EQ(w.asked(), "0 machines") << "no other card is that large";
}

}  // namespace
}  // namespace billow::control::healthy_pool_tests
