// `billow simulate replay`: a trace, or the jobs this head has run, through the whole core of a
// head in virtual time.
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "simulate/head_replay.h"
#include "simulate/simulate_commands.h"

namespace billow::client {
namespace {

constexpr std::int64_t replay_jobs_max = 1'000'000;
constexpr const char* replay_formats = "openb,muri,philly,history";
constexpr const char* replay_policies = "fair,shortest,fifo";

constexpr OptionSpec simulate_replay_options[] = {
    {"trace", 0, "FILE", "file of the jobs (default: this head's own jobs)", false,
     Completes::file},
    {"format", 0, "NAME",
     "format of the trace: openb, muri, philly, or history (as printed by `billow ps -a --json`)",
     false, Completes::choice, replay_formats},
    {"fleet", 0, "SPEC", "nodes x GPUs x type, e.g. 8x8xH100,2x4xL4; or a CSV of nodes"},
    {"policy", 0, "NAME", "order of jobs: fair (default), shortest or fifo", false,
     Completes::choice, replay_policies},
    {"durations", 0, "HOW", "known, or learned from earlier jobs (default)", false,
     Completes::choice, "known,learned"},
    {"svg", 0, "FILE", "write a plot of the allocation over time", false, Completes::file},
    {"limit", 0, "N", "use only the first N jobs"},
};

// The jobs of this head, as the API lists them, in a temporary file.
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
  std::string path = "/tmp/billow-history-XXXXXX";
  const Fd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file)
    return fail_errno(path, errno);
  BILLOW_TRY_VOID(write_all(file.get(), Json::object({{"jobs", std::move(jobs)}}).dump()));
  return path;
}

Result<std::vector<control::ReplayJob>> read_jobs(const Parsed& parsed,
                                                  const std::vector<NodeOffer>& fleet) {
  const auto limit = BILLOW_TRY(int_option(parsed, "limit", replay_jobs_max, 1, replay_jobs_max));
  const bool own = !parsed.has("trace");
  if (!own && !parsed.has("format"))
    return fail(Code::invalid, "--format is missing", "choose one of openb, muri, philly, history");
  const std::string format = BILLOW_TRY(choice_option(parsed, "format", "history", replay_formats));
  if (own && format != "history")
    return fail(Code::invalid, "--trace is missing",
                "give the file, or omit --format to replay this head's own jobs");
  std::size_t gpus_per_node = 1;
  for (const NodeOffer& node : fleet)
    gpus_per_node = std::max(gpus_per_node, node.gpus.size());
  const std::string path = own ? BILLOW_TRY(own_history(parsed, limit)) : parsed.get("trace");
  auto jobs = control::read_replay(path, format, static_cast<std::int32_t>(gpus_per_node));
  if (own)
    ::unlink(path.c_str());
  if (jobs && jobs->size() > static_cast<std::size_t>(limit))
    jobs->resize(static_cast<std::size_t>(limit));
  return jobs;
}

std::string plot_title(const Parsed& parsed) {
  const std::string trace = parsed.get("trace");
  return fmt::format("{}, policy {}, durations {}",
                     trace.empty() ? "this head's history" : trace.substr(trace.rfind('/') + 1),
                     parsed.get("policy", "fair"), parsed.get("durations", "learned"));
}

Status simulate_replay(const Parsed& parsed) {
  const auto fleet = BILLOW_TRY(control::read_fleet(
      BILLOW_TRY(required_option(parsed, "fleet", "describe the nodes: --fleet 8x8xH100"))));
  const std::string policy = BILLOW_TRY(choice_option(parsed, "policy", "fair", replay_policies));
  control::ReplayOptions options;
  options.policy = *enum_value<OrderPolicy>(policy);
  options.durations_known =
      BILLOW_TRY(choice_option(parsed, "durations", "learned", "known,learned")) == "known";
  const auto jobs = BILLOW_TRY(read_jobs(parsed, fleet));
  const auto result = BILLOW_TRY(control::replay(fleet, jobs, options));
  const Json document = control::replay_document(result);
  if (parsed.has("json"))
    print_json(document);
  else
    for (const auto& [name, value] : document.members())
      print(fmt::format("{:<18} {}\n", name, value.dump()));
  if (!parsed.has("svg"))
    return {};
  std::size_t gpus = 0;
  for (const NodeOffer& node : fleet)
    gpus += node.gpus.size();
  return write_file_atomic(parsed.get("svg"), control::replay_svg(result, static_cast<double>(gpus),
                                                                  plot_title(parsed)));
}

}  // namespace

void add_simulate_replay(CommandTable& table) {
  table.push_back(
      {.name = "simulate replay",
       .summary = "replay a trace, or this head's own jobs, on a fleet you describe",
       .example = "billow simulate replay --trace cluster.csv --format philly --fleet "
                  "16x8xA100-40 --policy shortest --svg use.svg\n"
                  "billow simulate replay --fleet 4x8xH100 --json",
       .run = [](const Parsed& parsed) { return simulate_exit(simulate_replay(parsed)); },
       .details = "Reports completion times, queueing times, GPU utilisation, fragmentation "
                  "(GPUs idle while a job waits) and cost. The simulation makes the same "
                  "decisions as a live head; only the machines and the time are simulated.",
       .options = {simulate_replay_options},
       .group = simulate_group});
}

}  // namespace billow::client
