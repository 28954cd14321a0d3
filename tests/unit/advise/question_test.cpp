// Questions as newcomers ask them: names are resolved or refused with the nearest, the answer
// carries its load, and its command can be run.
#include <gtest/gtest.h>

#include "advise/answer/launch.h"
#include "advise/fleet.h"
#include "advise/media/media.h"
#include "advise/pricing.h"
#include "advise/question.h"
#include "advise/ranking.h"
#include "base/text.h"
#include "tests/unit/advise/embedded.h"

namespace billow::advise {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Request load_of_llama(const char* model, double rps) {
  Request r;
  r.model = *shipped_model(model);
  r.rps = rps;
  return r;
}
std::vector<FleetGpu> eight_h100() {
  return fleet_of({FleetNode(8, FleetCard{"H100", {}})}, catalogue());
}

TEST(Question, AListOfGpusIsComparedWhateverItsOrder) {
  for (auto list : {"4090,H100", "H100, 4090"}) {
    auto r = load_of_llama("Llama-3.1-8B", 4);
    r.offers.gpu = list;
    r.any_offer = true;
    const auto a = recommend(r, catalogue(), calibration());
    ASSERT_TRUE(a) << a.error().message;
    std::set<std::string> seen;
    for (auto& c : a->ranked)
      seen.insert(c.gpu->name);
    EXPECT_EQ(seen, (std::set<std::string>{"RTX-4090", "H100-SXM"})) << list;
    EXPECT_TRUE(has(join(a->notes, "\n"), "4090 is taken as RTX-4090"));
  }
  EXPECT_FALSE(catalogue().gpu("4090,H100")) << "a list is no GPU";
}

TEST(Question, UnknownNamesAreErrorsWithTheNearestAndTheList) {
  struct Row {
    const char *gpu, *provider, *hint;
  };
  for (auto& [gpu, provider, hint] :
       {Row{"H1000", "", "did you mean h100"}, Row{"TPU", "", "L40S"},
        Row{"6000", "", "RTX-6000-Ada"}, Row{"L4,H1000", "", "H100"},
        Row{"", "amazon", "did you mean aws?"}, Row{"", "nobody", "providers: "}}) {
    auto r = load_of_llama("Llama-3.1-8B", 4);
    r.offers.gpu = gpu;
    if (*provider)
      r.offers.providers = {provider};
    TrainingRequest t;
    t.model = r.model;
    t.offers = r.offers;
    const MediaRequest m{.model = media_model("flux"), .rps = 1, .offers = r};
    const auto serving = recommend(r, catalogue(), calibration());
    const auto training = recommend_training(t, catalogue());
    const auto media = recommend_media(m, catalogue());
    ASSERT_FALSE(serving);
    ASSERT_FALSE(training);
    ASSERT_FALSE(media);
    for (auto* e : {&serving.error(), &training.error(), &media.error()}) {
      EXPECT_EQ(e->code, Code::invalid);
      EXPECT_TRUE(has(e->hint, hint)) << e->message << " / " << e->hint;
    }
  }
}

TEST(Question, ShortNamesWorkForTraining) {
  TrainingRequest t;
  t.model = *model_of_size("8B");
  t.tuning = Tuning::qlora;
  t.offers.gpu = "4090";
  t.any_offer = true;
  auto a = recommend_training(t, catalogue());
  ASSERT_TRUE(a) << a.error().message;
  // Whatever is cheapest per token, the one card that does it is among the answers.
  EXPECT_TRUE(has(training_text(t, *a), "(1 × RTX-4090)")) << training_text(t, *a);
  t.offers.gpus_max = 1;
  a = recommend_training(t, catalogue());
  ASSERT_TRUE(a) << a.error().message;
  for (auto& c : a->ranked)
    EXPECT_EQ(c.gpus, 1);
  const auto text = training_text(t, *a);
  EXPECT_FALSE(has(text, "NVLink")) << "one card exchanges nothing";
  EXPECT_FALSE(has(text, "1 GPUs"));
}

TEST(Question, AtMostSoManyGpusAreRented) {
  auto r = load_of_llama("Llama-3.1-70B", 1);
  r.offers.gpus_max = 2;
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  for (auto& c : a->ranked) {
    EXPECT_LE(c.gpus, 2);
    if (c.offer && c.offer->instance) {
      EXPECT_LE(c.offer->instances * c.offer->instance->gpus, 2) << c.offer->instance->name;
    }
  }
  r.rps = 1000;
  const auto none = recommend(r, catalogue(), calibration());
  ASSERT_FALSE(none);
  EXPECT_TRUE(has(none.error().hint, "--max-gpus")) << none.error().hint;
  EXPECT_FALSE(has(none.error().hint, "--tps")) << none.error().hint;
}

TEST(Question, OnlyWhatWasAskedForIsToBeRelaxed) {
  auto r = load_of_llama("Llama-3.1-8B", 1);
  r.ttft_ms_max = 1;
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_FALSE(a);
  EXPECT_EQ(a.error().hint, "use a longer --ttft");
}

// Capacities are of equal lengths; with real ones a queue may grow, and then it is no answer.
TEST(Question, WhatDoesNotCarryTheLoadIsNeverRecommended) {
  for (double rps : {1.0, 4.0, 9.0, 30.0}) {
    auto r = load_of_llama("Llama-3.1-8B", rps);
    r.fleet = eight_h100();
    auto cut = fleet_of({FleetNode(8, FleetCard{"H100", {"1g.20gb", "2g.20gb"}})}, catalogue());
    r.fleet.insert(r.fleet.end(), cut.begin(), cut.end());
    const auto a = recommend(r, catalogue(), calibration());
    ASSERT_TRUE(a) << a.error().message;
    for (auto* c : {&a->best, &a->runner_up, &a->third})
      if (*c) {
        ASSERT_TRUE((*c)->tails);
        EXPECT_TRUE((*c)->tails->keeps_up) << rps << " on " << (*c)->slice;
      }
  }
}

TEST(Question, AnOverloadedOptionIsShownOnlyIfNothingElseIs) {
  auto r = load_of_llama("Llama-3.1-8B", 4);
  auto a = *recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a.ranked.size() > 2);
  const auto* best = a.best->gpu;
  for (auto& c : a.ranked)
    if (c.gpu == best) {
      c.tails = *a.best->tails;
      c.tails->keeps_up = false;
    }
  rank(a, r);
  EXPECT_NE(a.best->gpu, best);
  EXPECT_FALSE(overloaded(a.ranked.front()));
  EXPECT_TRUE(overloaded(a.ranked.back()));
  std::erase_if(a.ranked, [](const Candidate& c) { return !overloaded(c); });
  rank(a, r);
  EXPECT_EQ(a.best->gpu, best);
}

TEST(Question, MineLaunchesWhatTheHeadHas) {
  auto r = load_of_llama("Llama-3.1-8B", 4);
  r.fleet = eight_h100();
  r.offers.gpu = "H100-SXM";
  auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  for (auto& c : a->ranked) {
    EXPECT_TRUE(c.mig.empty()) << "these cards are not partitioned";
    const auto launch = launch_text(c, r);
    EXPECT_TRUE(has(launch, "--gpu-type H100 ")) << launch;
    EXPECT_TRUE(has(launch, c.slice == "whole" ? fmt::format("--gpus {} ", c.parallelism.gpus())
                                               : fmt::format("--gpus {:g} ", c.part)))
        << launch;
  }
  r.fleet = fleet_of({FleetNode(8, FleetCard{"H100", {"2g.20gb"}})}, catalogue());
  a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_TRUE(has(launch_text(*a->best, r), "deploy llm --mig 2g.20gb --gpu-type H100 "));
  r.offers.gpu = "A100-80GB-SXM";
  a = recommend(r, catalogue(), calibration());
  ASSERT_FALSE(a);
  EXPECT_TRUE(has(a.error().hint, "GPUs here: H100")) << a.error().hint;
}

// The rent of one's own GPU is what `--gpu` says it rents for: no marketplace, no old price.
TEST(Question, OwnGpusAreWorthWhatTheyRentFor) {
  auto rented = load_of_llama("Llama-3.1-70B", 1);
  rented.offers.gpu = "H100";
  rented.now = {seconds(1'795'000'000).ns};  // November 2026
  const auto there = recommend(rented, catalogue(), calibration());
  ASSERT_TRUE(there) << there.error().message;
  auto mine = rented;
  mine.fleet = eight_h100();
  mine.precisions = {there->best->precision};
  const auto here = recommend(mine, catalogue(), calibration());
  ASSERT_TRUE(here) << here.error().message;
  int compared = 0;
  for (auto& c : here->ranked)
    for (auto& o : there->ranked)
      if (c.slice == "whole" && c.precision == o.precision && c.gpus == o.gpus &&
          c.parallelism.gpus() == o.parallelism.gpus() && o.offer->on_demand_month) {
        const auto rent = *o.offer->on_demand_month / o.offer->instances / o.offer->instance->gpus;
        EXPECT_NEAR(c.worth_month, rent * c.gpus, 1) << c.gpus;
        ++compared;
      }
  EXPECT_GT(compared, 0);
}

TEST(Question, TheLaunchCommandInventsNoCheckpoint) {
  auto r = load_of_llama("mistralai/Mixtral-8x7B-Instruct-v0.1", 1);
  r.precisions = {Precision::int8};
  auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  auto text = advice_text(r, *a);
  EXPECT_TRUE(has(text, "vllm serve YOUR-INT8-CHECKPOINT --")) << text;
  EXPECT_TRUE(has(text, "a copy of mistralai/Mixtral-8x7B-Instruct-v0.1 in int8")) << text;
  EXPECT_FALSE(has(text, "v0.1-int8")) << text;
  EXPECT_TRUE(has(text, "B active)")) << "a mixture";
  r = load_of_llama("Llama-3.1-8B", 1);
  r.precisions = {Precision::fp16};
  a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  text = advice_text(r, *a);
  EXPECT_TRUE(has(text, "Llama-3.1-8B --dtype float16 --")) << text;
  EXPECT_FALSE(has(text, "B active)")) << "dense";
}

TEST(Question, TheEngineAcceptsTheLengthsThatTheAnswerCountsWith) {
  auto r = load_of_llama("Llama-3.1-8B", 4);
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  const auto& b = *a->best;
  const double longest = longest_sequence(b, r);
  EXPECT_GT(longest, 4 * (r.input + r.output)) << "one in a thousand is much longer";
  EXPECT_LE(longest, b.memory.sequences_max * (r.input + r.output)) << "but fits";
  EXPECT_TRUE(has(advice_text(r, *a), fmt::format("--max-model-len {:.0f} ", longest)));
  r.lengths = {{.input = 100, .output = 20}, {.input = 7000, .output = 500}};
  EXPECT_EQ(longest_sequence(b, r), 8 * 1024);
  r.context = 5000;
  EXPECT_EQ(longest_sequence(b, r), 5000);
}

TEST(Question, TheLimitIsShownWithItsFigure) {
  auto r = load_of_llama("Llama-3.1-70B", 4);
  r.ttft_ms_max = 1000;
  const auto a = recommend(r, catalogue(), calibration());
  ASSERT_TRUE(a) << a.error().message;
  for (auto& c : a->ranked)
    if (c.binding == "time to first token") {
      EXPECT_TRUE(has(c.limit, "ms")) << c.limit;
    }
  const auto text = advice_text(r, *a);
  EXPECT_TRUE(has(text, "price if it is always so busy")) << text;
  EXPECT_TRUE(has(text, fmt::format("← at this load: ${:.2f}/M", *a->best->usd_per_million)))
      << text;
}

TEST(Question, MistypedModelsSuggestTheSameSizeAndGeneration) {
  auto all = [](const char* typed) {
    return " " + join(models_like(typed), " ") + " ";
  };
  EXPECT_TRUE(has(all("mixtral"), " mixtral-8x7b-v0.1 ")) << all("mixtral");
  EXPECT_TRUE(has(all("mixtral"), " mixtral-8x22b-v0.1 ")) << all("mixtral");
  EXPECT_TRUE(has(all("Mixtral-8x7B"), " mixtral-8x7b")) << all("Mixtral-8x7B");
  EXPECT_FALSE(has(all("Mixtral-8x7B"), "8x22b")) << all("Mixtral-8x7B");
  EXPECT_TRUE(has(all("llama-70b"), " llama-3.1-70b ")) << all("llama-70b");
  EXPECT_TRUE(has(all("llama-70b"), " llama-2-70b ")) << all("llama-70b");
  for (auto typed : {"llama-70b", "Llama3-8B", "llama-3-70b"})
    EXPECT_FALSE(has(all(typed), "-7b")) << all(typed);
  EXPECT_TRUE(all("Llama3-8B").starts_with(" meta-llama-3-8b ")) << all("Llama3-8B");
  EXPECT_TRUE(all("llama-3-70b").starts_with(" meta-llama-3-70b ")) << all("llama-3-70b");
  EXPECT_FALSE(has(all("llama-3-70b"), "llama-2")) << all("llama-3-70b");
  EXPECT_TRUE(has(all("black-forest-labs/FLUX.1-schnell"), " flux.1-dev "));
  EXPECT_TRUE(has(all("lama-3.1-8b"), "llama-3.1-8b")) << all("lama-3.1-8b");
  EXPECT_TRUE(models_like("zzzz").empty());
  const auto none = find_model("mixtral", "");
  ASSERT_FALSE(none);
  EXPECT_TRUE(has(none.error().hint, "did you mean mixtral-8x22b-v0.1, mixtral-8x7b-v0.1?"))
      << none.error().hint;
}

TEST(Question, MediaPricesHaveTheirUnit) {
  const MediaRequest flux{.model = media_model("flux"), .rps = 2, .offers = {}};
  EXPECT_TRUE(has(media_text(flux, *recommend_media(flux, catalogue())), "per thousand images\n"));
  const MediaRequest speech{.model = media_model("whisper"), .rps = 2, .offers = {}};
  EXPECT_TRUE(has(media_text(speech, *recommend_media(speech, catalogue())),
                  "per thousand segments of speech\n"));
}

}  // namespace
}  // namespace billow::advise
