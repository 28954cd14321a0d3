#include <gtest/gtest.h>

#include "client/fleet/top_view.h"
#include "client/frame/progress.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

Json piece(const char* text) {
  return *parse_json(text);
}
std::vector<std::string> lines(const TopView& view, TopView::Size size = {24, 80}) {
  std::vector<std::string> out(1);
  const std::string frame = view.frame(size, {1'000'000'000'000'000}, false);
  for (std::size_t i = 0; i < frame.size(); ++i) {
    if (frame.compare(i, 3, "\x1b[K") == 0)
      i += 2;
    else if (frame[i] == '\n')
      out.emplace_back();
    else if (frame[i] != '\r')
      out.back() += frame[i];
  }
  return out;
}
TopView two_jobs() {
  TopView view;
  view.take(piece(
      R"({"nodes":[{"id":1,"name":"box","state":"ready","cpu_milli":8000,"gpus":[{"type":"H100",
    "mem_mib":81920},{"type":"H100","mem_mib":81920,"unhealthy":"XID 79"}]}],
    "jobs":[{"id":7,"label":"7","name":"small","user":"ana","state":"running","gpu_milli":500,
    "started":999000000,"cost_nano":100,"rate_nano":1000000,"at":999000000,"where":[[1,0]]},
            {"id":8,"label":"8","name":"large\u001b[2J","user":"bob","state":"queued",
    "gpu_milli":8000,"submitted":999900000,"where":[]}],
    "gpus":[[1,0,500,1,40960,300,60,100,[7]],[1,1,500,1,40960,300,60,0,[7]]],"summary":{"gpus":2,
    "gpus_free_milli":500,"running":1,"queued":1,"spend_nano":1000000,"idle_nano":1000000,
    "idle_jobs":[7]}})"));
  return view;
}

TEST(TopView, FitsAnyTerminalExactly) {
  const TopView view = two_jobs();
  for (const TopView::Size size :
       {TopView::Size{24, 80}, TopView::Size{8, 40}, TopView::Size{60, 200}}) {
    const auto shown = lines(view, size);
    EXPECT_EQ(shown.size(), static_cast<std::size_t>(size.rows));
    for (const std::string& line : shown)
      EXPECT_LE(display_width(line), static_cast<std::size_t>(size.cols)) << line;
  }
}
TEST(TopView, SaysWhoHoldsWhatAndWhatIsWrong) {
  std::string all;
  for (const std::string& line : lines(two_jobs()))
    all += line + "\n";
  EXPECT_NE(all.find("0.50 of 2 GPUs free"), std::string::npos) << all;
  EXPECT_NE(all.find("$3.60/h idle"), std::string::npos) << all;
  EXPECT_NE(all.find("ana small (idle)"), std::string::npos) << all;
  EXPECT_NE(all.find("ana small  XID 79"), std::string::npos) << all;
  EXPECT_EQ(all.find("\x1b[2J"), std::string::npos) << "a name must not move the cursor";
}
TEST(TopView, TimeSuspendedIsNotTimeRun) {
  TopView view;
  // It ran for 60 s, was suspended for 100 s, and runs again since 5 s; the other is suspended
  // since 7 s.
  view.take(piece(
      R"({"jobs":[{"id":7,"label":"7","name":"a","user":"ana","state":"running",
    "started":999835000,"since":999995000,"ran":60000,"suspended":100000,"where":[]},
    {"id":8,"label":"8","name":"b","user":"bob","state":"suspended","started":999000000,
    "since":999993000,"ran":500000,"suspended":0,"where":[]}]})"));
  std::string all;
  for (const std::string& line : lines(view))
    all += line + "\n";
  EXPECT_NE(all.find(" 1m05s "), std::string::npos) << all;
  EXPECT_NE(all.find(" 7s "), std::string::npos) << all;
}
TEST(TopView, KeysSortFilterAndLeave) {
  TopView view = two_jobs();
  const auto first = [&] {
    for (const std::string& line : lines(view))
      if (line.starts_with("7 ") || line.starts_with("8 "))
        return line.substr(0, 1);
    return std::string("-");
  };
  EXPECT_EQ(first(), "8");
  view.key("r");
  EXPECT_EQ(first(), "7");
  view.key("r");
  for (int i = 0; i < 3; ++i)
    view.key("s");
  EXPECT_EQ(first(), "7") << "by cost";
  for (const char* key : {"/", "l", "a", "r", "x", "\x7f", "\r"})
    EXPECT_FALSE(view.key(key));
  EXPECT_EQ(first(), "8");
  EXPECT_FALSE(view.key("\x1b"));
  view.key("i");
  EXPECT_EQ(first(), "7") << "only the idle one";
  view.take(piece(R"({"gone":[7]})"));
  EXPECT_EQ(first(), "-");
  EXPECT_TRUE(view.key("q"));
}

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
