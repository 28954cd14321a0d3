// Load, memory and power of simulated GPUs follow the real processes that hold them.
#include "fixture.h"

#include <sys/mman.h>

namespace billow {
namespace {

class SimLoad : public testing::Test {
 protected:
  TempDir state;

  Status hold(const std::string& task,
              std::uint32_t gpu,
              const Child& child,
              std::int32_t milli = 1000,
              std::int64_t mem_mib = 0) {
    return write_sim_hold(state.path(), task, {{gpu, milli, mem_mib, child.pid(), "", -1}});
  }
};

TEST_F(SimLoad, BusyLoopLooksBusyAndSleepLooksIdle) {
  const Child busy(spin), idle(rest);
  ASSERT_TRUE(hold("busy", 2, busy));
  ASSERT_TRUE(hold("idle", 5, idle));
  const auto backend = open_sim("8xH100", state.path());
  Result<GpuSample> b, i;
  EXPECT_TRUE(eventually([&] {
    b = backend->sample(2);
    i = backend->sample(5);
    return b->util_pct > 50 && b->sm_active_pct.value_or(0) > 50 && i->util_pct < 2 &&
           i->sm_active_pct.value_or(100) < 5;
  }));
  EXPECT_EQ(backend->sample(0)->util_pct, 0);
  EXPECT_GT(*b->power_mw, 350'000);
  EXPECT_LT(*i->power_mw, 110'000);
  EXPECT_EQ(i->power_idle_mw, 70'000);
  EXPECT_GT(*b->sm_clock_mhz, *i->sm_clock_mhz);
  EXPECT_GT(*b->temperature_c, *i->temperature_c);
  ASSERT_EQ(b->processes.size(), 1u);
  EXPECT_EQ(b->processes[0].pid, busy.pid());
  ASSERT_EQ(i->processes.size(), 1u);
  EXPECT_EQ(i->processes[0].pid, idle.pid());
  EXPECT_GT(b->processes[0].sm_util_pct.value_or(-1), 50);
  EXPECT_LT(i->processes[0].sm_util_pct.value_or(100), 5);
}

TEST_F(SimLoad, BusyOnACrowdedMachineToo) {
  // Four loops on however few cores there are: waiting for a core counts as being busy.
  const Child a(spin), b(spin), c(spin), d(spin);
  const Child* all[] = {&a, &b, &c, &d};
  for (std::uint32_t i = 0; i < 4; ++i)
    ASSERT_TRUE(hold("t" + std::to_string(i), i, *all[i]));
  const auto backend = open_sim("4xL4", state.path());
  EXPECT_TRUE(eventually([&] {
    for (std::uint32_t i = 0; i < 4; ++i)
      if (*backend->sample(i)->util_pct <= 80)
        return false;
    return true;
  }));
}

TEST_F(SimLoad, GrandchildrenCount) {
  const Child shell([] {
    if (fork() == 0) {
      if (fork() == 0)
        spin();
      rest();
    }
    rest();
  });
  ASSERT_TRUE(hold("tree", 0, shell));
  const auto backend = open_sim("1xL4", state.path());
  EXPECT_TRUE(eventually([&] {
    const auto s = backend->sample(0);
    return *s->util_pct > 50 && s->processes.size() == 3;
  }));
  // The test's own child is killed by the fixture; the two below it are found by the list and ended
  // here.
  const auto last = backend->sample(0);
  for (const GpuProcess& p : last->processes)
    if (p.pid != shell.pid())
      kill(static_cast<pid_t>(p.pid), SIGKILL);
}

TEST_F(SimLoad, ThreadsCount) {
  const Child child([] {
    std::thread worker(spin);
    worker.join();
  });
  ASSERT_TRUE(hold("threads", 0, child));
  const auto backend = open_sim("1xL4", state.path());
  EXPECT_TRUE(eventually([&] { return *backend->sample(0)->util_pct > 50; }));
}

TEST_F(SimLoad, SharesWeighAndAddUp) {
  const Child a(spin), b(spin), c(rest);
  ASSERT_TRUE(hold("a", 0, a, 250));
  const auto backend = open_sim("1xL4", state.path());
  EXPECT_TRUE(eventually([&] {
    const int u = *backend->sample(0)->util_pct;
    return u > 15 && u <= 25;
  }));
  ASSERT_TRUE(hold("b", 0, b, 500));
  ASSERT_TRUE(hold("c", 0, c, 250));
  EXPECT_TRUE(eventually([&] {
    const int u = *backend->sample(0)->util_pct;
    return u > 50 && u <= 75;
  }));
  EXPECT_EQ(backend->sample(0)->processes.size(), 3u);
}

TEST_F(SimLoad, ReleasedAndDeadHoldersLeaveNoTrace) {
  const auto backend = open_sim("2xL4", state.path());
  const Child child(spin);
  ASSERT_TRUE(hold("a", 0, child));
  {
    const Child short_lived(spin);
    ASSERT_TRUE(hold("b", 1, short_lived));
    ASSERT_TRUE(eventually(
        [&] { return *backend->sample(0)->util_pct > 50 && *backend->sample(1)->util_pct > 50; }));
  }
  EXPECT_TRUE(eventually(
      [&] { return *backend->sample(1)->util_pct == 0 && backend->sample(1)->processes.empty(); }));
  ASSERT_TRUE(remove_sim_hold(state.path(), "a"));
  EXPECT_TRUE(remove_sim_hold(state.path(), "a"));  // twice is fine
  EXPECT_TRUE(eventually([&] {
    const auto s = backend->sample(0);
    return *s->util_pct == 0 && *s->mem_used_mib == 0 && s->processes.empty();
  }));
}

TEST_F(SimLoad, MemoryIsDeclaredOrResidentAndNeverBeyondTheShare) {
  const auto declare = [](const char* value) {
    return [value] {
      // The environment of a process is what it was started with, so it starts anew.
      const std::string entry = std::string("BILLOW_SIM_GPU_MEM=") + value;
      const char* argv[] = {"sleep", "1000", nullptr};
      const char* envp[] = {"HOME=/", entry.c_str(), nullptr};
      execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(envp));
    };
  };
  const Child twenty(declare("20G")), mib(declare("1234")), greedy(declare("500G"));
  const Child resident([] {
    constexpr std::size_t size = 96 << 20;
    auto* p = static_cast<char*>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < size; i += 4096)
      p[i] = 1;
    rest();
  });
  ASSERT_TRUE(hold("a", 0, twenty));
  ASSERT_TRUE(hold("b", 1, mib));
  ASSERT_TRUE(hold("c", 2, greedy, 500));
  ASSERT_TRUE(hold("d", 3, greedy, 500, 10'000));
  ASSERT_TRUE(hold("e", 4, resident));
  const auto backend = open_sim("8xH100", state.path());
  EXPECT_TRUE(eventually([&] { return backend->sample(0)->mem_used_mib == 20 * 1024; }));
  EXPECT_TRUE(eventually([&] { return backend->sample(1)->mem_used_mib == 1234; }));
  EXPECT_TRUE(eventually([&] { return backend->sample(2)->mem_used_mib == 81559 / 2; }));
  EXPECT_TRUE(eventually([&] { return backend->sample(3)->mem_used_mib == 10'000; }));
  EXPECT_TRUE(eventually([&] {
    const auto m = *backend->sample(4)->mem_used_mib;
    return m >= 96 && m < 200;
  }));
  EXPECT_EQ(backend->sample(0)->processes[0].mem_mib, 20 * 1024);
}

TEST_F(SimLoad, EnergyIsTheIntegralOfPower) {
  const auto backend = open_sim("1xH100", state.path());
  const auto first = backend->sample(0);
  // Counters stand at refreshes, at most 100 ms old, so the longer the look the better they agree.
  EXPECT_TRUE(eventually([&] {
    const auto last = backend->sample(0);
    const double joules = static_cast<double>(*last->energy_mj - *first->energy_mj) / 1000;
    const double expected = 70 * (last->steady - first->steady).seconds();
    return expected > 40 && joules > 0.75 * expected && joules < 1.25 * expected;
  }));
}

TEST_F(SimLoad, AControlGroupHoldsItsOrphansToo) {
  const Child busy(spin), idle(rest);
  // The simulator only reads cgroup.procs, so any folder with such files will do.
  const std::string group = state.path() + "/group";
  ASSERT_TRUE(make_directories(group + "/inner"));
  ASSERT_TRUE(write_file_atomic(group + "/cgroup.procs", std::to_string(idle.pid()) + "\n"));
  ASSERT_TRUE(write_file_atomic(group + "/inner/cgroup.procs", std::to_string(busy.pid()) + "\n"));
  ASSERT_TRUE(
      write_sim_hold(state.path(), "t", {{0, 1000, 0, 0, group, -1}, {1, 1000, 0, 0, group, -1}}));
  const auto backend = open_sim("2xL4", state.path());
  EXPECT_TRUE(eventually([&] {
    const auto a = backend->sample(0), b = backend->sample(1);
    return *a->util_pct > 50 && *b->util_pct > 50 && a->processes.size() == 2;
  }));
}

TEST_F(SimLoad, MigInstanceHoldersAreListedWithTheirInstance) {
  const Child child(rest);
  ASSERT_TRUE(write_sim_hold(state.path(), "m", {{0, 125, 10'000, child.pid(), "", 1}}));
  const auto backend = open_sim("1xH100+mig=1g.10gb", state.path());
  EXPECT_TRUE(eventually([&] { return backend->processes(0)->size() == 1; }));
  EXPECT_EQ(backend->processes(0)->front().gpu_instance, 1u);
  EXPECT_FALSE(backend->sample(0)->util_pct);  // a card that is cut up reports none as a whole
}

TEST(SimHolds, NonsenseIsLeftOut) {
  const auto entries = parse_sim_hold(
      "# a comment\n0 1000 0 4711\nx y z\n1 500 0\n2 250 100 cgroup:/sys/fs/cgroup/a gi=3 # with "
      "one\n3 1001 0 5\n-1 1 1 1\n4 10 0 0\n");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0], (SimHoldEntry{0, 1000, 0, 4711, "", -1}));
  EXPECT_EQ(entries[1], (SimHoldEntry{2, 250, 100, 0, "/sys/fs/cgroup/a", 3}));
  const TempDir state;
  EXPECT_FALSE(write_sim_hold(state.path(), "../escape", {}));
  EXPECT_FALSE(write_sim_hold(state.path(), "a", {{0, 1000, 0, 0, "/with space", -1}}));
}

}  // namespace
}  // namespace billow
