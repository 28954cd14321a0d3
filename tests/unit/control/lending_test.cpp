// Guarantees in an installation that grows: jobs beyond the guarantee of their project get machines
// as soon as these would let them start, and none before.
#include "base/limits.h"
#include "base/rng.h"
#include "core/control/renting/pool_limits.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::lending_tests {
namespace {

// A pool of machines with two GPUs. "vision" is guaranteed two.
struct Lent : PoolWorld {
  std::size_t ordered = 0;  // machines ever

  explicit Lent(std::uint32_t max = 8, const std::string& kind = "command") {
    Pool p = pool("lp", kind);
    p.capabilities->bills_from_order = true;
    p.gpus = 2;
    p.machines_max = max;
    p.idle = seconds(30);
    p.price = {1'000'000};
    must(AddPool{p});
    project("vision", 2000);
  }
  void project(const std::string& name, std::int64_t guaranteed_milli) {
    must(AddProject{name});
    must(SetMember{name, "ana", "admin"});
    guarantee(name, guaranteed_milli);
  }
  void guarantee(const std::string& name, std::int64_t milli) {
    SetProject set{.name = name};
    set.guaranteed_milli = milli;
    must(set);
  }
  const Pool& only_pool() const { return state().pools.begin()->second; }
  JobId needs(int gpus, const std::string& project = {}, std::uint32_t nodes = 1) {
    return submit(spec(gpus, nodes), project);
  }
  JobState of(JobId id) const { return state().find_job(id)->state; }
  void joins(const Machine& m, int gpus = 2) {
    must(AgentHello{node_offer(m.name, gpus), {}, credential(m.name, &m)});
  }
  // Whatever is ordered exists, and joins if `come` says so. What was given back has ended.
  void live(
      Duration lasts,
      const std::function<bool(const Machine&)>& come = [](const Machine&) { return true; }) {
    for (const WallTime until = now + lasts; now < until; now = now + seconds(2)) {
      must(PlanPools{});
      PoolSeen seen{only_pool().id, {}, now + seconds(30)};
      for (const Machine& m : machines("")) {
        ordered += m.state == MachineState::wanted && m.external.empty();
        if (m.state != MachineState::releasing)
          seen.machines.push_back({.name = m.name, .external = "i-" + m.name});
        if (m.state == MachineState::wanted && come(m))
          arrives(m);
      }
      must(seen);
    }
  }
  // vision runs on a machine of its own.
  JobId use_guarantee() {
    const JobId job = needs(2, "vision");
    live(seconds(6));
    EXPECT_EQ(of(job), JobState::running);
    return job;
  }
};

TEST(Lending, BorrowersGetMachinesOneAfterTheOtherBesideAUsedGuarantee) {
  for (const char* kind : {"command", "slurm"}) {
    SCOPED_TRACE(kind);
    Lent w(8, kind);
    w.use_guarantee();
    std::vector<JobId> jobs;
    for (std::size_t i = 1; i <= 4; ++i) {
      jobs.push_back(w.needs(2));
      w.live(seconds(10));
      EXPECT_EQ(w.of(jobs.back()), JobState::running) << "job " << i << " beside the guarantee";
      EXPECT_EQ(w.ordered, 1 + i);
    }
    w.check_replay();
  }
}

TEST(Lending, BorrowersThatWaitTogetherGetTheirMachinesTogether) {
  Lent w;
  w.use_guarantee();
  std::vector<JobId> jobs;
  for (int i = 0; i < 6; ++i)
    jobs.push_back(w.needs(1));
  const JobId gang = w.needs(2, "", 2);
  w.live(seconds(10));
  for (const JobId job : jobs)
    EXPECT_EQ(w.of(job), JobState::running);
  EXPECT_EQ(w.of(gang), JobState::running);
  EXPECT_EQ(w.ordered, 1u + 3u + 2u / (w.only_pool().capabilities->several_nodes_at_once ? 2 : 1));
  EXPECT_EQ(w.only_pool().unused_in_row, 0u);
  w.check_replay();
}

TEST(Lending, AProjectRentsBeyondItsOwnGuarantee) {
  Lent w;
  w.use_guarantee();
  const JobId second = w.needs(2, "vision");
  w.live(seconds(10));
  EXPECT_EQ(w.of(second), JobState::running);
  EXPECT_EQ(w.ordered, 2u);
}

// The second one would be held back on its machine: only what is left of its guarantee is its own.
TEST(Lending, AProjectsJobsShareItsGuarantee) {
  Lent w;
  w.project("speech", 2000);
  const JobId first = w.needs(2, "speech"), second = w.needs(2, "speech");
  w.live(minutes(3));
  EXPECT_EQ(w.of(first), JobState::running);
  EXPECT_EQ(w.of(second), JobState::queued);
  EXPECT_EQ(w.ordered, 1u) << "the next two GPUs are guaranteed to vision";
  w.use_guarantee();
  w.live(seconds(10));
  EXPECT_EQ(w.of(second), JobState::running);
  EXPECT_EQ(w.ordered, 3u);
  w.check_replay();
}

// Its machine may be late or never come: until then the guarantee would keep the other job back.
TEST(Lending, AMachineOnItsWayForAGuaranteeIsNotCountedBeforeItHasJoined) {
  for (const bool first : {false, true}) {
    SCOPED_TRACE(first ? "the borrower was first" : "it was second");
    Lent w;
    JobId borrower = first ? w.needs(2) : JobId{};
    w.needs(2, "vision");
    if (!first)
      borrower = w.needs(2);
    w.live(minutes(5), [](const Machine&) { return false; });
    EXPECT_EQ(w.ordered, 1u);
    w.live(seconds(10));
    EXPECT_EQ(w.of(borrower), JobState::running);
    EXPECT_EQ(w.ordered, 2u);
    w.check_replay();
  }
}

// The scheduler counts GPUs of a machine that is being given back until it has gone.
TEST(Lending, AMachineThatIsGivenBackIsNotLent) {
  Lent w;
  const JobId job = w.use_guarantee();
  w.ends(job);
  w.now = w.now + minutes(1);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines(MachineState::releasing).size(), 1u);
  const JobId borrower = w.needs(2);
  for (int i = 0; i < 20; ++i) {  // its end takes a while
    w.must(PlanPools{});
    w.now = w.now + seconds(2);
  }
  EXPECT_TRUE(w.wanted().empty());
  w.live(minutes(3));
  EXPECT_EQ(w.of(borrower), JobState::queued);
  EXPECT_EQ(w.ordered, 1u);
}

// The machine came when the guarantee was no longer in use. That is no fault of the pool, nor a
// sign that the job cannot run there.
TEST(Lending, AJobThatAGuaranteeHeldBackOnItsMachineIsRentedForAgain) {
  Lent w;
  const JobId vision = w.use_guarantee();
  const JobId borrower = w.needs(2);
  w.live(seconds(4), [](const Machine&) { return false; });
  ASSERT_EQ(w.wanted().size(), 1u);
  const Machine second = w.wanted()[0];
  // vision's machine goes with its job.
  w.ends(vision);
  const std::string first = w.machines(MachineState::here).at(0).name;
  w.must(ReleaseMachine{first, "test"});
  w.must(PoolSeen{w.only_pool().id, {{.name = second.name, .external = "i"}}, w.now + minutes(1)});
  ASSERT_FALSE(w.state().machines.contains(first));
  w.joins(second);
  ASSERT_EQ(w.of(borrower), JobState::queued) << "all GPUs are guaranteed to vision";
  w.live(minutes(3));
  EXPECT_TRUE(w.machines("").empty());
  EXPECT_EQ(w.ordered, 2u);
  EXPECT_EQ(w.only_pool().unused_in_row, 0u);
  w.use_guarantee();
  w.live(seconds(10));
  EXPECT_EQ(w.of(borrower), JobState::running);
  w.check_replay();
}

// What was promised does not come: the guarantee keeps the job back on each of its machines.
TEST(Lending, MachinesThatAreSmallerThanOrderedStopThePoolAllTheSame) {
  Lent w;
  w.guarantee("vision", 3000);
  w.use_guarantee();
  const JobId borrower = w.needs(1);
  for (int i = 0; i < 200 && w.only_pool().stopped.empty(); ++i) {
    w.live(seconds(2), [&](const Machine& m) {
      w.joins(m, 1);
      return false;
    });
    w.now = w.now + seconds(20);
  }
  EXPECT_EQ(w.of(borrower), JobState::queued);
  EXPECT_LE(w.ordered, 1 + limits::pool_unused_max);
  w.check_replay();
}

// Each fits into what is open after its machine has come, but not two of them into one.
TEST(Lending, AMachineIsSharedOnlyAsFarAsItIsNotGuaranteed) {
  Lent w;
  w.guarantee("vision", 3000);
  w.use_guarantee();
  const JobId one = w.needs(1), two = w.needs(1);
  w.live(minutes(2));
  EXPECT_EQ(w.of(one), JobState::running);
  EXPECT_EQ(w.of(two), JobState::running);
  EXPECT_EQ(w.ordered, 3u) << "one GPU of the first is guaranteed to vision";
  EXPECT_EQ(w.only_pool().unused_in_row, 0u);
}

// Random projects, guarantees and jobs: what was rented runs something, and whoever could run on
// another machine gets it.
TEST(Lending, ARandomInstallationNeitherRentsInVainNorStopsRenting) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Lent w(32);
    const std::vector<std::string> projects{"vision", "speech", "default"};
    w.project("speech", 1000 * rng.between(0, 4));
    std::vector<JobId> jobs;
    for (int step = 0; step < 25; ++step) {
      if (rng.chance(0.6))
        jobs.push_back(w.needs(static_cast<int>(rng.between(1, 2)),
                               projects[static_cast<std::size_t>(rng.between(0, 2))],
                               rng.chance(0.2) ? 2 : 1));
      if (rng.chance(0.4) && !jobs.empty()) {
        const auto at =
            static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(jobs.size()) - 1));
        if (w.state().find_job(jobs[at]) && w.of(jobs[at]) == JobState::running &&
            w.state().find_job(jobs[at])->spec->nodes == 1)
          w.ends(jobs[at]);
      }
      w.live(seconds(rng.between(1, 20)), [&](const Machine&) { return rng.chance(0.4); });
    }
    w.live(seconds(40));
    EXPECT_LE(w.only_pool().unused_in_row, 1u);
    EXPECT_EQ(w.only_pool().stopped, "");
    EXPECT_TRUE(w.only_pool().unused.empty()) << "no machine came in vain";
    for (const JobId id : jobs)
      if (const Job* job = w.state().find_job(id); job && job->state == JobState::queued) {
        const auto notes = pool_notes(w.state(), *job, w.now);
        ASSERT_FALSE(notes.empty()) << "job " << id.value;
        EXPECT_NE(notes[0].find("guaranteed"), std::string::npos) << notes[0];
      }
    w.check_replay();
  }
}

}  // namespace
}  // namespace billow::control::lending_tests
