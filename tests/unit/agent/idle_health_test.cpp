// In the executable of the pure verdicts: needs no supervisor.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/observe/readings.h"
#include "base/limits.h"
#include "core/agent/health.h"

namespace billow::agent {
namespace {

constexpr std::int64_t second = 1'000'000'000;
WallTime at(std::int64_t s) {
  return {(1'000'000 + s) * second};
}
GpuEvent xid(std::int64_t s, std::int64_t code, FaultClass fault) {
  return {.index = 0,
          .kind = GpuEventKind::xid,
          .code = code,
          .fault = fault,
          .text = "XID " + std::to_string(code),
          .time = at(s)};
}
GpuSample look(std::int64_t s) {
  GpuSample sample;
  sample.time = at(s);
  sample.ecc_uncorrected = sample.ecc_corrected = sample.link_errors = 0;
  sample.thermal_slowdown = false;
  return sample;
}

TEST(GpuHealthWatch, AHardwareFaultDrainsForGoodWithItsReason) {
  GpuHealthWatch watch;
  watch.take(look(0));
  EXPECT_EQ(watch.verdict(at(0)).score, 100);
  watch.take(xid(5, 95, FaultClass::hardware));
  for (const std::int64_t later : {6, 90'000}) {
    const auto verdict = watch.verdict(at(later));
    EXPECT_LT(verdict.score, limits::gpu_drain_score);
    EXPECT_EQ(verdict.fault, "XID 95");
    EXPECT_EQ(verdict.fault_at, at(5));
  }
}

TEST(GpuHealthWatch, AProgramsFaultIsNotTheCards) {
  GpuHealthWatch watch;
  watch.take(xid(0, 31, FaultClass::application));
  EXPECT_EQ(watch.verdict(at(1)).score, 100);
  for (int i = 1; i < 6; ++i)
    watch.take(xid(i * 60, 31, FaultClass::application));
  const auto often = watch.verdict(at(400));
  EXPECT_LT(often.score, 100) << "again and again: perhaps the card after all";
  EXPECT_EQ(watch.verdict(at(400 + 7200)).score, 100) << "and forgotten";
}

TEST(GpuHealthWatch, CountsOnlyWhatIsNew) {
  GpuHealthWatch watch;
  GpuSample first = look(0);
  first.ecc_uncorrected = 12;  // from before this agent
  first.link_errors = 500;
  watch.take(first);
  EXPECT_EQ(watch.verdict(at(1)).score, 100);
  GpuSample second_look = first;
  second_look.time = at(10);
  second_look.ecc_uncorrected = 13;
  watch.take(second_look);
  EXPECT_LT(watch.verdict(at(11)).score, limits::gpu_drain_score);
  EXPECT_NE(watch.verdict(at(11)).fault.find("1 uncorrected memory error"), std::string::npos);
}

TEST(GpuHealthWatch, HeatAndLinkErrorsCostAndHeal) {
  GpuHealthWatch watch;
  for (std::int64_t s = 0; s <= 120; s += 2) {
    GpuSample hot = look(s);
    hot.thermal_slowdown = true;
    hot.temperature_c = 91;
    watch.take(hot);
  }
  const auto verdict = watch.verdict(at(121));
  EXPECT_GE(verdict.score, limits::gpu_drain_score) << "hot is not broken";
  EXPECT_LT(verdict.score, 100);
  EXPECT_NE(verdict.fault.find("91 °C"), std::string::npos);
  GpuSample torn = look(130);
  torn.link_errors = 4000;
  watch.take(torn);
  EXPECT_LT(watch.verdict(at(131)).score, limits::gpu_drain_score);
  EXPECT_EQ(watch.verdict(at(8000)).score, 100);
}

TEST(GpuHealthWatch, ACardThatIsLostScoresNothing) {
  GpuHealthWatch watch;
  GpuSample lost = look(3);
  lost.health = GpuHealth::lost;
  watch.take(lost);
  EXPECT_EQ(watch.verdict(at(4)).score, 0);
}

// Rates come from two looks at counters; what cannot be read stays unknown.
TEST(UsageReader, TellsRatesAndNeverAZeroForUnknown) {
  const std::string proc = ::testing::TempDir() + "/usage_proc_" + std::to_string(::getpid());
  const auto put = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(proc + "/" + name).parent_path());
    std::ofstream(proc + "/" + name) << text;
  };
  const std::int64_t ticks = ::sysconf(_SC_CLK_TCK);
  const auto write = [&](std::int64_t cpu, std::int64_t read, std::int64_t net) {
    put("stat", "cpu " + std::to_string(cpu) + " 0 0 0 0 0 0 0 0 0\n");
    put("net/dev", "h\nh\n  lo: 999 0 0 0 0 0 0 0 999 0\n eth0: " + std::to_string(net) +
                       " 0 0 0 0 0 0 0 " + std::to_string(net / 2) + " 0\n");
    put("diskstats", " 8 0 sda 1 0 " + std::to_string(read / 512) +
                         " 0 1 0 0 0 0 0 0\n 8 1 sda1 1 0 99999 0 1 0 0 0 0 0 0\n");
    put("12/stat", "12 (py) R 11 1 1 0 -1 0 0 0 0 0 " + std::to_string(cpu) +
                       " 0 0 0 20 0 1 0 99 1000000 25600 0");
    put("12/io", "rchar: " + std::to_string(read) + "\nwchar: 0\n");
    put("11/stat", "11 (sup) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 1000000 10 0");
  };
  UsageReader reader(proc);
  wire::agent_v1::Heartbeat first, then;
  write(0, 0, 0);
  reader.read({1 * second}, {{TaskId(7), 11}}, first);
  EXPECT_EQ(first.net_rx_kib_s, -1);
  ASSERT_EQ(first.tasks.size(), 1u);
  EXPECT_EQ(first.tasks[0].cpu_milli, -1);
  write(4 * ticks, 10 << 20,
        2 << 20);  // in two seconds: four CPU seconds, 10 MiB read, 2 MiB received
  reader.read({3 * second}, {{TaskId(7), 11}}, then);
  EXPECT_EQ(then.cpu_used_milli, 2000);
  EXPECT_EQ(then.tasks[0].cpu_milli, 2000);
  EXPECT_EQ(then.tasks[0].read_kib_s, 5 << 10);
  EXPECT_EQ(then.disk_read_kib_s, 5 << 10);
  EXPECT_EQ(then.net_rx_kib_s, 1 << 10);
  EXPECT_EQ(then.net_tx_kib_s, 512);
  std::filesystem::remove_all(proc);
}

}  // namespace
}  // namespace billow::agent
