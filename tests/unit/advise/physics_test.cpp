// What physics forbids is never predicted, and what was measured is believed.
#include "advise/physics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "advise/calibration.h"
#include "advise/pricing.h"
#include "tests/unit/advise/embedded.h"

namespace billow::advise {
namespace {

constexpr const char* mixture =
    R"({"model_type":"mixtral","vocab_size":32000,"hidden_size":4096,"num_hidden_layers":32,)"
    R"("num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,)"
    R"("num_local_experts":8,"num_experts_per_tok":2})";

ServingRow served_row(const ModelShape& model, const char* gpu, Precision precision) {
  ServingRow row;
  row.shape = std::make_shared<const ModelShape>(at_precision(model, precision));
  row.family = family_of(*row.shape);
  row.gpu = *catalogue().gpu(gpu);
  row.engine = "vllm";
  row.version = version_unsaid;
  row.precision = precision_name(precision);
  return row;
}

// By hand, without physics.cpp: the weights of the active parameters once over the bus, two
// operations per active parameter and sequence.
double least_ms(const ServingRow& row, double batch) {
  const auto& g = *row.gpu;
  const double bytes = row.shape->is_moe()
                           ? 0
                           : (row.shape->parameters() - row.shape->embedding_parameters) *
                                 weight_bytes(row.shape->native) / row.parallelism.tensor;
  const double best = std::max({g.bf16_tflops.value_or(0), g.fp16_tflops.value_or(0),
                                row.precision == "fp8" ? g.fp8_tflops.value_or(0) : 0.0});
  const double operations = 2 * row.shape->active_parameters() * batch / row.parallelism.pipeline /
                            row.parallelism.tensor;
  return std::max(bytes * 0.98 / (*g.bandwidth_gb_s * 1e9), operations / (best * 1e12)) * 1e3;
}

TEST(Physics, NothingIsFasterThanTheRooflineInTenThousandCases) {
  const ModelShape models[] = {*model_of_size("1B"), *model_of_size("8B"), *model_of_size("70B"),
                               *read_model_config(mixture, {}, "mixture")};
  int cases = 0;
  for (const auto& model : models)
    for (const char* gpu : {"T4", "L4", "A10G", "A40", "L40S", "A100-80GB-SXM", "H100", "H20",
                            "H200", "B200", "MI300X", "RTX-4090"})
      for (const Precision precision : {Precision::fp16, Precision::fp8})
        for (const char* engine : {"vllm", "sglang", "trtllm"})
          for (const auto& split :
               {Parallelism{}, Parallelism{.tensor = 4}, Parallelism{.tensor = 2, .pipeline = 4}}) {
            auto row = served_row(model, gpu, precision);
            row.engine = engine;
            row.kv = engine_kv(engine, row.precision, *row.shape);
            row.parallelism = split;
            const auto prepared = calibration().prepare(row);
            for (const double load : {1.0, 16.0, 128.0, 512.0})
              for (const auto& [input, output] :
                   {std::pair{32.0, 1024.0}, {2048.0, 128.0}, {120000.0, 10.0}}) {
                row.concurrency = load;
                row.input = input;
                row.output = output;
                const auto now = Calibration::quick(prepared, row);
                ++cases;
                ASSERT_GE(now.tpot_ms, roofline_of(row).tpot_ms * 0.9999);
                ASSERT_GE(now.ttft_ms, roofline_of(row).ttft_ms * 0.9999);
                ASSERT_GE(now.tpot_ms, least_ms(row, decode_batch(row)))
                    << model.name << " " << gpu << " " << row.precision << " " << engine << " "
                    << load << " " << input << "x" << output;
              }
          }
  EXPECT_GE(cases, 10000);
}

TEST(Physics, AttentionRunsInThePrecisionOfItsCache) {
  auto row = served_row(*model_of_size("70B"), "B200", Precision::nvfp4);
  row.precision = "fp4";
  const auto& b200 = *row.gpu;
  row.kv = Precision::bf16;
  EXPECT_EQ(rates_of(row).matrix, *b200.fp4_tflops * 1e12);
  EXPECT_EQ(rates_of(row).attention, *b200.bf16_tflops * 1e12);
  row.kv = Precision::fp8;
  EXPECT_EQ(rates_of(row).attention, *b200.fp8_tflops * 1e12);
  // Long contexts are bound by it: the roofline counts it too.
  row.kv = Precision::bf16;
  row.input = 100000;
  row.concurrency = 4;
  const auto w = work_of(*row.shape, row.kv, row.parallelism, {4, row.input, row.output});
  EXPECT_GE(roofline_of(row).tpot_ms, w.step_attention_flops / (*b200.bf16_tflops * 1e12) * 1e3);
}

TEST(Physics, Mxfp4RunsAtTheRateOfItsActivations) {
  auto model = read_model_config(mixture, {}, "m");
  ASSERT_TRUE(model) << model.error().message;
  auto rate = [&](const char* gpu, Precision precision) {
    return rates_of(served_row(*model, gpu, precision)).matrix / 1e12;
  };
  const auto& with_units = **catalogue().gpu("B200-SXM");
  const auto& without = **catalogue().gpu("H100-SXM");
  EXPECT_DOUBLE_EQ(rate("B200-SXM", Precision::fp4), *with_units.fp8_tflops);
  EXPECT_DOUBLE_EQ(rate("B200-SXM", Precision::nvfp4), *with_units.fp4_tflops);
  EXPECT_DOUBLE_EQ(rate("H100-SXM", Precision::fp4), *without.bf16_tflops);
}

TEST(Physics, DataParallelAttentionExchangesWithTheRanksOfItsExperts) {
  const auto model = *read_model_config(mixture, {}, "mixture");
  const Traffic traffic{.concurrency = 64, .input = 100, .output = 100};
  auto bytes = [&](const Parallelism& p) {
    return work_of(model, Precision::bf16, p, traffic).exchange_bytes /
           work_of(model, Precision::bf16, p, traffic).exchanges;
  };
  // A token of 4096 values in two bytes, on each of eight ranks eight tokens: two of eight experts
  // are on 8 · (1 - (7/8)²) = 1.875 ranks.
  EXPECT_NEAR(bytes({.tensor = 8, .attention_data = 8, .expert = 8}), 8 * 8192 * 1.875, 1);
  EXPECT_NEAR(bytes({.tensor = 8, .expert = 8}), 64 * 8192, 1);
}

TEST(Physics, MemoryLimitsTheBatchAndStagesDoNotDivideATokensTime) {
  auto row = served_row(*model_of_size("70B"), "H100", Precision::fp8);
  row.parallelism = {.tensor = 4};
  row.input = row.output = 8192;
  row.concurrency = 4096;
  const double held = decode_batch(row);
  EXPECT_LT(held, 400);
  EXPECT_GT(held, 10);
  // Twice the load waits; it does not decode faster or slower.
  const auto many = terms_of(row);
  row.concurrency = 8192;
  EXPECT_NEAR(terms_of(row).tpot[3], many.tpot[3], 1e-9);
  EXPECT_GT(terms_of(row).ttft.back(), many.ttft.back());
  row.concurrency = 8;
  row.input = row.output = 1024;
  const auto prepared = calibration().prepare(row);
  const double one = Calibration::quick(prepared, row).tpot_ms;
  row.parallelism.pipeline = 8;
  EXPECT_GE(Calibration::quick(prepared, row).tpot_ms, one * 0.9);
}

TEST(Calibration, IntervalsWidenWithDistance) {
  // Llama-3.1-70B with vLLM in FP8 on an H200 was measured.
  auto row = served_row(
      *read_model_config(R"({"model_type":"llama","vocab_size":128256,"hidden_size":8192,)"
                         R"("num_hidden_layers":80,"num_attention_heads":64,)"
                         R"("num_key_value_heads":8,"intermediate_size":28672})",
                         {}, "70B"),
      "H200", Precision::fp8);
  row.parallelism = {.tensor = 4};
  row.concurrency = 32;
  auto width = [&] {
    const auto p = calibration().predict(row);
    EXPECT_TRUE(p) << p.error().message;
    return p->tpot_ms.high / p->tpot_ms.low;
  };
  const double near = width();
  row.input = 60000;
  row.output = 10;
  const double longer = width();
  EXPECT_GT(longer, near);
  row.input = row.output = 1024;
  row.gpu = *catalogue().gpu("MI300X");
  EXPECT_GT(width(), near);
}

TEST(Calibration, EveryUnknownWidensTheInterval) {
  // A model that was never measured, on a GPU, with an engine and at lengths that were.
  const auto known = served_row(*model_of_size("13B"), "H200", Precision::fp8);
  auto width = [](const ServingRow& row) {
    const auto p = calibration().predict(row);
    EXPECT_TRUE(p) << p.error().message;
    return p->tpot_ms.high / p->tpot_ms.low;
  };
  const double model = width(known);
  auto other = known;
  other.engine = "an engine nobody measured";
  EXPECT_GT(width(other), model * 1.05);
  other = known;
  other.gpu = *catalogue().gpu("A100-80GB-SXM");  // nor any other of its architecture
  const double older = width(other);
  EXPECT_GT(older, model * 1.05);
  other.engine = "an engine nobody measured";
  EXPECT_GT(width(other), older * 1.05);
  other = known;
  other.input = 115;  // the shortest measured prompts have 1,000 tokens, answers 100
  other.output = 20;
  const double shorter = width(other);
  EXPECT_GT(shorter, model * 1.05);
  other.output = 5;
  EXPECT_GT(width(other), shorter);
}

TEST(Physics, ServersWithoutGraphsWaitForTheirHost) {
  auto row = served_row(*model_of_size("7B"), "H100", Precision::fp16);
  row.concurrency = 1;
  auto step = [&](const char* engine, const char* version) {
    row.engine = engine;
    row.version = version;
    return terms_of(row).tpot[0];
  };
  EXPECT_GT(step("tgi", "0.9"), 2 * step("tgi", "2.0"));
  EXPECT_DOUBLE_EQ(step("tgi", "2.0"), step("vllm", "0.9"));
  row.concurrency = 64;  // more than TGI captures
  EXPECT_GT(step("tgi", "3.1"), step("vllm", "0.9"));
}

TEST(Calibration, OneMeasurementHereIsBelievedAtOnce) {
  auto row = served_row(*model_of_size("8B"), "L4", Precision::bf16);
  row.parallelism = {.tensor = 2};
  const auto before = *calibration().predict(row);
  row.tpot_ms = before.tpot_ms.value * 1.4;
  row.ttft_ms = before.ttft_ms.value * 1.4;
  const auto after = calibration().with_local({row});
  const auto p = *after.predict(row);
  EXPECT_NEAR(p.tpot_ms.value, *row.tpot_ms, 0.01 * *row.tpot_ms);
  EXPECT_LE(p.tpot_ms.low, *row.tpot_ms);
  EXPECT_GE(p.tpot_ms.high, *row.tpot_ms);
  EXPECT_LT(p.tpot_ms.high / p.tpot_ms.low, before.tpot_ms.high / before.tpot_ms.low);
  EXPECT_EQ(p.kind, Kind::measured);
  // Eight doublings away the same correction applies, with the doubt of before.
  row.concurrency = 256;
  const auto far = *after.predict(row);
  EXPECT_GT(far.tpot_ms.high / far.tpot_ms.low, p.tpot_ms.high / p.tpot_ms.low);
}

TEST(Pricing, SellersAndCardsAreToldApart) {
  EXPECT_EQ(tier_of("aws"), Tier::hyperscaler);
  EXPECT_EQ(tier_of("lambda"), Tier::neocloud);
  EXPECT_EQ(tier_of("vast"), Tier::marketplace);
  EXPECT_EQ(tier_of("somebody-new"), Tier::marketplace);
  for (auto card : {"RTX-3060", "RTX-4090", "RTX-5090"})
    EXPECT_TRUE(consumer_card(card)) << card;
  for (auto card : {"RTX-A4000", "RTX-6000", "RTX-6000-Ada", "RTX-2000-Ada", "RTX-PRO-6000", "L4"})
    EXPECT_FALSE(consumer_card(card)) << card;
  EXPECT_LT(host_memory_gib(16e9), 16);
  EXPECT_GT(host_memory_gib(60e9), 4);
}

TEST(Recommend, TakesWhatACompanyCanBuyUnlessAskedForAll) {
  Request r;
  r.model = *model_of_size("8B");
  r.users = 50;
  r.tokens_per_s_min = 20;
  r.ttft_ms_max = 500;
  auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  for (auto& c : a->ranked) {
    EXPECT_FALSE(consumer_card(c.gpu->name)) << c.gpu->name;
    if (!c.offer || !c.offer->instance)
      continue;
    EXPECT_NE(tier_of(c.offer->instance->provider), Tier::marketplace) << c.offer->instance->name;
    const auto memory = static_cast<double>(c.offer->instance->memory_gib);
    EXPECT_TRUE(memory == 0 || memory >= host_memory_gib(c.memory.weights * c.parallelism.gpus()));
  }
  EXPECT_GE(a->best->chance, 0.89);
  EXPECT_TRUE(a->best->usd_per_million);
  EXPECT_GE(a->curve.size(), 3u);
  const auto text = advice_text(r, *a);
  EXPECT_TRUE(text.starts_with("best: ")) << text;
  EXPECT_NE(text.find("launch: billow deploy"), std::string::npos) << text;
  r.any_offer = true;
  auto all = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(all);
  EXPECT_GT(all->offers_scanned, a->offers_scanned);
}

TEST(ServingExtras, FollowTheirArithmetic) {
  ServingExtras drafts{.draft_tokens = 3, .accepted = 0.5};
  EXPECT_DOUBLE_EQ(drafts.tokens_per_step(), 1 + 0.5 + 0.25 + 0.125);
  auto row = served_row(*model_of_size("70B"), "H100", Precision::fp8);
  row.parallelism.tensor = 4;
  row.concurrency = 1;
  const double plain = calibration().predict(row)->tpot_ms.value;
  // Alone on a GPU, checking drafts is nearly free: a step takes hardly longer and gains more.
  row.extras = {.draft_tokens = 3, .accepted = 0.8};
  const double drafted = calibration().predict(row)->tpot_ms.value;
  EXPECT_LT(drafted, plain / 2);
  EXPECT_GT(drafted, plain / row.extras.tokens_per_step());
  // Drafts that are never accepted only cost.
  row.extras.accepted = 0;
  EXPECT_GT(calibration().predict(row)->tpot_ms.value, plain);
  // What the prefix cache holds is not prefilled, whatever else stays the same.
  row.extras = {};
  row.input = 8192;
  const double cold = calibration().predict(row)->ttft_ms.value;
  row.extras.cached_share = 0.9;
  EXPECT_LT(calibration().predict(row)->ttft_ms.value, cold * 0.7);
  // Adapters are read by the sequences that use them and take memory from the cache.
  row.extras = {.adapters = 200, .adapter_rank = 64};
  row.concurrency = 4000;
  const double with = decode_batch(row);
  row.extras = {};
  EXPECT_LT(with, decode_batch(row));
}

TEST(ServingExtras, SmallerCachesHoldMoreSequences) {
  auto model = *model_of_size("70B");
  double before = 0;
  for (auto kv : {Precision::bf16, Precision::fp8, Precision::nvfp4}) {
    const double most =
        serving_memory(model, kv, {.tensor = 4}, {.context = 4096}, 80e9).sequences_max;
    EXPECT_GT(most, before * 1.7);
    before = most;
  }
}

TEST(Physics, WithoutCudaGraphsSmallStepsWaitForTheHost) {
  ServingRow row = served_row(*model_of_size("8B"), "H100", Precision::bf16);
  row.concurrency = 1;
  const Calibration fitted = Calibration::embedded();
  const auto tpot = [&](double users, bool eager, const char* engine = "vllm") {
    row.concurrency = users;
    row.engine = engine;
    row.extras.eager = eager;
    return fitted.predict(row)->tpot_ms.value;
  };
  EXPECT_GT(tpot(1, true), 1.5 * tpot(1, false));
  EXPECT_LT(tpot(256, true) / tpot(256, false), tpot(1, true) / tpot(1, false));
  EXPECT_LT(tpot(1, true, "trtllm"), tpot(1, true)) << "its host code is faster";
  for (double users = 1; users <= 512; users *= 2)
    EXPECT_GE(tpot(users, true), tpot(users, false)) << users;
}

}  // namespace
}  // namespace billow::advise
