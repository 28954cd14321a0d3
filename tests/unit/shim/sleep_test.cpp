// More suspended jobs than the arena holds, on the simulated driver: they move to memory and to a
// file, come back right, and lose nothing if the space ends or a process dies meanwhile.
#include <sys/resource.h>

#include "tests/unit/shim/fixture.h"

namespace {

using namespace shimtest;

class Sleep : public Shim {
 protected:
  // A worker holds 14 MiB; the arena keeps an eighth free.
  void restart(const std::string& arena, const std::string& memory, const std::string& disk) {
    service_.reset();
    arena_ = arena;
    more_ = {"--sleep-memory", memory, "--sleep-dir", dir_ + "/sleep", "--sleep-disk", disk};
    start_service();
  }
  void start_workers(int count) {
    for (int i = 0; i < count; i++) {
      add(name(i), 128);
      workers_.push_back(child(name(i), {"worker"}));
      ASSERT_EQ(workers_.back()->line(), "ready");
    }
  }
  static std::string name(int i) { return "w" + std::to_string(i); }
  std::uint64_t number(int i, const std::string& key) {
    const auto line = job(name(i));
    return line.contains(key) ? std::stoull(line.at(key)) : 0;
  }
  std::uint64_t lower(const std::string& key) {
    for (const auto& line : call("status").lines)
      if (line.at("kind") == "lower")
        return std::stoull(line.at(key));
    return 0;
  }
  void expect_right(int i) {
    workers_[static_cast<std::size_t>(i)]->poke();
    EXPECT_TRUE(workers_[static_cast<std::size_t>(i)]->line().starts_with("right")) << name(i);
    EXPECT_EQ(workers_[static_cast<std::size_t>(i)]->wait(), 0) << name(i);
  }
  std::vector<std::unique_ptr<Child>> workers_;
};

TEST_F(Sleep, MoreSleepersThanMemoryAllComeBackRight) {
  restart("48M", "72M", "1G");
  start_workers(8);
  for (int i = 0; i < 8; i++)
    call("suspend name=" + name(i));
  std::uint64_t sum = 0;
  for (int i = 0; i < 8; i++)
    sum += number(i, "arena") + number(i, "memory") + number(i, "file");
  EXPECT_GE(sum, 8u * (12u << 20));
  EXPECT_LE(lower("memory_used"), 24u << 20);
  // The job that sleeps longest is lowest, the last one is not on disk.
  EXPECT_GT(number(0, "file"), 0u);
  EXPECT_EQ(number(7, "file"), 0u);
  for (int i = 7; i >= 0; i--) {
    call("resume name=" + name(i));
    expect_right(i);
    call("remove name=" + name(i));
  }
  EXPECT_EQ(lower("file_used"), 0u);
  EXPECT_EQ(lower("memory_used"), 0u);
}

TEST_F(Sleep, AJobLargerThanTheArenaSleepsInTheTiersBelow) {
  restart("24M", "32M", "1G");
  add(name(0), 128);
  for (int i = 0; i < 3; i++) {  // 42 MiB in one job
    workers_.push_back(child(name(0), {"worker"}));
    ASSERT_EQ(workers_.back()->line(), "ready");
  }
  for (int cycle = 0; cycle < 4; cycle++) {
    const auto out = call("suspend name=" + name(0) + (cycle % 2 ? " mode=cold" : ""));
    EXPECT_GT(out.number("bytes"), 36u << 20);
    EXPECT_GT(number(0, "file") + number(0, "memory"), 0u);
    call("resume name=" + name(0));
  }
  for (int i = 0; i < 3; i++)
    expect_right(i);
}

TEST_F(Sleep, WithoutSpaceTheJobRunsOn) {
  restart("32M", "32M", "24M");
  start_workers(4);
  int slept = 0;
  std::vector<bool> asleep;
  for (int i = 0; i < 4; i++) {
    const auto out = call_service(dir_ + "/admin", "suspend name=" + name(i), 150000);
    asleep.push_back(out.has_value());
    slept += out.has_value();
    if (!out) {
      EXPECT_EQ(out.error().code, billow::Code::exhausted) << out.error().message;
      EXPECT_EQ(job(name(i))["phase"], "running");
    }
  }
  EXPECT_GE(slept, 2);
  EXPECT_LT(slept, 4);
  for (int i = 0; i < 4; i++)
    if (asleep[static_cast<std::size_t>(i)])
      call("resume name=" + name(i));
  for (int i = 0; i < 4; i++)
    expect_right(i);
}

// Every write beyond the limit on file sizes fails, as on a broken or full disk.
TEST_F(Sleep, AWriteThatFailsLosesNothing) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{8u << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  restart("32M", "40M", "1G");
  setrlimit(RLIMIT_FSIZE, &before);
  start_workers(4);
  std::vector<int> asleep;
  for (int i = 0; i < 4; i++)
    if (call_service(dir_ + "/admin", "suspend name=" + name(i) + " timeout_ms=3000", 150000))
      asleep.push_back(i);
  EXPECT_GE(asleep.size(), 2u);
  for (int i : asleep)
    call("resume name=" + name(i));
  for (int i = 0; i < 4; i++)
    expect_right(i);
}

TEST_F(Sleep, AProcessThatDiesWhileItsMemoryMovesLeavesNothingBehind) {
  restart("32M", "48M", "1G");
  start_workers(5);
  for (int i = 0; i < 5; i++) {
    call("suspend name=" + name(i));
    if (i % 2)
      workers_[static_cast<std::size_t>(i - 1)]->kill_now();  // just when the next one pushes it
  }
  for (int i = 0; i < 5; i += 2)
    call("remove name=" + name(i));
  for (int i = 1; i < 5; i += 2) {
    call("resume name=" + name(i));
    expect_right(i);
    call("remove name=" + name(i));
  }
  EXPECT_TRUE(eventually([&] {
    const auto s = call("status");
    return s.lines[0].at("free") == s.lines[0].at("bytes") && lower("file_used") == 0 &&
           lower("memory_used") == 0;
  }));
}

TEST_F(Sleep, SwapsWithASleeperOnDisk) {
  restart("32M", "32M", "1G");
  start_workers(4);
  for (int i = 0; i < 3; i++)
    call("suspend name=" + name(i));
  int inside = 3;
  for (int round = 0; round < 6; round++) {
    const int next = round % 3;
    if (next == inside)
      continue;
    call("swap out=" + name(inside) + " in=" + name(next) + " allowance=268435456");
    inside = next;
  }
  for (int i = 0; i < 4; i++)
    if (job(name(i))["phase"] == "suspended")
      call("resume name=" + name(i));
  for (int i = 0; i < 4; i++)
    expect_right(i);
}

// A job that was resumed before is expected again: it moves back up when the arena has space.
TEST_F(Sleep, AJobThatIsResumedOftenIsBroughtUpAgain) {
  restart("48M", "48M", "1G");
  start_workers(4);
  call("suspend name=" + name(0));
  call("resume name=" + name(0));
  for (int i = 0; i < 4; i++)
    call("suspend name=" + name(i));
  EXPECT_TRUE(eventually([&] { return number(0, "file") > 0; }));
  for (int i = 1; i < 4; i++) {
    call("resume name=" + name(i));
    expect_right(i);
    call("remove name=" + name(i));
  }
  EXPECT_TRUE(eventually([&] { return number(0, "file") == 0; }));
  call("resume name=" + name(0));
  expect_right(0);
}

TEST_F(Sleep, AnUnusableDirectoryIsReportedAndTheRestWorks) {
  service_.reset();
  arena_ = "64M";
  more_ = {"--sleep-memory", "96M", "--sleep-dir", "/proc/no-such", "--sleep-disk", "1G"};
  start_service();
  EXPECT_EQ(lower("file"), 0u);
  start_workers(1);
  call("suspend name=" + name(0));
  call("resume name=" + name(0));
  expect_right(0);
}

}  // namespace
