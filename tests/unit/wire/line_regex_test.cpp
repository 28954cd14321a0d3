// Regular expressions over lines: the same answers as the C library's on what both take, and
// bounded work on what would take that one for ever.
#include "core/wire/line_regex.h"

#include <gtest/gtest.h>
#include <regex.h>

#include "base/rng.h"

namespace billow::wire {
namespace {

bool has(std::string_view expression, std::string_view line, bool any_case = false) {
  auto regex = LineRegex::compile(expression, any_case);
  if (!regex) {
    ADD_FAILURE() << expression << ": " << regex.error().message;
    return false;
  }
  const auto found = regex->find(line, 0);
  EXPECT_TRUE(found) << expression;
  return found && *found != std::string_view::npos;
}
bool library_has(const std::string& expression, const std::string& line) {
  regex_t regex;
  EXPECT_EQ(::regcomp(&regex, expression.c_str(), REG_EXTENDED | REG_NOSUB), 0) << expression;
  const bool found = ::regexec(&regex, line.c_str(), 0, nullptr, 0) == 0;
  ::regfree(&regex);
  return found;
}

// Without anchors in repeats, where the library is wrong: it finds (^a*$){2} in "a".
std::string random_expression(Rng& rng, int depth, bool anchors) {
  std::string out;
  const auto parts = 1 + rng.below(3);
  for (std::uint64_t i = 0; i < parts; ++i) {
    const bool anchored = anchors && rng.below(2) == 0;
    switch (rng.below(depth == 0 ? 5 : anchored ? 9 : 7)) {
      case 0:
        out += 'a';
        break;
      case 1:
        out += 'b';
        break;
      case 2:
        out += '.';
        break;
      case 3:
        out += "[ab]";
        break;
      case 4:
        out += "[^a]";
        break;
      case 5:
        out += "(" + random_expression(rng, depth - 1, anchored) + "|" +
               random_expression(rng, depth - 1, anchored) + ")";
        break;
      case 7:
        out += "(^" + random_expression(rng, depth - 1, anchored) + ")";
        break;
      case 8:
        out += "(" + random_expression(rng, depth - 1, anchored) + "$)";
        break;
      default:
        out += "(" + random_expression(rng, depth - 1, anchored) + ")";
    }
    const char* repeats[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}"};
    if (!anchored)
      out += repeats[rng.below(std::size(repeats))];
  }
  return out;
}

TEST(LineRegex, AgreesWithTheLibrary) {
  Rng rng(7);
  int matched = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string expression = random_expression(rng, 2, round % 2 == 0);
    std::string line;
    for (std::uint64_t i = rng.below(8); i > 0; --i)
      line += "abc"[rng.below(3)];
    const bool expected = library_has(expression, line);
    matched += expected;
    // A line of no bytes is one only if something ends it.
    ASSERT_EQ(has(expression, line + "\n"), expected) << expression << " in \"" << line << "\"";
    if (!line.empty()) {
      ASSERT_EQ(has(expression, line), expected) << expression << " in \"" << line << "\"";
    }
  }
  EXPECT_GT(matched, 2'000);
  EXPECT_LT(matched, 18'000);
}

TEST(LineRegex, FindsTheLine) {
  auto regex = LineRegex::compile("^step \\d+5$", false);
  ASSERT_TRUE(regex);
  const std::string text = "step 4\nstep 15\nx step 25\nstep 55";
  EXPECT_EQ(regex->find(text, 0).value(), 7u);
  EXPECT_EQ(regex->find(text, 15).value(), text.size() - 7);
  EXPECT_EQ(regex->find(text, text.size()).value(), std::string_view::npos);
}

TEST(LineRegex, CharactersAndClasses) {
  EXPECT_TRUE(has("caf.$", "café"));
  EXPECT_TRUE(has("^é{2}$", "éé"));
  EXPECT_TRUE(has("[äö]x", "öx"));
  EXPECT_FALSE(has("^[äö]$", "ü"));
  EXPECT_TRUE(has("[^ab]b",
                  "\xff"
                  "b"));
  EXPECT_TRUE(has("loss=\\d+\\.\\d{2}", "loss=12.34"));
  EXPECT_FALSE(has("loss=\\d+\\.\\d{2}", "loss=12.3"));
  EXPECT_TRUE(has("\\w+\\s\\S+", "a_1 -"));
  EXPECT_FALSE(has("\\D", "123"));
  EXPECT_TRUE(has("[[:upper:]]{3}", "xABC"));
  EXPECT_TRUE(has("[]x]", "]"));
  EXPECT_TRUE(has("[a-]", "-"));
  EXPECT_TRUE(has("{\"loss\"", "{\"loss\": 1}"));
  EXPECT_TRUE(has("a{,2}", "a{,2}"));
  EXPECT_TRUE(has("ERROR|warn[^:]", "an error", true));
  EXPECT_TRUE(has("[^A]", "b", true));
  EXPECT_FALSE(has("[^A]", "a", true));
  EXPECT_TRUE(has("(?:a|b)+?c", "abc"));
  EXPECT_FALSE(has("a+?c", "c"));
  EXPECT_TRUE(has("$^", "\n"));
  EXPECT_TRUE(has("", "x"));
}

TEST(LineRegex, RefusesWithTheReason) {
  for (const char* bad : {"(", ")", "a)", "[", "[a", "[[:no:]]", "*a", "a|*", "\\", "\\b", "\\1",
                          "(?=a)", "a{2,1}", "a{1001}", "[b-a]", "[^é]", "((a{200}){200}){200}"}) {
    const auto regex = LineRegex::compile(bad, false);
    ASSERT_FALSE(regex) << bad;
    EXPECT_NE(regex.error().message.find("expression"), std::string::npos) << bad;
  }
  EXPECT_FALSE(LineRegex::compile(std::string(100, '(') + std::string(100, ')'), false));
}

// Those that take a backtracking matcher, or the C library's, minutes.
TEST(LineRegex, BoundsItsWork) {
  const std::string line(8u << 20, 'a');
  EXPECT_FALSE(has("(a|aa)*b", line));
  EXPECT_FALSE(has("(a*)*b", line));
  EXPECT_FALSE(has("(.*)(.*)(.*)(.*)x", line));
  // Every set of places is a state of its own: too many to make, and refused.
  auto regex = LineRegex::compile("a[ab]{900}c", false);
  ASSERT_TRUE(regex);
  Rng rng(3);
  std::string mixed;
  for (int i = 0; i < 1 << 20; ++i)
    mixed += "ab"[rng.below(2)];
  const auto found = regex->find(mixed, 0);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("takes too long"), std::string::npos);
}

}  // namespace
}  // namespace billow::wire
