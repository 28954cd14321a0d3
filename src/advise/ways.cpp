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

// Requests per second of a closed loop.
double rate(const ServingRow& row, const Calibration::Quick& now) {
  return row.concurrency / (now.ttft_ms + row.output * now.tpot_ms) * 1e3;
}

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
    row.disaggregated = row.prefill_told = apart;
    row.prefill_rank_gpus = row.prefill_gpus = apart ? split.tensor : 0;
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
  Point at(ServingRow row, const Parallelism& split) const {
    const auto prepared = calibration_.prepare(row);
    if (row.disaggregated)
      give_prefill_workers(prepared, row);
    const auto now = Calibration::quick(prepared, row);
    Point p{.load = row.concurrency, .ttft_ms = now.ttft_ms, .tpot_ms = now.tpot_ms};
    p.rps = rate(row, now);
    p.prefill_gpus = static_cast<int>(row.prefill_gpus);
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

const char* way_name(Way way) {
  switch (way) {
    case Way::tensor:
      return "tensor";
    case Way::data_attention:
      return "data-attention";
    case Way::separate_prefill:
      return "separate-prefill";
  }
  return "?";
}

Result<Way> parse_way(std::string_view text) {
  for (auto way : {Way::tensor, Way::data_attention, Way::separate_prefill})
    if (text == way_name(way))
      return way;
  return fail(Code::invalid, fmt::format("\"{}\" is not a way to serve", text.substr(0, 40)),
              "use tensor, data-attention or separate-prefill");
}

std::vector<Parallelism> splits_of(Way way, int gpus_max, int nodes, bool mixture) {
  std::vector<Parallelism> out;
  int most = 1;
  for (int ranks = 1; ranks <= std::min(8, gpus_max); ranks *= 2) {
    most = ranks;
    if (way != Way::data_attention)
      out.push_back({.tensor = ranks, .expert = mixture && ranks > 1 ? ranks : 1});
    else if (ranks > 1)
      out.push_back({.tensor = ranks, .attention_data = ranks, .expert = ranks});
  }
  for (int stages = 2; way == Way::tensor && most >= 4 && stages <= std::min(4, nodes); stages *= 2)
    out.push_back({.tensor = most, .pipeline = stages, .expert = mixture ? most : 1});
  return out;
}

Status check_way(const Request& request) {
  if (request.way == Way::data_attention && !request.model.is_moe())
    return fail(Code::invalid,
                fmt::format("{} has no experts to spread over data ranks",
                            request.model.name.empty() ? "the model" : request.model.name),
                "omit --way: replicas of a dense model share nothing");
  if (request.way == Way::separate_prefill && request.percentile != Percentile::mean)
    return fail(Code::invalid, "percentiles are not known with separate prefill workers",
                "omit --percentile or --way");
  return {};
}

void give_prefill_workers(const Calibration::Prepared& prepared, ServingRow& row) {
  constexpr int workers_max = 64;
  for (int workers = 1; workers <= workers_max; ++workers) {
    row.prefill_gpus = workers * row.prefill_rank_gpus;
    const auto now = Calibration::quick(prepared, row);
    if (rate(row, now) * prefill_ms(row) / 1e3 <= prefill_busy * workers)
      return;
  }
}

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
  const bool apart = request.way == Way::separate_prefill;
  const Point chosen = trial.run(best.parallelism, apart);
  if (!(chosen.per_gpu() > 0))
    return out;
  auto add = [&](std::string name, const Parallelism& split, bool prefill, const char* then,
                 const char* otherwise) {
    if (split == best.parallelism && prefill == apart)
      return;
    const Point p = trial.run(split, prefill);
    if (!(p.per_gpu() > 0))
      return;
    const double gain = p.per_gpu() / chosen.per_gpu() - 1;
    out.push_back({std::move(name), split, p.gpus, p.prefill_gpus, p.load, p.ttft_ms, p.tpot_ms,
                   p.per_gpu(), gain, verdict(gain, then, otherwise)});
  };
  Parallelism plain = best.parallelism;
  plain.attention_data = 1;
  add("tensor ranks that do everything", plain, false, "the simplest way serves more here",
      "the way asked for serves more requests per GPU");
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
    add("separate prefill workers", plain, true,
        "prompts no longer interrupt answers; measurements of it cover one model, so expect errors "
        "of half",
        "prefill workers would idle, or hold a second copy of the weights for little");
  return out;
}

}  // namespace billow::advise
