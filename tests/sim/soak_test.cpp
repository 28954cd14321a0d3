// A head's memory and journal do not grow with the jobs that have ended. `./dev sim --jobs
// 10000000` runs more of them.
#include "soak.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/limits.h"
#include "base/log.h"

namespace billow::sim {
namespace {

TEST(Soak, MemoryAndJournalStayFlatHoweverManyJobsHaveEnded) {
  configure_log({.level = LogLevel::error});
  std::string dir = (std::filesystem::temp_directory_path() / "billow-soak-XXXXXX").string();
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  std::vector<SoakFigures> seen;
  const Status done = soak(
      {.jobs = 40'000, .data_dir = dir, .report_every = 4'000, .report = [&](const SoakFigures& f) {
         seen.push_back(f);
       }});
  std::filesystem::remove_all(dir);
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(seen.size(), 10u);
  // What is kept by count (documents of ended jobs, series, bills) is full by the half.
  const SoakFigures &half = seen[4], &last = seen.back();
  EXPECT_LT(last.resident_kib, half.resident_kib * 11 / 10 + 8192);
  EXPECT_LT(last.snapshot_bytes, half.snapshot_bytes * 11 / 10 + 65536);
  EXPECT_GT(last.journal_ever, 3 * limits::snapshot_every_events);
  EXPECT_LT(last.records, 3 * limits::snapshot_every_events);
}

}  // namespace
}  // namespace billow::sim
