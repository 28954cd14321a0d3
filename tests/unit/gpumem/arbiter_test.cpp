// The arbiter alone, in simulated time: what a job gets is what it was promised.
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

  void add(Arbiter::Id id, std::uint32_t share, bool strict = false, double busy_part = 1) {
    arbiter.add(id, share, strict, now);
    jobs[id].busy_part = busy_part;
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
      if (arbiter.contended()) {
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

TEST(Arbiter, SharesMeasuredTimeAsAsked) {
  for (const auto& [a, b] : {std::pair{500, 500}, {250, 750}, {100, 900}}) {
    World w;
    w.add(1, static_cast<std::uint32_t>(a));
    w.add(2, static_cast<std::uint32_t>(b));
    w.run(20);
    EXPECT_NEAR(w.part(1), a / 1000.0, 0.02 * a / 1000.0);
  }
}

TEST(Arbiter, LongDrainsAreChargedToTheOneThatCausedThem) {
  World w;
  w.add(1, 500);
  w.add(2, 500);
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

TEST(Arbiter, AnIdleNeighboursTimeIsUsed) {
  World w;
  w.add(1, 250);
  w.add(2, 750, false, 0.1);
  w.run(20);
  EXPECT_GT(static_cast<double>(w.jobs[1].worked), 0.8 * 20e9);
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

TEST(Arbiter, AJobThatWakesHasNoClaimOnThePast) {
  World w;
  w.add(1, 500);
  w.add(2, 500, false, 0);
  w.run(10);
  const auto before = w.jobs[1].worked;
  w.jobs[2].busy_part = 1;
  w.run(2);
  EXPECT_GT(static_cast<double>(w.jobs[1].worked - before), 0.35 * 2e9);
}

TEST(Arbiter, TimeNobodyElseWantedIsNotHeldAgainstAJob) {
  World w;
  w.add(1, 100);
  w.add(2, 900);
  w.jobs[2].busy_part = 0;
  w.run(3);
  w.jobs[1].busy_part = 0;
  w.jobs[2].busy_part = 1;
  w.run(3);
  w.jobs[1].busy_part = 1;
  const auto before = w.jobs[1].worked, other = w.jobs[2].worked;
  w.run(10);
  const double mine = static_cast<double>(w.jobs[1].worked - before),
               theirs = static_cast<double>(w.jobs[2].worked - other);
  EXPECT_NEAR(mine / (mine + theirs), 0.1, 0.01);
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

// Work of a while, then a gap in which the next work is prepared; progress is what it would have
// taken alone.
struct Program {
  std::int64_t work = 0, gap = 0;
  std::int64_t left = 0, gap_left = 0, progress = 0, drains_at = 0, passed = 0;
  std::uint64_t launches = 0;
  std::uint32_t gate = 0;
  bool waited = false;
};
double part_of_progress(std::uint32_t share, Program first, Program second) {
  Arbiter arbiter;
  std::int64_t now = 1'000'000'000;
  std::map<Arbiter::Id, Program> jobs{{1, first}, {2, second}};
  arbiter.add(1, share, false, now);
  arbiter.add(2, 1000 - share, false, now);
  const std::int64_t step = 100'000;
  for (const std::int64_t end = now + 20'000'000'000; now < end; now += step) {
    for (auto& [id, job] : jobs) {
      const bool open = !(job.gate & BILLOW_GATE_CLOSED), wants = job.gap_left <= 0;
      if (!wants) {
        job.gap_left -= step;
        job.progress += step;
      } else if (open) {
        if (job.waited)
          job.passed = now;
        job.waited = false;
        job.launches++;
        job.left -= step;
        job.progress += step;
        if (job.left <= 0) {
          job.left = job.work;
          job.gap_left = job.gap;
        }
      }
      if (job.drains_at && now >= job.drains_at) {
        job.drains_at = 0;
        arbiter.drained(id, now);
      }
      job.waited |= wants && !open;
      arbiter.see(id, {true, wants && !open, job.launches, job.passed}, now);
    }
    const auto decision = arbiter.tick(now);
    for (const auto& [id, word] : decision.gates)
      jobs[id].gate = word;
    for (auto id : decision.drain)
      jobs[id].drains_at = now + 500'000;
  }
  return static_cast<double>(jobs[1].progress) /
         static_cast<double>(jobs[1].progress + jobs[2].progress);
}

TEST(Arbiter, AJobWithGapsGetsItsShareOfTheProgress) {
  constexpr std::int64_t ms = 1'000'000;
  for (const std::uint32_t share : {100u, 300u, 500u})
    for (const auto& [work, gap] : {std::pair{10, 3}, {4, 2}, {2, 1}})
      EXPECT_NEAR(part_of_progress(share, {work * ms, gap * ms}, {10 * ms, 0}), share / 1000.0,
                  0.03 * share / 1000.0)
          << share << " of a thousand, " << work << " ms of work, " << gap << " ms of gap";
}

}  // namespace
}  // namespace billow::gpumem
