#include "bench/advise/questions.h"

#include <cstdio>

#include "advise/recommend.h"
#include "base/clock.h"

namespace billow::advise {
namespace {

struct Load {
  const char* name;
  double users, rps, input, output;
  std::optional<double> ttft_ms, tokens_per_s;
};
const Load loads_asked[] = {
    {"1 user", 1, 0, 1024, 256, {}, 20.0},
    {"50 users, 500 ms, 20 tok/s", 50, 0, 1024, 256, 500.0, 20.0},
    {"5 requests/s, 1 s, 15 tok/s", 0, 5, 2048, 512, 1000.0, 15.0},
    {"300 users, 2 s, 10 tok/s", 300, 0, 1024, 512, 2000.0, 10.0},
};
const char* const models_asked[] = {"Llama-3.1-8B-Instruct",
                                    "Qwen2.5-14B-Instruct",
                                    "Mistral-Small-24B-Instruct-2501",
                                    "Qwen2.5-32B-Instruct",
                                    "Mixtral-8x7B-Instruct-v0.1",
                                    "Llama-3.3-70B-Instruct",
                                    "gpt-oss-120b",
                                    "Qwen3-235B-A22B"};

struct Counts {
  int answered = 0, hyperscaler = 0, old_price = 0, unlikely = 0, other_checkpoint = 0;
};

void ask(const char* model,
         const Load& load,
         const Catalogue& catalogue,
         const Calibration& calibration,
         Counts& counts) {
  auto shape = shipped_model(model);
  if (!shape) {
    std::printf("  %s: %s\n", model, shape.error().message.c_str());
    return;
  }
  Request request;
  request.model = std::move(*shape);
  request.users = load.users;
  request.rps = load.rps;
  request.input = load.input;
  request.output = load.output;
  request.ttft_ms_max = load.ttft_ms;
  request.tokens_per_s_min = load.tokens_per_s;
  request.now = system_clock().wall();
  auto advice = recommend(request, catalogue, calibration);
  if (!advice || !advice->best || !advice->best->offer || !advice->best->offer->instance) {
    std::printf("  %-32s %-28s no answer: %s\n", model, load.name,
                advice ? "no offer" : advice.error().message.c_str());
    return;
  }
  const Candidate& b = *advice->best;
  const Offered& o = *b.offer;
  const std::string provider(o.instance->provider);
  const long long age = o.price_age_days.value_or(0);
  ++counts.answered;
  counts.hyperscaler += provider == "aws" || provider == "gcp" || provider == "azure";
  counts.old_price += age > 180;
  counts.unlikely += b.chance < 0.8;
  counts.other_checkpoint += !b.native;
  std::printf("  %-32s %-28s %d x %s, %s %s, %s, $%.0f/month, chance %.0f %%, price %lld days\n",
              model, load.name, b.gpus, b.gpu->name.c_str(), provider.c_str(),
              std::string(o.instance->name).c_str(), precision_name(b.precision),
              o.on_demand_month.value_or(0), 100 * b.chance, age);
}

}  // namespace

void report_questions() {
  std::printf("32 questions, answered by default:\n");
  const auto catalogue = Catalogue::embedded();
  const auto calibration = Calibration::embedded();
  Counts counts;
  for (auto model : models_asked)
    for (auto& load : loads_asked)
      ask(model, load, catalogue, calibration, counts);
  std::printf(
      "  answered %d; AWS, GCP or Azure %d; price older than 180 days %d; chance below 80 %% %d;"
      " another checkpoint than the published one %d\n",
      counts.answered, counts.hyperscaler, counts.old_price, counts.unlikely,
      counts.other_checkpoint);
}

}  // namespace billow::advise
