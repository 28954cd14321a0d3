// Machines for groups: all that the members need, at one place, or none.
#include "tests/unit/control/pool_world.h"

namespace billow::control::group_renting_tests {
namespace {

RoleSpec role(std::string name, std::uint32_t count, int gpus, std::string type = {}) {
  RoleSpec r;
  r.name = std::move(name);
  r.count = count;
  r.argv = {"true"};
  r.resources.gpus = gpus;
  r.resources.share = {gpus > 0 ? 1000 : 0, 0};
  if (!type.empty())
    r.resources.gpu_types = {std::move(type)};
  return r;
}

MachineOffer offer_with(std::string instance,
                        std::string type,
                        std::string zone,
                        std::int64_t nano) {
  MachineOffer o;
  o.instance = std::move(instance);
  o.region = zone.substr(0, zone.size() - 1);
  o.zone = std::move(zone);
  o.gpu_type = std::move(type);
  o.gpus = 8;
  o.cpus = 192;
  o.memory_mib = 2 << 20;
  o.price = {nano};
  return o;
}

struct Groups : PoolWorld {
  JobId group(std::vector<RoleSpec> roles) {
    JobSpec asked = spec(0);
    asked.argv.clear();
    asked.resources = {};
    asked.roles = std::move(roles);
    return submit(std::move(asked));
  }
  JobState of(JobId id) const { return state().find_job(id)->state; }
  void add_pool(std::string kind, std::uint32_t max) {
    Pool p = pool("p", std::move(kind));
    p.machines_max = max;
    p.idle = seconds(30);
    must(AddPool{p});
  }
};

TEST(GroupRenting, MembersShareMachinesAndAllAreOrderedAtOnce) {
  for (const char* kind : {"cloud", "command", "slurm"}) {
    Groups w;
    w.add_pool(kind, 4);
    const JobId id = w.group({role("trainer", 1, 8), role("rollout", 3, 2), role("reward", 1, 1)});
    w.must(PlanPools{});
    ASSERT_EQ(w.wanted().size(), 2u) << kind << ": 8, and 3 × 2 + 1";
    w.must(PlanPools{});
    EXPECT_EQ(w.machines().size(), 2u) << "the ordered machines are enough";
    for (const Machine& m : w.wanted()) {
      EXPECT_EQ(w.of(id), JobState::queued);
      w.arrives(m);
      w.now = w.now + seconds(20);
      w.must(PlanPools{});
      EXPECT_EQ(w.machines().size(), 2u) << kind << ": the one that is here waits for the other";
    }
    EXPECT_EQ(w.of(id), JobState::running);
    w.check_replay();
  }
}

TEST(GroupRenting, NothingIsOrderedIfAPartWouldBeLeftOut) {
  for (const char* kind : {"cloud", "command", "slurm"}) {
    Groups w;
    w.add_pool(kind, 2);
    const JobId id = w.group({role("trainer", 2, 8), role("rollout", 1, 1)});
    w.must(PlanPools{});
    EXPECT_TRUE(w.machines().empty()) << kind << ": three machines are needed, and two are allowed";
    const JobId fits = w.group({role("trainer", 1, 8), role("rollout", 1, 1)});
    w.must(PlanPools{});
    EXPECT_EQ(w.wanted().size(), 2u) << "another group is not held up";
    for (const Machine& m : w.wanted())
      w.arrives(m);
    EXPECT_EQ(w.of(fits), JobState::running);
    EXPECT_EQ(w.of(id), JobState::queued);
    w.check_replay();
  }
}

// What the machines of all members bring counts, not what that of one brings.
TEST(GroupRenting, AMemberWithoutAGpuIsNotKeptBackByAGuarantee) {
  Groups w;
  Pool plain = w.pool("plain", "command");
  plain.gpus = 0;
  plain.gpu_type.clear();
  w.must(AddPool{plain});
  w.must(AddPool{w.pool("big", "command")});
  w.must(AddProject{"vision"});
  SetProject guarantee{.name = "vision"};
  guarantee.guaranteed_milli = 8000;
  w.must(guarantee);
  w.group({role("actor", 2, 0), role("trainer", 1, 8, "H100")});
  w.must(AgentHello{node_offer("own", 8, "A100"), {}});
  w.must(PlanPools{});
  EXPECT_EQ(w.wanted().size(), 2u);
}

TEST(GroupRenting, AKindOfGpuThatNobodyOffersOrdersNothing) {
  Groups w;
  w.add("aws", {offer_with("p5.48xlarge", "H100", "us-1a", 700)});
  w.group({role("trainer", 1, 8, "H100"), role("reward", 1, 1, "L4")});
  w.must(PlanPools{});
  EXPECT_TRUE(w.machines().empty());
}

TEST(GroupRenting, AllRolesAreAtOnePlaceEvenIfAPartIsCheaperElsewhere) {
  Groups w;
  w.add("aws",
        {offer_with("p5.48xlarge", "H100", "us-1a", 700),
         offer_with("g6.48xlarge", "L4", "us-1a", 90), offer_with("g6.48xlarge", "L4", "eu-1a", 50),
         offer_with("p5.48xlarge", "H100", "eu-2a", 1)});
  w.group({role("trainer", 1, 8, "H100"), role("reward", 1, 8, "L4")});
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 2u);
  for (const Machine& m : w.wanted())
    EXPECT_EQ(m.offer->zone, "us-1a");
}

TEST(GroupRenting, APlaceThatSellsOutIsLeftAsAWhole) {
  Groups w;
  w.add("aws", {offer_with("p5.48xlarge", "H100", "us-1a", 700),
                offer_with("g6.48xlarge", "L4", "us-1a", 90),
                offer_with("p5.48xlarge", "H100", "eu-1a", 800),
                offer_with("g6.48xlarge", "L4", "eu-1a", 99)});
  const JobId id = w.group({role("trainer", 1, 8, "H100"), role("reward", 1, 8, "L4")});
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 2u);
  for (const Machine& m : w.wanted())
    if (m.offer->gpu_type == "L4")
      w.must(OrderFailed{m.name, "sold out", RefusalKind::capacity});
  for (int i = 0; i < 60; ++i) {
    w.now = w.now + seconds(10);
    w.must(PlanPools{});
    for (const Machine& m : w.machines(MachineState::releasing))
      w.must(PoolSeen{m.pool, {}, w.now});
  }
  for (const Machine& m : w.wanted())
    EXPECT_EQ(m.offer->zone, "eu-1a") << "the machine that nobody can use alone is given back";
  EXPECT_EQ(w.wanted().size(), 2u);
  EXPECT_EQ(w.of(id), JobState::queued);
  w.check_replay();
}

TEST(GroupRenting, AMachineThatWaitsInVainIsGivenBack) {
  Groups w;
  w.add_pool("command", 4);
  w.group({role("trainer", 1, 8), role("rollout", 1, 8)});
  w.must(PlanPools{});
  ASSERT_EQ(w.wanted().size(), 2u);
  w.arrives(w.wanted()[0]);
  const std::string first = w.machines(MachineState::here)[0].name;
  bool given_back = false;
  for (int i = 0; i < 120 && !given_back; ++i) {
    w.now = w.now + minutes(1);
    w.must(PlanPools{});
    const auto at = w.state().machines.find(first);
    given_back = at == w.state().machines.end() || at->second.state == MachineState::releasing;
  }
  EXPECT_TRUE(given_back) << "the other one never came";
}

TEST(GroupRenting, OneListMayShowTheEndOfSeveralMachinesOfAGang) {
  PoolWorld w;
  w.must(AddPool{w.pool("aws", "cloud")});
  w.submit(8, 3);
  w.must(PlanPools{});
  const std::vector<Machine> ordered = w.machines();
  ASSERT_EQ(ordered.size(), 3u);
  std::vector<MachineSighting> listed;
  for (const Machine& m : ordered)
    listed.push_back({.name = m.name, .external = "i-" + m.name, .note = "running"});
  listed[0].ended = listed[2].ended = true;
  w.must(PoolSeen{ordered[0].pool, listed, w.now});
  ASSERT_EQ(w.machines().size(), 1u);
  EXPECT_EQ(w.machines()[0].name, ordered[1].name);
  EXPECT_EQ(w.machines()[0].state, MachineState::releasing) << "alone it is of no use";
  w.check_replay();
}

}  // namespace
}  // namespace billow::control::group_renting_tests
