#include "advise/tails.h"

#include <algorithm>
#include <cmath>

#include "advise/choice.h"
#include "advise/pricing.h"

namespace billow::advise {
namespace {

constexpr double no_limit_ms = 1e12;

double at(const Percentiles& p, Percentile which) {
  switch (which) {
    case Percentile::mean:
      return p.mean;
    case Percentile::p50:
      return p.p50;
    case Percentile::p95:
      return p.p95;
    case Percentile::p99:
      return p.p99;
  }
  return p.mean;
}

double chance_below_limit(const Estimate& e, double value, double limit) {
  constexpr double eighty = 1.2816;  // standard deviations to each side that hold 80 %
  if (!(e.value > 0) || !(value > 0) || limit >= no_limit_ms)
    return 1;
  const double above = std::log(e.high / e.value) / eighty,
               below = std::log(e.value / e.low) / eighty;
  return chance_below(std::log(value), limit, limit >= value ? above : below);
}

}  // namespace

const char* percentile_name(Percentile p) {
  switch (p) {
    case Percentile::mean:
      return "mean";
    case Percentile::p50:
      return "p50";
    case Percentile::p95:
      return "p95";
    case Percentile::p99:
      return "p99";
  }
  return "?";
}

Result<Percentile> parse_percentile(std::string_view text) {
  for (auto p : {Percentile::mean, Percentile::p50, Percentile::p95, Percentile::p99})
    if (text == percentile_name(p))
      return p;
  return fail(Code::invalid, fmt::format("\"{}\" is not a percentile", text.substr(0, 40)),
              "use mean, p50, p95 or p99");
}

double variation_of(double mean, double p95) {
  constexpr double z = 1.6449;  // standard deviations below which 95 % lie
  if (!(mean > 0) || p95 <= mean)
    return 0;
  // p95 / mean = exp(z·s - s²/2), which is largest at s = z.
  const double s = z - std::sqrt(std::max(0.0, z * z - 2 * std::log(p95 / mean)));
  return std::sqrt(std::exp(s * s) - 1);
}

ServingRow serving_row_of(const Candidate& c,
                          const Request& request,
                          const std::shared_ptr<const ModelShape>& shape,
                          const GpuSpec& gpu) {
  ServingRow row;
  row.shape = shape;
  row.family = family_of(*shape);
  row.gpu = &gpu;
  row.engine = request.engine;
  row.version = request.version.empty() ? version_unsaid : request.version;
  row.precision = c.precision == Precision::nvfp4 ? "fp4" : precision_name(c.precision);
  row.kv = engine_kv(row.engine, row.precision, *shape);
  row.parallelism = c.parallelism;
  if (request.way == Way::separate_prefill) {
    row.disaggregated = row.prefill_told = true;
    row.prefill_rank_gpus = c.parallelism.tensor;
    row.prefill_gpus = std::max(c.prefill_gpus, c.parallelism.tensor);
  }
  row.input = request.input;
  row.output = request.output;
  row.extras = request.extras;
  return row;
}

void add_tails(Candidate& c,
               const Request& request,
               const Calibration& calibration,
               const std::shared_ptr<const ModelShape>& shape,
               double slow) {
  auto engine =
      engine_times(calibration, serving_row_of(c, request, shape, *c.gpu), c.memory.sequences_max);
  for (auto& ms : engine.decode_ms)
    ms *= slow;
  engine.prefill_ms *= slow;
  engine.prefill_token_ms *= slow;
  QueueLoad load{.input = request.input,
                 .output = request.output,
                 .variation = request.variation,
                 .lengths = request.lengths};
  load.rps = request.rps / std::max(1, c.replicas);
  load.users = std::max(1.0, std::ceil(request.users / std::max(1, c.replicas) - 1e-9));
  // Long answers are replayed fewer times, so that an answer stays quick.
  load.requests = static_cast<int>(
      std::max(4 * std::min(load.users, 512.0), std::clamp(4e5 / request.output, 300.0, 1500.0)));
  c.tails = simulate_queue(engine, load);
}

double chance_of(const Candidate& c, const TailLimits& limits, Percentile p) {
  const bool means = p == Percentile::mean || !c.tails;
  const double tpot = means ? c.latency.tpot_ms.value : at(c.tails->tpot_ms, p),
               ttft = means ? c.latency.ttft_ms.value : at(c.tails->ttft_ms, p);
  if (!means && !c.tails->keeps_up)
    return 0;
  return chance_below_limit(c.latency.tpot_ms, tpot, limits.tpot_ms) *
         chance_below_limit(c.latency.ttft_ms, ttft, limits.ttft_ms);
}

double miss_of(const Candidate& c, Percentile p, const TailLimits& limits) {
  if (!c.tails)
    return 0;
  const double miss =
      std::max(at(c.tails->tpot_ms, p) / limits.tpot_ms, at(c.tails->ttft_ms, p) / limits.ttft_ms);
  return c.tails->keeps_up ? miss : std::max(miss, 2.0);
}

std::pair<std::string, std::string> binding_tail(const Candidate& c,
                                                 Percentile p,
                                                 const TailLimits& limits) {
  const double tpot = at(c.tails->tpot_ms, p), ttft = at(c.tails->ttft_ms, p);
  const bool first = ttft / limits.ttft_ms > tpot / limits.tpot_ms;
  return {first ? "time to first token" : "tokens per second",
          fmt::format("with {} replica{} its {} would be {:.0f} ms{} (a chance of {:.0f} %)",
                      c.replicas, c.replicas == 1 ? "" : "s", percentile_name(p),
                      first ? ttft : tpot, first ? "" : " per token", 100 * c.chance)};
}

bool alone(const Candidate& c, const Request& request) {
  if (request.rps > 0)
    return c.tails && c.tails->concurrency < 0.1;
  return request.users <= c.replicas;
}

std::vector<CurvePoint> curve_of(const Candidate& c,
                                 const Request& request,
                                 const Calibration& calibration) {
  std::vector<CurvePoint> curve;
  if (!c.slice.empty() && c.slice != "whole")
    return curve;
  auto shape = std::make_shared<const ModelShape>(at_precision(request.model, c.precision));
  ServingRow row = serving_row_of(c, request, shape, *c.gpu);
  auto prepared = calibration.prepare(row);
  const double cost = rank_cost(c, request);
  for (double load : replica_loads) {
    if (load > c.memory.sequences_max)
      break;
    row.concurrency = load;
    auto now = Calibration::quick(prepared, row);
    CurvePoint p{load, now.ttft_ms, now.tpot_ms, 0, {}};
    p.rps = load / (now.ttft_ms + request.output * now.tpot_ms) * 1e3;
    if (cost < 1e12)
      p.usd_per_million = cost / c.replicas / (p.rps * request.output * hours_month * 3600) * 1e6;
    curve.push_back(p);
  }
  return curve;
}

}  // namespace billow::advise
