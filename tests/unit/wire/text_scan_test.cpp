// Scanning by vectors finds exactly what looking at each byte finds.
#include "core/wire/text_scan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"

namespace billow::wire {
namespace {

// Text of few letters, so that beginnings of matches are everywhere; in memory of exactly its size.
std::string any_text(Rng& rng, std::size_t size) {
  std::string text(size, ' ');
  for (char& c : text)
    c = "aabAB\n\xff"[rng.below(7)];
  text.shrink_to_fit();
  return text;
}

TEST(TextScan, FindsWhatFindFinds) {
  Rng rng(7);
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = any_text(rng, rng.below(300));
    std::string needle = any_text(rng, 1 + rng.below(rng.below(4) == 0 ? 90 : 5));
    const std::size_t from = rng.below(text.size() + 3);
    ASSERT_EQ(Needle(needle).find(text, from), text.find(needle, from))
        << "round " << round << " from " << from;
  }
}

TEST(TextScan, FindsAtTheVeryEnd) {
  for (std::size_t size = 1; size < 200; ++size) {
    std::string text(size, 'x');
    text.back() = 'q';
    EXPECT_EQ(Needle("q").find(text, 0), size - 1);
    EXPECT_EQ(Needle("xq").find(text, 0), size < 2 ? std::string::npos : size - 2);
    EXPECT_EQ(Needle(text).find(text, 0), 0u);
    EXPECT_EQ(Needle(text + "x").find(text, 0), std::string::npos);
  }
}

TEST(TextScan, CountsAndFoldsEachByte) {
  Rng rng(8);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = any_text(rng, round < 100 ? rng.below(20'000) : rng.below(100));
    ASSERT_EQ(count_newlines(text),
              static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')));
    std::string folded = "left over";
    fold_case(text, folded);
    ASSERT_EQ(folded, lower(text));
  }
  std::string every(256, ' ');
  for (int c = 0; c < 256; ++c)
    every[static_cast<std::size_t>(c)] = static_cast<char>(c);
  std::string folded;
  fold_case(every, folded);
  EXPECT_EQ(folded, lower(every));
}

}  // namespace
}  // namespace billow::wire
