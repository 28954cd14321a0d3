// `billow simulate endpoints`: the comparison as a table or as JSON.
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "simulate/endpoint_replay.h"

namespace billow::gateway {
namespace {

struct Row {
  std::string name;
  ReplayResult result;
};

int complain(const Error& error) {
  fmt::print(stderr, "billow simulate endpoints: {}{}{}\n", error.message,
             error.hint.empty() ? "" : "; ", error.hint);
  return 2;
}

// What Knative's target is swept over, as a part of the concurrency; its default is 0.7.
constexpr double knative_targets[] = {0.5, 0.6, 0.7, 0.85, 1.0};

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

}  // namespace

int simulate_endpoints_main(const std::vector<std::string>& args) {
  std::string trace_path;
  ReplayOptions options;
  bool json = false;
  std::uint32_t existing = 0;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& name = args[i];
    if (name == "--json") {
      json = true;
      continue;
    }
    if (i + 1 >= args.size())
      return complain({Code::invalid, name + " needs a value", ""});
    const std::string& value = args[++i];
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    const bool is_number = end && *end == 0 && !value.empty() && number >= 0;
    if (name == "--trace")
      trace_path = value;
    else if (!is_number)
      return complain({Code::invalid, fmt::format("{} {}: not a number", name, value), ""});
    else if (name == "--concurrency")
      options.model.concurrency = std::max(1u, static_cast<std::uint32_t>(number));
    else if (name == "--prefill-tokens-s")
      options.model.prefill_tokens_s = std::max(number, 1.0);
    else if (name == "--step-ms")
      options.model.step_ms = number;
    else if (name == "--start-s")
      options.model.start_s = number;
    else if (name == "--wake-s")
      options.model.wake_s = number;
    else if (name == "--existing")
      existing = static_cast<std::uint32_t>(std::min(number, 1000.0));
    else if (name == "--slo-s")
      options.model.slo_first_token_s = number;
    else
      return complain(
          {Code::invalid, "unknown option " + name, "see billow simulate endpoints --help"});
  }
  if (trace_path.empty())
    return complain({Code::invalid, "no trace given",
                     "--trace FILE with TIMESTAMP,ContextTokens,GeneratedTokens"});
  const auto trace = read_llm_trace(trace_path);
  if (!trace)
    return complain(trace.error());

  // From one replica, where everybody must start what it needs while requests wait; with as many in
  // existence as a fixed fleet needs, as after an earlier day (Billow's sleep, and what their
  // starts took is counted for all); and as if every start were as quick as a wake, where nothing
  // but the algorithms differ.
  options.scaling = Scaling::fixed;
  for (options.fixed_replicas = 1; existing == 0; ++options.fixed_replicas) {
    options.existing = options.fixed_replicas;
    if (replay(*trace, options).slo_pct() >= 99.9 || options.fixed_replicas == options.replicas_max)
      existing = options.fixed_replicas;
  }
  struct Scene {
    std::string name;
    double start_s;
    std::uint32_t existing;
  };
  const Scene scenes[] = {
      {fmt::format("one exists, starts in {:g} s", options.model.start_s), options.model.start_s,
       1},
      {fmt::format("{} exist, starts in {:g} s", existing, options.model.start_s),
       options.model.start_s, existing},
      {fmt::format("one exists, starts in {:g} s", options.model.wake_s), options.model.wake_s, 1}};
  std::vector<Row> rows;
  for (const Scene& scene : scenes) {
    options.model.start_s = options.knative_start_s = scene.start_s;
    options.existing = scene.existing;
    options.scaling = Scaling::billow;
    const std::size_t ours = rows.size();
    rows.push_back({"billow, " + scene.name, replay(*trace, options)});
    options.scaling = Scaling::fixed;
    for (std::uint32_t n = 1; n <= options.replicas_max; ++n) {
      options.fixed_replicas = n;
      if (scene.existing > 1)
        options.existing = n;
      const ReplayResult fixed = replay(*trace, options);
      if (fixed.slo_pct() < rows[ours].result.slo_pct() && n < options.replicas_max)
        continue;
      rows.push_back(
          {fmt::format("fixed fleet of {}{}", n,
                       fixed.slo_pct() < rows[ours].result.slo_pct() ? ": none is as good"
                                                                     : ", the smallest as good"),
           fixed});
      break;
    }
    options.existing = scene.existing;
    options.scaling = Scaling::knative;
    for (double target : knative_targets) {
      options.knative_utilization = target;
      rows.push_back({fmt::format("knative, target {:.0f} %, {}", target * 100, scene.name),
                      replay(*trace, options)});
    }
  }
  if (json) {
    Json list = Json::array();
    for (const Row& row : rows)
      list.push(json_of(row));
    fmt::print("{}\n", Json::object({{"trace", trace_path}, {"results", std::move(list)}}).dump());
    return 0;
  }
  fmt::print("{:<52} {:>9} {:>10} {:>9} {:>9} {:>6} {:>7} {:>6}\n", "", "in time %", "GPU-s",
             "first p50", "first p99", "peak", "starts", "wakes");
  for (const Row& row : rows) {
    const ReplayResult& r = row.result;
    fmt::print("{:<52} {:>9.2f} {:>10.0f} {:>8.2f}s {:>8.2f}s {:>6} {:>7} {:>6}\n", row.name,
               r.slo_pct(), r.gpu_s, r.first_token_p50_s, r.first_token_p99_s, r.replicas_peak,
               r.cold_starts, r.wakes);
  }
  return 0;
}

}  // namespace billow::gateway
