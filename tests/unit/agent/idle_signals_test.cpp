#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/observe/idle_signals.h"

namespace billow::agent {
namespace {

TEST(IdleSignals, ReadsProcessesWithOddNamesAndStates) {
  const std::string proc = ::testing::TempDir() + "/idle_proc_" + std::to_string(::getpid());
  const auto put = [&](int pid, const std::string& stat, const std::string& io) {
    std::filesystem::create_directories(proc + "/" + std::to_string(pid));
    std::ofstream(proc + "/" + std::to_string(pid) + "/stat") << stat;
    if (!io.empty())
      std::ofstream(proc + "/" + std::to_string(pid) + "/io") << io;
  };
  // pid (name) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime
  // cutime cstime prio nice threads 0 start vsize rss
  put(11,
      "11 (py (a) b) t 1 1 1 0 -1 0 100 20 3 1 50 25 10 5 20 0 1 0 99 1000000 512 "
      "18446744073709551615",
      "rchar: 1000\nwchar: 24\nsyscr: 5\n");
  put(12, "12 (gone) Z 11 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0 0", "");
  IdleSample s = host_signals({5}, {11, 12, 13}, proc);
  EXPECT_EQ(s.processes, 2);
  EXPECT_EQ(s.traced, 1);
  EXPECT_EQ(s.zombies, 1);
  EXPECT_EQ(s.page_faults, 124);
  EXPECT_EQ(s.cpu_ns, 90 * (1'000'000'000 / ::sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(s.io_bytes, 1024);
  std::filesystem::remove(proc + "/11/io");  // not permitted: unknown, never zero
  EXPECT_FALSE(host_signals({5}, {11, 12}, proc).io_bytes);
  EXPECT_FALSE(host_signals({5}, {77}, proc).cpu_ns);
  std::filesystem::remove_all(proc);
}

TEST(IdleSignals, ReadsThisProcess) {
  const IdleSample s = host_signals({1}, {::getpid()});
  EXPECT_EQ(s.processes, 1);
  EXPECT_GT(*s.page_faults, 0);
  EXPECT_GT(*s.rss_mib, 0);
}

TEST(IdleSignals, OfASharedCardOnlyTheTasksOwnCounts) {
  GpuSample sample;
  sample.util_pct = 90;
  sample.mem_used_mib = 50'000;
  sample.power_mw = 300'000;
  sample.processes = {{.pid = 7, .mem_mib = 1000, .sm_util_pct = 0},
                      {.pid = 8, .mem_mib = 49'000, .sm_util_pct = 88}};
  const GpuSignal whole = gpu_signal(sample, 700'000, false, {7}),
                  ours = gpu_signal(sample, 700'000, true, {7});
  EXPECT_EQ(whole.util_pct, 90);
  EXPECT_EQ(whole.power_limit_w, 700);
  EXPECT_FALSE(whole.util_is_ours);
  EXPECT_EQ(ours.util_pct, 0);
  EXPECT_TRUE(ours.util_is_ours);
  EXPECT_EQ(ours.mem_used_mib, 1000);
  sample.processes[0].sm_util_pct.reset();
  EXPECT_FALSE(gpu_signal(sample, 0, true, {7}).util_is_ours);
}

}  // namespace
}  // namespace billow::agent
