// What a cloud's metadata says, and what it does not. The protocol itself is in
// tests/e2e/pools/reclaim_test.py.
#include "agent/node/reclaim_watch.h"

#include <gtest/gtest.h>

namespace billow::agent {
namespace {

TEST(ReclaimNotice, OfAwsIsAnActionAndNothingElse) {
  EXPECT_FALSE(aws_notice(404, "not found"));
  EXPECT_FALSE(aws_notice(200, "<html>a proxy's page</html>"));
  EXPECT_FALSE(aws_notice(401, R"({"action":"stop"})"));
  EXPECT_EQ(aws_notice(200, R"({"action":"stop","time":"2030-01-01T00:00:00Z"})"),
            "AWS takes it back (stop at 2030-01-01T00:00:00Z)");
}

TEST(ReclaimNotice, OfGcpLeavesMovesAlone) {
  EXPECT_FALSE(gcp_notice("FALSE", "NONE"));
  EXPECT_FALSE(gcp_notice("", ""));
  EXPECT_FALSE(gcp_notice("FALSE", "MIGRATE_ON_HOST_MAINTENANCE"));
  EXPECT_TRUE(gcp_notice("TRUE\n", "NONE"));
  EXPECT_TRUE(gcp_notice("FALSE", "TERMINATE_ON_HOST_MAINTENANCE"));
}

TEST(ReclaimNotice, OfAzureIsForTheNamedMachine) {
  const auto events = [](const char* type, const char* name) {
    return *parse_json(std::string(R"({"Events":[{"EventType":")") + type + R"(","Resources":[")" +
                       name + R"("],"NotBefore":""}]})");
  };
  EXPECT_TRUE(azure_notice(events("Preempt", "vm-1"), "vm-1"));
  EXPECT_TRUE(azure_notice(events("Terminate", "vm-1"), "vm-1"));
  EXPECT_FALSE(azure_notice(events("Preempt", "vm-2"), "vm-1"));
  EXPECT_FALSE(azure_notice(events("Freeze", "vm-1"), "vm-1"));
  EXPECT_FALSE(azure_notice(*parse_json(R"({"Events":[]})"), "vm-1"));
  EXPECT_FALSE(azure_notice(*parse_json(R"([1,2])"), "vm-1"));
}

}  // namespace
}  // namespace billow::agent
