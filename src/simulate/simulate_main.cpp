// The command line of `billow simulate`: options in, tables or JSON out. The experiments themselves
// are in simulate_*.cpp.
#include <cstdio>

#include <fmt/format.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "simulate/simulate.h"

namespace billow::sched {
namespace {

constexpr const char* usage =
    R"(billow simulate: replay traces in virtual time with the scheduler the head uses

  billow simulate openb --nodes FILE --tasks FILE --stream FILE [--policy best|bestfit|fgd|random] [--shuffle-nodes SEED]
      Packing: tasks arrive until demand is 130 % of the GPUs. One result per line of the stream: the part of the GPUs that is
      not allocated when demand is 100 % and 130 %.
  billow simulate jobs --trace FILE --format muri|philly [--nodes 8] [--gpus 8] [--policy best|srsf|las|fifo|fair]
                       [--durations known|learned] [--interleave]
      Queueing: job completion times.

  --json        machine-readable results          --svg FILE    a plot of allocation over time
  --limit N     the first N streams or jobs only  --help        this text
)";

struct Options {
  std::vector<std::pair<std::string, std::string>> values;
  std::string_view get(std::string_view name, std::string_view fallback = {}) const {
    for (const auto& [k, v] : values) {
      if (k == name)
        return v;
    }
    return fallback;
  }
  bool has(std::string_view name) const {
    for (const auto& [k, v] : values) {
      if (k == name)
        return true;
    }
    return false;
  }
};

Result<Options> parse(const std::vector<std::string>& args,
                      const std::vector<std::string>& with_value,
                      const std::vector<std::string>& flags) {
  Options o;
  for (std::size_t i = 1; i < args.size(); ++i) {
    std::string name = args[i];
    if (!name.starts_with("--"))
      return fail(Code::invalid, fmt::format("unexpected argument \"{}\"", name),
                  "see billow simulate --help");
    name = name.substr(2);
    std::string value;
    const std::size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    if (std::ranges::find(flags, name) != flags.end()) {
      o.values.emplace_back(name, "yes");
    } else if (std::ranges::find(with_value, name) != with_value.end()) {
      if (equals == std::string::npos) {
        if (i + 1 >= args.size())
          return fail(Code::invalid, fmt::format("--{} needs a value", name));
        value = args[++i];
      }
      o.values.emplace_back(name, value);
    } else {
      std::vector<std::string> known = with_value;
      known.insert(known.end(), flags.begin(), flags.end());
      const std::string close = nearest(name, known);
      return fail(Code::invalid,
                  fmt::format("unknown option --{}{}", name,
                              close.empty() ? "" : "; did you mean --" + close + "?"),
                  "see billow simulate --help");
    }
  }
  return o;
}

Result<std::string> required(const Options& o, std::string_view name) {
  const std::string_view v = o.get(name);
  if (v.empty())
    return fail(Code::invalid, fmt::format("--{} is missing", name), "see billow simulate --help");
  return std::string(v);
}

double round2(double x) {
  return static_cast<double>(std::llround(x * 100.0)) / 100.0;
}
double round4(double x) {
  return static_cast<double>(std::llround(x * 10000.0)) / 10000.0;
}

Status openb(const std::vector<std::string>& args) {
  const Options o = BILLOW_TRY(parse(
      args, {"nodes", "tasks", "stream", "policy", "shuffle-nodes", "svg", "limit"}, {"json"}));
  auto nodes = BILLOW_TRY(read_openb_nodes(BILLOW_TRY(required(o, "nodes"))));
  const auto tasks = BILLOW_TRY(read_openb_tasks(BILLOW_TRY(required(o, "tasks"))));
  const auto streams =
      BILLOW_TRY(read_openb_streams(BILLOW_TRY(required(o, "stream")), tasks.size()));
  const std::string_view name = o.get("policy", "best");
  OpenbPolicy policy;
  if (name == "best")
    policy = OpenbPolicy::best;
  else if (name == "bestfit")
    policy = OpenbPolicy::bestfit;
  else if (name == "fgd")
    policy = OpenbPolicy::fgd;
  else if (name == "random")
    policy = OpenbPolicy::random;
  else
    return fail(Code::invalid, fmt::format("unknown policy \"{}\"", name),
                "one of best, bestfit, fgd, random");
  if (o.has("shuffle-nodes")) {
    Rng rng(
        static_cast<std::uint64_t>(BILLOW_TRY(parse_int(o.get("shuffle-nodes"), 0, INT64_MAX))));
    for (std::size_t i = nodes.size(); i > 1; --i)
      std::swap(nodes[i - 1], nodes[rng.below(i)]);
  }
  const auto limit = static_cast<std::size_t>(
      BILLOW_TRY(parse_int(o.get("limit", "1000000000"), 1, 1'000'000'000)));
  double sum_100 = 0, sum_130 = 0;
  std::size_t n = 0;
  if (!o.has("json"))
    fmt::print("{:>8} {:>16} {:>16} {:>8} {:>8} {:>12}\n", "seed", "unallocated 100%",
               "unallocated 130%", "placed", "dropped", "decisions/s");
  for (const OpenbStream& stream : streams) {
    if (n == limit)
      break;
    const OpenbResult r = run_openb(nodes, tasks, stream, policy);
    ++n;
    sum_100 += r.unallocated_pct(100);
    sum_130 += r.unallocated_pct(130);
    if (o.has("json")) {
      Json j = Json::object();
      auto seed = parse_int(stream.seed, INT64_MIN, INT64_MAX);
      j.set("seed", seed ? Json(*seed) : Json(stream.seed));
      j.set("policy", name);
      j.set("unallocated_pct_100", round4(r.unallocated_pct(100)));
      j.set("unallocated_pct_130", round4(r.unallocated_pct(130)));
      j.set("placed", r.placed);
      j.set("dropped", r.dropped);
      j.set("decisions_per_s", std::floor(r.decisions_per_s));
      fmt::print("{}\n", j.dump());
    } else {
      fmt::print("{:>8} {:>16.2f} {:>16.2f} {:>8} {:>8} {:>12.0f}\n", stream.seed,
                 r.unallocated_pct(100), r.unallocated_pct(130), r.placed, r.dropped,
                 r.decisions_per_s);
    }
    std::fflush(stdout);
    if (o.has("svg") && n == 1) {
      std::vector<std::pair<double, double>> steps;
      for (std::size_t x = 0; x < r.allocation_pct.size(); ++x) {
        if (r.allocation_pct[x] >= 0)
          steps.emplace_back(static_cast<double>(x), r.allocation_pct[x]);
      }
      BILLOW_TRY_VOID(
          write_file_atomic(std::string(o.get("svg")),
                            plot_svg(steps, 100, fmt::format("allocated GPUs, policy {}", name),
                                     "arrived demand, % of GPUs", "allocated, %")));
    }
  }
  if (!o.has("json") && n > 1)
    fmt::print("{:>8} {:>16.2f} {:>16.2f}\n", "mean", sum_100 / static_cast<double>(n),
               sum_130 / static_cast<double>(n));
  return {};
}

Status jobs(const std::vector<std::string>& args) {
  const Options o = BILLOW_TRY(
      parse(args, {"trace", "format", "nodes", "gpus", "policy", "durations", "svg", "limit"},
            {"json", "interleave"}));
  const std::string path = BILLOW_TRY(required(o, "trace"));
  const std::string_view format = o.get("format", "muri");
  std::vector<TraceJob> trace;
  if (format == "muri")
    trace = BILLOW_TRY(read_muri(path));
  else if (format == "philly")
    trace = BILLOW_TRY(read_philly(path));
  else
    return fail(Code::invalid, fmt::format("unknown format \"{}\"", format), "muri or philly");
  QueueOptions q;
  q.nodes = static_cast<std::int32_t>(BILLOW_TRY(parse_int(o.get("nodes", "8"), 1, 10000)));
  q.gpus_per_node = static_cast<std::int32_t>(BILLOW_TRY(parse_int(o.get("gpus", "8"), 1, 64)));
  q.interleave = o.has("interleave");
  const std::string_view durations = o.get("durations", "known");
  if (durations != "known" && durations != "learned")
    return fail(Code::invalid,
                fmt::format("--durations is known or learned, not \"{}\"", durations));
  q.durations_known = durations == "known";
  const std::string_view policy = o.get("policy", "best");
  if (policy == "best")
    q.policy = QueuePolicy::best;
  else if (policy == "srsf")
    q.policy = QueuePolicy::srsf;
  else if (policy == "las")
    q.policy = QueuePolicy::las;
  else if (policy == "fifo")
    q.policy = QueuePolicy::fifo;
  else if (policy == "fair")
    q.policy = QueuePolicy::fair;
  else
    return fail(Code::invalid, fmt::format("unknown policy \"{}\"", policy),
                "one of best, srsf, las, fifo, fair");
  const auto limit = static_cast<std::size_t>(
      BILLOW_TRY(parse_int(o.get("limit", "1000000000"), 1, 1'000'000'000)));
  if (trace.size() > limit)
    trace.resize(limit);
  const std::int64_t most = std::int64_t{q.nodes} * q.gpus_per_node;
  for (const TraceJob& j : trace) {
    if (j.gpus > most)
      return fail(Code::infeasible,
                  fmt::format("job {} asks for {} GPUs; the fleet has {}", j.id, j.gpus, most),
                  "use a larger fleet: --nodes N --gpus N");
  }
  const QueueResult r = run_queue(trace, q);
  Json j = Json::object();
  j.set("policy", policy);
  j.set("durations", durations);
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
  if (o.has("json")) {
    fmt::print("{}\n", j.dump());
  } else {
    for (const auto& [k, v] : j.members())
      fmt::print("{:<14} {}\n", k, v.is_string() ? v.as_string() : v.dump());
  }
  if (o.has("svg"))
    BILLOW_TRY_VOID(
        write_file_atomic(std::string(o.get("svg")),
                          plot_svg(r.use, static_cast<double>(most),
                                   fmt::format("GPUs in use, policy {}", policy), "time", "GPUs")));
  return {};
}

}  // namespace

int simulate_main(const std::vector<std::string>& args) {
  const auto wants_help = [](const std::string& a) {
    return a == "--help" || a == "-h" || a == "help";
  };
  if (args.empty() || std::ranges::any_of(args, wants_help)) {
    std::fputs(usage, args.empty() ? stderr : stdout);
    return args.empty() ? 2 : 0;
  }
  Status done;
  if (args[0] == "openb")
    done = openb(args);
  else if (args[0] == "jobs")
    done = jobs(args);
  else
    done = fail(Code::invalid, fmt::format("\"{}\" is nothing to simulate", args[0]),
                "openb, jobs or replay; see billow simulate --help");
  if (done)
    return 0;
  fmt::print(stderr, "billow simulate: {}\n", done.error().message);
  if (!done.error().hint.empty())
    fmt::print(stderr, "  {}\n", done.error().hint);
  return done.error().code == Code::invalid ? 2 : 1;
}

}  // namespace billow::sched
