// `billow simulate openb`: how much of a fleet stays unallocated when tasks only arrive. One result
// per line of the stream file.
#include <cmath>

#include <fmt/format.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "simulate/simulate.h"
#include "simulate/simulate_commands.h"

namespace billow::client {
namespace {

constexpr std::int64_t streams_max = 1'000'000'000;
constexpr const char* openb_policies = "best,bestfit,fgd,random";
constexpr const char* openb_workloads = "known,learned";

constexpr OptionSpec openb_options[] = {
    {"nodes", 0, "FILE", "CSV of the nodes", false, Completes::file},
    {"tasks", 0, "FILE", "CSV of the tasks", false, Completes::file},
    {"stream", 0, "FILE", "file with one arrival order per line", false, Completes::file},
    {"policy", 0, "NAME", "best (default), bestfit, fgd or random", false, Completes::choice,
     openb_policies},
    {"workload", 0, "HOW", "known (default), or learned from the tasks that arrive", false,
     Completes::choice, openb_workloads},
    {"before", 0, "FILE", "CSV of tasks that came and left before (with --workload learned)", false,
     Completes::file},
    {"shuffle-nodes", 0, "SEED", "shuffle the nodes with this seed"},
    {"svg", 0, "FILE", "write a plot of the allocation", false, Completes::file},
    {"limit", 0, "N", "run only the first N streams"},
};

double round4(double x) {
  return static_cast<double>(std::llround(x * 10000.0)) / 10000.0;
}

sched::OpenbPolicy openb_policy(std::string_view name) {
  if (name == "bestfit")
    return sched::OpenbPolicy::bestfit;
  if (name == "fgd")
    return sched::OpenbPolicy::fgd;
  return name == "random" ? sched::OpenbPolicy::random : sched::OpenbPolicy::best;
}

Status shuffle(const Parsed& parsed, std::vector<sched::OpenbNode>& nodes) {
  if (!parsed.has("shuffle-nodes"))
    return {};
  Rng rng(
      static_cast<std::uint64_t>(BILLOW_TRY(int_option(parsed, "shuffle-nodes", 0, 0, INT64_MAX))));
  for (std::size_t i = nodes.size(); i > 1; --i)
    std::swap(nodes[i - 1], nodes[rng.below(i)]);
  return {};
}

Json openb_json(const sched::OpenbStream& stream,
                const std::string& policy,
                const sched::OpenbResult& r) {
  const auto seed = parse_int(stream.seed, INT64_MIN, INT64_MAX);
  Json j = Json::object();
  j.set("seed", seed ? Json(*seed) : Json(stream.seed));
  j.set("policy", policy);
  j.set("unallocated_pct_100", round4(r.unallocated_pct(100)));
  j.set("unallocated_pct_130", round4(r.unallocated_pct(130)));
  j.set("placed", r.placed);
  j.set("dropped", r.dropped);
  j.set("decisions_per_s", std::floor(r.decisions_per_s));
  return j;
}

std::string result_line(const sched::OpenbStream& stream, const sched::OpenbResult& r) {
  return fmt::format("{:>8} {:>16.2f} {:>16.2f} {:>8} {:>8} {:>12.0f}\n", stream.seed,
                     r.unallocated_pct(100), r.unallocated_pct(130), r.placed, r.dropped,
                     r.decisions_per_s);
}

Status write_plot(const std::string& path, const std::string& policy, const sched::OpenbResult& r) {
  std::vector<std::pair<double, double>> steps;
  for (std::size_t x = 0; x < r.allocation_pct.size(); ++x)
    if (r.allocation_pct[x] >= 0)
      steps.emplace_back(static_cast<double>(x), r.allocation_pct[x]);
  return write_file_atomic(
      path, sched::plot_svg(steps, 100, fmt::format("allocated GPUs, policy {}", policy),
                            "arrived demand, % of GPUs", "allocated, %"));
}

Status simulate_openb(const Parsed& parsed) {
  auto nodes = BILLOW_TRY(sched::read_openb_nodes(BILLOW_TRY(required_option(parsed, "nodes"))));
  const auto tasks =
      BILLOW_TRY(sched::read_openb_tasks(BILLOW_TRY(required_option(parsed, "tasks"))));
  const auto streams = BILLOW_TRY(
      sched::read_openb_streams(BILLOW_TRY(required_option(parsed, "stream")), tasks.size()));
  const std::string policy = BILLOW_TRY(choice_option(parsed, "policy", "best", openb_policies));
  sched::OpenbOptions options{.policy = openb_policy(policy)};
  options.workload_known =
      BILLOW_TRY(choice_option(parsed, "workload", "known", openb_workloads)) == "known";
  if (parsed.has("before") && options.workload_known)
    return fail(Code::invalid, "use --before with --workload learned");
  if (parsed.has("before"))
    options.before = BILLOW_TRY(sched::read_openb_tasks(parsed.get("before")));
  BILLOW_TRY_VOID(shuffle(parsed, nodes));
  const auto limit = static_cast<std::size_t>(
      BILLOW_TRY(int_option(parsed, "limit", streams_max, 1, streams_max)));
  const bool json = parsed.has("json");
  if (!json)
    print(fmt::format("{:>8} {:>16} {:>16} {:>8} {:>8} {:>12}\n", "seed", "unallocated 100%",
                      "unallocated 130%", "placed", "dropped", "decisions/s"));
  double sum_100 = 0, sum_130 = 0;
  std::size_t n = 0;
  for (const sched::OpenbStream& stream : streams) {
    if (n == limit)
      break;
    const sched::OpenbResult r = sched::run_openb(nodes, tasks, stream, options);
    ++n;
    sum_100 += r.unallocated_pct(100);
    sum_130 += r.unallocated_pct(130);
    print(json ? openb_json(stream, policy, r).dump() + "\n" : result_line(stream, r));
    if (parsed.has("svg") && n == 1)
      BILLOW_TRY_VOID(write_plot(parsed.get("svg"), policy, r));
  }
  if (!json && n > 1)
    print(fmt::format("{:>8} {:>16.2f} {:>16.2f}\n", "mean", sum_100 / static_cast<double>(n),
                      sum_130 / static_cast<double>(n)));
  return {};
}

}  // namespace

void add_simulate_openb(CommandTable& table) {
  table.push_back(
      {.name = "simulate openb",
       .summary = "measure how much of a fleet the head's scheduler leaves unallocated",
       .example =
           "billow simulate openb --nodes nodes.csv --tasks tasks.csv --stream streams.csv --json",
       .run = [](const Parsed& parsed) { return simulate_exit(simulate_openb(parsed)); },
       .details = "Tasks arrive until their demand is 130 % of the GPUs. The result is the share "
                  "of GPUs not allocated when demand reaches 100 % and 130 %.",
       .options = {openb_options},
       .group = simulate_group,
       .talks_to_head = false});
}

}  // namespace billow::client
