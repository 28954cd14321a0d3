// What log streams and terminals share: sizes of windows, and the tasks of each attempt.
#include <gtest/gtest.h>

#include "api/log_pull.h"

namespace billow::api::streams {
namespace {

using Size = TerminalWindows::Size;

TEST(TerminalWindows, ATerminalIsAsLargeAsItsSmallestWindow) {
  TerminalWindows windows;
  const TaskId terminal(7);
  const int one = 0, two = 0;
  EXPECT_EQ(windows.set(terminal, &one, {24, 90}), (Size{24, 90}));
  EXPECT_EQ(windows.set(terminal, &two, {30, 120}), std::nullopt);
  EXPECT_EQ(windows.set(terminal, &two, {20, 130}), (Size{20, 90}));
  EXPECT_EQ(windows.set(TaskId(8), &two, {10, 10}), (Size{10, 10}));
  EXPECT_EQ(windows.remove(terminal, &two), (Size{24, 90}));
  EXPECT_EQ(windows.remove(terminal, &two), std::nullopt);
  EXPECT_EQ(windows.remove(terminal, &one), std::nullopt);  // nobody looks: it stays as it is
  EXPECT_EQ(windows.set(terminal, &one, {24, 90}), (Size{24, 90}));
  EXPECT_EQ(windows.set(terminal, &one, {24, 90}), std::nullopt);
  windows.missed(terminal);
  EXPECT_EQ(windows.set(terminal, &one, {24, 90}), (Size{24, 90})) << "it is told again";
}

LeaseRow lease(std::uint64_t task, std::int64_t from, std::int64_t to) {
  LeaseRow row;
  row.task = TaskId(task);
  row.from = WallTime{from};
  row.to = WallTime{to};
  row.open = to == 0;
  return row;
}

std::vector<std::vector<std::uint64_t>> attempts(const std::vector<LeaseRow>& leases,
                                                 std::uint64_t nodes) {
  std::vector<std::vector<std::uint64_t>> out;
  for (const auto& attempt : places_by_attempt(control::State{}, leases, nodes)) {
    out.emplace_back();
    for (const TaskPlace& place : attempt)
      out.back().push_back(place.task.value);
  }
  return out;
}

TEST(Attempts, ATaskThatWasSuspendedHasSeveralLeases) {
  EXPECT_EQ(attempts({lease(3, 10, 20), lease(3, 20, 30), lease(3, 30, 40), lease(5, 41, 0)}, 1),
            (std::vector<std::vector<std::uint64_t>>{{3}, {5}}));
}

TEST(Attempts, AGangHasOneTaskPerNodeAndAReplacedMemberIsOfTheSameAttempt) {
  EXPECT_EQ(attempts({lease(1, 10, 20), lease(2, 10, 20), lease(3, 30, 60), lease(4, 30, 40),
                      lease(5, 45, 60), lease(6, 61, 0), lease(7, 61, 0)},
                     2),
            (std::vector<std::vector<std::uint64_t>>{{1, 2}, {3, 4, 5}, {6, 7}}));
}

TEST(Attempts, LeasesWithoutLengthDoNotSplitAGang) {
  EXPECT_EQ(attempts({lease(1, 10, 10), lease(2, 10, 10), lease(3, 10, 10), lease(4, 10, 10)}, 2),
            (std::vector<std::vector<std::uint64_t>>{{1, 2}, {3, 4}}));
}

}  // namespace
}  // namespace billow::api::streams
