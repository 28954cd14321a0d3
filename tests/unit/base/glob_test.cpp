// The semantics of path patterns are compared with git's in tests/unit/files/ignore_test.cpp.
#include "base/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace billow {
namespace {

TEST(PathGlob, StarsStopAtSlashes) {
  EXPECT_TRUE(PathGlob("*.py").matches("a.py"));
  EXPECT_FALSE(PathGlob("*.py").matches("a/b.py"));
  EXPECT_TRUE(PathGlob("a/*/c").matches("a/b/c"));
  EXPECT_FALSE(PathGlob("a/*/c").matches("a/b/b/c"));
  EXPECT_FALSE(PathGlob("a?b").matches("a/b"));
  EXPECT_FALSE(PathGlob("a[^x]b").matches("a/b"));
}

TEST(PathGlob, TwoStarsMatchAnyDirectories) {
  EXPECT_TRUE(PathGlob("**/c").matches("c"));
  EXPECT_TRUE(PathGlob("**/c").matches("a/b/c"));
  EXPECT_FALSE(PathGlob("**/c").matches("a/bc"));
  EXPECT_TRUE(PathGlob("a/**").matches("a/b/c"));
  EXPECT_TRUE(PathGlob("a/**/c").matches("a/c"));
  EXPECT_TRUE(PathGlob("a/**/c").matches("a/b/b/c"));
  EXPECT_FALSE(PathGlob("a/**/c").matches("ac"));
  EXPECT_FALSE(PathGlob("a/b**c").matches("a/b/c"));
}

TEST(PathGlob, BracketsHaveRangesClassesAndNegation) {
  EXPECT_TRUE(PathGlob("[a-c]x").matches("bx"));
  EXPECT_FALSE(PathGlob("[!a-c]x").matches("bx"));
  EXPECT_TRUE(PathGlob("[]x]").matches("]"));
  EXPECT_TRUE(PathGlob("[a-]").matches("-"));
  EXPECT_TRUE(PathGlob("[[:digit:]_][[:upper:]]").matches("7Q"));
  EXPECT_FALSE(PathGlob("[[:digit:]]").matches("a"));
  EXPECT_TRUE(PathGlob("[\\]]").matches("]"));
  for (const char* malformed : {"[", "[a", "[[:nothing:]]", "a\\", "[\\", "[a-"})
    for (const char* text : {"", "a", "[", "[a", "\\", "a\\"})
      EXPECT_FALSE(PathGlob(malformed).matches(text)) << malformed << " " << text;
}

// A matcher that goes back to each star in turn needs more than 10^8 steps for these.
TEST(PathGlob, WorkIsBoundedByTheProductOfTheLengths) {
  const std::string name(60, 'a'), path = [] {
    std::string out;
    for (int i = 0; i < 40; ++i)
      out += "a/";
    return out + "a";
  }();
  const std::pair<std::string, std::string> cases[] = {
      {"*a*a*a*a*a*a*b", name},
      {"**/a/**/a/**/a/**/a/**/a/**/a/**/b", path},
      {"*[a-z]*?*a*?*[!b]*a*a*b", name},
      {std::string(500, '*') + "b", name},
  };
  for (const auto& [pattern, text] : cases) {
    std::size_t steps = 0;
    EXPECT_FALSE(PathGlob(pattern).matches(text, &steps)) << pattern;
    EXPECT_LE(steps, pattern.size() * text.size()) << pattern;
    EXPECT_GT(steps, 0u);
  }
}

TEST(StarMatches, OnlyStarsAreSpecial) {
  EXPECT_TRUE(star_matches("model.layers.*.mlp", "model.layers.3.mlp"));
  EXPECT_TRUE(star_matches("*mlp*", "a.mlp"));
  EXPECT_TRUE(star_matches("", ""));
  EXPECT_FALSE(star_matches("a?c", "abc"));
  EXPECT_FALSE(star_matches("[ab]", "a"));
  EXPECT_TRUE(star_matches("*b", "*ab"));
  EXPECT_FALSE(star_matches("*a*a*a*a*a*a*b", std::string(60, 'a')));
}

}  // namespace
}  // namespace billow
