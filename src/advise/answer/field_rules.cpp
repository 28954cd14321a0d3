#include "advise/answer/field_rules.h"

#include <cmath>

#include <fmt/format.h>

#include "advise/pricing.h"

namespace billow::advise {
namespace {

// "70B at INT8 on an A100-80": true for the weights, but people forget how little is left for the
// cache.
Check seventy_on_eighty(const Request& request) {
  constexpr double card = 81920.0 * 1048576;
  double context = request.context > 0 ? request.context : request.input + request.output;
  auto shape = at_precision(request.model, Precision::int8);
  auto memory =
      serving_memory(shape, shape.kv_native, {}, {.context = context, .sequences = 1}, card);
  double left = memory.usable - (memory.total() - memory.kv);
  double token = kv_per_token(shape, shape.kv_native).bytes;
  if (!memory.fits())
    return {
        "70B at INT8 on A100-80", false,
        fmt::format("at INT8 the weights take {:.1f} of the {:.1f} GB usable on one A100-80, and "
                    "the rest does not hold one sequence of {:.0f} tokens{}: use two GPUs, or INT4",
                    memory.weights / 1e9, memory.usable / 1e9, context,
                    left > 0 && token > 0 ? fmt::format(" (only {:.0f})", left / token) : "")};
  return {"70B at INT8 on A100-80", true,
          fmt::format("at INT8 it fits on one A100-80 with {:.1f} GB left for the cache: {:.0f} "
                      "concurrent sequence{} of {:.0f} tokens, or one of {:.0f}",
                      left / 1e9, memory.sequences_max, memory.sequences_max < 2 ? "" : "s",
                      context, token > 0 ? std::floor(left / token) : 0)};
}

}  // namespace

std::vector<Check> field_rules(const Request& request, const Advice& advice) {
  std::vector<Check> out;
  auto& b = *advice.best;
  double billions = request.model.parameters() / 1e9;
  if (billions > 5 && billions < 9) {
    const double held_gib = b.memory.capacity / 1073741824;  // of the card, or of the part of it
    const bool small = held_gib <= 48;
    out.push_back({"L4 or A10G for 7B", small,
                   small
                       ? fmt::format("a GPU of {:.0f} GB holds it at {}; no larger one is paid for",
                                     held_gib, precision_name(b.precision))
                       : "the load or the service level needs more than a 24 GB GPU"});
  }
  if (b.parallelism.tensor > 1) {
    bool linked =
        !b.offer || !b.offer->instance ||
        (b.offer->instance->fabric != Fabric::pcie && b.offer->instance->fabric != Fabric::single);
    out.push_back(
        {"NVLink before tensor parallelism", linked,
         linked ? "the ranks exchange activations of every layer over NVLink or a similar fabric"
                : "two ranks over PCIe: exchanges may cost more than predicted; an instance with "
                  "NVLink is safer"});
  } else {
    out.push_back(
        {"NVLink before tensor parallelism", true, "one GPU holds the model: no fabric is needed"});
  }
  out.push_back(
      {"one node before many", b.parallelism.gpus() <= 8,
       b.parallelism.gpus() <= 8
           ? "each replica stays inside one machine; replicas need no fast network between them"
           : "a replica spans machines"});
  bool training_part = b.gpu->nvlink_gb_s.value_or(0) >= 900 && b.concurrency < 8;
  out.push_back({"inference hardware for inference", !training_part,
                 training_part ? "a training GPU for a small load: a smaller GPU or a slice would "
                                 "do if one met the service level"
                               : "the load uses the GPU well"});
  if (billions > 60 && billions < 80)
    out.push_back(seventy_on_eighty(request));
  // Without a service level the cheapest is taken, however long its users wait.
  const bool open = !request.ttft_ms_max && !request.tokens_per_s_min;
  const double ttft_s = b.latency.ttft_ms.value / 1e3, tpot_ms = b.latency.tpot_ms.value;
  if (open && (request.users > 0 || request.rps > 0) && (ttft_s > 5 || tpot_ms > 100))
    out.push_back(
        {"a service level", false,
         fmt::format("none was asked for, so the cheapest is shown although {}; --ttft 2s "
                     "or --tps 10 asks for a faster one",
                     ttft_s > 5 ? fmt::format("first tokens take {:.0f} s", ttft_s)
                                : fmt::format("a user gets {:.1f} tokens/s", 1e3 / tpot_ms))});
  out.push_back({"reserve the baseline only", true,
                 "commit to the GPUs that run around the clock; use on-demand for the rest (see "
                 "billow plan)"});
  return out;
}

bool acceptable(const Candidate& c, const Request& request) {
  return !request.precisions.empty() || c.native || weight_bytes(c.precision) >= 1;
}

void explain_changes(Advice& advice, const Request& request) {
  auto& b = *advice.best;
  double cost = rank_cost(b, request);
  for (auto& c : advice.ranked) {
    if (!acceptable(c, request) && c.offer && rank_cost(c, request) < cost * 0.95) {
      advice.would_change.push_back(fmt::format(
          "accepting {}: {} at ${:.0f} per month instead of ${:.0f} (check the quality)",
          precision_name(c.precision), c.gpu->name, rank_cost(c, request), cost));
      break;
    }
  }
  if (b.offer && b.offer->spot_month && b.offer->on_demand_month && !request.spot)
    advice.would_change.push_back(fmt::format(
        "running on spot: ${:.0f} per month, if interruptions are acceptable; {}",
        *b.offer->spot_month, spot_history_text(b.offer->instance ? b.offer->instance->name : "")));
  if (b.binding == "memory")
    advice.would_change.push_back(
        "a shorter context or an FP8 cache: memory limits the load per replica");
  if (b.binding == "tokens per second")
    advice.would_change.push_back("a lower --tps: the speed per sequence limits the batch");
  if (b.binding == "time to first token")
    advice.would_change.push_back("a longer --ttft: prefill limits the batch");
  if (!b.sure && (request.ttft_ms_max || request.tokens_per_s_min))
    advice.would_change.push_back(
        "a measurement: the upper bound of the prediction misses the service level; check it with "
        "`billow loadtest`");
  for (auto& c : advice.ranked) {
    double more = rank_cost(c, request) / cost - 1;
    if (!acceptable(c, request) || &c == &b || !(more > 0) || more > 0.2 ||
        c.chance < b.chance + 0.15)
      continue;
    advice.would_change.push_back(
        fmt::format("more certainty: {}{}{} costs {:.0f} % more and meets the service level with a "
                    "probability of {:.0f} % instead of {:.0f} %",
                    c.gpu->name, c.slice.empty() || c.slice == "whole" ? "" : " as ",
                    c.slice == "whole" ? "" : c.slice, 100 * more, 100 * c.chance, 100 * b.chance));
    break;
  }
  if (b.offer && b.offer->price_age_days && *b.offer->price_age_days > 30)
    advice.would_change.push_back(
        fmt::format("newer prices: this one is {} days old (billow cloud prices, or billow prices "
                    "update)",
                    *b.offer->price_age_days));
}

void say_cost_of_certainty(Advice& advice,
                           Request request,
                           const Catalogue& catalogue,
                           const Calibration& calibration) {
  const double cost = rank_cost(*advice.best, request);
  request.chance_min = even_chance;
  request.offers.gpu = advice.best->gpu->name;
  request.precisions = {advice.best->precision};
  const auto bare = recommend(request, catalogue, calibration);
  if (bare && bare->best && rank_cost(*bare->best, request) < 0.75 * cost)
    advice.would_change.insert(
        advice.would_change.begin(),
        fmt::format("a load test: if the prediction is right, {} × {} at ${:.0f} per month do; the "
                    "rest of ${:.0f} is for its errors (billow loadtest --model … --gpu …)",
                    bare->best->gpus, bare->best->gpu->name, rank_cost(*bare->best, request),
                    cost));
}

}  // namespace billow::advise
