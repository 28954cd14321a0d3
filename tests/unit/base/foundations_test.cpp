// The small types that everything else relies on: errors, times, ids, names, counts, the log.
#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <unordered_set>

#include "base/clock.h"
#include "base/enums.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/spoken_name.h"
#include "base/sync.h"

namespace billow {
namespace {

Result<int> doubled(Result<int> input) {
  const int value = BILLOW_TRY(std::move(input));
  return value * 2;
}

TEST(Results, ErrorsPassThroughWithTheirContext) {
  EXPECT_EQ(doubled(21), 42);
  const auto failed = doubled(fail(Code::not_found, "no job 7", "list them with billow ps"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::not_found);
  const Error outer = pass(failed.error(), "while stopping").error();
  EXPECT_EQ(outer.message, "while stopping: no job 7");
  EXPECT_EQ(outer.hint, "list them with billow ps") << "the hint survives";
}

TEST(Results, SystemErrorsHaveTheCodeTheirCallersHandle) {
  EXPECT_EQ(fail_errno("open", ENOENT).error().code, Code::not_found);
  EXPECT_EQ(fail_errno("open", EACCES).error().code, Code::forbidden);
  EXPECT_EQ(fail_errno("write", ENOSPC).error().code, Code::storage_full);
  EXPECT_EQ(fail_errno("connect", ECONNREFUSED).error().code, Code::unavailable);
  EXPECT_EQ(fail_errno("read", EIO).error().code, Code::internal);
  EXPECT_EQ(fail_errno("open", ENOENT).error().message, "open: No such file or directory");
}

TEST(Results, EveryCodeHasANameOfItsOwn) {
  std::unordered_set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::internal); ++code)
    EXPECT_TRUE(names.insert(code_name(static_cast<Code>(code))).second) << code;
}

TEST(Times, DurationsSaturateInsteadOfWrapping) {
  EXPECT_EQ(hours(INT64_MAX).ns, INT64_MAX);
  EXPECT_EQ(seconds(INT64_MIN).ns, -INT64_MAX);
  EXPECT_EQ(minutes(2), seconds(120));
  EXPECT_EQ(milliseconds(1'500).seconds(), 1.5);
  EXPECT_LT(seconds(-1), seconds(0));
}

TEST(Times, AreShownInUtc) {
  EXPECT_EQ(format_utc({}), "-");
  EXPECT_EQ(format_utc(WallTime{1} + seconds(0)), "1970-01-01T00:00:00Z");
  EXPECT_EQ(format_utc(WallTime{951'782'400'000'000'000}), "2000-02-29T00:00:00Z");
  EXPECT_EQ(format_utc(WallTime{4'102'444'799'999'999'999}), "2099-12-31T23:59:59Z");
}

TEST(Times, TheSystemClocksAdvance) {
  const SteadyTime before = system_clock().steady();
  std::this_thread::yield();
  EXPECT_GE(system_clock().steady(), before);
  EXPECT_GT(system_clock().wall(), WallTime{1'600'000'000'000'000'000});
}

TEST(Ids, ConsecutiveOnesSpreadOverAHashTable) {
  std::unordered_set<std::size_t> low_bits;
  for (std::uint64_t i = 1; i <= 1'000; ++i)
    low_bits.insert(std::hash<JobId>{}(JobId{i}) & 1'023);
  EXPECT_GT(low_bits.size(), 550u) << "random placement reaches about 640 of 1,024";
  EXPECT_FALSE(JobId{});
  EXPECT_LT(JobId{1}, JobId{2});
}

TEST(Rng, IsSplitMix64) {
  Rng rng(1234567);
  EXPECT_EQ(rng.next(), 6457827717110365317ull);
  EXPECT_EQ(rng.next(), 3203168211198807973ull);
}

TEST(Rng, StaysWithinItsBoundsAndReachesThem) {
  Rng rng(1);
  std::unordered_set<std::int64_t> seen;
  for (int i = 0; i < 1'000; ++i) {
    const auto value = rng.between(-2, 2);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 2);
    seen.insert(value);
    ASSERT_LT(rng.unit(), 1.0);
    ASSERT_EQ(rng.below(1), 0u);
  }
  EXPECT_EQ(seen.size(), 5u);
}

TEST(SpokenNames, MustNotLookLikeNumbers) {
  EXPECT_TRUE(check_spoken_name("job", "train-7"));
  EXPECT_TRUE(check_spoken_name("job", "7b"));
  for (const char* bad : {"12", "12.3", "", "-x", "a b", "ü"})
    EXPECT_FALSE(check_spoken_name("job", bad)) << bad;
  EXPECT_NE(check_spoken_name("endpoint", "12").error().message.find("an endpoint"),
            std::string::npos);
}

TEST(Histogram, CountsEachDurationOnceAndCumulates) {
  Histogram h;
  for (const Duration d : {microseconds(100), microseconds(101), seconds(1), hours(48)})
    h.add(d);
  EXPECT_EQ(h.up_to(0), 1u) << "a bound belongs to its own bucket";
  EXPECT_EQ(h.up_to(1), 2u);
  EXPECT_EQ(h.up_to(8), 3u);
  EXPECT_EQ(h.up_to(15), 3u) << "two days exceed the last bound";
  EXPECT_EQ(h.count(), 4u);
  EXPECT_DOUBLE_EQ(h.sum, 0.0001 + 0.000101 + 1 + 172'800);
}

TEST(Sync, GivesTheValueToOneThreadAtATime) {
  Sync<int> counter(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i)
        ++*counter.lock();
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(*counter.lock(), 40'000);
}

class Log : public testing::Test {
 protected:
  void TearDown() override { configure_log({}); }
};

TEST_F(Log, LinesBelowTheLevelAreNotWritten) {
  configure_log({.level = LogLevel::warn, .json = false, .component = "head"});
  testing::internal::CaptureStderr();
  log_info("not shown {}", 1);
  log_warn("shown {}", 2);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("not shown"), std::string::npos);
  EXPECT_NE(text.find("warn  head: shown 2\n"), std::string::npos) << text;
}

TEST_F(Log, NobodyForgesALineOrSpeaksToATerminal) {
  configure_log({.level = LogLevel::info, .json = false, .component = "head"});
  testing::internal::CaptureStderr();
  log_line(LogLevel::warn, "GET /1\n2026 info head: all is well\x1b[2J", {{"path", "a\nb"}});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_NE(text.find("/1\\x0a2026"), std::string::npos) << text;
}

TEST_F(Log, AJsonLineIsOneObjectWithItsFields) {
  configure_log({.level = LogLevel::info, .json = true, .component = "agent"});
  testing::internal::CaptureStderr();
  log_line(LogLevel::error, "line\nbreak \"quoted\"", {{"request_id", "r-1"}});
  const std::string text = testing::internal::GetCapturedStderr();
  ASSERT_EQ(text.find('\n'), text.size() - 1) << "exactly one line";
  const auto line = parse_json(text).value();
  EXPECT_EQ(line["level"].str_or(""), "error");
  EXPECT_EQ(line["component"].str_or(""), "agent");
  EXPECT_EQ(line["message"].str_or(""), "line\nbreak \"quoted\"");
  EXPECT_EQ(line["request_id"].str_or(""), "r-1");
}

}  // namespace
}  // namespace billow
