#include "gateway/pure/trace_context.h"

#include <gtest/gtest.h>

namespace billow::gateway {
namespace {

constexpr char given[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, ReadsWhatTheStandardAllowsAndNothingElse) {
  const auto read = parse_traceparent(given);
  ASSERT_TRUE(read);
  EXPECT_EQ(trace_id_text(*read), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(span_id_text(read->parent), "00f067aa0ba902b7");
  EXPECT_TRUE(read->sampled);
  const std::string text = given;
  EXPECT_TRUE(parse_traceparent("01" + text.substr(2) + "-more"));
  EXPECT_FALSE(parse_traceparent(text + "-more"));
  EXPECT_FALSE(parse_traceparent("ff" + text.substr(2)));
  EXPECT_FALSE(parse_traceparent(text.substr(0, 54)));
  EXPECT_FALSE(parse_traceparent("00-" + std::string(32, '0') + text.substr(35)));
  EXPECT_FALSE(parse_traceparent(text.substr(0, 36) + std::string(16, '0') + "-01"));
  EXPECT_FALSE(parse_traceparent("00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(parse_traceparent(""));
}

TEST(TraceContext, ACallersTraceGoesOnAndAnotherBegins) {
  Tracer tracer(7, 0);
  const TraceContext on = tracer.begin(given);
  EXPECT_EQ(traceparent(on).substr(0, 36), std::string(given).substr(0, 36));
  EXPECT_TRUE(on.sampled);
  EXPECT_NE(on.span, on.call);
  EXPECT_EQ(traceparent(on).substr(36, 16), span_id_text(on.call));
  const TraceContext fresh = tracer.begin("nonsense");
  EXPECT_FALSE(fresh.sampled);
  EXPECT_EQ(fresh.parent, 0);
  EXPECT_NE(fresh.trace, on.trace);
}

TEST(TraceContext, ThePartThatIsSampled) {
  Tracer tracer(7, 0.25);
  int sampled = 0;
  for (int i = 0; i < 10'000; ++i)
    sampled += tracer.begin("").sampled ? 1 : 0;
  EXPECT_NEAR(sampled, 2500, 200);
}

}  // namespace
}  // namespace billow::gateway
