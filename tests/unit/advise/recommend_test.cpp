// Answers: what is recommended fits, is priced and explained; bad input gives a clear error; a
// batch answers row by row.
#include <gtest/gtest.h>

#include <cmath>

#include "advise/commands.h"
#include "advise/portfolio.h"
#include "base/file.h"
#include "base/text.h"
#include "tests/unit/advise/data_dir.h"

namespace billow::advise {
namespace {

const Catalogue& catalogue() {
  static const Catalogue c = Catalogue::embedded();
  return c;
}
const Calibration& calibration() {
  static const Calibration c = Calibration::embedded();
  return c;
}

constexpr const char* tiny_model =
    R"({"model_type":"llama","vocab_size":128256,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336})";

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
  EXPECT_GE(*a->runner_up->offer->on_demand_month, *b.offer->on_demand_month);
  EXPECT_FALSE(a->checks.empty());
  EXPECT_GT(a->offers_scanned, 2000);
  for (auto& c : a->ranked)
    EXPECT_TRUE(c.memory.fits()) << c.gpu->name;
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
  EXPECT_NE(a.error().message.find("fits nowhere"), std::string::npos) << a.error().message;
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

TEST(Recommend, TrainingShowsItsStagesAndTakesMeasuredCheckpoints) {
  auto r = run_advise(
      {"--model", "13B", "--train", "--checkpoint-time", "40s", "--interruptions", "6h", "--json"},
      {});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = *parse_json(r.out);
  EXPECT_NEAR(j["ranked"].items()[0]["checkpoint_minutes"].double_or(0),
              std::sqrt(2 * 40 * 6 * 3600.0) / 60, 0.2);
  EXPECT_EQ(j["ranked"].items()[0]["checkpoint_s"].double_or(0), 40);
  // More sharding and more recomputation never need more; what was chosen is the first that fits.
  double before = 1e300;
  bool found = false;
  for (auto& s : j["stages"].items()) {
    double bytes = s["total_bytes"].double_or(0);
    if (s["activation_checkpointing"].str_or("") == "none") {
      EXPECT_LE(bytes, before) << s.dump();
      before = bytes;
    } else {
      EXPECT_LE(bytes, before) << s.dump();
    }
    if (!found && s["fits"].bool_or(false)) {
      found = true;
      EXPECT_EQ(s["zero"].str_or(""), j["ranked"].items()[0]["zero"].str_or("-"));
      EXPECT_EQ(s["activation_checkpointing"].str_or(""),
                j["ranked"].items()[0]["activation_checkpointing"].str_or("-"));
    }
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(run_advise({"--model", "13B", "--train", "--checkpoint-time", "soon"}, {}).exit_code,
            2);
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

TEST(Commands, ATraceGivesTheLoadOfItsBusiestMinute) {
  auto dir = scratch("trace");
  std::string csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int s = 0; s < 60; ++s)
    csv += fmt::format("2026-01-31T23:58:{:02},100,20\n", s);
  for (int s = 0; s < 60; ++s)
    for (int k = 0; k < 5; ++k)
      csv += fmt::format("2026-02-28T23:59:{:02},300,20\n",
                         s);  // another month, later: not the same minute
  ASSERT_TRUE(write_file_atomic(dir + "/t.csv", csv));
  auto r = run_advise({"--model", "7B", "--trace", dir + "/t.csv", "--json"}, {});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = *parse_json(r.out);
  EXPECT_NEAR(j["rps"].double_or(0), 5, 0.01) << r.out.substr(0, 400);
  EXPECT_NEAR(j["input"].double_or(0), std::round((60 * 100 + 300 * 300) / 360.0), 1e-9);
  ASSERT_TRUE(
      write_file_atomic(dir + "/bad.csv", "timestamp,input_tokens,output_tokens\nyesterday,1,1\n"));
  EXPECT_NE(run_advise({"--model", "7B", "--trace", dir + "/bad.csv"}, {}).exit_code, 0);
}

TEST(Plan, ATraceEndsWithItsLastArrival) {
  auto dir = scratch("plan");
  std::string csv = "timestamp,duration,num_gpus\n";
  for (int day = 0; day < 30; ++day)
    csv += fmt::format("{},86400,4\n", day * 86400);
  csv += fmt::format("{},8640000,1\n",
                     29 * 86400);  // a hundred days of one GPU after the last arrival say nothing
  ASSERT_TRUE(write_file_atomic(dir + "/t.csv", csv));
  auto r = run_plan({"--trace", dir + "/t.csv", "--gpu", "H100", "--json"}, {});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ((*parse_json(r.out))["hours"].int_or(0), 29 * 24 + 1);
}

TEST(Commands, EveryAnswerHasAJsonForm) {
  CommandContext context;
  auto r = run_advise({"--model", "7B", "--users", "5", "--json"}, context);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = parse_json(r.out);
  ASSERT_TRUE(j);
  EXPECT_GT((*j)["tpot_ms"].double_or(0), 0);
  EXPECT_GT((*j)["ttft_ms"].double_or(0), 0);
  EXPECT_TRUE(j->at("best", "memory_per_gpu", "weights_bytes").is_number());
  EXPECT_EQ(run_advise({"--model", "7B", "--train", "--json"}, context).exit_code, 0);
  auto p = run_prices({"--gpu", "H100", "--json"}, context);
  ASSERT_EQ(p.exit_code, 0);
  EXPECT_TRUE(parse_json(p.out));
  for (auto* run : {&run_advise, &run_prices, &run_plan}) {
    auto help = (*run)({"--help"}, context);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("Example: "), std::string::npos);
  }
}

TEST(Commands, WrongOptionsAreNamedWithTheNearest) {
  CommandContext context;
  struct Row {
    std::vector<std::string> args;
    const char* says;
  };
  for (auto& [args, says] :
       {Row{{"--modle", "7B"}, "--model"}, Row{{}, "no --model"}, Row{{"--model"}, "needs a value"},
        Row{{"--model", "7B", "--tps", "fast"}, "--tps"},
        Row{{"--model", "7B", "--rps", "1", "--users", "2"}, "give one"},
        Row{{"--model", "7B", "--precision", "fp3"}, "precision"},
        Row{{"--model", "7B", "--ttft", "-3s"}, "--ttft"},
        Row{{"--model", "7B", "--input", "1e99"}, "--input"},
        Row{{"--model", "/no/such/config.json"}, "no model"},
        Row{{"--model", "7B", "--providers", "nobody"}, "no offer"},
        Row{{"--model", "7B", "--context", "99999999"}, "context"},
        Row{{"--model", "7B", "--mine"}, "--mine"}}) {
    auto r = run_advise(args, context);
    EXPECT_NE(r.exit_code, 0) << says;
    EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
  }
  EXPECT_NE(run_plan({}, context).exit_code, 0);
  EXPECT_NE(run_plan({"--risk", "none"}, context).exit_code, 0);
  EXPECT_NE(run_prices({"--gpu", "H9000"}, context).exit_code, 0);
  EXPECT_NE(run_prices({"update", "/no/such.csv"}, context).exit_code, 0);
}

TEST(Commands, BatchAnswersEveryRowInOrder) {
  auto dir = scratch("batch");
  ASSERT_TRUE(write_file_atomic(dir + "/org--tiny_config.json", tiny_model));
  ASSERT_TRUE(
      write_file_atomic(dir + "/rows.csv",
                        "id,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_"
                        "size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size\n"
                        "a,vllm,0.17.0,org/tiny,h100_sxm,fp8,agg,1024,1024,8,1,1,1,1,1\n"
                        "b,vllm,,org/none,h100_sxm,fp8,agg,1024,1024,8,1,1,1,1,1\n"
                        "c,vllm,,org/tiny,h100_sxm,fp8,agg,-5,1024,8,1,1,1,1,1\n"
                        "d,sglang,,org/tiny,no_such_gpu,fp8,agg,1024,1024,8,1,1,1,1,1\n"
                        "e,trtllm,,org/tiny,l40s,bf16,agg,1024,1024,64,2,1,1,1,1\n"));
  auto r = run_advise({"--batch", dir + "/rows.csv", "--models", dir, "--json"}, {});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = *parse_json(r.out);
  ASSERT_EQ(j.size(), 5u);
  const char* ids = "abcde";
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(j.items()[i]["id"].str_or(""), std::string(1, ids[i]));
  for (std::size_t i : {0u, 4u}) {
    auto& row = j.items()[i];
    EXPECT_GT(row["tpot_ms"].double_or(0), 0);
    EXPECT_LE(row["tpot_ms_low"].double_or(0), row["tpot_ms"].double_or(0));
    EXPECT_GE(row["ttft_ms_high"].double_or(0), row["ttft_ms"].double_or(0));
    EXPECT_FALSE(row["kind"].str_or("").empty());
  }
  for (std::size_t i : {1u, 2u, 3u})
    EXPECT_FALSE(j.items()[i]["error"].str_or("").empty()) << i;
  auto table = run_advise({"--batch", dir + "/rows.csv", "--models", dir}, {});
  EXPECT_EQ(split(table.out, '\n').size(),
            7u);  // a header, five rows, and what follows the last newline
  ASSERT_TRUE(write_file_atomic(dir + "/bad.csv", "id,\"model"));
  EXPECT_NE(run_advise({"--batch", dir + "/bad.csv"}, {}).exit_code, 0);
}

TEST(Commands, PricesUpdateIsKeptAndUsed) {
  auto dir = scratch("prices");
  ASSERT_TRUE(write_file_atomic(dir + "/new.csv",
                                "provider,instance,region,on_demand_usd_h,spot_usd_h,date\naws,p5."
                                "48xlarge,us-east-1,1.60,0.80,2026-11-01\n"));
  CommandContext context{.data_dir = dir};
  auto r = run_prices({"update", dir + "/new.csv"}, context);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto shown = run_prices({"--instance", "p5.48xlarge", "--regions", "us-east-1"}, context);
  EXPECT_NE(shown.out.find("1.6000"), std::string::npos) << shown.out;
  // A second import, with its columns in another order, adds to the first and overrides only what
  // it names.
  ASSERT_TRUE(
      write_file_atomic(dir + "/more.csv",
                        "# from a "
                        "list\nDate,Provider,Instance,Region,on_demand_usd_h\n2026-11-02,aws,p5."
                        "48xlarge,us-west-2,2.40\n2026-11-02,aws,p4d.24xlarge,us-east-1,8.80\n"));
  ASSERT_EQ(run_prices({"update", dir + "/more.csv"}, context).exit_code, 0);
  shown = run_prices({"--instance", "p5.48xlarge", "--regions", "us-"}, context);
  EXPECT_NE(shown.out.find("1.6000"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("2.4000"), std::string::npos) << shown.out;
  ASSERT_TRUE(write_file_atomic(dir + "/bad.csv", "nonsense\n"));
  EXPECT_NE(run_prices({"update", dir + "/bad.csv"}, context).exit_code, 0);
  EXPECT_NE(run_prices({"--instance", "p4d.24xlarge", "--regions", "us-east-1"}, context)
                .out.find("8.8000"),
            std::string::npos);
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
  EXPECT_GT(after, before * 1.5);
  EXPECT_LT(after, before * 2);
  EXPECT_EQ(bent.kind_of(row), Kind::measured);
}

TEST(Portfolio, NewsvendorCommitsToTheBaseline) {
  std::vector<Hour> hours;
  for (int i = 0; i < 1000; ++i)
    hours.push_back({i % 10 < 8 ? 10.0 : 50.0, 2.0, 0});
  Market m{.spot_share = 0};
  // 40 GPUs above ten are used a fifth of the time: not worth 60 % of their price at all hours.
  EXPECT_EQ(best_commitment(hours, m, 1.2), 10);
  EXPECT_EQ(best_commitment(hours, m, 0.3), 50);
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
