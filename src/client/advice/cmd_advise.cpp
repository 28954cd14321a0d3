// advise, prices and plan: commands of the pure modules, with what only a running head knows (its
// GPUs) asked for when it is wanted. Their options stand in the table like all others; what was
// given is handed on to the module, which reads the values.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "advise/commands.h"
#include "base/file.h"
#include "base/text.h"
#include "client/advice/observe.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

constexpr OptionSpec advise_options[] = {
    {"model", 'm', "MODEL",
     "a Hugging Face config.json, a name found in --models, or a size like 7B", false,
     Completes::file},
    {"models", 0, "DIR", "directory of config files (BILLOW_MODELS)", false, Completes::directory},
    {"precision", 0, "A,B",
     "fp32, bf16, fp16, fp8, int8, int4, fp4 or nvfp4; without it all are tried"},
    {"context", 0, "N", "longest sequence in tokens (input + output)"},
    {"input", 0, "N", "tokens of a request (1024)"},
    {"output", 0, "N", "tokens of an answer (256)"},
    {"ttft", 0, "T", "time to the first token, at most, such as 500ms"},
    {"tps", 0, "N", "tokens per second and user, at least"},
    {"users", 0, "N", "users at once"},
    {"rps", 0, "N", "requests per second"},
    {"trace", 0, "CSV", "take the load from arrivals (timestamp, input tokens, output tokens)",
     false, Completes::file},
    {"engine", 0, "NAME", "vllm, sglang or trtllm", false, Completes::choice, "vllm,sglang,trtllm"},
    {"engine-version", 0, "V", "of the engine"},
    {"providers", 0, "A,B", "only these: aws, gcp, …"},
    {"regions", 0, "A,B", "only regions that begin so: us-"},
    {"spot", 0, nullptr, "rank by spot price"},
    {"mine", 0, nullptr, "among the GPUs of this Billow"},
    {"train", 0, nullptr, "for training, not serving"},
    {"tuning", 0, "KIND", "with --train: full, lora or qlora", false, Completes::choice,
     "full,lora,qlora"},
    {"sequence", 0, "N", "with --train: tokens of a sequence (4096)"},
    {"micro-batch", 0, "N", "with --train: sequences at once and GPU (1)"},
    {"tokens", 0, "N", "with --train: tokens to train on"},
    {"checkpoint-time", 0, "T", "with --train: what writing one checkpoint took, such as 40s"},
    {"interruptions", 0, "T", "with --train: time between interruptions on spot, such as 6h"},
    {"batch", 0, "CSV", "predict every row of a table of serving measurements", false,
     Completes::file},
};
constexpr OptionSpec price_options[] = {
    {"gpu", 0, "TYPE", "only of this GPU"},
    {"instance", 0, "NAME", "only this instance"},
    {"providers", 0, "A,B", "only these"},
    {"regions", 0, "A,B", "only regions that begin so: us-"},
    {"gpus-min", 0, "N", "at least this many GPUs"},
    {"limit", 0, "N", "at most this many rows"},
    {"gpus", 0, nullptr, "the GPUs themselves, not offers"},
};
constexpr OptionSpec plan_options[] = {
    {"trace", 0, "CSV", "jobs (timestamp, duration, num_gpus)", false, Completes::file},
    {"gpu", 0, "TYPE", "what to price it with (H100)"},
    {"providers", 0, "A,B", "only these"},
    {"regions", 0, "A,B", "only regions that begin so: us-"},
    {"risk", 0, "LEVEL", "how much may run on spot: low, medium or high", false, Completes::choice,
     "low,medium,high"},
    {"committed-ratio", 0, "X",
     "committed price over on-demand, where the catalogue has none (0.63)"},
    {"price-drop", 0, "X", "fall of on-demand prices to be safe against (0.44)"},
    {"buy", 0, "USD", "price of one owned GPU with its share of a server: own or rent"},
    {"review", 0, nullptr,
     "prices that changed, what to do and what it saves, for last month's usage"},
    {"this-month", 0, nullptr, "with --review: this month so far"},
};

advise::CommandContext context_of(const Parsed& parsed) {
  advise::CommandContext context;
  context.data_dir = data_directory(parsed.get("data"));
  if (const char* models = std::getenv("BILLOW_MODELS"))
    context.models_dir = models;
  context.now = now();
  return context;
}

// What the head's jobs used of which GPU, newest first, back to a year: what a plan is made from.
constexpr int usage_pages_max = 200;
Result<std::vector<advise::UsedSpan>> usage_of_head(Client& client) {
  std::vector<advise::UsedSpan> used;
  std::string cursor;
  const double now_s = static_cast<double>(now().ns) / 1e9, since = now_s - 366.0 * 86400;
  for (int page = 0; page < usage_pages_max; ++page) {
    auto jobs = client.get(with_query(
        "/v1/jobs", {{"state", "all"}, {"expand", "1"}, {"limit", "500"}, {"cursor", cursor}}));
    if (!jobs)
      return pass(jobs.error());
    bool old = false;
    for (const Json& job : (*jobs)["jobs"].items()) {
      const WallTime from = parse_utc(job["started_at"].str_or("")),
                     to = parse_utc(job["ended_at"].str_or(""));
      if (!from)
        continue;
      double milli = 0;
      std::string type;
      for (const Json& task : job["tasks"].items())
        milli += task["gpu_milli"].double_or(0), type = std::string(task["gpu_type"].str_or(type));
      if (milli <= 0 || type.empty())
        continue;
      advise::UsedSpan span{type, static_cast<double>(from.ns) / 1e9,
                            to ? static_cast<double>(to.ns) / 1e9 : now_s, milli / 1000,
                            job["cost_nano_usd"].double_or(0) / 1e9};
      if (span.end_s < since)
        old = true;
      else if (span.end_s > span.start_s)
        used.push_back(std::move(span));
    }
    cursor = std::string((*jobs)["next"].str_or(""));
    if (cursor.empty() || old)
      break;
  }
  return used;
}

int show(const advise::CommandResult& result) {
  (void)write_all(STDERR_FILENO, result.err);
  print(result.out);
  return result.exit_code;
}

int cmd_advise(const Parsed& parsed) {
  advise::CommandContext context = context_of(parsed);
  if (parsed.has("mine")) {
    auto client = connect(parsed);
    if (!client)
      return report(client.error());
    auto catalogue = advise::catalogue_with_imports(context.data_dir);
    if (!catalogue)
      return report(catalogue.error());
    auto fleet = fleet_of_head(*client, *catalogue);
    if (!fleet)
      return report(fleet.error());
    context.fleet = std::move(*fleet);
    if (context.fleet.empty())
      return report({Code::infeasible, "no node of this Billow has a GPU",
                     "leave --mine out to look at what can be rented"});
  }
  return show(advise::run_advise(words_of(parsed, advise_options), context));
}
int cmd_prices(const Parsed& parsed) {
  return show(advise::run_prices(words_of(parsed, price_options), context_of(parsed)));
}
int cmd_plan(const Parsed& parsed) {
  advise::CommandContext context = context_of(parsed);
  if (!parsed.has("trace")) {
    auto client = connect(parsed);
    if (!client)
      return report(client.error());
    auto used = usage_of_head(*client);
    if (!used)
      return report(used.error());
    context.used = std::move(*used);
    context.asked_head = true;
  }
  return show(advise::run_plan(words_of(parsed, plan_options), context));
}
}  // namespace

void add_advise_commands(CommandTable& table) {
  constexpr const char* group = "money and advice";
  table.push_back({.name = "advise",
                   .summary = "which GPU, how many, which instance, at what price",
                   .example = "billow advise --model config.json --users 50 --ttft 500ms --tps 20 "
                              "--providers aws,gcp\nbillow advise --model 7B --rps 4 --mine",
                   .run = cmd_advise,
                   .usage = "[MODEL]",
                   .options = {advise_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = group});
  table.push_back({.name = "prices",
                   .summary = "what GPUs cost, and how old each price is",
                   .example = "billow prices H100\nbillow prices --gpu H200 --regions us-\nbillow "
                              "prices update fresh.csv",
                   .run = cmd_prices,
                   .usage = "[GPU | update FILE]",
                   .details = "`update` imports prices from a CSV: "
                              "provider,instance,region,on_demand_usd_h,spot_usd_h,date.",
                   .options = {price_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = group});
  table.push_back(
      {.name = "plan",
       .summary = "the mix of committed, on-demand and spot that costs least for your demand",
       .example = "billow plan --risk low\nbillow plan --trace jobs.csv --gpu A100-80GB --risk "
                  "medium --buy 18000\nbillow plan --review",
       .run = cmd_plan,
       .details =
           "Demand comes from this head's own jobs, or from a trace. The mix is fitted on it and "
           "replayed hour by hour, beside all on-demand, reserving the peak and spot only.",
       .options = {plan_options},
       .group = group});
}

}  // namespace billow::client
