// Answers: what is recommended fits, is priced and explained; bad input gives a clear error; a
// batch answers row by row.
#include <gtest/gtest.h>

#include <cmath>

#include "advise/portfolio.h"
#include "advise/pricing.h"
#include "advise/recommend.h"
#include "base/file.h"
#include "base/text.h"
#include "tests/unit/advise/data_dir.h"
#include "tests/unit/advise/embedded.h"

namespace billow::advise {
namespace {

constexpr const char* tiny_model =
    R"({"model_type":"llama","vocab_size":128256,"hidden_size":4096,"num_hidden_layers":32,)"
    R"("num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336})";

std::string scratch(const char* name) {
  auto dir = ::testing::TempDir() + "/billow_advise_" + name;
  (void)remove_tree(dir);
  EXPECT_TRUE(make_directories(dir));
  return dir;
}

Request small_request() {
  Request r;
  r.model = *model_of_size("7B");
  r.users = 20;
  r.tokens_per_s_min = 15;
  return r;
}

TEST(Recommend, GivesAPricedAnswerThatFitsAndMeetsTheServiceLevel) {
  auto a = recommend(small_request(), catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  auto& b = *a->best;
  EXPECT_TRUE(b.memory.fits());
  EXPECT_LE(b.latency.tpot_ms.value, 1000.0 / 15);
  EXPECT_LE(b.latency.tpot_ms.low, b.latency.tpot_ms.value);
  EXPECT_GE(b.latency.tpot_ms.high, b.latency.tpot_ms.value);
  EXPECT_GE(b.replicas * b.concurrency, 20);
  ASSERT_TRUE(b.offer && b.offer->on_demand_month);
  EXPECT_GT(*b.offer->on_demand_month, 20);
  ASSERT_TRUE(a->runner_up);
  EXPECT_NE(a->runner_up->gpu->name, b.gpu->name);
  EXPECT_GE(*a->runner_up->offer->on_demand_month, 0.9 * *b.offer->on_demand_month);
  EXPECT_FALSE(a->checks.empty());
  EXPECT_GT(a->offers_scanned, 500);
  for (auto& c : a->ranked)
    EXPECT_TRUE(c.memory.fits()) << c.gpu->name;
}

// Old prices are likely to be wrong: the older one is, the cheaper it must be to be recommended.
TEST(Recommend, OlderPricesCountForMore) {
  EXPECT_EQ(age_factor(price_fresh_days), 1);
  EXPECT_NEAR(age_factor(price_fresh_days + 40), 1.2, 1e-9);
  EXPECT_EQ(age_factor(std::nullopt), age_factor(365));
  auto r = small_request();
  bool old = false, fresh = false;
  for (int day = 0; day < 200; day += 40) {
    r.now = {seconds(1'787'400'000 + 86400LL * day).ns};  // from 2026-08-22 on
    const auto a = recommend(r, catalogue(), calibration());
    ASSERT_TRUE(a && a->best->offer);
    double before = 0;
    for (const auto& c : a->ranked) {
      if (!c.offer || (c.tails && !c.tails->keeps_up))
        continue;
      EXPECT_GE(counted_cost(c, r), before * 0.999) << c.gpu->name << " on day " << day;
      before = counted_cost(c, r);
      (stale_price(c) ? old : fresh) = true;
    }
  }
  EXPECT_TRUE(old && fresh) << "prices of one kind only: this shows nothing";
}

// Prices grow old together, so an answer must not jump on the day on which most of them do.
TEST(Recommend, NoAnswerJumpsWhenPricesAge) {
  auto r = small_request();
  double before = 0;
  for (int day = 86; day < 96; ++day) {
    r.now = {seconds(1'787'400'000 + 86400LL * day).ns};
    const auto a = recommend(r, catalogue(), calibration());
    ASSERT_TRUE(a && a->best->offer && a->best->offer->on_demand_month);
    const double cost = *a->best->offer->on_demand_month;
    if (before > 0) {
      EXPECT_LE(cost, before * 1.1) << "on day " << day;
    }
    before = cost;
  }
}

TEST(Recommend, MoreLoadNeverCostsLess) {
  double before = 0;
  for (double users : {1.0, 20.0, 200.0, 2000.0}) {
    auto r = small_request();
    r.users = users;
    auto a = recommend(r, catalogue(), calibration());
    ASSERT_TRUE(a);
    EXPECT_GE(*a->best->offer->on_demand_month, before * 0.999);
    before = *a->best->offer->on_demand_month;
  }
}

TEST(Recommend, WhatFitsNowhereIsAnErrorAndNeverALatency) {
  Request r;
  r.model = *model_of_size("19T");
  auto a = recommend(r, catalogue(), calibration());
  ASSERT_FALSE(a);
  EXPECT_EQ(a.error().code, Code::infeasible);
  EXPECT_NE(a.error().message.find("fits on no GPU"), std::string::npos) << a.error().message;
  r.model = *model_of_size("70B");
  r.tokens_per_s_min = 50000;
  a = recommend(r, catalogue(), calibration());
  ASSERT_FALSE(a);
  EXPECT_NE(a.error().message.find("service level"), std::string::npos);
}

TEST(Recommend, MineChoosesAmongTheFleetIncludingSlices) {
  auto r = small_request();
  r.users = 2;
  r.fleet = {{.gpu = "H100",
              .per_node = 8,
              .nodes = 1,
              .usd_per_gpu_h = 2.5,
              .mig = {{"3g.40gb", 40, 3}}}};
  auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ(a->best->gpu->name, "H100-SXM");
  EXPECT_NE(a->best->slice, "whole");  // a 7B for two users needs no whole H100
  r.fleet = {{.gpu = "T4", .per_node = 1, .nodes = 1}};
  r.model = *model_of_size("70B");
  EXPECT_FALSE(recommend(r, catalogue(), calibration()));
}

TEST(Recommend, TrainingPrefersOneNode) {
  TrainingRequest t;
  t.model = *model_of_size("7B");
  auto a = recommend_training(t, catalogue());
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ(a->ranked.front().nodes, 1);
  EXPECT_GT(a->ranked.front().tokens_per_s, 100);
  t.tuning = Tuning::qlora;
  auto q = recommend_training(t, catalogue());
  ASSERT_TRUE(q);
  EXPECT_TRUE(std::any_of(q->ranked.begin(), q->ranked.end(), [](auto& c) { return c.gpus == 1; }));
  t.model = *model_of_size("15T");
  t.tuning = Tuning::full;
  EXPECT_FALSE(recommend_training(t, catalogue()));
  EXPECT_NEAR(checkpoint_interval_s(60, 24 * 3600), std::sqrt(2 * 60 * 86400.0), 1e-6);
}

TEST(Recommend, TrainingSaysHowLongItTakesAndMeetsADeadline) {
  TrainingRequest t;
  t.model = *model_of_size("70B");
  t.tokens = 1e12;
  t.offers.providers = {"aws", "gcp", "azure"};
  auto open = recommend_training(t, catalogue());
  ASSERT_TRUE(open) << open.error().message;
  auto& slow = open->ranked.front();
  ASSERT_TRUE(slow.hours);
  EXPECT_NEAR(*slow.hours, t.tokens / slow.tokens_per_s / 3600, 1e-6);
  EXPECT_GT(*slow.hours, 24 * 90);
  auto text = training_text(t, *open);
  EXPECT_LT(text.find(time_text(*slow.hours)), text.find("$"));  // the duration before the price
  EXPECT_NE(text.find("mind done within three months"), std::string::npos);
  t.deadline_h = 24 * 60;
  auto soon = recommend_training(t, catalogue());
  ASSERT_TRUE(soon) << soon.error().message;
  EXPECT_LE(*soon->ranked.front().hours, *t.deadline_h);
  EXPECT_GT(soon->ranked.front().nodes, 1);
  // An option that is too slow says so.
  const auto late = [&] {
    const auto shown = training_text(t, *recommend_training(t, catalogue()));
    const auto best = shown.find("\nbest") + 1;
    return shown.substr(best, shown.find('\n', best) - best).ends_with("MISSES THE DEADLINE");
  };
  EXPECT_FALSE(late());
  t.deadline_h = 1;
  EXPECT_TRUE(late());
  EXPECT_EQ(time_text(24 * 365 * 42.6), "42.6 years");
  // More memory never makes the plan slower.
  TrainingRequest small;
  small.model = *model_of_size("8B");
  auto rate = [&](const char* gpu) {
    small.offers.gpu = gpu;
    auto a = recommend_training(small, catalogue());
    double best = 0;
    for (auto& c : a->ranked)
      if (c.gpus == 8)
        best = std::max(best, c.tokens_per_s);
    return best;
  };
  EXPECT_GE(rate("H200-SXM"), rate("H100-SXM"));
}

TEST(Recommend, TrainingIsSplitAsTheModelAndTheSequenceNeed) {
  TrainingRequest t;
  t.model = *shipped_model("Llama-3.1-405B");
  t.tokens = 1e12;
  t.deadline_h = 24 * 60;
  t.offers.gpu = "H100-SXM";
  const auto dense = recommend_training(t, catalogue());
  ASSERT_TRUE(dense) << dense.error().message;
  for (auto& c : dense->ranked) {
    EXPECT_EQ(c.gpu->name, "H100-SXM") << "--gpu is heeded";
    EXPECT_LE(c.memory.total(), training_usable_bytes(*c.gpu));
    EXPECT_EQ(c.plan.tensor * c.plan.pipeline * c.plan.context * c.plan.data(), c.gpus);
  }
  const auto& large = dense->ranked.front().plan;
  EXPECT_GT(large.tensor * large.pipeline, 1) << "405B on cards of 80 GB";
  // A sequence of 128k tokens is divided.
  TrainingRequest longer;
  longer.model = *shipped_model("Llama-3.1-8B");
  longer.sequence = 131072;
  longer.offers.gpu = "H100-SXM";
  const auto split = recommend_training(longer, catalogue());
  ASSERT_TRUE(split) << split.error().message;
  EXPECT_GT(split->ranked.front().plan.context * split->ranked.front().plan.tensor, 1);
  EXPECT_NE(training_text(longer, *split).find("tokens per step"), std::string::npos);
  // The experts of a large mixture are spread.
  TrainingRequest mixture;
  mixture.model = *shipped_model("DeepSeek-V3");
  mixture.offers.gpu = "H200-SXM";
  const auto spread = recommend_training(mixture, catalogue());
  ASSERT_TRUE(spread) << spread.error().message;
  EXPECT_GT(spread->ranked.front().plan.expert, 1);
}

TEST(Recommend, TrainingBuysAsServingDoes) {
  TrainingRequest t;
  t.model = *model_of_size("8B");
  const auto a = recommend_training(t, catalogue());
  ASSERT_TRUE(a);
  for (auto& c : a->ranked) {
    EXPECT_NE(c.instance->provider, "mithril") << "an auction's lowest bid is no price";
    EXPECT_NE(c.instance->provider, "vast");
  }
  t.any_offer = true;
  EXPECT_GE(recommend_training(t, catalogue())->ranked.size(), a->ranked.size());
}

TEST(Recommend, NothingIsClaimedAboutSpotThatWasNotPublished) {
  const auto known = spot_history("p5.48xlarge");
  ASSERT_TRUE(known);
  EXPECT_GT(known->ratio_median, 0.1);
  EXPECT_LT(known->ratio_median, 1);
  EXPECT_FALSE(spot_history("no-such-instance"));
  EXPECT_EQ(spot_history_text("no-such-instance"), "no price history of it is known");
  TrainingRequest t;
  t.model = *model_of_size("8B");
  const auto text = training_text(t, *recommend_training(t, catalogue()));
  EXPECT_NE(text.find("assumed: one a day on every node"), std::string::npos);
  Request r = small_request();
  r.spot = true;
  const auto answer = advice_text(r, *recommend(r, catalogue(), calibration()));
  const auto first = answer.substr(0, answer.find('\n'));
  EXPECT_TRUE(first.find("by auction or spot") != std::string::npos ||
              first.find("no spot price is known") != std::string::npos)
      << first;
}

// The cheapest split by its means may need many replicas for its tail; another one then costs less.
TEST(Recommend, APercentileIsMetWithTheSplitThatCostsLeast) {
  Request r;
  r.model = *shipped_model("Llama-3.1-70B");
  r.input = 8000;
  r.ttft_ms_max = 2000;
  r.percentile = Percentile::p95;
  r.offers.gpu = "MI300X";
  r.precisions = {Precision::fp8};
  r.now = WallTime{1'795'000'000ll * 1'000'000'000};
  double before = 0;
  for (const double rps : {0.25, 0.5, 1.0, 2.0}) {
    r.rps = rps;
    const auto a = recommend(r, catalogue(), calibration());
    ASSERT_TRUE(a) << a.error().message;
    EXPECT_GE(a->best->chance, 0.895) << rps << " per second";
    EXPECT_GE(rank_cost(*a->best, r), before) << rps << " per second";
    before = rank_cost(*a->best, r);
  }
}

TEST(Recommend, SlownessThatNobodyRuledOutIsSaid) {
  Request r;
  r.model = *shipped_model("Llama-3.1-8B");
  r.users = 5;
  r.input = 100000;
  auto said = [&] {
    const auto a = recommend(r, catalogue(), calibration());
    return a && advice_text(r, *a).find("mind a service level") != std::string::npos;
  };
  EXPECT_TRUE(said());
  r.ttft_ms_max = 60000;
  EXPECT_FALSE(said()) << "one was asked for";
  r.ttft_ms_max.reset();
  r.input = 500;
  EXPECT_FALSE(said()) << "fast enough";
}

// Certainty that a load test gives is not bought with machines.
TEST(Recommend, ACloseServiceLevelAsksForATestBeforeAFleet) {
  Request r;
  r.model = *shipped_model("Qwen3-30B-A3B");
  r.rps = 10;
  r.ttft_ms_max = 300;
  r.percentile = Percentile::p99;
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  Request bare = r;
  bare.chance_min = 0.5;
  bare.offers.gpu = a->best->gpu->name;
  bare.precisions = {a->best->precision};
  const auto least = recommend(bare, catalogue(), calibration());
  ASSERT_TRUE(least);
  // The margin of a model that nobody measured is wide, but it has a bound.
  EXPECT_LE(a->best->replicas, 5 * least->best->replicas);
  const bool dear = *a->best->offer->on_demand_month * 0.75 > *least->best->offer->on_demand_month;
  const auto text = advice_text(r, *a);
  EXPECT_EQ(text.find("a load test: if the prediction is right") != std::string::npos, dear);
}

TEST(Recommend, TheLaunchCommandNamesWhatCanBeLoaded) {
  Request r = small_request();
  r.precisions = {Precision::bf16};
  auto a = *recommend(r, catalogue(), calibration());
  EXPECT_NE(advice_text(r, a).find("vllm serve MODEL"), std::string::npos) << "7B is no checkpoint";
  r.model = *shipped_model("mistralai/Mistral-7B-Instruct-v0.3");
  r.precisions = {Precision::fp8};
  r.extras.eager = true;
  a = *recommend(r, catalogue(), calibration());
  const auto text = advice_text(r, a);
  EXPECT_NE(text.find("Mistral-7B-Instruct-v0.3 --quantization fp8"), std::string::npos) << text;
  EXPECT_NE(text.find("--enforce-eager"), std::string::npos);
  r.precisions = {Precision::int4};
  a = *recommend(r, catalogue(), calibration());
  EXPECT_NE(advice_text(r, a).find("vllm serve YOUR-INT4-CHECKPOINT"), std::string::npos);
}

TEST(ServingRow, NamesOfEnginesPrecisionsAndGpusAreReadAsTheyAreWritten) {
  for (auto name : {"trtllm", "TensorRT-LLM", "trt", "dynamo-trt", "tensorrt_llm"})
    EXPECT_EQ(engine_word(name), "trtllm") << name;
  EXPECT_EQ(engine_word(" vLLM "), "vllm");
  EXPECT_EQ(engine_word("dynamo-sglang"), "sglang");
  EXPECT_EQ(engine_word("Atom"), "atom");
  auto dir = scratch("names");
  ASSERT_TRUE(write_file_atomic(dir + "/org--tiny_config.json", tiny_model));
  ModelShelf shelf(dir);
  auto named = [&](const char* engine, const char* system, const char* precision) {
    return read_serving_row({{"model_path", "org/tiny"},
                             {"backend", engine},
                             {"system", system},
                             {"precision", precision},
                             {"batch_size", "8"}},
                            shelf, catalogue());
  };
  EXPECT_EQ(named("vllm", "h100_sxm", "fp8_block")->precision, "fp8");
  EXPECT_EQ(named("vllm", "b200_sxm", "nvfp4")->precision, "fp4");
  EXPECT_EQ(named("vllm", "h100_sxm", "w4a16_awq")->precision, "int4");
  EXPECT_FALSE(named("vllm", "h100_sxm", "fp7"));
  // Every GPU that serving is measured on publicly, as those tables write it: with an answer that
  // says it was not measured.
  for (auto gpu :
       {"gb200", "gb200_nvl72", "gb300", "b300_sxm", "h20_sxm", "mi300x", "mi325x", "mi355x",
        "a100_sxm", "l40s", "rtx_pro_6000", "rtx6000_pro", "gh200", "h100_pcie", "v100_sxm"}) {
    auto row = named("dynamo-vllm", gpu, "bf16");
    ASSERT_TRUE(row) << gpu << ": " << row.error().message;
    auto p = calibration().predict(*row);
    if (!p) {
      EXPECT_EQ(p.error().code, Code::infeasible)
          << gpu;  // sixteen gigabytes hold no 8B in sixteen bits
      continue;
    }
    EXPECT_EQ(p->kind, Kind::extrapolated) << gpu;
    EXPECT_LT(p->tpot_ms.low, p->tpot_ms.value);
    EXPECT_GT(p->tpot_ms.high, p->tpot_ms.value);
    EXPECT_LT(p->tpot_ms.high / p->tpot_ms.low, 10) << gpu;
  }
}

TEST(ServingRow, PrefillWorkersShareTheWaitAndAreGuessedWhereNobodyTells) {
  ModelShelf shelf("");
  auto wait_ms = [&](const char* workers) {
    auto row = read_serving_row({{"model_path", "7B"},
                                 {"backend", "trtllm"},
                                 {"system", "h200_sxm"},
                                 {"precision", "fp8"},
                                 {"mode", "disagg"},
                                 {"silicon_data_source", "concurrency=1024"},
                                 {"prefill_tp_size", "1"},
                                 {"prefill_num_workers", workers},
                                 {"decode_tp_size", "1"}},
                                shelf, catalogue());
    EXPECT_TRUE(row) << row.error().message;
    return row ? terms_of(*row).ttft[5] : 0;  // the queue's linear part
  };
  EXPECT_NEAR(wait_ms("1") / wait_ms("16"), 16, 1e-6);
  EXPECT_LT(wait_ms(""), wait_ms("1"));   // a load of 1024 is not given to one worker
  EXPECT_GT(wait_ms(""), wait_ms("16"));  // nor to as many as would leave it no queue
}

TEST(Calibration, AShippedOneIsReadAndAFitOfItsOwnWordsAgrees) {
  EXPECT_GT(calibration().parameters(), 100u);
  auto again = Calibration::parse(calibration().dump());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->dump(), calibration().dump());
  EXPECT_FALSE(Calibration::parse("tpot group a x\n"));
  EXPECT_FALSE(Calibration::parse("nonsense\n"));
}

TEST(Calibration, LearnsAnEfficiencyItWasNotTold) {
  // Times made with known efficiencies: the model must find them again, and predict a combination
  // it never saw.
  std::vector<Sample> samples;
  for (int i = 0; i < 200; ++i) {
    double a = 1 + i % 7, b = 1 + i % 11;
    std::string engine = i % 2 ? "x" : "y", gpu = i % 3 ? "g" : "h";
    if (engine == "x" && gpu == "h")
      continue;
    double truth = a * 2 * (engine == "x" ? 1.5 : 1) + b * 0.5 * (gpu == "g" ? 1 : 0.7);
    samples.push_back(
        {{a, b}, {{"all", 20}, {"engine=" + engine, 0.5}, {"gpu=" + gpu, 0.5}}, {}, truth});
  }
  auto model = EfficiencyModel::fit(samples, {});
  Sample unseen{{3, 4}, {{"all", 20}, {"engine=x", 0.5}, {"gpu=h", 0.5}}, {}, 0};
  EXPECT_NEAR(model.predict(unseen), 3 * 2 * 1.5 + 4 * 0.5 * 0.7, 0.6);
}

TEST(Calibration, PredictsNothingForWhatDoesNotFit) {
  ServingRow row;
  row.shape = std::make_shared<const ModelShape>(*model_of_size("70B"));
  row.family = family_of(*row.shape);
  row.gpu = *catalogue().gpu("L4");
  row.engine = "vllm";
  row.precision = "bf16";
  auto p = calibration().predict(row);
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().code, Code::infeasible);
}

TEST(Calibration, LocalMeasurementsBendIt) {
  ServingRow row;
  row.shape = std::make_shared<const ModelShape>(*model_of_size("7B"));
  row.family = family_of(*row.shape);
  row.gpu = *catalogue().gpu("H100");
  row.engine = "vllm";
  row.precision = "bf16";
  double before = calibration().predict(row)->tpot_ms.value;
  row.tpot_ms = before * 2;
  auto bent = calibration().with_local({row, row, row});
  double after = bent.predict(row)->tpot_ms.value;
  EXPECT_NEAR(after, before * 2, before * 0.02);
  EXPECT_EQ(bent.kind_of(row), Kind::measured);
}

TEST(Portfolio, NewsvendorCommitsToTheBaseline) {
  std::vector<Hour> hours;
  for (int i = 0; i < 1000; ++i)
    hours.push_back({i % 10 < 8 ? 10.0 : 50.0, 2.0, 0});
  Market m{.spot_share = 0};
  // 40 GPUs above ten are used a fifth of the time: not worth 60 % of their price at all hours.
  double best = replay(hours, m, 10, 1.2).total();
  for (double r : {0.0, 5.0, 9.0, 11.0, 30.0, 50.0})
    EXPECT_LE(best, replay(hours, m, r, 1.2).total());
  // A short past cannot promise that demand stays: less than the best of hindsight is committed,
  // but not nothing.
  double cautious = baseline_commitment(hours, m, 1.2);
  EXPECT_GE(cautious, 5);
  EXPECT_LT(cautious, 10);
  // A steady year is believed.
  std::vector<Hour> year(8760, {10.0, 2.0, 0});
  EXPECT_EQ(baseline_commitment(year, m, 1.2), 10);
  // A year whose leanest month had half the work is not, though it is busy now.
  for (std::size_t i = 2000; i < 3000; ++i)
    year[i].demand = 5;
  EXPECT_LT(baseline_commitment(year, m, 1.2), 10);
  EXPECT_EQ(baseline_commitment({}, m, 1.2), 0);
  EXPECT_EQ(baseline_commitment(std::vector<Hour>(100, {0.0, 2.0, 0}), m, 1.2), 0);
  EXPECT_GT(price_drop_regret(hours, m, 10, 1.2, 0.5), 0);
  EXPECT_EQ(price_drop_regret(hours, m, 0, 1.2, 0.5), 0);
}

TEST(Portfolio, OwningPaysOnlyWhenUsed) {
  auto o = own_versus_rent({.price_usd = 30000}, 3.0);
  EXPECT_GT(o.break_even_utilisation, 0.2);
  EXPECT_LT(o.break_even_utilisation, 0.6);
  EXPECT_GT(own_versus_rent({.price_usd = 300000}, 1.0).break_even_utilisation, 1);
  auto demand = hourly_demand({{0, 7200, 4}, {1800, 3600, 2}});
  ASSERT_GE(demand.size(), 2u);
  EXPECT_NEAR(demand[0], 5, 1e-9);
  EXPECT_NEAR(demand[1], 5, 1e-9);
}

}  // namespace
}  // namespace billow::advise
