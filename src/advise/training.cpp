// Training: the smallest number of GPUs that hold it, single nodes before many, and what the ranks
// must exchange.
#include <algorithm>
#include <cmath>

#include "advise/recommend.h"
#include "base/text.h"

std::string_view billow_embedded_spot();

namespace billow::advise {
namespace {

constexpr double model_flops_utilisation =
    0.38;  // of dense BF16 rate: what well-tuned runs on one node reach
constexpr double checkpoint_write_bytes_s =
    2e9;  // to a parallel file system or object store, per node

struct Step {
  double compute_s = 0, exchange_s = 0, tokens = 0;
};

Step step_of(const ModelShape& shape,
             const TrainingPlan& plan,
             const GpuSpec& gpu,
             const Instance& instance,
             int nodes) {
  Step s;
  int replicas = std::max(1, plan.gpus / plan.tensor);
  s.tokens = plan.sequence * plan.micro_batch * replicas;
  double passes = plan.tuning == Tuning::full ? 6 : 4;  // no weight gradients for frozen layers
  if (plan.checkpointing == Checkpointing::full)
    passes += 2;  // the forward pass again
  double rate =
      gpu.bf16_tflops.value_or(gpu.fp16_tflops.value_or(1)) * 1e12 * model_flops_utilisation;
  s.compute_s = passes * shape.active_parameters() * s.tokens / rate / plan.gpus;
  double traffic = training_traffic_bytes(shape, plan);
  double link = instance.fabric_gb_s > 0 ? instance.fabric_gb_s / 2 * 1e9 : 25e9;
  if (nodes > 1)
    link = std::min(link, std::max(1.0, instance.network_gbps) / 8 * 1e9 / instance.gpus);
  s.exchange_s = plan.gpus > 1 ? traffic / link : 0;
  return s;
}

// The plan that exchanges least among those that fit: less sharding first, then recomputation.
std::optional<TrainingPlan> plan_for(const TrainingRequest& request, const GpuSpec& gpu, int gpus) {
  double usable = training_usable_bytes(gpu);
  for (auto zero : {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters}) {
    if (zero != Zero::none && gpus == 1)
      break;
    for (auto checkpointing :
         {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
      TrainingPlan plan{.zero = zero,
                        .checkpointing = checkpointing,
                        .tuning = request.tuning,
                        .gpus = gpus,
                        .sequence = request.sequence,
                        .micro_batch = request.micro_batch};
      if (training_memory(request.model, plan).total() <= usable)
        return plan;
    }
  }
  return std::nullopt;
}

}  // namespace

double training_usable_bytes(const GpuSpec& gpu) {
  return static_cast<double>(gpu.memory_mib.value_or(0)) * 1048576 * 0.94;
}

double checkpoint_interval_s(double cost_s, double mtbf_s) {
  return std::sqrt(2 * std::max(0.0, cost_s) * std::max(0.0, mtbf_s));
}

SpotHistory spot_history(std::string_view instance) {
  SpotHistory h;
  for (auto& line : split(billow_embedded_spot(), '\n')) {
    auto f = split(line, ' ');
    if (f.size() >= 5 && f[0] == instance) {
      h.known = true;
      h.ratio_median = std::strtod(f[1].c_str(), nullptr);
      h.scarce_share = std::strtod(f[3].c_str(), nullptr);
      h.mtbf_h = std::min(
          24.0, std::strtod(f[4].c_str(),
                            nullptr));  // price is not availability: never trusted beyond a day
    }
  }
  return h;
}

Result<TrainingAdvice> recommend_training(const TrainingRequest& request,
                                          const Catalogue& catalogue) {
  if (!(request.sequence >= 1 && request.sequence <= 1e7) ||
      !(request.micro_batch >= 1 && request.micro_batch <= 1e5))
    return fail(Code::invalid,
                "the sequence length must be 1 to 10M tokens and the micro-batch 1 to 100000");
  if (!(request.tokens >= 0 && request.tokens <= 1e18))
    return fail(Code::invalid, "the tokens to train on must be 0 to 1e18");
  TrainingAdvice advice;
  advice.notes = request.model.notes;
  std::map<std::tuple<const GpuSpec*, int>, TrainingCandidate> best;  // per GPU and GPUs in all
  for (auto& offer : catalogue.offers(request.offers)) {
    if (!offer.price || !offer.price->on_demand_h || !offer.gpu->memory_mib ||
        !(offer.gpu->bf16_tflops || offer.gpu->fp16_tflops))
      continue;
    for (int nodes : {1, 2, 4, 8, 16, 32, 64}) {
      if (nodes > 1 && (offer.instance->gpus < 8 || offer.instance->network_gbps < 100))
        break;  // no gang over thin links
      int gpus = offer.instance->gpus * nodes;
      auto plan = plan_for(request, *offer.gpu, gpus);
      if (!plan)
        continue;
      TrainingCandidate c{.gpu = offer.gpu,
                          .instance = offer.instance,
                          .nodes = nodes,
                          .gpus = gpus,
                          .plan = *plan};
      c.memory = training_memory(request.model, *plan);
      auto step = step_of(request.model, *plan, *offer.gpu, *offer.instance, nodes);
      // Gradients overlap with the backward pass in part: half of the exchange is hidden.
      double step_s = step.compute_s + step.exchange_s / 2;
      c.tokens_per_s = step.tokens / step_s;
      c.exchange_share = step.exchange_s / 2 / step_s;
      c.usd_h = usd(*offer.price->on_demand_h) * nodes;
      if (offer.price->spot_h)
        c.spot_usd_h = usd(*offer.price->spot_h) * nodes;
      if (request.tokens > 0)
        c.usd_total = request.tokens / c.tokens_per_s / 3600 * *c.usd_h;
      c.region = std::string(offer.region);
      c.price_date = offer.price->date;
      auto history = spot_history(offer.instance->name);
      double cost_s = (request.tuning == Tuning::full ? 14 : 14 * 0.005) *
                      request.model.parameters() / checkpoint_write_bytes_s / nodes;
      c.checkpoint_cost_s = request.checkpoint_s.value_or(cost_s);
      c.interruptions_h = request.interruptions_h.value_or(history.mtbf_h / nodes);
      c.checkpoint_minutes =
          checkpoint_interval_s(c.checkpoint_cost_s, c.interruptions_h * 3600) / 60;
      auto& slot = best[{offer.gpu, gpus}];
      if (!slot.gpu || *c.usd_h / c.tokens_per_s < *slot.usd_h / slot.tokens_per_s)
        slot = std::move(c);
      break;  // more nodes only when fewer do not hold it
    }
  }
  for (auto& [key, c] : best)
    advice.ranked.push_back(std::move(c));
  if (advice.ranked.empty())
    return fail(
        Code::infeasible,
        fmt::format("training {:.1f} B parameters fits on no offer, even sharded over 64 nodes",
                    request.model.parameters() / 1e9),
        "try --tuning lora or qlora, a shorter --sequence, or other providers");
  std::stable_sort(advice.ranked.begin(), advice.ranked.end(), [](auto& a, auto& b) {
    if ((a.nodes == 1) != (b.nodes == 1))
      return a.nodes == 1;  // a single node whenever one holds it
    return *a.usd_h / a.tokens_per_s < *b.usd_h / b.tokens_per_s;
  });
  auto& b = advice.ranked.front();
  bool linked = b.gpus == 1 || b.instance->fabric_gb_s > 0;
  advice.checks.push_back(
      {"one node before many", b.nodes == 1,
       b.nodes == 1
           ? fmt::format("{} GPUs of one machine hold it with {}", b.gpus, zero_name(b.plan.zero))
           : fmt::format("no single machine holds it: {} machines over {}", b.nodes,
                         b.instance->network)});
  advice.checks.push_back({"NVLink before sharding", linked,
                           linked ? "the ranks of a machine exchange over a fabric"
                                  : fmt::format("PCIe only: {:.0f} % of a step goes into exchange",
                                                100 * b.exchange_share)});
  if (b.nodes > 1)
    advice.checks.push_back(
        {"InfiniBand or the like between nodes", b.instance->network_gbps >= 400,
         fmt::format("{} at {:.0f} Gb/s: {:.0f} % of a step goes into exchange",
                     b.instance->network, b.instance->network_gbps, 100 * b.exchange_share)});
  bool training_class = b.gpu->bandwidth_gb_s.value_or(0) >= 1500;
  advice.checks.push_back(
      {"training hardware for training", training_class || request.tuning != Tuning::full,
       training_class ? "HBM and matrix rate of the training class"
                      : "an inference card: fine for adapters, slow for full training"});
  auto history = spot_history(b.instance->name);
  double minutes = std::max(1.0, b.checkpoint_minutes),
         lost = 2 * b.checkpoint_cost_s /
                std::max(60.0, minutes * 60);  // writing, and as much again done twice
  advice.checks.push_back(
      {"spot for training, with checkpoints", lost < 0.2,
       fmt::format(
           "every {:.0f} minutes by Young/Daly: one takes {:.1f} s ({}), interruptions every "
           "{:.1f} h ({}); about {:.1f} % of the time goes into it",
           minutes, b.checkpoint_cost_s,
           request.checkpoint_s ? "as measured"
           : request.tuning == Tuning::full
               ? "14 bytes a parameter at 2 GB/s per node; --checkpoint-time tells it better"
               : "adapters only, at 2 GB/s per node; --checkpoint-time tells it better",
           b.interruptions_h,
           request.interruptions_h ? "as told"
           : history.known ? "a year of spot prices, and never trusted beyond a day, as price is "
                             "not availability"
                           : "assumed, no spot history of this instance is known; --interruptions "
                             "tells it better",
           100 * lost)});
  return advice;
}

}  // namespace billow::advise
