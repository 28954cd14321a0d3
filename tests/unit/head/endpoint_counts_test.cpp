// The sums of what gateways count: whatever dies, they do not fall.
#include "head/gateways/counts.h"

#include <gtest/gtest.h>

namespace billow::head {
namespace {

gateway::EndpointFigures report(std::uint64_t requests, std::uint64_t failed = 0) {
  gateway::EndpointFigures out;
  out.name = "chat";
  out.requests = requests;
  out.failed = failed;
  for (std::uint64_t i = 0; i < requests; ++i) {
    out.first_byte.add(milliseconds(3));
    out.first_byte_native.add(milliseconds(3));
  }
  return out;
}

gateway::EndpointFigures sum(const EndpointCounts& counts) {
  gateway::EndpointFigures out;
  out.name = "chat";
  counts.add_up(out);
  return out;
}

TEST(EndpointCounts, AGatewayThatGoesLeavesItsCounts) {
  EndpointCounts counts;
  counts.heard(report(10, 1), "a", true);
  counts.heard(report(5), "b", true);
  EXPECT_EQ(sum(counts).requests, 15u);
  // b never comes back; another one takes its place.
  counts.heard(report(2), "c", true);
  EXPECT_EQ(sum(counts).requests, 17u);
  EXPECT_EQ(sum(counts).failed, 1u);
  EXPECT_EQ(sum(counts).first_byte.count(), 17u);
  EXPECT_EQ(sum(counts).first_byte_native.count(), 17u);
}

TEST(EndpointCounts, AGatewayThatWasKilledContinuesFromWhatWasHeard) {
  EndpointCounts counts;
  counts.heard(report(100, 4), "a", true);
  counts.heard(report(110, 4), "a", false);
  // It has saved 105 of them, and counts two more; its histograms begin anew.
  gateway::EndpointFigures again = report(2);
  again.requests = 107;
  again.failed = 5;
  counts.heard(again, "a", true);
  EXPECT_EQ(sum(counts).requests, 110u);
  EXPECT_EQ(sum(counts).failed, 5u);
  EXPECT_EQ(sum(counts).first_byte.count(), 110u);
  again.requests = 109;
  counts.heard(again, "a", false);
  EXPECT_EQ(sum(counts).requests, 112u);
}

TEST(EndpointCounts, AHeadThatBeginsKnowsThoseThatHaveGone) {
  Endpoint endpoint{.name = "chat"};
  endpoint.counts = {{.endpoint = "chat", .gateway = "gone", .requests = 7},
                     {.endpoint = "chat", .gateway = "a", .requests = 20}};
  EndpointCounts counts;
  counts.restore(endpoint);
  EXPECT_EQ(sum(counts).requests, 27u) << "before any gateway has connected";
  counts.heard(report(25), "a", true);
  EXPECT_EQ(sum(counts).requests, 32u);
}

TEST(EndpointCounts, OnlyWhatIsNewIsRecorded) {
  EndpointCounts counts;
  counts.heard(report(3), "a", true);
  counts.heard(report(9), "b", true);
  ASSERT_EQ(counts.news("a").size(), 1u);
  EXPECT_TRUE(counts.news("a").empty());
  counts.heard(report(3), "a", false);
  EXPECT_TRUE(counts.news("a").empty());
  counts.heard(report(4), "a", false);
  ASSERT_EQ(counts.news("a").size(), 1u);
  counts.forget("chat");
  EXPECT_EQ(sum(counts).requests, 0u);
}

}  // namespace
}  // namespace billow::head
