// The balancer in simulated time: the driver interleaves the work of jobs whose gates are open, as
// a GPU does, and every job makes at least the promised part of the progress it makes alone.
#include "gpumem/balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string>

namespace billow::gpumem {
namespace {

constexpr double us = 1e3, ms = 1e6;

// A program: launches of one length, each of which takes the host some time; after some of them it
// waits for the GPU and then prepares the next ones.
struct Kind {
  const char* name;
  double kernel_ns, launch_ns;
  int per_wait;
  double gap_ns;
};
constexpr Kind tiny{"tiny", 2 * us, 4 * us, 500, 0};
constexpr Kind huge{"long", 5.3 * ms, 10 * us, 2, 0};
constexpr Kind matmul{"matmul", 200 * us, 10 * us, 20, 0};
constexpr Kind memory{"memory", 500 * us, 10 * us, 10, 0};
constexpr Kind step{"step", 20 * us, 8 * us, 150, 3 * ms};
constexpr Kind light{"light", 4 * us, 20 * us, 150, 3 * ms};
constexpr Kind train{"train", 15 * us, 20 * us, 800, 0};

struct Program {
  Kind kind;
  double host_ns = 0;  // until the host may act again
  int launched = 0;    // since it last waited for the GPU
  bool waiting_for_gpu = false;
  double queued_ns = 0, done_ns = 0;
  std::uint64_t launches = 0;
  bool open = true, far = true, stopped = false;
  double deaf_ns = 0;                       // the GPU does not look at its queue yet
  std::int64_t stop_from = 0, stop_to = 0;  // has nothing to do then

  bool works() const { return queued_ns > 0 && deaf_ns <= 0; }
  bool gate_waits() const { return !open && host_ns <= 0 && !waiting_for_gpu && !stopped; }
  void host(double ns) {
    host_ns -= ns;
    // as the shim's marks allow
    const double most = std::max(2 * kind.kernel_ns, far ? 16 * ms : 4 * ms);
    while (host_ns <= 0 && !stopped) {
      if (waiting_for_gpu) {
        if (queued_ns > 0) {
          host_ns = 0;
          return;
        }
        waiting_for_gpu = false;
        launched = 0;
        host_ns += kind.gap_ns;
        continue;
      }
      if (!open || queued_ns + kind.kernel_ns > most) {
        host_ns = 0;
        return;
      }
      queued_ns += kind.kernel_ns;
      launches++;
      host_ns += kind.launch_ns;
      waiting_for_gpu = ++launched == kind.per_wait;
    }
  }
};

// What is lost when the driver interleaves two contexts.
constexpr double interleaving = 0.96;

struct World {
  Balancer balancer;
  std::map<Balancer::Id, Program> programs;
  std::map<Balancer::Id, std::int64_t> drains_at;  // 0: when its queue is empty
  std::map<Balancer::Id, double> asked_ns;         // work to finish before the answer
  std::int64_t now = 1'000'000'000;
  bool managed = true;
  double hand_over_ns = 0;  // what it costs a job that its gate was closed

  void add(Balancer::Id id, std::uint32_t share, const Kind& kind) {
    balancer.add(id, share);
    programs[id].kind = kind;
  }
  void run(double seconds) {
    const std::int64_t step_ns = 100'000, end = now + static_cast<std::int64_t>(seconds * 1e9);
    for (; now < end; now += step_ns) {
      int busy = 0;
      for (auto& [id, p] : programs) {
        p.stopped = now >= p.stop_from && now < p.stop_to;
        p.host(static_cast<double>(step_ns));
        p.deaf_ns -= static_cast<double>(step_ns);
        busy += p.works();
      }
      double left = static_cast<double>(step_ns) * (busy > 1 ? interleaving : 1.0);
      for (int round = 0; round < 4 && left > 1; round++) {
        const double each = left / std::max(1, busy);
        busy = 0;
        for (auto& [id, p] : programs) {
          const double done = p.works() ? std::min(each, p.queued_ns) : 0;
          p.queued_ns -= done;
          p.done_ns += done;
          asked_ns[id] -= done;
          left -= done;
          busy += p.works();
        }
      }
      if (managed)
        decide();
    }
  }
  void decide() {
    for (auto& [id, p] : programs) {
      if (drains_at.contains(id) && asked_ns[id] <= 1) {
        drains_at.erase(id);
        balancer.drained(id, now);
      }
      balancer.see(id, {true, p.gate_waits(), p.launches, 0}, now);
    }
    const auto decision = balancer.tick(now);
    for (const auto& [id, open] : decision.open) {
      Program& p = programs[id];
      if (open && !p.open)
        p.deaf_ns = hand_over_ns;
      p.open = open;
      p.far = decision.together;
    }
    for (auto id : decision.drain) {
      EXPECT_FALSE(drains_at.contains(id)) << "asked twice";
      drains_at[id] = now;
      asked_ns[id] = programs[id].queued_ns;
    }
  }
};

double alone(const Kind& kind, double seconds) {
  static std::map<std::pair<std::string, double>, double> known;
  double& done = known[{kind.name, seconds}];
  if (done == 0) {
    World w;
    w.managed = false;
    w.add(1, 1000, kind);
    w.run(seconds);
    done = w.programs[1].done_ns;
  }
  return done;
}
using Parts = std::array<double, 2>;
Parts together(const Kind& a, const Kind& b, std::uint32_t share, bool managed, double seconds) {
  World w;
  w.managed = managed;
  w.add(1, share, a);
  w.add(2, 1000 - share, b);
  w.run(seconds);
  return {w.programs[1].done_ns / alone(a, seconds), w.programs[2].done_ns / alone(b, seconds)};
}

// The most that both can do together if each gets what it was promised: parts of the time alone,
// the rest as the unmanaged pair.
double best(const Parts& free, double share) {
  double most = 0;
  for (double x = 0; x <= 1; x += 0.005)
    for (double y = 0; x + y <= 1; y += 0.005) {
      const double z = 1 - x - y, first = x + free[0] * z, second = y + free[1] * z;
      if (first >= share * 0.99 && second >= (1 - share) * 0.99)
        most = std::max(most, first + second);
    }
  return most;
}

TEST(Balancer, KeepsItsPromiseToTenMixedPairsAndWastesLittle) {
  const std::pair<Kind, Kind> pairs[] = {
      {train, huge}, {step, huge},   {step, matmul},  {memory, huge}, {memory, matmul},
      {tiny, huge},  {tiny, memory}, {matmul, train}, {step, memory}, {step, train}};
  for (const std::uint32_t share : {100u, 300u, 500u, 900u})
    for (const auto& [a, b] : pairs) {
      const Parts free = together(a, b, share, false, 2);
      const Parts got = together(a, b, share, true, 6);
      const double s = share / 1000.0;
      const auto what = testing::Message() << a.name << " " << s << " " << got[0] << ", " << b.name
                                           << " " << got[1] << "; unmanaged " << free[0] << ", "
                                           << free[1] << "; best " << best(free, s);
      EXPECT_GE(got[0], s * 0.98) << what;
      EXPECT_GE(got[1], (1 - s) * 0.98) << what;
      EXPECT_GE(got[0] + got[1], 0.9 * best(free, s)) << what;
    }
}

// A job whose gate opens does not have the GPU at once. A small share, which has short turns, would
// lose most by that if turns counted as time.
TEST(Balancer, WhatAHandOverCostsIsCounted) {
  for (const std::uint32_t share : {100u, 300u}) {
    World w;
    w.hand_over_ns = 2 * ms;
    w.add(1, share, memory);
    w.add(2, 1000 - share, matmul);
    w.run(10);
    EXPECT_GE(w.programs[1].done_ns / alone(memory, 10), 0.97 * share / 1000);
    EXPECT_GE(w.programs[2].done_ns / alone(matmul, 10), 0.97 * (1000 - share) / 1000);
  }
}

// Two jobs that gain by running together do so, even if both are behind at first: turns alone would
// go back and forth between them.
TEST(Balancer, AJobThatCatchesUpByItselfGetsNoTurns) {
  const Parts free = together(train, huge, 500, false, 2),
              got = together(train, huge, 500, true, 6);
  EXPECT_GE(got[0] + got[1], 0.97 * (free[0] + free[1]));
}

// Measuring the small job alone costs the large one, which makes up for it slowly; meanwhile the
// small one waits.
TEST(Balancer, ASmallJobThatIsAheadIsSeldomMeasured) {
  for (const Kind& kind : {huge, matmul, memory}) {
    const Parts got = together(light, kind, 100, true, 10);
    EXPECT_GE(got[0], 0.52) << kind.name;  // unmanaged: 1.0, and 0.87 for the other
    EXPECT_GE(got[1], 0.9) << kind.name;
  }
}

TEST(Balancer, LikeJobsShareAsAsked) {
  for (const Kind& kind : {matmul, huge})
    for (const std::uint32_t share : {250u, 500u}) {
      const Parts got = together(kind, kind, share, true, 6);
      EXPECT_NEAR(got[0] / (got[0] + got[1]), share / 1000.0, 0.05 * share / 1000.0) << kind.name;
      EXPECT_GT(got[0] + got[1], 0.96) << kind.name;
    }
}

TEST(Balancer, ThreeJobsGetTheirPromise) {
  World w;
  w.add(1, 200, step);
  w.add(2, 300, matmul);
  w.add(3, 500, huge);
  w.run(10);
  EXPECT_GE(w.programs[1].done_ns / alone(step, 10), 0.2 * 0.95);
  EXPECT_GE(w.programs[2].done_ns / alone(matmul, 10), 0.3 * 0.95);
  EXPECT_GE(w.programs[3].done_ns / alone(huge, 10), 0.5 * 0.95);
}

TEST(Balancer, SharesThatNobodyHoldsAreDividedInProportion) {
  World w;
  w.add(1, 200, matmul);
  w.add(2, 400, memory);
  w.run(10);
  EXPECT_GE(w.programs[1].done_ns / alone(matmul, 10), 1.0 / 3 * 0.96);
  EXPECT_GE(w.programs[2].done_ns / alone(memory, 10), 2.0 / 3 * 0.96);
}

TEST(Balancer, AnIdleNeighboursTimeIsUsed) {
  World w;
  w.add(1, 100, matmul);
  w.add(2, 900, matmul);
  w.programs[2].stop_from = w.now + 1'000'000'000;
  w.programs[2].stop_to = w.now + 11'000'000'000;
  w.run(2);
  const double before = w.programs[1].done_ns;
  w.run(9);
  EXPECT_GT(w.programs[1].done_ns - before, 0.98 * 9e9);
}

TEST(Balancer, AJobThatWakesHasNoClaimOnThePast) {
  World w;
  w.add(1, 500, matmul);
  w.add(2, 500, matmul);
  w.programs[2].stop_to = w.now + 5'000'000'000;
  w.run(5);
  const double before = w.programs[1].done_ns;
  w.run(2);
  EXPECT_NEAR((w.programs[1].done_ns - before) / 2e9, 0.5, 0.05);
}

// A job that joins two others gets its promise at once, not after their next measurement.
TEST(Balancer, ANewcomerIsMeasuredWhenItComes) {
  World w;
  w.add(1, 200, step);
  w.add(2, 200, tiny);
  w.run(8);
  w.add(3, 600, matmul);
  w.run(2);
  EXPECT_GE(w.programs[3].done_ns / alone(matmul, 2), 0.6 * 0.95);
}

// A program that goes over to other work is measured again: its old rates would say that it makes
// progress while it falls behind, or the reverse.
TEST(Balancer, NoticesThatAProgramDoesSomethingElse) {
  for (const auto& [before, after] : {std::pair{tiny, memory}, {memory, tiny}, {step, matmul}}) {
    World w;
    w.add(1, 300, matmul);
    w.add(2, 700, before);
    w.run(3);
    const double first = w.programs[1].done_ns, second = w.programs[2].done_ns;
    w.programs[2].kind = after;
    w.run(6);
    EXPECT_GE((w.programs[1].done_ns - first) / alone(matmul, 6), 0.3 * 0.9) << after.name;
    EXPECT_GE((w.programs[2].done_ns - second) / alone(after, 6), 0.7 * 0.9) << after.name;
  }
}

// A job whose single launch runs for long does not count as idle meanwhile.
TEST(Balancer, OneLongLaunchIsWork) {
  constexpr Kind giant{"giant", 300 * ms, 10 * us, 1, 0};
  World w;
  w.add(1, 800, giant);
  w.add(2, 200, matmul);
  w.run(20);
  EXPECT_GE(w.programs[1].done_ns / alone(giant, 20), 0.8 * 0.92);
  EXPECT_GE(w.programs[2].done_ns / alone(matmul, 20), 0.2 * 0.75);  // it cannot be interrupted
}

}  // namespace
}  // namespace billow::gpumem
