// simulate: traces through the scheduler and the whole core of a head, in virtual time.
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "simulate/head_replay.h"
#include "simulate/simulate.h"

namespace billow::client {
namespace {

constexpr OptionSpec simulate_openb_options[] = {
    {"nodes", 0, "FILE", "the machines", false, Completes::file},
    {"tasks", 0, "FILE", "the tasks", false, Completes::file},
    {"stream", 0, "FILE", "orders of arrival, one a line", false, Completes::file},
    {"policy", 0, "NAME", "best, bestfit, fgd or random (best)", false, Completes::choice,
     "best,bestfit,fgd,random"},
    {"shuffle-nodes", 0, "SEED", "the machines in another order"},
    {"svg", 0, "FILE", "a plot of allocation", false, Completes::file},
    {"limit", 0, "N", "the first N streams only"},
};
constexpr OptionSpec simulate_jobs_options[] = {
    {"trace", 0, "FILE", "the jobs", false, Completes::file},
    {"format", 0, "NAME", "muri or philly", false, Completes::choice, "muri,philly"},
    {"nodes", 0, "N", "machines (8)"},
    {"gpus", 0, "N", "GPUs of each (8)"},
    {"policy", 0, "NAME", "best, srsf, las, fifo or fair (best)", false, Completes::choice,
     "best,srsf,las,fifo,fair"},
    {"durations", 0, "HOW", "known, or learned from the jobs before", false, Completes::choice,
     "known,learned"},
    {"interleave", 0, nullptr, "jobs may share GPUs in turns"},
    {"svg", 0, "FILE", "a plot of GPUs in use over time", false, Completes::file},
    {"limit", 0, "N", "the first N jobs only"},
};

constexpr OptionSpec simulate_replay_options[] = {
    {"trace", 0, "FILE", "the jobs; without it, this head's own history", false, Completes::file},
    {"format", 0, "NAME", "openb, muri, philly, or history (what `billow ps -a --json` prints)",
     false, Completes::choice, "openb,muri,philly,history"},
    {"fleet", 0, "SPEC", "the machines: 8x8xH100,2x4xL4 (nodes x GPUs x type), or a CSV of nodes"},
    {"policy", 0, "NAME", "order of jobs: fair, shortest or fifo (fair)", false, Completes::choice,
     "fair,shortest,fifo"},
    {"durations", 0, "HOW", "known, or learned from the jobs before (learned)", false,
     Completes::choice, "known,learned"},
    {"svg", 0, "FILE", "a plot of allocation over time", false, Completes::file},
    {"limit", 0, "N", "the first N jobs only"},
};

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
    const Json page =
        BILLOW_TRY(client.get("/v1/jobs?state=all&expand=1&limit=1000" +
                              (cursor.empty() ? "" : "&cursor=" + net::percent_encode(cursor))));
    for (const Json& job : page["jobs"].items()) {
      jobs.push(job);
      ++n;
    }
    cursor = std::string(page["next"].str_or(""));
    if (cursor.empty())
      break;
  }
  const std::string path = fmt::format("/tmp/billow-history-{}.json", ::getpid());
  BILLOW_TRY_VOID(write_file_atomic(path, Json::object({{"jobs", std::move(jobs)}}).dump()));
  return path;
}

Status replay(const Parsed& parsed) {
  const auto limit = BILLOW_TRY(parse_int(parsed.get("limit", "1000000"), 1, 1'000'000));
  if (!parsed.has("fleet"))
    return fail(Code::invalid, "on which machines?", "add --fleet 8x8xH100");
  const auto fleet = BILLOW_TRY(control::read_fleet(parsed.get("fleet")));
  std::size_t largest = 1, gpus = 0;
  for (const NodeOffer& node : fleet) {
    largest = std::max(largest, node.gpus.size());
    gpus += node.gpus.size();
  }
  const bool own = !parsed.has("trace");
  const std::string format = parsed.get("format", own ? "history" : "");
  if (format.empty())
    return fail(Code::invalid, "--format is missing", "one of openb, muri, philly, history");
  if (own && format != "history")
    return fail(Code::invalid, "--trace is missing",
                "name the file, or leave --format out to replay this head's history");
  const std::string path = own ? BILLOW_TRY(own_history(parsed, limit)) : parsed.get("trace");
  auto jobs = control::read_replay(path, format, static_cast<std::int32_t>(largest));
  if (own)
    ::unlink(path.c_str());
  if (!jobs)
    return pass(jobs.error());
  if (jobs->size() > static_cast<std::size_t>(limit))
    jobs->resize(static_cast<std::size_t>(limit));
  control::ReplayOptions options;
  const auto policy = enum_value<OrderPolicy>(parsed.get("policy", "fair"));
  if (!policy)
    return fail(Code::invalid,
                fmt::format("--policy {}: there is no such policy", parsed.get("policy")),
                "one of fair, shortest, fifo");
  options.policy = *policy;
  const std::string durations = parsed.get("durations", "learned");
  if (durations != "known" && durations != "learned")
    return fail(Code::invalid,
                fmt::format("--durations is known or learned, not \"{}\"", durations));
  options.durations_known = durations == "known";
  const auto result = BILLOW_TRY(control::replay(fleet, *jobs, options));
  const Json document = control::replay_document(result);
  if (parsed.has("json"))
    print_json(document);
  else
    for (const auto& [name, value] : document.members())
      print(fmt::format("{:<18} {}\n", name, value.dump()));
  if (parsed.has("svg"))
    BILLOW_TRY_VOID(write_file_atomic(
        parsed.get("svg"),
        control::replay_svg(
            result, static_cast<double>(gpus),
            fmt::format("{}, policy {}, durations {}",
                        own ? std::string("this head's history")
                            : parsed.get("trace").substr(parsed.get("trace").rfind('/') + 1),
                        parsed.get("policy", "fair"), durations))));
  return {};
}

int cmd_replay(const Parsed& parsed) {
  const Status done = replay(parsed);
  if (done)
    return 0;
  return done.error().code == Code::invalid ? report_usage(done.error()) : report(done.error());
}

}  // namespace

void add_simulate_commands(CommandTable& table) {
  constexpr const char* group = "money and advice";
  table.push_back(
      {.name = "simulate openb",
       .summary =
           "how much of a fleet stays unused when its tasks are packed by the head's scheduler",
       .example =
           "billow simulate openb --nodes nodes.csv --tasks tasks.csv --stream streams.csv --json",
       .run = [](const Parsed& p) { return simulate(p, "openb", simulate_openb_options); },
       .details = "Tasks arrive until demand is 130 % of the GPUs; the result is what is not "
                  "allocated at 100 % and at 130 %.",
       .options = {simulate_openb_options},
       .group = group,
       .talks_to_head = false});
  table.push_back(
      {.name = "simulate jobs",
       .summary = "how long the jobs of a trace would take with the head's scheduler",
       .example =
           "billow simulate jobs --trace cluster.csv --format philly --nodes 16 --policy best",
       .run = [](const Parsed& p) { return simulate(p, "jobs", simulate_jobs_options); },
       .options = {simulate_jobs_options},
       .group = group,
       .talks_to_head = false});
  table.push_back({.name = "simulate replay",
                   .summary = "a trace, or this head's own history, on a described fleet, with the "
                              "head's own core in virtual time",
                   .example = "billow simulate replay --trace cluster.csv --format philly --fleet "
                              "16x8xA100-40 --policy shortest --svg use.svg\n"
                              "billow simulate replay --fleet 4x8xH100 --json",
                   .run = cmd_replay,
                   .details =
                       "Reports completion times, queueing, use of the GPUs, fragmentation (GPUs "
                       "idle while something waited) and cost. Jobs are started by the "
                       "same decisions as on a live head; only machines and time are made up.",
                   .options = {simulate_replay_options},
                   .group = group});
}

}  // namespace billow::client
