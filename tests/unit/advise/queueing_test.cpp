// Percentiles come from lengths and queueing: against formulas where there are some, and against
// the load tester's own counting of the same requests.
#include "advise/load/queueing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "advise/ask.h"
#include "advise/load/draws.h"
#include "advise/recommend.h"

namespace billow::advise {
namespace {

// One sequence at a time, and prompts that take no time: a queue with one server.
EngineTimes single_server(double step_ms) {
  EngineTimes e;
  e.decode_ms = {step_ms};
  e.sequences_max = 1;
  e.prefill_ms = 1e-6;
  return e;
}

TEST(Queueing, WaitsAsLongAsTheFormulaOfOneServerSays) {
  // Service always takes 99 steps of 1 ms (the first token comes with the prompt). At a load of
  // one half, Pollaczek and Khinchine give a mean wait of rho / (2 (1 - rho)) services.
  QueueLoad load{.rps = 0.5 / 0.099, .input = 10, .output = 100, .variation = {0, 0}};
  load.requests = 60000;
  const Tails t = simulate_queue(single_server(1), load);
  EXPECT_TRUE(t.keeps_up);
  EXPECT_NEAR(t.ttft_ms.mean, 0.5 / (2 * 0.5) * 99, 4);
  EXPECT_NEAR(t.tpot_ms.p99, 1, 1e-6);
  EXPECT_NEAR(t.concurrency, 0.5 + 0.5 * 0.5 / (2 * 0.5), 0.05);  // Little's law
  // Answers of random length make others wait longer: by 1 + variation².
  load.variation.output = 1;
  const Tails random = simulate_queue(single_server(1), load);
  EXPECT_NEAR(random.ttft_ms.mean / t.ttft_ms.mean, 2, 0.35);
}

TEST(Queueing, MoreLoadWaitsLongerAndTooMuchIsSaid) {
  EngineTimes e;
  for (int b = 1; b <= 64; ++b)
    e.decode_ms.push_back(10 + 0.2 * b);
  e.prefill_ms = 5;
  e.prefill_token_ms = 0.02;
  e.sequences_max = 64;
  for (const bool first : {false, true}) {
    e.prefill_first = first;
    double before = 0;
    for (const double rps : {1.0, 4.0, 8.0, 12.0}) {
      const Tails t = simulate_queue(e, {.rps = rps});
      EXPECT_GT(t.ttft_ms.p95, before) << rps;
      EXPECT_GE(t.ttft_ms.p99, t.ttft_ms.p95);
      EXPECT_GE(t.tpot_ms.p95, t.tpot_ms.p50);
      EXPECT_GE(t.tpot_ms.p50, 10);
      before = t.ttft_ms.p95;
    }
    EXPECT_FALSE(simulate_queue(e, {.rps = 200}).keeps_up);
    // Prompts that go first shorten the wait for the first token.
    EXPECT_EQ(simulate_queue(e, {.rps = 8}).ttft_ms.p95, simulate_queue(e, {.rps = 8}).ttft_ms.p95);
  }
}

TEST(Queueing, UsersInAClosedLoopAreAllServed) {
  EngineTimes e;
  e.decode_ms = {10, 11, 12, 13};
  e.sequences_max = 4;
  e.prefill_ms = 1;
  const Tails t = simulate_queue(e, {.users = 8, .variation = {0, 0}});
  EXPECT_NEAR(t.concurrency, 8, 0.2);
  // Half of the users wait while the others are answered: 255 steps of 13 ms.
  EXPECT_GT(t.ttft_ms.p50, 255 * 12);
  EXPECT_NEAR(t.tpot_ms.p50, 13, 0.5);
}

// An engine that answers over HTTP, in simulated time: it is written token by token, apart from
// queueing.cpp, and answers with the bytes that the load tester reads.
struct SimulatedEngine {
  double step_ms, step_sequence_ms, prefill_token_ms;
  std::size_t sequences_max;

  std::vector<Answered> serve(const std::vector<Arrival>& requests) const {
    struct Open {
      std::size_t request;
      int left;
      AnswerStream stream;
    };
    std::vector<Answered> answers(requests.size());
    std::vector<Open> open;
    std::size_t next = 0;
    double now_s = 0;
    while (next < requests.size() || !open.empty()) {
      if (open.empty() && next < requests.size())
        now_s = std::max(now_s, requests[next].at_s);
      const std::size_t decoding = open.size();
      double ms = 0;
      for (; next < requests.size() && requests[next].at_s <= now_s && open.size() < sequences_max;
           ++next) {
        ms += requests[next].input * prefill_token_ms;
        open.push_back({next, requests[next].output, {}});
      }
      if (decoding > 0)
        ms += step_ms + step_sequence_ms * static_cast<double>(decoding);
      now_s += ms / 1e3;
      std::vector<Open> still;
      for (auto& o : open) {
        o.stream.feed("data: {\"choices\":[{\"text\":\"word \"}]}\n\n", now_s);
        if (--o.left > 0) {
          still.push_back(std::move(o));
          continue;
        }
        o.stream.feed("data: [DONE]\n\n", now_s);
        o.stream.finish(now_s);
        const Arrival& r = requests[o.request];
        answers[o.request] = {.due_s = r.at_s,
                              .sent_s = r.at_s,
                              .first_s = o.stream.first_s(),
                              .end_s = now_s,
                              .last_s = o.stream.last_s(),
                              .input = r.input,
                              .tokens = o.stream.tokens(),
                              .streamed = o.stream.streamed()};
      }
      open = std::move(still);
    }
    return answers;
  }

  EngineTimes times() const {
    EngineTimes e;
    for (std::size_t b = 1; b <= sequences_max; ++b)
      e.decode_ms.push_back(step_ms + step_sequence_ms * static_cast<double>(b));
    e.prefill_token_ms = prefill_token_ms;
    e.chunk_tokens = 1e9;
    e.sequences_max = static_cast<int>(sequences_max);
    return e;
  }
};

TEST(Queueing, AgreesWithTheLoadTesterOnASimulatedEngine) {
  const SimulatedEngine engine{
      .step_ms = 8, .step_sequence_ms = 0.25, .prefill_token_ms = 0.05, .sequences_max = 32};
  for (const double rps : {2.0, 5.0, 8.0}) {
    // The load tester's arrivals, with lengths that vary.
    auto arrivals = random_arrivals(rps, 6000 / rps, 1, 1, 7);
    Draws draws{11};
    for (auto& a : arrivals) {
      a.input = 1 + static_cast<int>(600 * std::exp(0.6 * draws.normal()));
      a.output = 2 + static_cast<int>(120 * std::exp(0.5 * draws.normal()));
    }
    const LoadReport measured = summarise(engine.serve(arrivals), {});
    ASSERT_EQ(measured.failed, 0);
    ASSERT_TRUE(measured.tpot_ms);
    QueueLoad load{.rps = rps};
    load.lengths = arrivals;
    load.requests = 6000;
    const Tails told = simulate_queue(engine.times(), load);
    EXPECT_TRUE(told.keeps_up);
    EXPECT_NEAR(told.concurrency / measured.concurrency, 1, 0.1) << rps;
    for (auto [what, a, b] : {std::tuple{"p50 TTFT", told.ttft_ms.p50, measured.ttft_ms.p50},
                              {"p95 TTFT", told.ttft_ms.p95, measured.ttft_ms.p95},
                              {"p99 TTFT", told.ttft_ms.p99, measured.ttft_ms.p99},
                              {"p50 TPOT", told.tpot_ms.p50, measured.tpot_ms->p50},
                              {"p95 TPOT", told.tpot_ms.p95, measured.tpot_ms->p95},
                              {"p99 TPOT", told.tpot_ms.p99, measured.tpot_ms->p99}})
      EXPECT_NEAR(a / b, 1, 0.15) << what << " at " << rps << " requests/s: " << a << " " << b;
  }
}

TEST(Queueing, LengthsOfATraceAreDrawn) {
  EngineTimes e;
  e.decode_ms = {10};
  e.sequences_max = 1;
  e.prefill_token_ms = 1;
  QueueLoad load{.users = 1};
  load.lengths = {{0, 100, 5}, {1, 900, 5}};
  const Tails t = simulate_queue(e, load);
  EXPECT_NEAR(t.ttft_ms.p99, 900, 1);
  EXPECT_NEAR(t.ttft_ms.mean, 500, 40);
}

TEST(Queueing, ReplayedMeansAgreeWithThePrediction) {
  // A measured combination at a load that users keep up: the replay is built from the same terms.
  const auto calibration = Calibration::embedded();
  const auto catalogue = Catalogue::embedded();
  ServingRow row;
  row.shape = std::make_shared<const ModelShape>(
      at_precision(*find_model("Llama-3.1-70B", ""), Precision::fp8));
  row.family = family_of(*row.shape);
  row.gpu = *catalogue.gpu("H200");
  row.engine = "vllm";
  row.version = version_unsaid;
  row.precision = "fp8";
  row.parallelism = {.tensor = 4};
  row.input = row.output = 1024;
  for (const double users : {4.0, 16.0, 64.0}) {
    row.concurrency = users;
    const auto predicted = calibration.predict(row);
    ASSERT_TRUE(predicted);
    const Tails t = simulate_queue(
        engine_times(calibration, row, 1024),
        {.users = users, .input = 1024, .output = 1024, .variation = {0.2, 0.2}, .requests = 800});
    EXPECT_NEAR(t.tpot_ms.mean / predicted->tpot_ms.value, 1, 0.15) << users;
  }
}

TEST(Queueing, VariationFollowsFromThe95thPercentile) {
  EXPECT_EQ(variation_of(1000, 1000), 0);
  EXPECT_NEAR(variation_of(1155, 1155 * 2.725), 0.96, 0.01);
  EXPECT_LT(variation_of(100, 200), variation_of(100, 300));
}

TEST(Recommend, ServiceLevelsOfPercentilesTakeMoreReplicas) {
  const auto catalogue = Catalogue::embedded();
  const auto calibration = Calibration::embedded();
  Request request;
  request.model = *model_of_size("8B");
  request.users = 200;
  request.ttft_ms_max = 1500;
  request.tokens_per_s_min = 20;
  request.offers.gpu = "L40S";
  request.now = WallTime{};
  auto mean = recommend(request, catalogue, calibration);
  ASSERT_TRUE(mean) << mean.error().message;
  ASSERT_TRUE(mean->best->tails);
  request.percentile = Percentile::p99;
  auto tail = recommend(request, catalogue, calibration);
  ASSERT_TRUE(tail) << tail.error().message;
  EXPECT_GE(tail->best->gpus, mean->best->gpus);
  EXPECT_LE(tail->best->tails->ttft_ms.p99, 1500);
  EXPECT_LE(tail->best->tails->tpot_ms.p99, 50);
  EXPECT_NE(advice_text(request, *tail).find("at p99"), std::string::npos);
  EXPECT_NE(advice_text(request, *tail).find("p50 / p95 / p99"), std::string::npos);
}

TEST(Ask, PercentilesAreAskedForByName) {
  const AskContext context{};
  auto ask = [&](const char* text) {
    return answer(*parse_json(text), context);
  };
  const auto told = ask(
      R"({"model":"8B","rps":4,"ttft_ms":3000,"percentile":"p95","output_p95":700,"gpu":"L40S"})");
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ((*told)["percentile"].str_or(""), "p95");
  const auto& first = (*told)["best"]["percentiles"]["ttft_ms"];
  EXPECT_GT(first["p95"].double_or(0), first["p50"].double_or(0));
  EXPECT_LE(first["p95"].double_or(1e9), 3000);
  const auto refused = ask(R"({"model":"8B","percentile":"p42"})");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("p42"), std::string::npos);
}

}  // namespace
}  // namespace billow::advise
