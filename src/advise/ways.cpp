#include "advise/ways.h"

#include <algorithm>
#include <cmath>

#include "advise/tails.h"

namespace billow::advise {
namespace {

constexpr double prefill_busy = 0.7;  // of a prefill worker's time; above it prompts queue
constexpr double worth_it = 0.05;     // a smaller difference is within every error

struct Point {
  double load = 0, ttft_ms = 0, tpot_ms = 0, rps = 0;
  int gpus = 0, prefill_gpus = 0;
  double per_gpu() const { return gpus > 0 ? rps / gpus : 0; }
};

// The best that one unit (a replica, with its prefill workers if they are apart) serves per GPU.
class Trial {
 public:
  Trial(const Candidate& best,
        const Request& request,
        const Calibration& calibration,
        const WayLimits& limits)
      : best_(best),
        request_(request),
        calibration_(calibration),
        limits_(limits),
        shape_(std::make_shared<const ModelShape>(at_precision(request.model, best.precision))) {}

  Point run(const Parallelism& split, bool apart) const {
    Point top;
    const auto memory = serving_memory(*shape_, shape_->kv_native, split,
                                       {.context = limits_.context, .sequences = 1},
                                       static_cast<double>(*best_.gpu->memory_mib) * 1048576,
                                       memory_options(*shape_, request_.extras));
    if (!memory.fits())
      return top;
    Candidate c = best_;
    c.parallelism = split;
    ServingRow row = serving_row_of(c, request_, shape_, *best_.gpu);
    row.nodes = (split.tensor + fabric_gpus(*best_.gpu) - 1) / fabric_gpus(*best_.gpu);
    row.disaggregated = apart;
    row.prefill_told = apart;
    row.prefill_rank_gpus = apart ? split.tensor : 0;
    const double whole_load = request_.users > 0 ? request_.users : 1e9;
    for (double load : replica_loads) {
      if (load > memory.sequences_max || load > whole_load * 1.5)
        break;
      row.concurrency = load;
      const Point p = at(row, split);
      if (p.tpot_ms > limits_.tpot_ms || p.ttft_ms > limits_.ttft_ms)
        break;
      if (p.per_gpu() > top.per_gpu())
        top = p;
      if (request_.rps > 0 && p.rps > request_.rps / 0.85)
        break;
    }
    return top;
  }

 private:
  // More prefill workers, until those there are have time for the prompts that arrive.
  Point at(ServingRow row, const Parallelism& split) const {
    Point p{.load = row.concurrency};
    for (int workers = 1; workers <= 64; ++workers) {
      row.prefill_gpus = row.disaggregated ? workers * split.tensor : 0;
      const auto now = Calibration::quick(calibration_.prepare(row), row);
      p.ttft_ms = now.ttft_ms;
      p.tpot_ms = now.tpot_ms;
      p.rps = row.concurrency / (now.ttft_ms + row.output * now.tpot_ms) * 1e3;
      p.prefill_gpus = static_cast<int>(row.prefill_gpus);
      if (!row.disaggregated || p.rps * prefill_ms(row) / 1e3 <= prefill_busy * workers)
        break;
    }
    p.gpus = split.gpus() + p.prefill_gpus;
    return p;
  }

  const Candidate& best_;
  const Request& request_;
  const Calibration& calibration_;
  const WayLimits& limits_;
  std::shared_ptr<const ModelShape> shape_;
};

std::string verdict(double gain, const char* then, const char* otherwise) {
  return gain > worth_it    ? fmt::format("worth a test: {}", then)
         : gain < -worth_it ? fmt::format("not here: {}", otherwise)
                            : std::string("no clear difference");
}

}  // namespace

int fabric_gpus(const GpuSpec& gpu) {
  return gpu.name.starts_with("GB") ? 72 : 8;
}

std::vector<OtherWay> other_ways(const Candidate& best,
                                 const Request& request,
                                 const Calibration& calibration,
                                 const WayLimits& limits) {
  std::vector<OtherWay> out;
  if (!best.gpu->memory_mib || (!best.slice.empty() && best.slice != "whole"))
    return out;
  const Trial trial(best, request, calibration, limits);
  const Point plain = trial.run(best.parallelism, false);
  if (!(plain.per_gpu() > 0))
    return out;
  auto add = [&](std::string name, const Parallelism& split, bool apart, const char* then,
                 const char* otherwise) {
    const Point p = trial.run(split, apart);
    if (!(p.per_gpu() > 0))
      return;
    const double gain = p.per_gpu() / plain.per_gpu() - 1;
    out.push_back({std::move(name), split, p.gpus, p.prefill_gpus, p.load, p.ttft_ms, p.tpot_ms,
                   p.per_gpu(), gain, verdict(gain, then, otherwise)});
  };
  const bool owned = !request.fleet.empty();
  const int most = owned ? best.parallelism.gpus() : 8;
  if (request.model.is_moe() && most > 1)
    add(fmt::format("attention by data ranks, experts spread over {} GPUs", most),
        {.tensor = most, .attention_data = most, .expert = most}, false,
        "each rank keeps the cache of its own sequences, and more of them share every expert",
        "at this load each rank reads all attention weights for few sequences");
  if (request.model.is_moe() && !owned)
    add(fmt::format("experts spread over 16 GPUs of {} node{}",
                    fabric_gpus(*best.gpu) >= 16 ? 1 : 2, fabric_gpus(*best.gpu) >= 16 ? "" : "s"),
        {.tensor = 16, .attention_data = 16, .expert = 16}, false,
        "more sequences share every expert; the network must carry every token twice a layer",
        "the exchanges cost more than the shared experts save");
  if (!owned && best.gpus > 1)
    add("separate prefill workers", best.parallelism, true,
        "prompts no longer interrupt answers; measurements of it cover one model, so expect errors "
        "of half",
        "prefill workers would idle, or hold a second copy of the weights for little");
  return out;
}

}  // namespace billow::advise
