// A task under watch and the machine around it: what is said, who acts, what is metered, and when a
// rented machine ends itself.
#include "core/agent/watch.h"

#include <gtest/gtest.h>

#include "core/agent/core.h"

namespace billow::agent {
namespace {

SteadyTime at_s(double s) {
  return {static_cast<std::int64_t>((1000 + s) * 1e9)};
}

struct Watched {
  TaskWatch watch;
  TaskWatch::Around around;
  double now_s = 0;
  std::int64_t cpu_ns = 0;
  std::vector<TaskWatch::Said> said;

  explicit Watched(IdleRules rules) : watch(std::move(rules), at_s(0)) { around.head_here = true; }
  // Samples every two seconds.
  void run(double seconds_long, bool works) {
    for (const double end = now_s + seconds_long; now_s < end; now_s += 2) {
      TaskSample sample;
      sample.idle.at = around.now = at_s(now_s);
      GpuSignal gpu;
      gpu.sm_active_pct = gpu.util_pct = works ? 90 : 0;
      gpu.power_w = works ? 600 : 71;
      gpu.power_idle_w = 68;
      gpu.mem_used_mib = works ? 9300 : 9300;
      sample.idle.gpus = {gpu};
      cpu_ns += works ? 1'000'000'000 : 1'000'000;
      sample.idle.cpu_ns = cpu_ns;
      sample.idle.io_bytes = sample.idle.page_faults = 0;
      sample.energy = {
          TaskSample::Energy{static_cast<std::int64_t>(now_s * 1000) * (works ? 600 : 71), 500}};
      const auto out = watch.add(sample, around);
      if (out.action != IdleAction::none || out.act_alone)
        said.push_back(out);
    }
  }
};

TEST(Watch, SaysWhyWhatAndWhenAndTheHeadActs) {
  Watched w({.can_suspend = true});
  w.run(600, true);
  w.run(12 * 60, false);
  ASSERT_FALSE(w.said.empty());
  EXPECT_EQ(w.said[0].action, IdleAction::warn);
  EXPECT_EQ(
      w.said[0].text,
      "idle 9m: SM 0 %, 71 W (idle 71 W), 9.1 GiB held, CPU 0.1 %, no I/O; suspending in 5m 30s");
  w.run(4 * 60, false);
  EXPECT_EQ(w.said.back().action, IdleAction::suspend);
  for (const auto& s : w.said)
    EXPECT_FALSE(s.act_alone) << "the head is there";
}

TEST(Watch, TheCountdownGoesOnBetweenWarnings) {
  Watched w({.can_suspend = true});
  w.run(600, true);
  w.run(9 * 60 + 40, false);
  const std::string first = w.watch.text();
  w.run(60, false);
  EXPECT_NE(first, w.watch.text());
  EXPECT_NE(first.find("; suspending in 5m"), std::string::npos) << first;
  EXPECT_NE(w.watch.text().find("; suspending in 4m"), std::string::npos) << w.watch.text();
}

TEST(Watch, TrafficNeverShrinksAndIsCountedOnceOverLivesOfTheAgent) {
  TaskWatch first({}, at_s(0));
  first.sent({1000, true});
  first.sent({700, true});
  EXPECT_EQ(first.meter(at_s(10)).egress_bytes, 1000);
  // The next agent finds the kernel's count, which goes on from where it was …
  TaskWatch found({}, at_s(20), first.meter(at_s(20)));
  EXPECT_EQ(found.meter(at_s(20)).egress_bytes, 1000);
  found.sent({1500, true});
  EXPECT_EQ(found.meter(at_s(30)).egress_bytes, 1500);
  // … or has to begin from what it sees itself.
  TaskWatch anew({}, at_s(20), first.meter(at_s(20)));
  anew.sent({500, false});
  EXPECT_EQ(anew.meter(at_s(30)).egress_bytes, 1500);
  anew.sent({0, true});  // the end of a task whose kernel count did not hold all of it
  EXPECT_EQ(anew.meter(at_s(30)).egress_bytes, 1500);
}

TEST(Watch, WithoutAHeadTheNodeStopsItsOwnTaskButNotOneRankOfAGang) {
  Watched alone({.can_suspend = true});
  alone.around.head_here = false;
  alone.run(60, true);
  alone.run(21 * 60, false);
  for (const auto& s : alone.said)
    EXPECT_FALSE(s.act_alone);
  alone.run(90, false);
  EXPECT_TRUE(alone.said.back().act_alone);
  Watched gang({.gang = true});
  gang.around.head_here = false;
  gang.run(60, true);
  gang.run(55 * 60, false);
  for (const auto& s : gang.said)
    EXPECT_FALSE(s.act_alone) << "its other ranks may be at work";
  gang.run(6 * 60, false);
  EXPECT_TRUE(gang.said.back().act_alone);
}

TEST(Watch, AKeepAliveIsHeldToAndWorkClearsAll) {
  Watched w({});
  w.watch.keep(hours(1), at_s(0));
  w.run(50 * 60, false);
  EXPECT_TRUE(w.said.empty());
  w.run(25 * 60, false);
  ASSERT_FALSE(w.said.empty());
  w.run(10, true);
  EXPECT_EQ(w.said.back().action, IdleAction::recovered);
}

TEST(Watch, MetersWhatWasUsedAndNeverTakesItBack) {
  Watched w({});
  Duration before;
  const auto look = [&] {
    const TaskMeter meter = w.watch.meter(at_s(w.now_s));
    EXPECT_GE(meter.active.ns, before.ns);
    EXPECT_LE(meter.active.ns, static_cast<std::int64_t>(w.now_s * 1e9));
    before = meter.active;
    return meter;
  };
  for (int i = 0; i < 10; ++i) {
    w.run(100, true);
    look();
    w.run(30, false);
    look();
  }
  EXPECT_NEAR(look().active.seconds(), 1300, 40) << "a short silence is part of the work";
  w.run(1000, false);
  const TaskMeter meter = look();
  EXPECT_NEAR(meter.active.seconds(), 1300, 90) << "a long one is not";
  EXPECT_GT(meter.energy_mj, 0);
  EXPECT_EQ(meter.gpu_mem_peak_mib, 9300);
  EXPECT_EQ(meter.sm_peak_pct, 90);
  EXPECT_TRUE(meter.measured);
}

CoreOptions rented() {
  CoreOptions options;
  options.offer.name = "rented";
  options.offer.labels = {{"bills", "yes"}};
  return options;
}

TEST(DeadMan, ARentedMachineWithoutHeadAndWorkEndsItself) {
  const auto now = [](double s) {
    return Now{{}, at_s(s)};
  };
  Core core(rented(), now(0));
  const auto given_back = [&](double s) {
    Effects effects;
    core.tick(now(s), effects);
    return std::any_of(effects.begin(), effects.end(),
                       [](const Effect& e) { return std::holds_alternative<effect::GiveBack>(e); });
  };
  EXPECT_FALSE(given_back(9 * 60));
  EXPECT_TRUE(given_back(10 * 60 + 1));
  EXPECT_FALSE(given_back(11 * 60)) << "once";
  CoreOptions owned = rented();
  owned.offer.labels.clear();
  Core own(std::move(owned), now(0));
  Effects effects;
  own.tick(now(1e6), effects);
  EXPECT_TRUE(effects.empty()) << "an owned machine waits for its head as long as it takes";
}

TEST(DeadMan, ATaskKeepsItThere) {
  CoreOptions options = rented();
  options.tasks.push_back({.status = {.task = TaskId(7), .state = TaskState::running}});
  Core core(std::move(options), {{}, at_s(0)});
  for (int minute = 1; minute < 100; ++minute) {
    Effects effects;
    core.tick({{}, at_s(minute * 60)}, effects);
    for (const Effect& e : effects)
      EXPECT_FALSE(std::holds_alternative<effect::GiveBack>(e));
  }
}

}  // namespace
}  // namespace billow::agent
