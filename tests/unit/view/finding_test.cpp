#include <gtest/gtest.h>

#include <cmath>

#include "view/finding.h"

namespace billow::view {
namespace {

JobSeries series(double util,
                 double cores,
                 double read_kib_s,
                 double mem_mib,
                 int points = 40,
                 double sm = std::nan("")) {
  JobSeries out({0});
  for (int i = 0; i < points; ++i) {
    JobSample s;
    s.fill(std::nan(""));
    s[col_gpu_util] = util * 10;
    s[col_sm_active] = sm * 10;
    s[col_cpu] = cores * 1000;
    s[col_read] = read_kib_s;
    s[col_gpu_mem] = mem_mib;
    out.add({i * 2'000'000'000ll}, s);
  }
  return out;
}
std::string kinds(const std::vector<Finding>& found) {
  std::string out;
  for (const Finding& f : found)
    out += f.kind + " ";
  return out;
}

TEST(Findings, AGpuThatWaitsForAFullCpuIsInputBound) {
  const auto found = findings(series(30, 3.9, 0, 60'000), 4, 80'000);
  ASSERT_EQ(kinds(found), "input_bound ");
  EXPECT_NE(found[0].text.find("30 %"), std::string::npos);
  EXPECT_NE(found[0].text.find("3.9 of 4.0 cores"), std::string::npos);
}
TEST(Findings, AGpuThatWaitsForReadingIsInputBound) {
  EXPECT_EQ(kinds(findings(series(30, 1, 300 * 1024, 60'000), 16, 80'000)), "input_bound ");
}
TEST(Findings, ABusyGpuIsNot) {
  EXPECT_EQ(kinds(findings(series(95, 4, 300 * 1024, 60'000), 4, 80'000)), "");
}
TEST(Findings, AHalfBusyGpuWithRoomEverywhereIsNot) {
  EXPECT_EQ(kinds(findings(series(40, 1, 10, 60'000), 16, 80'000)), "");
}
TEST(Findings, NothingHappensAtAll) {
  EXPECT_EQ(kinds(findings(series(0, 0, 0, 60'000), 4, 80'000)), "idle ");
}
TEST(Findings, MuchMemoryIsUnused) {
  EXPECT_EQ(kinds(findings(series(95, 1, 0, 9'000), 4, 80'000)), "memory_headroom ");
}
TEST(Findings, ASliceIsAdvisedOnlyWhereItsEnginesAndItsMemoryWouldDo) {
  const auto hint = [](const JobSeries& s, int cards = 1) {
    const auto found = findings(s, 16, 80'000, cards);
    return found.empty() ? std::string() : found.back().hint;
  };
  EXPECT_NE(hint(series(22, 1, 0, 9'000)).find("--gpus 0.25"), std::string::npos);
  EXPECT_NE(hint(series(45, 1, 0, 9'000)).find("--gpus 0.5 "), std::string::npos)
      << "the memory would fit a smaller one, the work would not";
  EXPECT_EQ(hint(series(55, 1, 0, 9'000)).find("--gpus"), std::string::npos);
  EXPECT_NE(hint(series(55, 1, 0, 9'000, 40, 18)).find("--gpus 0.2 "), std::string::npos)
      << "busy by the driver's word, 18 % of its SMs";
  EXPECT_EQ(hint(series(22, 1, 0, 9'000), 4).find("--gpus"), std::string::npos)
      << "several cards were asked for with a reason";
}
TEST(Findings, AFewPointsSayNothing) {
  EXPECT_EQ(kinds(findings(series(30, 4, 0, 1, 5), 4, 80'000)), "");
}

}  // namespace
}  // namespace billow::view
