// Logs as the head keeps them: offsets, the limit, damage.
#include "files/log_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/rng.h"

namespace billow::files {
namespace {

constexpr std::uint64_t no_limit = UINT64_MAX;

struct LogFileTest : testing::Test {
  LogFileTest() {
    char name[] = "/tmp/billow-log-XXXXXX";
    directory = ::mkdtemp(name);
    path = directory + "/7.log";
  }
  ~LogFileTest() override { (void)remove_tree(directory); }
  // All of it, block by block, as a reader does.
  std::string read_from(std::uint64_t offset) const {
    std::string out;
    for (;;) {
      const auto block = read_log_block(path, offset);
      if (!block || block->frames.empty())
        return out;
      const std::uint64_t from = std::max(offset, block->offset);
      out += block->frames.substr(from - block->offset);
      offset = block->offset + block->frames.size();
    }
  }
  std::string directory, path;
};

TEST_F(LogFileTest, ReadsFromAnyOffsetWhatWasAppended) {
  std::string whole;
  Rng rng(7);
  for (int i = 0; i < 200; ++i) {
    const std::string piece(rng.below(20'000) + 1, static_cast<char>('a' + i % 26));
    const auto span = append_log(path, whole.size(), piece, no_limit);
    ASSERT_TRUE(span) << span.error().message;
    whole += piece;
    EXPECT_EQ(span->end, whole.size());
  }
  EXPECT_EQ(read_from(0), whole);
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t offset = rng.below(whole.size());
    EXPECT_EQ(read_from(offset), whole.substr(offset));
  }
  EXPECT_EQ(read_from(whole.size() + 5), "");
  EXPECT_LT(log_span(path)->stored_bytes, whole.size() / 50) << "it is compressed";
}

TEST_F(LogFileTest, AScanThatUnpacksAheadReadsTheSame) {
  std::string whole;
  Rng rng(9);
  for (int i = 0; i < 60; ++i) {
    std::string piece(100'000 + rng.below(600'000), ' ');
    for (std::size_t at = 0; at < piece.size(); at += 1 + rng.below(50))
      piece[at] = static_cast<char>('a' + rng.below(26));
    ASSERT_TRUE(append_log(path, whole.size(), piece, no_limit));
    whole += piece;
  }
  LogScan scan(path, LogScan::Ahead::yes);
  // Readers go on, jump, and read a block twice.
  for (int jump = 0; jump < 30; ++jump) {
    std::uint64_t offset = jump == 0 ? 0 : rng.below(whole.size());
    for (std::uint64_t blocks = rng.below(jump == 0 ? 1 : 40) + (jump == 0 ? 1000 : 1);
         blocks > 0 && offset < whole.size(); --blocks) {
      const auto block = scan.read(offset);
      ASSERT_TRUE(block) << block.error().message;
      ASSERT_EQ(block->frames, whole.substr(block->offset, block->frames.size()));
      ASSERT_FALSE(block->frames.empty());
      if (rng.below(10) > 0 || jump == 0)
        offset = block->offset + block->frames.size();
    }
  }
}

TEST_F(LogFileTest, BeyondTheLimitTheOldestGoesAndTheOffsetSaysHowMuch) {
  for (std::uint64_t i = 0; i < 100; ++i)
    ASSERT_TRUE(append_log(path, i * 100'000, std::string(100'000, 'x'), 1'000'000));
  const auto span = log_span(path);
  ASSERT_TRUE(span);
  EXPECT_EQ(span->end, 10'000'000u);
  EXPECT_LE(span->end - span->first, 1'000'000u);
  EXPECT_GE(span->end - span->first, 800'000u);
  const auto block = read_log_block(path, 0);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->offset, span->first);
}

TEST_F(LogFileTest, AGapIsKeptAndNothingIsTakenTwice) {
  ASSERT_TRUE(append_log(path, 0, "first", no_limit));
  ASSERT_TRUE(append_log(path, 1000, "later", no_limit));
  EXPECT_EQ(read_log_block(path, 5)->offset, 1000u);
  EXPECT_FALSE(append_log(path, 1000, "later", no_limit));
  EXPECT_EQ(log_span(path)->end, 1005u);
}

TEST_F(LogFileTest, AHalfWrittenOrDamagedEndIsCutOff) {
  const std::string one(100'000, 'a'), two(100'000, 'b');
  ASSERT_TRUE(append_log(path, 0, one, no_limit));
  ASSERT_TRUE(append_log(path, one.size(), two, no_limit));
  const std::string good = *read_file(path);
  for (std::size_t cut = 1; cut < good.size(); cut += 7) {
    ASSERT_TRUE(write_file_atomic(path, good.substr(0, cut)));
    const auto span = log_span(path);
    ASSERT_TRUE(span);
    EXPECT_TRUE(span->end == 0 || span->end == one.size());
    ASSERT_TRUE(append_log(path, span->end, "more", no_limit));
    EXPECT_TRUE(read_from(0).ends_with("more"));
  }
}

TEST_F(LogFileTest, SurvivesAnyBytes) {
  Rng rng(11);
  ASSERT_TRUE(append_log(path, 0, std::string(90'000, 'a'), no_limit));
  ASSERT_TRUE(append_log(path, 90'000, std::string(90'000, 'b'), no_limit));
  const std::string good = *read_file(path);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (int n = 0; n < 4; ++n)
      bad[rng.below(bad.size())] = static_cast<char>(rng.below(256));
    ASSERT_TRUE(write_file_atomic(path, bad));
    (void)log_span(path);
    (void)read_log_block(path, rng.below(200'000));
    (void)read_log_block(path, UINT64_MAX);
  }
}

}  // namespace
}  // namespace billow::files
