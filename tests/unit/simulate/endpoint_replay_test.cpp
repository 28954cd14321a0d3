// The replay: better than Knative's algorithm and than a fixed fleet on both axes, on made-up
// bursts always and on the published traces where they are at hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/file.h"
#include "base/rng.h"
#include "simulate/endpoint_replay.h"
#include "simulate/knative.h"

namespace billow::gateway {
namespace {

constexpr double targets[] = {0.5, 0.6, 0.7, 0.85, 1.0};

// With cold starts as they are, from one replica and with some in existence: better on both axes
// than each of five. As if starts were as quick as wakes, so that nothing but the algorithms
// differ: never worse for the requests, and cheaper than each that serves nineteen of twenty in
// time. A fixed fleet as good is dearer, whatever its size.
void better_on_both_axes(const std::vector<TraceCall>& trace) {
  for (const auto& [quick, existing] :
       {std::pair(false, 1u), std::pair(false, 8u), std::pair(true, 1u)}) {
    ReplayOptions options;
    options.existing = existing;
    if (quick)
      options.model.start_s = options.model.wake_s;
    const ReplayResult ours = replay(trace, options);
    EXPECT_EQ(ours.dropped, 0u);
    EXPECT_EQ(ours.requests, trace.size());
    options.scaling = Scaling::knative;
    options.knative_start_s = options.model.start_s;
    for (double target : targets) {
      SCOPED_TRACE(fmt::format("knative at {}, {} exist, starts in {} s", target, existing,
                               options.knative_start_s));
      options.knative_utilization = target;
      const ReplayResult theirs = replay(trace, options);
      EXPECT_GE(ours.slo_pct(), theirs.slo_pct());
      if (!quick || theirs.slo_pct() >= 95) {
        EXPECT_LT(ours.gpu_s, theirs.gpu_s);
      }
    }
    options.scaling = Scaling::fixed;
    for (options.fixed_replicas = 1; options.fixed_replicas <= 16; ++options.fixed_replicas) {
      if (existing > 1)
        options.existing = options.fixed_replicas;
      const ReplayResult fixed = replay(trace, options);
      if (fixed.slo_pct() < ours.slo_pct())
        continue;
      EXPECT_LT(ours.gpu_s, fixed.gpu_s)
          << "a fixed fleet of " << options.fixed_replicas << " is as good and cheaper";
      break;
    }
  }
}

TEST(Replay, OneRequestAloneTakesItsPrefillAndAStepToTheFirstToken) {
  ReplayOptions options;
  const ReplayResult r = replay({{10, 800, 100}}, options);
  EXPECT_NEAR(r.first_token_p50_s,
              800 / options.model.prefill_tokens_s + options.model.step_ms / 1000, 1e-6);
  EXPECT_EQ(r.in_time, 1u);
}

TEST(Replay, AFixedFleetHoldsItsGpusFromBeginningToEnd) {
  ReplayOptions options;
  options.scaling = Scaling::fixed;
  options.fixed_replicas = 3;
  const ReplayResult r = replay({{0, 0, 1}, {100, 0, 1}}, options);
  EXPECT_NEAR(r.gpu_s, 3 * 100.03, 0.01);
}

TEST(Replay, AFleetTooSmallMissesItsObjective) {
  std::vector<TraceCall> trace;
  for (int i = 0; i < 2000; ++i)
    trace.push_back({i * 0.1, 500, 300});
  ReplayOptions options;
  options.scaling = Scaling::fixed;
  options.fixed_replicas = 1;
  EXPECT_LT(replay(trace, options).slo_pct(), 20);
  options.fixed_replicas = 30;
  options.existing = options.fixed_replicas;
  EXPECT_EQ(replay(trace, options).slo_pct(), 100);
}

TEST(Knative, AveragesPanicsAndKeepsItsGrace) {
  KnativeScaler k(7);
  for (int i = 0; i < 60; ++i)
    k.sample(i, 14);
  EXPECT_EQ(k.decide(60, 2), 2u);
  for (int i = 60; i < 66; ++i)
    k.sample(i, 70);
  EXPECT_EQ(k.decide(66, 2), 10u)
      << "panic: the six-second average asks for five times what is ready";
  for (int i = 66; i < 100; ++i)
    k.sample(i, 0);
  EXPECT_EQ(k.decide(100, 10), 10u) << "no scale-down while panicking";
  for (int i = 100; i < 200; ++i)
    k.sample(i, 0);
  EXPECT_EQ(k.decide(200, 10), 5u) << "at most halved at a time";
  EXPECT_EQ(k.decide(202, 1), 1u) << "grace before zero";
  EXPECT_EQ(k.decide(240, 1), 0u);
}

TEST(Replay, BetterOnBothAxesOnBursts) {
  Rng rng(42);
  std::vector<TraceCall> trace;
  double t = 0;
  while (t < 1800) {
    const double rate = 2 + 6 * (static_cast<int>(t / 120) % 3 == 1 ? 1.0 : 0.2);
    t += -std::log(1 - static_cast<double>(rng.below(1'000'000)) / 1e6) / rate;
    trace.push_back({t, static_cast<std::uint32_t>(rng.below(2000)),
                     static_cast<std::uint32_t>(1 + rng.below(400))});
  }
  better_on_both_axes(trace);
}

TEST(Replay, BetterOnBothAxesOnThePublishedTraces) {
  const char* dir = std::getenv("BILLOW_DATA_DIR");
  if (!dir)
    GTEST_SKIP() << "BILLOW_DATA_DIR names no folder with traces_llm";
  for (const char* name : {"conv", "code"}) {
    SCOPED_TRACE(name);
    const auto trace = read_llm_trace(std::string(dir) +
                                      "/traces_llm/AzureLLMInferenceTrace_2023_" + name + ".csv");
    ASSERT_TRUE(trace) << trace.error().message;
    better_on_both_axes(*trace);
  }
}

TEST(Replay, AnInvalidTraceIsRefusedWithItsLine) {
  const std::string path = ::testing::TempDir() + "/trace.csv";
  ASSERT_TRUE(write_file_atomic(
      path,
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,1,2\nnonsense,1,2\n",
      0600));
  const auto trace = read_llm_trace(path);
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("line 3"), std::string::npos);
  ASSERT_TRUE(write_file_atomic(path,
                                "2023-11-16 18:17:03.9799600,1,2\n\n"
                                "2023-11-16 18:17:04.9799600,1,many\n"));
  const auto tokens = read_llm_trace(path);
  ASSERT_FALSE(tokens);
  EXPECT_NE(tokens.error().message.find("line 3"), std::string::npos) << tokens.error().message;
  ASSERT_TRUE(
      write_file_atomic(path,
                        "{\"timestamp\": 2000, \"input_length\": 5, \"output_length\": 7}\n"
                        "{\"timestamp\": 1000, \"input_length\": 5, \"output_length\": 7}\n"));
  const auto unsorted = read_llm_trace(path);
  ASSERT_FALSE(unsorted);
  EXPECT_NE(unsorted.error().message.find("line 2 is earlier"), std::string::npos);
}

}  // namespace
}  // namespace billow::gateway
