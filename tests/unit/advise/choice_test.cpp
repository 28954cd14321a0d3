// Choices under doubt, right sizes, reviews, and questions as JSON.
#include "advise/choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "advise/ask.h"
#include "advise/fleet.h"
#include "advise/plan.h"
#include "advise/pricing.h"
#include "advise/review.h"
#include "advise/rightsize.h"
#include "tests/unit/advise/embedded.h"

namespace billow::advise {
namespace {

TEST(Choose, TakesTheCheapestFairOneUnlessCertaintyIsCheap) {
  EXPECT_EQ(choose({{10, 0.1}, {20, 0.6}, {50, 0.99}}, {}), 1u)
      << "the first is not fair, the third too dear";
  EXPECT_EQ(choose({{20, 0.6}, {21, 0.99}}, {}), 1u) << "five percent more for much more";
  EXPECT_EQ(choose({{20, 0.95}, {23, 0.99}}, {}), 0u) << "fifteen percent more for little more";
  EXPECT_EQ(choose({{10, 0.1}, {20, 0.2}}, {}), 1u) << "none is fair: the surest";
  EXPECT_NEAR(chance_below(std::log(50.0), 50, 0.2), 0.5, 1e-9);
  EXPECT_NEAR(chance_below(std::log(50.0), 50 * std::exp(0.2563), 0.2), 0.9, 1e-3);
  EXPECT_EQ(chance_below(std::log(60.0), 50, 0), 0);
}

TEST(RightSize, SmallWorkGetsASliceAndBusyWorkItsCard) {
  auto fleet = fleet_of({{{"H100", {}}, {"H100", {}}}, {{"L4", {}}}}, catalogue());
  RunMeasured run{.gpu = "H100",
                  .mem_peak_mib = 9000,
                  .sm_p95_pct = 12,
                  .dram_p95_pct = 9,
                  .util_p95_pct = 100,
                  .seconds = 60,
                  .samples = 100};
  auto small = right_size(run, fleet, catalogue());
  ASSERT_TRUE(small.best) << small.verdict;
  EXPECT_GE(small.best->memory_mib, run.mem_peak_mib * 1.1);
  EXPECT_LT(small.best->memory_mib, 30000);
  EXPECT_TRUE(small.trusted);
  run.sm_p95_pct = 95;
  auto busy = right_size(run, fleet, catalogue());
  ASSERT_TRUE(busy.best);
  EXPECT_EQ(busy.best->what, "1 × " + (*catalogue().gpu("H100"))->name);
  for (auto& o : busy.options)
    EXPECT_GE(o.memory_mib, busy.mem_needed_mib);
  // Without SM activity utilisation is an upper bound, and said so: never less than it says.
  run.sm_p95_pct.reset();
  run.dram_p95_pct.reset();
  auto blind = right_size(run, fleet, catalogue());
  EXPECT_EQ(blind.activity, 1);
  EXPECT_FALSE(blind.notes.empty());
  run.mem_peak_mib = 79000;
  auto full = right_size(run, fleet, catalogue());
  for (auto& o : full.options)
    EXPECT_GE(o.memory_mib, 79000);
}

// A card that is not partitioned has no MIG instances for jobs, and a partitioned one nothing else.
TEST(RightSize, MigInstancesAreProposedOnlyOnPartitionedCards) {
  const RunMeasured run{
      .gpu = "H100", .mem_peak_mib = 3000, .util_p95_pct = 10, .seconds = 60, .samples = 100};
  for (const bool cut : {false, true}) {
    const FleetCard card{"H100",
                         cut ? std::vector<std::string>{"1g.10gb"} : std::vector<std::string>{}};
    const auto size = right_size(run, fleet_of({{card}}, catalogue()), catalogue());
    ASSERT_TRUE(size.best) << size.verdict;
    for (auto& o : size.options)
      EXPECT_EQ(o.ask.starts_with("--mig"), cut && o.ours) << o.what;
  }
}

TEST(Plan, RentsAsAdviseDoesAndNeverAtAnAuctionsFloor) {
  const WallTime now{1'795'000'000ll * 1'000'000'000};  // 2026-11-18
  for (const char* gpu : {"H100", "A100-80", "B200", "L4"}) {
    const auto plan = make_plan({.gpu = gpu,
                                 .demand = std::vector<double>(720, 4),
                                 .offers = {},
                                 .market = {},
                                 .committed_ratio = {},
                                 .buy_usd = {},
                                 .now = now},
                                catalogue());
    ASSERT_TRUE(plan) << plan.error().message;
    const std::string seller = plan->price.where.substr(0, plan->price.where.find(' '));
    EXPECT_NE(tier_of(seller), Tier::marketplace) << gpu << ": " << plan->price.where;
  }
  const GpuSpec& h100 = **catalogue().gpu("H100");
  const auto rent = cheapest_rent(h100, {}, catalogue(), now);
  ASSERT_TRUE(rent);
  EXPECT_GT(rent->usd_h, 1.2) << "the lowest bid was $1.00";
  EXPECT_FALSE(cheapest_rent(h100, {.providers = {"mithril"}}, catalogue(), now));
  EXPECT_TRUE(cheapest_rent(**catalogue().gpu("RTX-4090"), {}, catalogue(), now))
      << "where only marketplaces have it";
}

TEST(Fleet, MigShapesHaveTheirNames) {
  auto names = [](const char* gpu) {
    std::string out;
    for (auto& m : mig_shapes(**catalogue().gpu(gpu)))
      out += m.name + " ";
    return out;
  };
  EXPECT_EQ(names("H100"), "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb ");
  EXPECT_EQ(names("A100-40"), "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb ");
  EXPECT_EQ(names("H200"), "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb ");
  EXPECT_EQ(names("L4"), "");
  auto cut = fleet_of({{{"H100", {"3g.40gb", "3g.40gb"}}}}, catalogue());
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_FALSE(cut[0].whole);
  ASSERT_EQ(cut[0].mig.size(), 1u);
  EXPECT_EQ(cut[0].mig[0].sevenths, 3);
}

TEST(Review, SavesOnlyWhatWasUsedAndCountsNothingTwice) {
  const WallTime now{1'793'500'000ll * 1'000'000'000};  // 2026-11-01
  auto month = month_before(now);
  EXPECT_EQ(month.name, "2026-10");
  EXPECT_NEAR(month.to_s - month.from_s, 31 * 86400, 1);
  std::vector<UsedSpan> spans{{"H100", month.from_s - 86400, month.to_s + 86400, 4,
                               4 * 33 * 24 * 9.0}};  // nine dollars an hour, at all hours
  auto usage = usage_of(spans, month.from_s, month.to_s);
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_NEAR(usage[0].gpu_hours(), 4 * 31 * 24, 1);
  EXPECT_NEAR(usage[0].paid_usd, 4 * 31 * 24 * 9.0, 1);
  auto r = review({.usage = usage,
                   .period = month.name,
                   .price_changes = {"aws p5.48xlarge us-east-1: $98.32/h → $55.04/h (-44 %)",
                                     "aws nothing-we-use us-east-1: $1/h → $2/h"},
                   .market = {},
                   .now = now},
                  catalogue());
  ASSERT_GE(r.actions.size(), 2u);
  EXPECT_EQ(r.changes.size(), 1u);
  double most = 0;
  for (auto& a : r.actions) {
    most = std::max(most, a.usd_month);
    EXPECT_LE(a.usd_month, r.paid_usd) << a.what;
  }
  EXPECT_EQ(r.usd_month, most);
  EXPECT_NE(r.summary().find("2026-10"), std::string::npos);
  EXPECT_EQ(review_json(r)["saves_usd_month"].double_or(0), std::round(most * 100) / 100);
  auto empty =
      review({.usage = {}, .period = "2026-10", .price_changes = {}, .market = {}, .now = now},
             catalogue());
  EXPECT_EQ(empty.usd_month, 0);
  EXPECT_EQ(month_of(now).name, "2026-11");
}

TEST(Ask, AnswersAsTheCommandDoesAndNamesWhatIsWrong) {
  auto a = answer(*parse_json(R"({"model":"7B","users":20,"tps":15})"), {});
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_GT(a->at("best", "tpot_ms").double_or(0), 0);
  EXPECT_GT((*a)["options"].items().size(), 3u);
  EXPECT_FALSE((*a)["text"].str_or("").empty());
  auto other =
      answer(*parse_json(R"({"model":"7B","weights":"bf16","input_tokens":512,"output_tokens":64,)"
                         R"("requests_per_s":2,"tpot_ms":80})"),
             {});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_LE(other->at("best", "tpot_ms").double_or(1e9), 80);
  auto config = answer(
      *parse_json(R"({"config":{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,)"
                  R"("num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,)"
                  R"("vocab_size":128256}})"),
      {});
  EXPECT_TRUE(config) << config.error().message;
  auto training = answer(*parse_json(R"({"model":"7B","train":true,"tuning":"lora"})"), {});
  EXPECT_TRUE(training);
  for (auto bad : {R"([])", R"({})", R"({"modle":"7B"})", R"({"model":"/etc/passwd"})",
                   R"({"model":"7B","users":-1})", R"({"model":"7B","users":"many"})",
                   R"({"model":"7B","precision":"fp3"})", R"({"model":"7B","mine":true})",
                   R"({"config":{"hidden_size":1e300}})", R"({"model":"7B","rps":1,"users":1})",
                   R"({"config":7})"}) {
    auto r = answer(*parse_json(bad), {});
    ASSERT_FALSE(r) << bad;
    EXPECT_FALSE(r.error().message.empty());
  }
}

TEST(Ask, RefusesWhatItWouldIgnore) {
  for (auto bad : {R"({"model":"8B","percentile":95,"ttft_ms":900})",
                   R"({"model":"8B","percentile":"p95"})",
                   R"({"model":"8B","gpu":7})",
                   R"({"model":"8B","tpot_ms":-5})",
                   R"({"model":"8B","tpot_ms":"50"})",
                   R"({"model":"8B","engine":5})",
                   R"({"model":"8B","engine":"vlm"})",
                   R"({"model":"8B","engine_version":1})",
                   R"({"model":"8B","kv_cache":8})",
                   R"({"model":"8B","kv_cache":"int4"})",
                   R"({"model":"8B","way":1})",
                   R"({"model":"8B","tuning":"lora"})",
                   R"({"model":"8B","tokens":1e9})",
                   R"({"model":"8B","train":true,"tuning":5})",
                   R"({"model":"8B","train":true,"users":50})",
                   R"({"model":"8B","train":true,"mine":true})",
                   R"({"model":"8B","train":true,"spot":true})",
                   R"({"model":"8B","train":true,"deadline_h":10})",
                   R"({"model":"sdxl","users":10})",
                   R"({"model":"sdxl","rps":1,"ttft_ms":100})",
                   R"({"model":"8B","context":10})"}) {
    const auto r = answer(*parse_json(bad), {});
    ASSERT_FALSE(r) << bad;
    EXPECT_EQ(r.error().code, Code::invalid) << bad;
  }
  const auto one = answer(*parse_json(R"({"model":"8B","gpu":["H100","L4"],"spot":false})"), {});
  ASSERT_TRUE(one) << one.error().message;
  for (auto& option : (*one)["options"].items())
    EXPECT_TRUE(option["gpu"] == Json("H100-SXM") || option["gpu"] == Json("L4"));
  EXPECT_TRUE(answer(*parse_json(R"({"model":"8B","train":true,"spot":false})"), {}));
}

}  // namespace
}  // namespace billow::advise
