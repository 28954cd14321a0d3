#include <gtest/gtest.h>

#include <cmath>

#include "client/top/canvas.h"
#include "client/top/charts.h"
#include "client/top/columns.h"
#include "client/top/log_pane.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

TEST(TopCanvas, ClipsAtItsEdgesAndKeepsWideCharactersWhole) {
  Canvas canvas({2, 6}, true);
  canvas.put(0, 0, "abcdefgh");
  EXPECT_EQ(canvas.line(0), "abcde…");
  canvas.put(1, 0, "日本語");
  EXPECT_EQ(canvas.line(1), "日本語");
  canvas.put(1, 1, "x");  // half of the first character is gone
  EXPECT_EQ(canvas.line(1), " x本語");
  EXPECT_EQ(canvas.put(1, 5, "日"), 1) << "a wide character does not fit into one column";
  EXPECT_EQ(display_width(canvas.line(1)), 6u);
  EXPECT_EQ(canvas.put(5, 0, "x") + canvas.put(0, 9, "x") + canvas.put(-1, -1, "x"), 0);
}

TEST(TopCanvas, AsciiOnlyAndNoControlCharacters) {
  Canvas canvas({1, 20}, false);
  canvas.put(0, 0, "a×b\x1b[2J …é");
  EXPECT_EQ(canvas.line(0), "axb?[2J ~?");
}

TEST(TopCanvas, WithoutColoursOnlyBoldAndReverse) {
  Canvas canvas({1, 4}, true);
  canvas.put(0, 0, "ab", {Colour::red, true, true});
  EXPECT_EQ(canvas.painted_line(0, true), "\x1b[0;1;7;31mab\x1b[0m");
  EXPECT_EQ(canvas.painted_line(0, false), "\x1b[0;1;7mab\x1b[0m");
}

TEST(TopCharts, UnknownStaysEmptyAndLittleIsVisible) {
  const double nan = std::nan("");
  const std::vector<double> values = {nan, 0, 1, 50, 100};
  EXPECT_EQ(sparkline(values, 6, 100, true), "  ▁▁▄█");
  EXPECT_EQ(sparkline(values, 2, 100, false), "-#");
  EXPECT_EQ(bar(0.5, 4, true), "██  ");
  EXPECT_EQ(bar(2, 4, false), "####");
  EXPECT_EQ(bar(nan, 2, false), "..");
  EXPECT_TRUE(std::isnan(range_of(std::vector<double>{nan}).mean));
}

TEST(TopCharts, BrailleHasTwoByFourDots) {
  const std::vector<double> values = {0, 25, 50, 100};
  const auto rows = area_chart(values, 2, 1, 100, true);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0], "⢀⣼");
  const auto tall = area_chart(values, 4, 2, 100, false);
  EXPECT_EQ(tall[0], "   #");
  EXPECT_EQ(tall[1], " .##");
}

TEST(TopColumns, FiguresAreNeverCut) {
  const std::vector<Column> columns = {
      {"NAME", false, 4}, {"COST", true, 0, 1}, {"RATE", true, 0, 2}, {"PAST", false, 4, 3, 20}};
  const std::vector<int> wanted = {10, 6, 8, 0};
  for (int width = 1; width < 80; ++width) {
    int end = 0;
    for (const PlacedColumn& p : place_columns(columns, wanted, width)) {
      EXPECT_GE(p.col, end);
      end = p.col + p.width + 1;
      EXPECT_LE(p.col + p.width, width);
      if (p.column == 1 || p.column == 2) {
        EXPECT_EQ(p.width, wanted[static_cast<std::size_t>(p.column)]) << width;
      }
    }
  }
  EXPECT_EQ(place_columns(columns, wanted, 12).size(), 2u);
  EXPECT_EQ(place_columns(columns, wanted, 80).back().width, 20);
}

TEST(TopWords, AreShort) {
  EXPECT_EQ(lasting(65'000), "1m05s");
  EXPECT_EQ(lasting(90'000'000), "1d01h");
  EXPECT_EQ(gpus_text(500), "0.50");
  EXPECT_EQ(gpus_text(0), "-");
  EXPECT_EQ(gibibytes(1536), "1.5G");
  EXPECT_EQ(gibibytes(81920), "80G");
}

TEST(TopLog, ShowsProgressBarsAsTheyLastStood) {
  LogLines log;
  log.take("\r 10%|#         |\r 15%|#5");
  log.take("        |");
  EXPECT_EQ(log.size(), 1);
  EXPECT_EQ(log.at(0), " 15%|#5        |");
  const auto progress = progress_in(log);
  ASSERT_TRUE(progress);
  EXPECT_DOUBLE_EQ(progress->part, 0.15);
}

TEST(TopLog, DropsEscapesAndKeepsLinesEndingInCrLf) {
  LogLines log;
  log.take("\x1b[31mred\x1b[0m\tx\r\n\x1b]0;title\x07plain\xff\n\x1b(Bz");
  ASSERT_EQ(log.size(), 3);
  EXPECT_EQ(log.at(0), "red     x");
  EXPECT_EQ(log.at(1), "plain\xEF\xBF\xBD");
  EXPECT_EQ(log.at(2), "z");
}

TEST(TopLog, IsBoundedAndSaysWhatItDropped) {
  LogLines log;
  for (int i = 0; i < static_cast<int>(log_lines_max) + 50; ++i)
    log.take("line\n");
  EXPECT_EQ(log.size(), static_cast<int>(log_lines_max));
  EXPECT_EQ(log.dropped(), 50u);
  log.clear();
  log.take(std::string(1 << 20, 'x'));
  EXPECT_EQ(log.size(), static_cast<int>((1 << 20) / log_line_bytes_max));
}

TEST(TopLog, FindsInBothDirectionsAndAround) {
  LogLines log;
  log.take("one\nTwo\nthree\ntwo again\n");
  EXPECT_EQ(log.find("two", 0, true), 1);
  EXPECT_EQ(log.find("two", 2, true), 3);
  EXPECT_EQ(log.find("two", 2, false), 1);
  EXPECT_EQ(log.find("one", 2, true), 0);
  EXPECT_FALSE(log.find("nothing", 0, true));
}

TEST(TopLog, FindsProgressInCountsButNotInDatesAndPaths) {
  const auto part = [](const char* line) {
    LogLines log;
    log.take(line);
    const auto found = progress_in(log);
    return found ? found->part : -1;
  };
  EXPECT_DOUBLE_EQ(part("step 30/200 loss=0.9"), 0.15);
  EXPECT_DOUBLE_EQ(part("Epoch: 3/10, saved to /data/1/2"), 0.3);
  EXPECT_DOUBLE_EQ(part("[50/100] done"), 0.5);
  EXPECT_DOUBLE_EQ(part("started on 11/16/2026"), -1);
  EXPECT_DOUBLE_EQ(part("wrote /data/3/4"), -1);
  EXPECT_DOUBLE_EQ(part("step 5/3"), -1);
}

TEST(TopLog, RowsAreNeverWiderThanTheScreen) {
  for (const std::string& row : rows_of_line("日本語 and more text than fits", 5))
    EXPECT_LE(display_width(row), 5u);
  EXPECT_EQ(rows_of_line("", 10).size(), 1u);
}

}  // namespace
}  // namespace billow::client::top
