// The arbiter alone, in simulated time: strict jobs take exclusive turns, and a lone job is free.
// See balancer_test.cpp for jobs that share by progress.
#include "gpumem/arbiter.h"

#include <gtest/gtest.h>

#include <map>

#include "shim/abi.h"

namespace billow::gpumem {
namespace {

// Jobs that always want the GPU, or only in part of each second; a turn ends some time after its
// gate closes.
struct World {
  Arbiter arbiter;
  std::int64_t now = 1'000'000'000;
  struct Job {
    double busy_part = 1;
    std::uint64_t launches = 0;
    std::uint32_t gate = 0;
    std::int64_t worked = 0, drains_at = 0;
    bool uses = true;
  };
  std::map<Arbiter::Id, Job> jobs;
  bool exclusive = false;  // a strict job was added

  void add(Arbiter::Id id, std::uint32_t share, bool strict = false, double busy_part = 1) {
    arbiter.add(id, share, strict, now);
    jobs[id].busy_part = busy_part;
    exclusive |= strict;
  }
  void run(double seconds, std::int64_t drain_ns = 1'000'000) {
    const std::int64_t step = 200'000, end = now + static_cast<std::int64_t>(seconds * 1e9);
    for (; now < end; now += step) {
      for (auto& [id, job] : jobs) {
        const bool wants =
            job.uses && static_cast<double>(now % 1'000'000'000) / 1e9 < job.busy_part;
        const bool open = !(job.gate & BILLOW_GATE_CLOSED);
        if (wants && open) {
          job.launches++;
          job.worked += step;
        }
        if (job.drains_at && now >= job.drains_at) {
          job.drains_at = 0;
          arbiter.drained(id, now);
        }
        arbiter.see(id, {job.uses, wants && !open, job.launches, 0}, now);
      }
      const auto decision = arbiter.tick(now);
      for (const auto& [id, word] : decision.gates)
        jobs[id].gate = word;
      for (auto id : decision.drain)
        jobs[id].drains_at = now + drain_ns;
      int open = 0;
      for (const auto& [id, job] : jobs)
        open += job.uses && !(job.gate & BILLOW_GATE_CLOSED);
      if (arbiter.contended() && exclusive) {
        ASSERT_LE(open, 1) << "two jobs had the GPU at once";
      }
    }
  }
  double part(Arbiter::Id id) const {
    double sum = 0;
    for (const auto& entry : jobs)
      sum += static_cast<double>(arbiter.used_ns(entry.first));
    return static_cast<double>(arbiter.used_ns(id)) / sum;
  }
};

// A strict job beside others: all take exclusive turns, charged from gate to rest.
TEST(Arbiter, SharesMeasuredTimeAsAskedBesideAStrictJob) {
  for (const auto& [a, b] : {std::pair{500, 500}, {250, 750}, {100, 900}}) {
    World w;
    w.add(1, static_cast<std::uint32_t>(a));
    w.add(2, static_cast<std::uint32_t>(b), true);
    w.run(20);
    EXPECT_NEAR(w.part(1), a / 1000.0, 0.03 * a / 1000.0);
  }
}

TEST(Arbiter, LongDrainsAreChargedToTheOneThatCausedThem) {
  World w;
  w.add(1, 500, true);
  w.add(2, 500, true);
  w.run(20, 40'000'000);
  EXPECT_NEAR(w.part(1), 0.5, 0.02);
}

TEST(Arbiter, ALoneJobIsNotMeasured) {
  World w;
  w.add(1, 250);
  w.run(2);
  EXPECT_EQ(w.jobs[1].gate, 0u);
  EXPECT_FALSE(w.arbiter.contended());
  EXPECT_EQ(w.arbiter.used_ns(1), 0);
}

TEST(Arbiter, AStrictJobGetsNoMoreThanItsShareEvenAlone) {
  for (std::uint32_t share : {500u, 250u, 100u}) {
    World w;
    w.add(1, share, true);
    w.run(20);
    EXPECT_NEAR(static_cast<double>(w.arbiter.used_ns(1)) / 20e9, share / 1000.0,
                0.05 * share / 1000.0);
  }
}

TEST(Arbiter, AHolderThatLeavesFreesTheGpu) {
  World w;
  w.add(1, 500);
  w.add(2, 500);
  w.run(1);
  w.arbiter.remove(1);
  w.jobs.erase(1);
  w.run(1);
  EXPECT_EQ(w.jobs[2].gate, 0u);
}

}  // namespace
}  // namespace billow::gpumem
