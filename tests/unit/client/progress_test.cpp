#include <gtest/gtest.h>

#include "client/frame/progress.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

TEST(Progress, SaysHowFarHowFastAndHowLong) {
  ProgressState s{.what = "upload",
                  .done = 50 << 20,
                  .total = 200 << 20,
                  .unit = ProgressUnit::bytes,
                  .per_second = 10 << 20,
                  .elapsed = seconds(5)};
  const std::string line = progress_line(s, 100);
  EXPECT_NE(line.find("15 s left"), std::string::npos) << line;
  EXPECT_NE(line.find("/s"), std::string::npos) << line;
  EXPECT_NE(line.find("[======="), std::string::npos) << line;
  for (std::size_t columns = 10; columns < 120; ++columns)
    EXPECT_LE(display_width(progress_line(s, columns)), columns);
  EXPECT_NE(progress_line({.what = "wait", .elapsed = seconds(75)}, 80).find("1 min 15 s"),
            std::string::npos);
  EXPECT_NE(progress_line({.what = "array", .done = 3, .total = 10, .note = "2 running"}, 80)
                .find("3 of 10, 2 running"),
            std::string::npos);
}

}  // namespace
}  // namespace billow::client
