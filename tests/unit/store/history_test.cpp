#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <filesystem>

#include "base/limits.h"
#include "store/sqlite/history.h"

namespace billow {
namespace {

struct Folder {
  std::string path = ::testing::TempDir() + "/history_" + std::to_string(::getpid()) + "_" +
                     ::testing::UnitTest::GetInstance()->current_test_info()->name();
  Folder() { std::filesystem::remove_all(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};
GpuSampleRow all(double value) {
  GpuSampleRow row;
  row.fill(value);
  return row;
}
constexpr std::int64_t second = 1'000'000'000;
// The beginning of a day-long slot close to now, so that rings reach back from the machine's own
// clock.
WallTime today() {
  return {system_clock().wall().ns / (900 * second) * (900 * second)};
}

TEST(PackedNumber, IsExactBelow2048AndCloseAbove) {
  for (int n = 0; n < 2048; ++n)
    EXPECT_EQ(unpack_number(pack_number(n)), n);
  EXPECT_TRUE(std::isnan(unpack_number(pack_number(-1))));
  EXPECT_TRUE(std::isnan(unpack_number(pack_number(std::nan("")))));
  EXPECT_GT(unpack_number(pack_number(1e30)), 1e12);
  rc::check("within a thousandth up to 2^40", [](std::uint32_t a, std::uint8_t shift) {
    const double value = static_cast<double>(a) * std::pow(2.0, shift % 9);
    const double back = unpack_number(pack_number(value));
    RC_ASSERT(std::abs(back - value) <= std::max(0.5, value / 1000));
  });
}

TEST(JobSeries, KeepsAnyLengthInItsPointsWithTheMean) {
  JobSeries series({0});
  const std::int64_t days = 5;
  JobSample sample;
  sample.fill(std::nan(""));
  for (std::int64_t s = 0; s < days * 86400; s += 10) {
    sample[col_gpu_util] = s % 20 == 0 ? 0 : 1000;  // half the time busy
    series.add({s * second}, sample);
  }
  EXPECT_LE(series.size(), limits::history_job_points_max);
  EXPECT_GT(series.size(), limits::history_job_points_max / 2 - 2);
  EXPECT_NEAR(series.mean()[col_gpu_util], 500, 2);
  EXPECT_TRUE(std::isnan(series.mean()[col_cpu])) << "unknown is never zero";
  EXPECT_GE(series.step().ns * static_cast<std::int64_t>(series.size()), days * 86400 * second);
  EXPECT_LT(series.encode().size(), 4000u) << "a job must fit a page";
}

TEST(JobSeries, ComesBackFromItsText) {
  rc::check("decode(encode(s)) has the points of s", [] {
    JobSeries series({1000 * second});
    std::int64_t at = 1000 * second;
    for (int i = *rc::gen::inRange(0, 400); i > 0; --i) {
      at += *rc::gen::inRange<std::int64_t>(1, 60) * second;
      JobSample sample;
      for (double& v : sample)
        v = *rc::gen::inRange(-1, 3000);
      series.add({at}, sample);
    }
    const auto back = JobSeries::decode(series.encode());
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->size() == series.size());
    for (std::size_t i = 0; i < series.size(); ++i)
      for (std::size_t c = 0; c < job_column_count; ++c) {
        const double a = series.point(i)[c], b = back->point(i)[c];
        RC_ASSERT(std::isnan(a) == std::isnan(b));
        RC_ASSERT(std::isnan(a) || std::abs(a - b) <= std::max(0.5, a / 1000));
      }
  });
}

TEST(JobSeries, RefusesDamage) {
  JobSeries series({0});
  series.add({second}, JobSample{});
  const std::string text = series.encode();
  for (std::size_t n = 0; n < text.size(); ++n)
    EXPECT_FALSE(JobSeries::decode(text.substr(0, n))) << n;
  EXPECT_FALSE(JobSeries::decode("\x02" + text.substr(1)));
  // Times that would overflow as soon as a sample is added.
  for (const std::int64_t begin : {std::int64_t{-1}, INT64_MIN, INT64_MAX})
    EXPECT_FALSE(JobSeries::decode(JobSeries({begin}).encode())) << begin;
  std::string slow = text;
  slow.replace(9, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");
  EXPECT_FALSE(JobSeries::decode(slow));
}

TEST(History, TellsWhatHappenedAtEachGrain) {
  Folder folder;
  auto history = History::open(folder.path);
  ASSERT_TRUE(history);
  const WallTime end = today(), begin{end.ns - 3 * 3600 * second};
  for (std::int64_t s = 0; s < 3 * 3600; s += 10)
    ASSERT_TRUE(
        (*history)->add({begin.ns + s * second}, {{"n1/a", all(s < 2 * 3600 ? 100 : 300)}}));
  const auto fine = (*history)->read("n1/a", {end.ns - 600 * second}, {end.ns - 10 * second}, 1000);
  ASSERT_TRUE(fine);
  EXPECT_EQ(fine->step.ns, 10 * second);
  for (const auto& point : fine->points)
    EXPECT_EQ(point[gpu_util], 300);
  // Further back than the finest ring reaches: minutes, and beyond a day quarter hours, which are
  // the means of the finer ones.
  const auto minutes = (*history)->read("n1/a", begin, {end.ns - 10 * second}, 1000);
  ASSERT_TRUE(minutes);
  EXPECT_EQ(minutes->step.ns, 60 * second);
  EXPECT_EQ(minutes->points.front()[gpu_util], 100);
  EXPECT_EQ(minutes->points.back()[gpu_util], 300);
  const auto quarters =
      (*history)->read("n1/a", {end.ns - 20 * 86400 * second}, {end.ns - 10 * second}, 5000);
  ASSERT_TRUE(quarters);
  EXPECT_EQ(quarters->step.ns, 900 * second);
  EXPECT_EQ(quarters->points.back()[gpu_util], 300);
  EXPECT_TRUE(std::isnan(quarters->points.front()[gpu_util]));
  const auto few = (*history)->read("n1/a", begin, {end.ns - 10 * second}, 20);
  ASSERT_TRUE(few);
  EXPECT_LE(few->points.size(), 21u);
  // A point that is known in part says so: its mean must not count for the whole of it.
  const auto last = (*history)->read("n1/a", {end.ns - 600 * second}, {end.ns + 300 * second}, 2);
  ASSERT_TRUE(last);
  double known = 0;
  for (double each : last->known_s)
    known += each;
  EXPECT_GE(known, 600);
  EXPECT_LT(known, last->step.seconds() * static_cast<double>(last->points.size()));
  const auto nobody = (*history)->read("n2/b", begin, end, 10);
  ASSERT_TRUE(nobody);
  for (const auto& point : nobody->points)
    EXPECT_TRUE(std::isnan(point[gpu_util]));
}

// A sum is a mean times the time it is known for, so a coarse point must not stand for more time
// than its finer ones, however far back the reader looks.
TEST(History, AYoungSeriesIsKnownForAsLongAsItExistsAtEachGrain) {
  Folder folder;
  auto history = History::open(folder.path);
  ASSERT_TRUE(history);
  // Half of it early in the quarter of an hour, half of it late, with other values.
  const WallTime quarter{today().ns - 900 * second};
  for (std::int64_t s = 0; s < 120; s += 10)
    ASSERT_TRUE((*history)->add({quarter.ns + s * second}, {{"endpoint a", all(1000)}}));
  for (std::int64_t s = 870; s < 900; s += 10)
    ASSERT_TRUE((*history)->add({quarter.ns + s * second}, {{"endpoint a", all(200)}}));
  for (const std::int64_t back_s : {1800, 6 * 3600, 20 * 86400}) {
    const WallTime from{quarter.ns - back_s * second}, to{quarter.ns + 900 * second};
    for (const std::size_t points : {2000u, 40u, 1u}) {
      const auto read = (*history)->read("endpoint a", from, to, points);
      ASSERT_TRUE(read);
      double known = 0, sum = 0;
      for (std::size_t i = 0; i < read->points.size(); ++i) {
        known += read->known_s[i];
        if (!std::isnan(read->points[i][0]))
          sum += read->points[i][0] * read->known_s[i];
      }
      EXPECT_EQ(known, 150) << back_s << " s in " << points << " points";
      EXPECT_NEAR(sum, 120 * 1000 + 30 * 200, 150) << back_s << " s in " << points << " points";
    }
  }
}

TEST(History, SurvivesARestartAndForgetsWhatTheRingHasOverwritten) {
  Folder folder;
  const WallTime end = today();
  {
    auto history = History::open(folder.path);
    ASSERT_TRUE(history);
    ASSERT_TRUE((*history)->add({end.ns - 100 * 86400 * second}, {{"n1/a", all(7)}}));
    ASSERT_TRUE((*history)->add({end.ns - 60 * second}, {{"n1/a", all(9)}}));
    JobSeries series({end.ns - 60 * second});
    series.add({end.ns - 58 * second}, JobSample{});
    ASSERT_TRUE((*history)->save_jobs({{JobId(5), series.encode()}}));
  }
  auto history = History::open(folder.path);
  ASSERT_TRUE(history);
  const auto read = (*history)->read("n1/a", {end.ns - 120 * second}, end, 100);
  ASSERT_TRUE(read);
  int known = 0;
  for (const auto& point : read->points) {
    if (std::isnan(point[gpu_util]))
      continue;
    ++known;
    EXPECT_EQ(point[gpu_util], 9);
  }
  EXPECT_EQ(known, 1);
  const auto job = (*history)->job(JobId(5));
  ASSERT_TRUE(job && *job);
  EXPECT_EQ((*job)->size(), 2u);
  const auto missing = (*history)->job(JobId(6));
  ASSERT_TRUE(missing);
  EXPECT_FALSE(missing->has_value());
}

TEST(History, TheOldestJobsGoWhenThereAreTooMany) {
  Folder folder;
  const std::string text = JobSeries({0}).encode();
  std::vector<History::JobRecord> all;
  for (std::size_t i = 1; i <= limits::history_jobs_max; ++i)
    all.push_back({JobId(i), text});
  {
    auto history = History::open(folder.path);
    ASSERT_TRUE(history && (*history)->save_jobs(all));
    // One that is saved again is no new one.
    ASSERT_TRUE((*history)->save_jobs({{JobId(7), text}}));
    EXPECT_TRUE((*history)->job(JobId(1))->has_value());
  }
  auto history = History::open(folder.path);
  ASSERT_TRUE(history && (*history)->save_jobs({{JobId(limits::history_jobs_max + 1), text},
                                                {JobId(limits::history_jobs_max + 2), text}}));
  EXPECT_FALSE((*history)->job(JobId(1))->has_value());
  EXPECT_FALSE((*history)->job(JobId(2))->has_value());
  EXPECT_TRUE((*history)->job(JobId(3))->has_value());
  EXPECT_TRUE((*history)->job(JobId(limits::history_jobs_max + 2))->has_value());
}

TEST(History, BeginsAnewOnADamagedFile) {
  Folder folder;
  std::filesystem::create_directories(folder.path);
  FILE* f = std::fopen((folder.path + "/jobs.db").c_str(), "w");
  std::fputs("this is no database, by any measure; it is long enough to be looked at", f);
  std::fclose(f);
  auto history = History::open(folder.path);
  ASSERT_TRUE(history) << history.error().message;
  EXPECT_TRUE((*history)->save_jobs({{JobId(1), JobSeries({0}).encode()}}));
}

}  // namespace
}  // namespace billow
