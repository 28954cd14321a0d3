// Helpers that take too long: given up with what they were doing, and only then.
#include "agent/isolate/helper.h"

#include <gtest/gtest.h>

namespace billow::agent {
namespace {

Helper shell(const std::string& script) {
  Helper out;
  out.argv = {"/bin/sh", "-c", script};
  out.env = {"PATH=/usr/bin:/bin"};
  out.what = "image docker.io/x";
  out.line = [](std::string_view) {
  };
  return out;
}

TEST(Helper, OneThatSaysNothingForTooLongIsGivenUpWithAWord) {
  Helper helper = shell("echo begun; exec sleep 600");
  helper.quiet_max = milliseconds(300);
  const auto code = run_helper(helper);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().code, Code::timed_out);
  EXPECT_NE(code.error().message.find("image docker.io/x was given up: no progress for"),
            std::string::npos)
      << code.error().message;
}

TEST(Helper, ProgressIsLifeByItsLinesOrByWhatIsCounted) {
  // Far longer in all than the patience for silence; each pause is far shorter, also on a machine
  // that is busy.
  Helper lines = shell("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done; exit 3");
  lines.quiet_max = seconds(3);
  EXPECT_EQ(run_helper(lines).value_or(-1), 3);
  Helper counted = shell("sleep 4; exit 4");
  counted.quiet_max = seconds(3);
  std::uint64_t count = 0;
  counted.progress = [&] {
    return ++count;
  };
  EXPECT_EQ(run_helper(counted).value_or(-1), 4);
}

TEST(Helper, ThereIsAnEndToProgressToo) {
  Helper helper = shell("while true; do echo more; sleep 0.1; done");
  helper.quiet_max = seconds(60);
  helper.within = milliseconds(500);
  const auto code = run_helper(helper);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().code, Code::timed_out);
  EXPECT_NE(code.error().message.find("was given up after"), std::string::npos)
      << code.error().message;
}

TEST(Helper, WhatItStartedDoesNotKeepItWaitedFor) {
  Helper helper = shell("sleep 600 & exec sleep 600");  // both hold the pipe
  helper.quiet_max = milliseconds(300);
  EXPECT_FALSE(run_helper(helper));
}

}  // namespace
}  // namespace billow::agent
