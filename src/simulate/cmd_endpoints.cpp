// `billow simulate endpoints`: Billow's autoscaler, fixed fleets and Knative's algorithm on one
// trace of requests, as a table or as JSON.
#include <fmt/format.h>

#include "base/json.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "simulate/endpoint_replay.h"
#include "simulate/simulate_commands.h"

namespace billow::client {
namespace {

using gateway::ReplayOptions;
using gateway::ReplayResult;
using gateway::Scaling;

// Knative's target utilisation is swept over these; its default is 0.7.
constexpr double knative_targets[] = {0.5, 0.6, 0.7, 0.85, 1.0};
constexpr double slo_goal_pct = 99.9;
constexpr double positive_max = 1e9;

constexpr OptionSpec options[] = {
    {"trace", 0, "CSV", "requests: TIMESTAMP,ContextTokens,GeneratedTokens", false,
     Completes::file},
    {"concurrency", 0, "N", "concurrent requests per replica (default 8)"},
    {"prefill-tokens-s", 0, "N", "prompt tokens read per second (default 8000)"},
    {"step-ms", 0, "N", "milliseconds per generated token (default 30)"},
    {"start-s", 0, "N", "seconds for a cold start (default 40)"},
    {"wake-s", 0, "N", "seconds to wake a suspended replica (default 0.7)"},
    {"existing", 0, "N",
     "replicas that exist at the start of the second comparison (default: as many as a fixed "
     "fleet needs for 99.9 %)"},
    {"days", 0, "N",
     "repeat the trace (at most one day) for N days; compare the last day with and without "
     "--predict of endpoints (default 1: no comparison)"},
    {"slo-s", 0, "N", "seconds within which the first token should arrive (default 2)"},
};

struct Row {
  std::string name;
  ReplayResult result;
};

// One comparison: how long a start takes, and how many replicas exist when the trace begins.
struct Scene {
  std::string name;
  double start_s;
  std::uint32_t existing;
};

using Trace = std::vector<gateway::TraceCall>;

Result<ReplayOptions> read_options(const Parsed& parsed) {
  ReplayOptions o;
  gateway::ServiceModel& m = o.model;
  m.concurrency = static_cast<std::uint32_t>(
      BILLOW_TRY(number_option(parsed, "concurrency", m.concurrency, 1, 1e6)));
  m.prefill_tokens_s =
      BILLOW_TRY(number_option(parsed, "prefill-tokens-s", m.prefill_tokens_s, 1, positive_max));
  m.step_ms = BILLOW_TRY(number_option(parsed, "step-ms", m.step_ms, 0, positive_max));
  m.start_s = BILLOW_TRY(number_option(parsed, "start-s", m.start_s, 0, positive_max));
  m.wake_s = BILLOW_TRY(number_option(parsed, "wake-s", m.wake_s, 0, positive_max));
  m.slo_first_token_s =
      BILLOW_TRY(number_option(parsed, "slo-s", m.slo_first_token_s, 0, positive_max));
  return o;
}

// The smallest fixed fleet that serves the goal's share of requests in time.
std::uint32_t fleet_for_goal(const Trace& trace, ReplayOptions o) {
  o.scaling = Scaling::fixed;
  for (o.fixed_replicas = 1; o.fixed_replicas < o.replicas_max; ++o.fixed_replicas) {
    o.existing = o.fixed_replicas;
    if (replay(trace, o).slo_pct() >= slo_goal_pct)
      break;
  }
  return o.fixed_replicas;
}

// The smallest fixed fleet that is as good as Billow was, or the largest one.
Row fixed_fleet(const Trace& trace, ReplayOptions o, const Scene& scene, double slo_pct) {
  o.scaling = Scaling::fixed;
  for (std::uint32_t n = 1;; ++n) {
    o.fixed_replicas = n;
    if (scene.existing > 1)
      o.existing = n;
    const ReplayResult fixed = replay(trace, o);
    const bool as_good = fixed.slo_pct() >= slo_pct;
    if (!as_good && n < o.replicas_max)
      continue;
    return {fmt::format("fixed fleet of {}{}", n,
                        as_good ? ", the smallest as good" : ": none is as good"),
            fixed};
  }
}

void compare(const Trace& trace, ReplayOptions o, const Scene& scene, std::vector<Row>& rows) {
  o.model.start_s = scene.start_s;
  o.knative_start_s = scene.start_s;
  o.existing = scene.existing;
  o.scaling = Scaling::billow;
  const ReplayResult ours = replay(trace, o);
  rows.push_back({"billow, " + scene.name, ours});
  rows.push_back(fixed_fleet(trace, o, scene, ours.slo_pct()));
  o.scaling = Scaling::knative;
  for (const double target : knative_targets) {
    o.knative_utilization = target;
    rows.push_back(
        {fmt::format("knative, target {:.0f} %, {}", target * 100, scene.name), replay(trace, o)});
  }
}

// The last of several equal days, with and without the pattern of the days before.
Status compare_days(const Trace& trace,
                    ReplayOptions o,
                    std::uint32_t days,
                    std::vector<Row>& rows) {
  if (trace.back().at_s >= 86'400)
    return fail(Code::invalid, "the trace is longer than a day, so --days cannot repeat it");
  const Trace all = gateway::repeated(trace, days);
  o.count_from_s = (days - 1) * 86'400.0 - 3600;
  for (const bool predict : {false, true}) {
    o.predict = predict;
    rows.push_back(
        {fmt::format("billow, day {}{}", days, predict ? ", --predict on" : ""), replay(all, o)});
  }
  return {};
}

Json json_of(const Row& row) {
  const ReplayResult& r = row.result;
  return Json::object({{"name", row.name},
                       {"requests", r.requests},
                       {"dropped", r.dropped},
                       {"slo_pct", r.slo_pct()},
                       {"gpu_s", r.gpu_s},
                       {"first_token_p50_s", r.first_token_p50_s},
                       {"first_token_p99_s", r.first_token_p99_s},
                       {"replicas_peak", r.replicas_peak},
                       {"cold_starts", r.cold_starts},
                       {"wakes", r.wakes}});
}

void print_rows(const Parsed& parsed, const std::vector<Row>& rows) {
  if (parsed.has("json")) {
    Json list = Json::array();
    for (const Row& row : rows)
      list.push(json_of(row));
    print(Json::object({{"trace", parsed.get("trace")}, {"results", std::move(list)}}).dump() +
          "\n");
    return;
  }
  print(fmt::format("{:<52} {:>9} {:>10} {:>9} {:>9} {:>6} {:>7} {:>6}\n", "", "in time %", "GPU-s",
                    "first p50", "first p99", "peak", "starts", "wakes"));
  for (const Row& row : rows) {
    const ReplayResult& r = row.result;
    print(fmt::format("{:<52} {:>9.2f} {:>10.0f} {:>8.2f}s {:>8.2f}s {:>6} {:>7} {:>6}\n", row.name,
                      r.slo_pct(), r.gpu_s, r.first_token_p50_s, r.first_token_p99_s,
                      r.replicas_peak, r.cold_starts, r.wakes));
  }
}

// Three scenes. From one replica, every algorithm must start what it needs while requests wait.
// With as many replicas as a fixed fleet needs, as after an earlier day, Billow's sleep and the
// starts are counted for all. With starts as quick as a wake, only the algorithms differ.
Status simulate_endpoints(const Parsed& parsed) {
  const std::string path = BILLOW_TRY(
      required_option(parsed, "trace", "give a CSV with TIMESTAMP,ContextTokens,GeneratedTokens"));
  const ReplayOptions o = BILLOW_TRY(read_options(parsed));
  auto existing =
      static_cast<std::uint32_t>(BILLOW_TRY(number_option(parsed, "existing", 0, 0, 1000)));
  const auto trace = gateway::read_llm_trace(path);
  if (!trace)
    return fail(Code::invalid, trace.error().message, trace.error().hint);
  if (existing == 0)
    existing = fleet_for_goal(*trace, o);
  const Scene scenes[] = {
      {fmt::format("one exists, starts in {:g} s", o.model.start_s), o.model.start_s, 1},
      {fmt::format("{} exist, starts in {:g} s", existing, o.model.start_s), o.model.start_s,
       existing},
      {fmt::format("one exists, starts in {:g} s", o.model.wake_s), o.model.wake_s, 1}};
  std::vector<Row> rows;
  for (const Scene& scene : scenes)
    compare(*trace, o, scene, rows);
  const auto days = static_cast<std::uint32_t>(BILLOW_TRY(number_option(parsed, "days", 1, 1, 30)));
  if (days > 1)
    BILLOW_TRY_VOID(compare_days(*trace, o, days, rows));
  print_rows(parsed, rows);
  return {};
}

}  // namespace

void add_simulate_endpoints(CommandTable& table) {
  table.push_back(
      {.name = "simulate endpoints",
       .summary = "compare endpoint scaling with a fixed fleet and with Knative on a trace",
       .example = "billow simulate endpoints --trace requests.csv --concurrency 8 --slo-s 2",
       .run = [](const Parsed& parsed) { return simulate_exit(simulate_endpoints(parsed)); },
       .options = {options},
       .group = simulate_group,
       .talks_to_head = false});
}

}  // namespace billow::client
