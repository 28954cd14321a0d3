// advise, prices, plan and simulate: commands of the pure modules, with what only a running head knows (its GPUs) asked for when
// it is wanted. Their options stand in the table like all others; what was given is handed on to the module, which reads the values.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "advise/commands.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/observe.h"
#include "cli/table.h"
#include "control/replay.h"
#include "sched/simulate.h"

namespace billow::cli {
namespace {

constexpr OptionSpec advise_options[] = {
    {"model", 'm', "MODEL", "a Hugging Face config.json, a name found in --models, or a size like 7B", false, Completes::file},
    {"models", 0, "DIR", "directory of config files (BILLOW_MODELS)", false, Completes::directory},
    {"precision", 0, "A,B", "fp32, bf16, fp16, fp8, int8, int4, fp4 or nvfp4; without it all are tried"},
    {"context", 0, "N", "longest sequence in tokens (input + output)"},
    {"input", 0, "N", "tokens of a request (1024)"},
    {"output", 0, "N", "tokens of an answer (256)"},
    {"ttft", 0, "T", "time to the first token, at most, such as 500ms"},
    {"tps", 0, "N", "tokens per second and user, at least"},
    {"users", 0, "N", "users at once"},
    {"rps", 0, "N", "requests per second"},
    {"trace", 0, "CSV", "take the load from arrivals (timestamp, input tokens, output tokens)", false, Completes::file},
    {"engine", 0, "NAME", "vllm, sglang or trtllm", false, Completes::choice, "vllm,sglang,trtllm"},
    {"engine-version", 0, "V", "of the engine"},
    {"providers", 0, "A,B", "only these: aws, gcp, …"},
    {"regions", 0, "A,B", "only regions that begin so: us-"},
    {"spot", 0, nullptr, "rank by spot price"},
    {"mine", 0, nullptr, "among the GPUs of this Billow"},
    {"train", 0, nullptr, "for training, not serving"},
    {"tuning", 0, "KIND", "with --train: full, lora or qlora", false, Completes::choice, "full,lora,qlora"},
    {"sequence", 0, "N", "with --train: tokens of a sequence (4096)"},
    {"micro-batch", 0, "N", "with --train: sequences at once and GPU (1)"},
    {"tokens", 0, "N", "with --train: tokens to train on"},
    {"checkpoint-time", 0, "T", "with --train: what writing one checkpoint took, such as 40s"},
    {"interruptions", 0, "T", "with --train: time between interruptions on spot, such as 6h"},
    {"batch", 0, "CSV", "predict every row of a table of serving measurements", false, Completes::file},
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
    {"risk", 0, "LEVEL", "how much may run on spot: low, medium or high", false, Completes::choice, "low,medium,high"},
    {"committed-ratio", 0, "X", "committed price over on-demand, where the catalogue has none (0.63)"},
    {"price-drop", 0, "X", "fall of on-demand prices to be safe against (0.44)"},
    {"buy", 0, "USD", "price of one owned GPU with its share of a server: own or rent"},
    {"review", 0, nullptr, "prices that changed, what to do and what it saves, for last month's usage"},
    {"this-month", 0, nullptr, "with --review: this month so far"},
};

constexpr OptionSpec simulate_openb_options[] = {
    {"nodes", 0, "FILE", "the machines", false, Completes::file},
    {"tasks", 0, "FILE", "the tasks", false, Completes::file},
    {"stream", 0, "FILE", "orders of arrival, one a line", false, Completes::file},
    {"policy", 0, "NAME", "best, bestfit, fgd or random (best)", false, Completes::choice, "best,bestfit,fgd,random"},
    {"shuffle-nodes", 0, "SEED", "the machines in another order"},
    {"svg", 0, "FILE", "a plot of allocation", false, Completes::file},
    {"limit", 0, "N", "the first N streams only"},
};
constexpr OptionSpec simulate_jobs_options[] = {
    {"trace", 0, "FILE", "the jobs", false, Completes::file},
    {"format", 0, "NAME", "muri or philly", false, Completes::choice, "muri,philly"},
    {"nodes", 0, "N", "machines (8)"},
    {"gpus", 0, "N", "GPUs of each (8)"},
    {"policy", 0, "NAME", "best, srsf, las, fifo or fair (best)", false, Completes::choice, "best,srsf,las,fifo,fair"},
    {"durations", 0, "HOW", "known, or learned from the jobs before", false, Completes::choice, "known,learned"},
    {"interleave", 0, nullptr, "jobs may share GPUs in turns"},
    {"svg", 0, "FILE", "a plot of GPUs in use over time", false, Completes::file},
    {"limit", 0, "N", "the first N jobs only"},
};

constexpr OptionSpec simulate_replay_options[] = {
    {"trace", 0, "FILE", "the jobs; without it, this head's own history", false, Completes::file},
    {"format", 0, "NAME", "openb, muri, philly, or history (what `billow ps -a --json` prints)", false, Completes::choice, "openb,muri,philly,history"},
    {"fleet", 0, "SPEC", "the machines: 8x8xH100,2x4xL4 (nodes x GPUs x type), or a CSV of nodes"},
    {"policy", 0, "NAME", "order of jobs: fair, shortest or fifo (fair)", false, Completes::choice, "fair,shortest,fifo"},
    {"durations", 0, "HOW", "known, or learned from the jobs before (learned)", false, Completes::choice, "known,learned"},
    {"svg", 0, "FILE", "a plot of allocation over time", false, Completes::file},
    {"limit", 0, "N", "the first N jobs only"},
};

// The options as the modules take them; those of the head are ours.
std::vector<std::string> words_of(const Parsed& parsed, std::span<const OptionSpec> options) {
  std::vector<std::string> words = parsed.operands;
  for (const OptionSpec& o : options)
    for (const std::string& value : parsed.all(o.name)) {
      words.push_back(std::string("--") + o.name);
      if (o.value) words.push_back(value);
    }
  if (parsed.has("json")) words.emplace_back("--json");
  return words;
}

advise::CommandContext context_of(const Parsed& parsed) {
  advise::CommandContext context;
  context.data_dir = data_directory(parsed.get("data"));
  if (const char* models = std::getenv("BILLOW_MODELS")) context.models_dir = models;
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
    auto jobs = client.get(with_query("/v1/jobs", {{"state", "all"}, {"expand", "1"}, {"limit", "500"}, {"cursor", cursor}}));
    if (!jobs) return pass(jobs.error());
    bool old = false;
    for (const Json& job : (*jobs)["jobs"].items()) {
      const WallTime from = parse_utc(job["started_at"].str_or("")), to = parse_utc(job["ended_at"].str_or(""));
      if (!from) continue;
      double milli = 0;
      std::string type;
      for (const Json& task : job["tasks"].items()) milli += task["gpu_milli"].double_or(0), type = std::string(task["gpu_type"].str_or(type));
      if (milli <= 0 || type.empty()) continue;
      advise::UsedSpan span{type, static_cast<double>(from.ns) / 1e9, to ? static_cast<double>(to.ns) / 1e9 : now_s, milli / 1000, job["cost_nano_usd"].double_or(0) / 1e9};
      if (span.end_s < since) old = true;
      else if (span.end_s > span.start_s) used.push_back(std::move(span));
    }
    cursor = std::string((*jobs)["next"].str_or(""));
    if (cursor.empty() || old) break;
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
    if (!client) return report(client.error());
    auto catalogue = advise::catalogue_with_imports(context.data_dir);
    if (!catalogue) return report(catalogue.error());
    auto fleet = fleet_of_head(*client, *catalogue);
    if (!fleet) return report(fleet.error());
    context.fleet = std::move(*fleet);
    if (context.fleet.empty()) return report({Code::infeasible, "no node of this Billow has a GPU", "leave --mine out to look at what can be rented"});
  }
  return show(advise::run_advise(words_of(parsed, advise_options), context));
}
int cmd_prices(const Parsed& parsed) { return show(advise::run_prices(words_of(parsed, price_options), context_of(parsed))); }
int cmd_plan(const Parsed& parsed) {
  advise::CommandContext context = context_of(parsed);
  if (!parsed.has("trace")) {
    auto client = connect(parsed);
    if (!client) return report(client.error());
    auto used = usage_of_head(*client);
    if (!used) return report(used.error());
    context.used = std::move(*used);
    context.asked_head = true;
  }
  return show(advise::run_plan(words_of(parsed, plan_options), context));
}
int simulate(const Parsed& parsed, const char* what, std::span<const OptionSpec> options) {
  std::vector<std::string> words = words_of(parsed, options);
  words.insert(words.begin(), what);
  return sched::simulate_main(words);
}

// What has ended on the head, as the API lists it, page after page.
Result<std::string> own_history(const Parsed& parsed, std::int64_t most) {
  auto client = BILLOW_TRY(connect(parsed));
  Json jobs = Json::array();
  std::string cursor;
  for (std::int64_t n = 0; n < most;) {
    const Json page = BILLOW_TRY(client.get("/v1/jobs?state=all&expand=1&limit=1000" + (cursor.empty() ? "" : "&cursor=" + net::percent_encode(cursor))));
    for (const Json& job : page["jobs"].items()) {
      jobs.push(job);
      ++n;
    }
    cursor = std::string(page["next"].str_or(""));
    if (cursor.empty()) break;
  }
  const std::string path = fmt::format("/tmp/billow-history-{}.json", ::getpid());
  BILLOW_TRY_VOID(write_file_atomic(path, Json::object({{"jobs", std::move(jobs)}}).dump()));
  return path;
}

Status replay(const Parsed& parsed) {
  const auto limit = BILLOW_TRY(parse_int(parsed.get("limit", "1000000"), 1, 1'000'000));
  if (!parsed.has("fleet")) return fail(Code::invalid, "on which machines?", "add --fleet 8x8xH100");
  const auto fleet = BILLOW_TRY(control::read_fleet(parsed.get("fleet")));
  std::size_t largest = 1, gpus = 0;
  for (const NodeOffer& node : fleet) {
    largest = std::max(largest, node.gpus.size());
    gpus += node.gpus.size();
  }
  const bool own = !parsed.has("trace");
  const std::string format = parsed.get("format", own ? "history" : "");
  if (format.empty()) return fail(Code::invalid, "--format is missing", "one of openb, muri, philly, history");
  if (own && format != "history") return fail(Code::invalid, "--trace is missing", "name the file, or leave --format out to replay this head's history");
  const std::string path = own ? BILLOW_TRY(own_history(parsed, limit)) : parsed.get("trace");
  auto jobs = control::read_replay(path, format, static_cast<std::int32_t>(largest));
  if (own) ::unlink(path.c_str());
  if (!jobs) return pass(jobs.error());
  if (jobs->size() > static_cast<std::size_t>(limit)) jobs->resize(static_cast<std::size_t>(limit));
  control::ReplayOptions options;
  const auto policy = enum_value<OrderPolicy>(parsed.get("policy", "fair"));
  if (!policy) return fail(Code::invalid, fmt::format("--policy {}: there is no such policy", parsed.get("policy")), "one of fair, shortest, fifo");
  options.policy = *policy;
  const std::string durations = parsed.get("durations", "learned");
  if (durations != "known" && durations != "learned") return fail(Code::invalid, fmt::format("--durations is known or learned, not \"{}\"", durations));
  options.durations_known = durations == "known";
  const auto result = BILLOW_TRY(control::replay(fleet, *jobs, options));
  const Json document = control::replay_document(result);
  if (parsed.has("json")) print_json(document);
  else
    for (const auto& [name, value] : document.members()) print(fmt::format("{:<18} {}\n", name, value.dump()));
  if (parsed.has("svg"))
    BILLOW_TRY_VOID(write_file_atomic(parsed.get("svg"), control::replay_svg(result, static_cast<double>(gpus), fmt::format("{}, policy {}, durations {}", own ? std::string("this head's history") : parsed.get("trace").substr(parsed.get("trace").rfind('/') + 1), parsed.get("policy", "fair"), durations))));
  return {};
}

int cmd_replay(const Parsed& parsed) {
  const Status done = replay(parsed);
  if (done) return 0;
  return done.error().code == Code::invalid ? report_usage(done.error()) : report(done.error());
}

}  // namespace

void add_advise_commands(CommandTable& table) {
  constexpr const char* group = "money and advice";
  table.push_back({.name = "advise",
                   .summary = "which GPU, how many, which instance, at what price",
                   .example = "billow advise --model config.json --users 50 --ttft 500ms --tps 20 --providers aws,gcp\nbillow advise --model 7B --rps 4 --mine",
                   .run = cmd_advise,
                   .usage = "[MODEL]",
                   .options = {advise_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = group});
  table.push_back({.name = "prices",
                   .summary = "what GPUs cost, and how old each price is",
                   .example = "billow prices H100\nbillow prices --gpu H200 --regions us-\nbillow prices update fresh.csv",
                   .run = cmd_prices,
                   .usage = "[GPU | update FILE]",
                   .details = "`update` imports prices from a CSV: provider,instance,region,on_demand_usd_h,spot_usd_h,date.",
                   .options = {price_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = group});
  table.push_back({.name = "plan",
                   .summary = "the mix of committed, on-demand and spot that costs least for your demand",
                   .example = "billow plan --risk low\nbillow plan --trace jobs.csv --gpu A100-80GB --risk medium --buy 18000\nbillow plan --review",
                   .run = cmd_plan,
                   .details = "Demand comes from this head's own jobs, or from a trace. The mix is fitted on it and replayed hour by hour, beside all on-demand, reserving the peak and spot only.",
                   .options = {plan_options},
                   .group = group});
  table.push_back({.name = "simulate openb",
                   .summary = "how much of a fleet stays unused when its tasks are packed by the head's scheduler",
                   .example = "billow simulate openb --nodes nodes.csv --tasks tasks.csv --stream streams.csv --json",
                   .run = [](const Parsed& p) { return simulate(p, "openb", simulate_openb_options); },
                   .details = "Tasks arrive until demand is 130 % of the GPUs; the result is what is not allocated at 100 % and at 130 %.",
                   .options = {simulate_openb_options},
                   .group = group,
                   .talks_to_head = false});
  table.push_back({.name = "simulate jobs",
                   .summary = "how long the jobs of a trace would take with the head's scheduler",
                   .example = "billow simulate jobs --trace cluster.csv --format philly --nodes 16 --policy best",
                   .run = [](const Parsed& p) { return simulate(p, "jobs", simulate_jobs_options); },
                   .options = {simulate_jobs_options},
                   .group = group,
                   .talks_to_head = false});
  table.push_back({.name = "simulate replay",
                   .summary = "a trace, or this head's own history, on a described fleet, with the head's own core in virtual time",
                   .example = "billow simulate replay --trace cluster.csv --format philly --fleet 16x8xA100-40 --policy shortest --svg use.svg\n"
                              "billow simulate replay --fleet 4x8xH100 --json",
                   .run = cmd_replay,
                   .details = "Reports completion times, queueing, use of the GPUs, fragmentation (GPUs idle while something waited) and cost. Jobs are started by the "
                              "same decisions as on a live head; only machines and time are made up.",
                   .options = {simulate_replay_options},
                   .group = group});
}

}  // namespace billow::cli
