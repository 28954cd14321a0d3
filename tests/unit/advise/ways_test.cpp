// Several nodes, spread experts and separate prefill workers: considered, priced and explained.
#include "advise/ways.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "advise/answer/launch.h"
#include "tests/unit/advise/embedded.h"

namespace billow::advise {
namespace {

Request question(const char* model, const char* gpu) {
  Request r;
  r.model = *shipped_model(model);
  r.offers.gpu = gpu;
  r.chance_min = 0.5;
  return r;
}

TEST(Ways, WhatNoMachineHoldsIsSpreadOverMachinesAndPaidFor) {
  auto r = question("Llama-3.1-405B", "H100");
  r.precisions = {Precision::bf16};
  r.offers.providers = {"aws"};
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  const auto& b = *a->best;
  EXPECT_EQ(b.parallelism.tensor, 8);
  EXPECT_EQ(b.parallelism.pipeline, 2) << "810 GB of weights on two machines of 640 GB";
  ASSERT_TRUE(b.offer && b.offer->instance);
  EXPECT_EQ(b.offer->instances, 2 * b.replicas);
  r.precisions = {Precision::fp8};
  const auto one = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(one);
  EXPECT_EQ(one->best->parallelism.pipeline, 1) << "one machine holds it: none is added";
}

TEST(Ways, AMixtureIsComparedWithSpreadExpertsAndSeparatePrefill) {
  auto r = question("DeepSeek-R1", "H200");
  r.rps = 40;
  r.input = 4096;
  r.output = 512;
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  auto named = [&](const char* part) {
    return std::any_of(a->ways.begin(), a->ways.end(),
                       [&](const OtherWay& w) { return w.name.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(named("attention by data ranks"));
  EXPECT_TRUE(named("16 GPUs of 2 nodes"));
  EXPECT_TRUE(named("separate prefill"));
  for (auto& w : a->ways) {
    EXPECT_GT(w.tpot_ms, 0) << w.name;
    EXPECT_GE(w.gpus, w.parallelism.gpus()) << w.name;
    EXPECT_EQ(w.name == "separate prefill workers", w.prefill_gpus > 0) << w.name;
    EXPECT_FALSE(w.why.empty());
  }
  const auto text = advice_text(r, *a);
  EXPECT_NE(text.find("considered: attention by data ranks"), std::string::npos);
  EXPECT_EQ(advice_json(r, *a)["considered"].items().size(), a->ways.size());
}

TEST(Ways, OneCanBeAskedFor) {
  auto r = question("DeepSeek-R1", "H200");
  r.engine = "sglang";
  r.rps = 20;
  r.input = 4096;
  r.output = 512;
  r.way = Way::data_attention;
  const auto spread = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(spread) << spread.error().message;
  for (auto& c : spread->ranked)
    EXPECT_TRUE(c.parallelism.attention_data == c.parallelism.tensor && c.parallelism.tensor > 1);
  EXPECT_NE(launch_text(*spread->best, r).find("--enable-dp-attention"), std::string::npos);

  r.way = Way::separate_prefill;
  const auto apart = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(apart) << apart.error().message;
  const auto& b = *apart->best;
  EXPECT_GT(b.prefill_gpus, 0);
  EXPECT_EQ(b.gpus, b.replicas * (b.parallelism.gpus() + b.prefill_gpus));
  EXPECT_EQ(b.offer->instances * b.offer->instance->gpus >= b.gpus, true) << "all are paid for";
  EXPECT_FALSE(b.tails) << "the replay knows no separate workers";
  const auto text = advice_text(r, *apart);
  EXPECT_NE(text.find("GPUs that prefill"), std::string::npos);
  EXPECT_NE(text.find("--disaggregation-mode prefill"), std::string::npos);
  EXPECT_NE(text.find("considered: tensor ranks that do everything"), std::string::npos);

  r.percentile = Percentile::p95;
  r.ttft_ms_max = 2000;
  EXPECT_FALSE(recommend(r, catalogue(), calibration())) << "nobody knows the percentiles";
  auto dense = question("Llama-3.1-70B", "H200");
  dense.way = Way::data_attention;
  EXPECT_FALSE(recommend(dense, catalogue(), calibration())) << "there are no experts to spread";
  EXPECT_FALSE(parse_way("sideways"));
}

TEST(Ways, StagesOnSeveralMachinesAreLaunchedAsAGang) {
  auto r = question("Llama-3.1-405B", "H100");
  r.precisions = {Precision::bf16};
  r.offers.providers = {"aws"};
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  const auto launch = launch_text(*a->best, r);
  EXPECT_NE(launch.find("billow run --nodes 2 --gpus 8"), std::string::npos) << launch;
  EXPECT_NE(launch.find("--pipeline-parallel-size 2"), std::string::npos) << launch;
}

TEST(Ways, ASmallModelOnOneGpuHasNoOtherWay) {
  const auto a = recommend(question("Llama-3.1-8B", "L40S"), catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_TRUE(a->ways.empty());
}

// The same ranks exchange more slowly over a network, never faster.
TEST(Ways, ANetworkIsSlowerThanAFabric) {
  ServingRow row;
  row.shape = std::make_shared<const ModelShape>(*shipped_model("DeepSeek-R1"));
  row.family = family_of(*row.shape);
  row.gpu = *catalogue().gpu("H200");
  row.engine = "vllm";
  row.version = version_unsaid;
  row.precision = "fp8";
  row.parallelism = {.tensor = 16, .attention_data = 16, .expert = 16};
  for (double load : {16.0, 256.0, 4096.0}) {
    row.concurrency = load;
    row.nodes = 1;
    const auto inside = Calibration::quick(calibration().prepare(row), row);
    row.nodes = 2;
    const auto across = Calibration::quick(calibration().prepare(row), row);
    EXPECT_GT(across.tpot_ms, inside.tpot_ms) << load;
  }
}

}  // namespace
}  // namespace billow::advise
