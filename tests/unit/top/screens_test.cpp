// Whole screens, compared character by character with files. To write them anew after a wanted
// change: BILLOW_UPDATE_SCREENS=1 test_top --gtest_filter='TopScreens.*', then look at the diff.
#include <gtest/gtest.h>

#include <cstdlib>

#include <fmt/format.h>

#include "base/file.h"
#include "world.h"

namespace billow::client::top {
namespace {

constexpr Size sizes[] = {{24, 80}, {43, 132}, {80, 300}};

void expect_screen(const std::string& name, const State& state) {
  const std::string path =
      fmt::format("{}/{}-{}x{}.txt", BILLOW_SCREENS, name, state.size.cols, state.size.rows);
  const std::string shown = text(state);
  if (std::getenv("BILLOW_UPDATE_SCREENS")) {
    ASSERT_TRUE(write_file_atomic(path, shown, 0644, false));
    return;
  }
  const auto wanted = read_file(path, 1 << 20);
  ASSERT_TRUE(wanted) << path;
  EXPECT_EQ(shown, *wanted) << name;
}

TEST(TopScreens, EachTabAtThreeSizes) {
  const char* const names[] = {"gpus", "jobs", "queue", "endpoints", "money"};
  for (const Size size : sizes)
    for (int tab = 0; tab < tab_count; ++tab) {
      State state = world(size);
      press(state, std::string(1, static_cast<char>('1' + tab)));
      expect_screen(names[tab], state);
    }
}

TEST(TopScreens, NodesDescribeLogWatchAndHelp) {
  for (const Size size : sizes) {
    State state = world(size);
    press(state, "n");
    expect_screen("nodes", state);
    press(state, "n");
    press(state, KeyName::enter);
    expect_screen("describe-gpu", state);
    press(state, KeyName::escape);
    press(state, "l");
    expect_screen("log", state);
    press(state, "w");
    press(state, "");
    expect_screen("watch", state);
    press(state, "?");
    expect_screen("help", state);
  }
}

TEST(TopScreens, WithoutUtf8) {
  State state = world({24, 80});
  state.utf8 = false;
  expect_screen("ascii", state);
  for (const std::string& line : lines(state))
    for (const char c : line)
      EXPECT_TRUE(c >= 32 && c < 127) << line;
}

}  // namespace
}  // namespace billow::client::top
