// `billow simulate jobs`: completion times of the jobs of a trace on equal nodes.
#include <cmath>

#include <fmt/format.h>

#include "base/file.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "simulate/simulate.h"
#include "simulate/simulate_commands.h"

namespace billow::client {
namespace {

constexpr std::int64_t trace_jobs_max = 1'000'000'000;
constexpr const char* jobs_policies = "best,srsf,las,fifo,fair";
constexpr const char* jobs_formats = "muri,philly";

constexpr OptionSpec jobs_options[] = {
    {"trace", 0, "FILE", "CSV of the jobs", false, Completes::file},
    {"format", 0, "NAME", "format of the trace: muri (default) or philly", false, Completes::choice,
     jobs_formats},
    {"nodes", 0, "N", "number of nodes (default 8)"},
    {"gpus", 0, "N", "GPUs per node (default 8)"},
    {"policy", 0, "NAME", "best (default), srsf, las, fifo or fair", false, Completes::choice,
     jobs_policies},
    {"durations", 0, "HOW", "known (default), or learned from earlier jobs", false,
     Completes::choice, "known,learned"},
    {"interleave", 0, nullptr, "let jobs share GPUs in turns"},
    {"svg", 0, "FILE", "write a plot of the GPUs in use over time", false, Completes::file},
    {"limit", 0, "N", "use only the first N jobs"},
};

double round2(double x) {
  return static_cast<double>(std::llround(x * 100.0)) / 100.0;
}

sched::QueuePolicy jobs_policy(std::string_view name) {
  if (name == "srsf")
    return sched::QueuePolicy::srsf;
  if (name == "las")
    return sched::QueuePolicy::las;
  if (name == "fifo")
    return sched::QueuePolicy::fifo;
  return name == "fair" ? sched::QueuePolicy::fair : sched::QueuePolicy::best;
}

Result<std::vector<sched::TraceJob>> read_trace(const Parsed& parsed) {
  const std::string path = BILLOW_TRY(required_option(parsed, "trace"));
  const std::string format = BILLOW_TRY(choice_option(parsed, "format", "muri", jobs_formats));
  auto trace = BILLOW_TRY(format == "muri" ? sched::read_muri(path) : sched::read_philly(path));
  const auto limit = static_cast<std::size_t>(
      BILLOW_TRY(int_option(parsed, "limit", trace_jobs_max, 1, trace_jobs_max)));
  if (trace.size() > limit)
    trace.resize(limit);
  return trace;
}

Json jobs_json(const Parsed& parsed, const sched::QueueOptions& q, const sched::QueueResult& r) {
  Json j = Json::object();
  j.set("policy", parsed.get("policy", "best"));
  j.set("durations", parsed.get("durations", "known"));
  j.set("interleave", q.interleave);
  j.set("jobs", r.jobs);
  j.set("jct_avg_s", round2(r.jct_avg_s));
  j.set("jct_p50_s", round2(r.jct_p50_s));
  j.set("jct_p99_s", round2(r.jct_p99_s));
  j.set("makespan_s", round2(r.makespan_s));
  j.set("slowdown_max", round2(r.slowdown_max));
  j.set("wait_avg_s", round2(r.wait_avg_s));
  j.set("first_run_max_s", round2(r.first_run_max_s));
  j.set("gpu_use_pct", round2(r.gpu_use_pct));
  j.set("preemptions", r.preemptions);
  return j;
}

Status simulate_jobs(const Parsed& parsed) {
  const auto trace = BILLOW_TRY(read_trace(parsed));
  sched::QueueOptions q;
  q.nodes = static_cast<std::int32_t>(BILLOW_TRY(int_option(parsed, "nodes", 8, 1, 10000)));
  q.gpus_per_node = static_cast<std::int32_t>(BILLOW_TRY(int_option(parsed, "gpus", 8, 1, 64)));
  q.interleave = parsed.has("interleave");
  q.durations_known =
      BILLOW_TRY(choice_option(parsed, "durations", "known", "known,learned")) == "known";
  const std::string policy = BILLOW_TRY(choice_option(parsed, "policy", "best", jobs_policies));
  q.policy = jobs_policy(policy);
  const std::int64_t gpus = std::int64_t{q.nodes} * q.gpus_per_node;
  for (const sched::TraceJob& job : trace)
    if (job.gpus > gpus)
      return fail(Code::infeasible,
                  fmt::format("job {} needs {} GPUs, but the fleet has {}", job.id, job.gpus, gpus),
                  "use a larger fleet: --nodes N --gpus N");
  const sched::QueueResult r = sched::run_queue(trace, q);
  const Json document = jobs_json(parsed, q, r);
  if (parsed.has("json"))
    print(document.dump() + "\n");
  else
    for (const auto& [name, value] : document.members())
      print(fmt::format("{:<14} {}\n", name, value.is_string() ? value.as_string() : value.dump()));
  if (!parsed.has("svg"))
    return {};
  return write_file_atomic(
      parsed.get("svg"),
      sched::plot_svg(r.use, static_cast<double>(gpus),
                      fmt::format("GPUs in use, policy {}", policy), "time", "GPUs"));
}

}  // namespace

void add_simulate_jobs(CommandTable& table) {
  table.push_back(
      {.name = "simulate jobs",
       .summary = "measure job completion times of a trace under the head's scheduler",
       .example =
           "billow simulate jobs --trace cluster.csv --format philly --nodes 16 --policy best",
       .run = [](const Parsed& parsed) { return simulate_exit(simulate_jobs(parsed)); },
       .options = {jobs_options},
       .group = simulate_group,
       .talks_to_head = false});
}

}  // namespace billow::client
