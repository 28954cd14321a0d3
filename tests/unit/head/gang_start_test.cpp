#include "head/secrets/gang_start.h"

#include <set>

#include <gtest/gtest.h>

namespace billow::head {
namespace {

wire::agent_v1::Start started(const char* key, int job) {
  wire::agent_v1::Start start;
  start.gang = true;
  start.env["BILLOW_ATTEMPT"] = "1";
  start.env["MASTER_PORT"] = std::to_string(20000 + 2 * job);
  complete_gang_start(key, start);
  return start;
}
std::string port(const char* key, int job) {
  return started(key, job).env["MASTER_PORT"];
}

TEST(GangStart, TwoInstallationsOnOneNodeMeetAtDifferentPorts) {
  EXPECT_EQ(port("a", 1), port("a", 1)) << "all members, also after a restart of the head";
  EXPECT_NE(port("a", 1), port("b", 1));
  EXPECT_NE(started("a", 1).env["BILLOW_GANG_KEY"], started("b", 1).env["BILLOW_GANG_KEY"]);
}

TEST(GangStart, JobsOfOneInstallationKeepDifferentPortsInTheDocumentedRange) {
  std::set<std::string> seen;
  for (int job = 0; job < 6000; ++job) {
    const std::string text = port("some key", job);
    const int number = std::stoi(text);
    EXPECT_GE(number, 20000);
    EXPECT_LT(number, 32000);
    EXPECT_EQ(number % 2, 0) << "the next port is the barrier's";
    EXPECT_TRUE(seen.insert(text).second);
  }
}

TEST(GangStart, JobsWithoutAPortGetNone) {
  wire::agent_v1::Start start;
  complete_gang_start("a", start);
  EXPECT_TRUE(start.env.empty());
}

}  // namespace
}  // namespace billow::head
