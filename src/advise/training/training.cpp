// Training: the smallest number of GPUs that hold it, single nodes before several, and what the
// ranks must exchange.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "advise/pricing.h"
#include "advise/question.h"
#include "base/text.h"

std::string_view billow_embedded_spot();

namespace billow::advise {
namespace {

// Of the dense BF16 rate: reached by well-tuned runs on one node.
constexpr double model_flops_utilisation = 0.38;
constexpr double checkpoint_write_bytes_s =
    2e9;  // to a parallel file system or object store, per node

// A batch of more tokens than this rarely trains better, so micro-batches are not added beyond it.
constexpr double batch_tokens_full = 4e6, batch_tokens_adapters = 0.25e6;
constexpr int micro_batches_per_stage = 8;
constexpr double context_part_min = 4096;  // tokens of a sequence that one rank keeps at least

struct Step {
  double compute_s = 0, exchange_s = 0, tokens = 0;
};

Step step_of(const ModelShape& shape,
             const TrainingShape& counts,
             const TrainingPlan& plan,
             const GpuSpec& gpu,
             const Instance& instance,
             int nodes,
             double attention_flops) {
  Step s;
  s.tokens = plan.step_tokens();
  double passes = plan.tuning == Tuning::full ? 6 : 4;  // no weight gradients for frozen layers
  if (plan.checkpointing == Checkpointing::full)
    passes += 2;  // repeats the forward pass
  double rate =
      gpu.bf16_tflops.value_or(gpu.fp16_tflops.value_or(1)) * 1e12 * model_flops_utilisation;
  // Attention over the sequence: forward once, backward twice, and again if repeated.
  double attention =
      attention_flops * (plan.checkpointing == Checkpointing::full ? 4 : 3) / plan.sequence;
  s.compute_s = (passes * shape.active_parameters() + attention) * s.tokens / rate / plan.gpus *
                (1 + pipeline_bubble(plan));
  const double inside = instance.fabric_gb_s > 0 ? instance.fabric_gb_s / 2 * 1e9 : 25e9;
  const double between =
      nodes > 1 ? std::min(inside, std::max(1.0, instance.network_gbps) / 8 * 1e9 / instance.gpus)
                : inside;
  // Neighbouring ranks lie in one node as long as it has GPUs for them.
  auto link = [&](int ranks) {
    return ranks <= instance.gpus ? inside : between;
  };
  const auto t = training_traffic(counts, plan);
  s.exchange_s = t.tensor / inside + t.context / link(plan.tensor * plan.context) +
                 t.expert / link(plan.tensor * plan.expert) + (t.pipeline + t.data) / between;
  return s;
}

double step_seconds(const Step& step) {
  // Gradients overlap with the backward pass in part: half of the exchange is hidden.
  return step.compute_s + step.exchange_s / 2;
}

// Plans of one request, each instance and number of nodes computed once: the regions of an offer
// share them.
class Plans {
 public:
  explicit Plans(const TrainingRequest& request)
      : request_(request),
        counts_(request.model),
        attention_flops_(work_of(request.model, Precision::bf16, {}, {1, request.sequence, 1})
                             .prefill_attention_flops) {}

  Step step(const TrainingPlan& plan, const Offer& offer, int nodes) const {
    return step_of(request_.model, counts_, plan, *offer.gpu, *offer.instance, nodes,
                   attention_flops_);
  }
  const std::optional<TrainingPlan>& fastest(const Offer& offer, int nodes) {
    auto& i = *offer.instance;
    auto [it, fresh] =
        plans_.try_emplace({offer.gpu, i.gpus, nodes, i.fabric_gb_s, i.network_gbps});
    if (fresh)
      it->second = search(offer, nodes);
    return it->second;
  }
  TrainingMemory memory(const TrainingPlan& plan) const { return training_memory(counts_, plan); }

 private:
  // The fastest among those that fit: sharding costs exchanges, recomputation a fourth pass, tensor
  // ranks (within a node) and experts exchanges in every layer, stages time to fill and drain.
  std::optional<TrainingPlan> search(const Offer& offer, int nodes) const {
    std::optional<TrainingPlan> best;
    double best_s = 0;
    for (const TrainingPlan& split : splits(offer.instance->gpus, nodes))
      for (auto zero : {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters}) {
        if (zero != Zero::none && split.data() * split.context == 1)
          continue;
        const auto plan = with_least_recomputation(*offer.gpu, split, zero);
        if (!plan)
          continue;
        const Step taken = step(*plan, offer, nodes);
        const double per_token = step_seconds(taken) / taken.tokens;
        // Within a percent the simpler plan, which was tried first, is kept.
        if (!best || per_token < best_s * 0.99) {
          best = plan;
          best_s = per_token;
        }
      }
    return best;
  }

  // Simple ones first. Long sequences may be divided, mixtures may spread their experts.
  std::vector<TrainingPlan> splits(int per_node, int nodes) const {
    const int gpus = per_node * nodes;
    std::vector<TrainingPlan> out;
    auto doubles = [](int max) {
      std::vector<int> ranks;
      for (int n = 1; n <= max; n *= 2)
        ranks.push_back(n);
      return ranks;
    };
    const int parts = std::max(1, static_cast<int>(request_.sequence / context_part_min));
    for (int expert : doubles(std::max(1, static_cast<int>(counts_.experts_all))))
      for (int context : doubles(std::min(16, parts)))
        for (int pipeline : doubles(std::min(16, static_cast<int>(counts_.layers))))
          for (int tensor : doubles(std::min(8, per_node))) {
            const int one = tensor * pipeline * context;
            if (one > gpus || gpus % one != 0 || (gpus / tensor / pipeline) % expert != 0)
              continue;
            TrainingPlan p{.tuning = request_.tuning,
                           .gpus = gpus,
                           .tensor = tensor,
                           .pipeline = pipeline,
                           .context = context,
                           .expert = expert,
                           .sequence = request_.sequence,
                           .micro_batch = request_.micro_batch};
            const double batch =
                request_.tuning == Tuning::full ? batch_tokens_full : batch_tokens_adapters;
            p.micro_batches = std::clamp(static_cast<int>(batch / p.step_tokens()), 1,
                                         micro_batches_per_stage * pipeline);
            out.push_back(p);
          }
    return out;
  }

  std::optional<TrainingPlan> with_least_recomputation(const GpuSpec& gpu,
                                                       TrainingPlan plan,
                                                       Zero zero) const {
    plan.zero = zero;
    for (auto checkpointing :
         {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
      plan.checkpointing = checkpointing;
      if (memory(plan).total() <= training_usable_bytes(gpu))
        return plan;
    }
    return std::nullopt;
  }

  using Key = std::tuple<const GpuSpec*, int, int, double, double>;
  const TrainingRequest& request_;
  TrainingShape counts_;
  double attention_flops_;
  std::map<Key, std::optional<TrainingPlan>> plans_;
};

}  // namespace

double training_usable_bytes(const GpuSpec& gpu) {
  return static_cast<double>(gpu.memory_mib.value_or(0)) * 1048576 * 0.94;
}

std::string time_text(double hours) {
  if (hours < 1)
    return fmt::format("{:.0f} min", std::max(1.0, hours * 60));
  if (hours < 48)
    return fmt::format("{:.1f} h", hours);
  if (hours < 24 * 730)
    return fmt::format("{:.1f} days", hours / 24);
  return fmt::format("{:.1f} years", hours / 24 / 365);
}

double checkpoint_interval_s(double cost_s, double mtbf_s) {
  return std::sqrt(2 * std::max(0.0, cost_s) * std::max(0.0, mtbf_s));
}

std::optional<SpotHistory> spot_history(std::string_view instance) {
  for (auto& line : split(billow_embedded_spot(), '\n')) {
    const auto f = split(line, ' ');
    if (f.size() >= 5 && f[0] == instance)
      return SpotHistory{.ratio_median = parse_double(f[1]).value_or(0),
                         .ratio_p90 = parse_double(f[2]).value_or(0),
                         .scarce_share = parse_double(f[3]).value_or(0)};
  }
  return std::nullopt;
}

std::string spot_history_text(std::string_view instance) {
  const auto h = spot_history(instance);
  if (!h)
    return "no price history of it is known";
  return fmt::format(
      "over a year of prices it cost {:.0f} % of on-demand at the median, and on {:.0f} % of days "
      "and zones as much as on-demand, as if sold out",
      100 * h->ratio_median, 100 * h->scarce_share);
}

namespace {

// One way to train: this offer, this many nodes, split by this plan.
TrainingCandidate candidate_of(const TrainingRequest& request,
                               const Plans& plans,
                               const Offer& offer,
                               int nodes,
                               const TrainingPlan& plan) {
  TrainingCandidate c{.gpu = offer.gpu,
                      .instance = offer.instance,
                      .nodes = nodes,
                      .gpus = offer.instance->gpus * nodes,
                      .plan = plan};
  c.memory = plans.memory(plan);
  auto step = plans.step(plan, offer, nodes);
  double step_s = step_seconds(step);
  c.tokens_per_s = step.tokens / step_s;
  c.exchange_share = step.exchange_s / 2 / step_s;
  c.usd_h = usd(*offer.price->on_demand_h) * nodes;
  if (offer.price->spot_h)
    c.spot_usd_h = usd(*offer.price->spot_h) * nodes;
  if (request.tokens > 0) {
    c.hours = request.tokens / c.tokens_per_s / 3600;
    c.usd_total = *c.hours * *c.usd_h;
  }
  c.region = std::string(offer.region);
  c.price_date = offer.price->date;
  double cost_s = (request.tuning == Tuning::full ? 14 : 14 * 0.005) * request.model.parameters() /
                  checkpoint_write_bytes_s / nodes;
  c.checkpoint_cost_s = request.checkpoint_s.value_or(cost_s);
  c.interruptions_h = request.interruptions_h.value_or(spot_interruptions_h / nodes);
  c.checkpoint_minutes = checkpoint_interval_s(c.checkpoint_cost_s, c.interruptions_h * 3600) / 60;
  return c;
}

bool in_time(const TrainingRequest& request, const TrainingCandidate& c) {
  return !request.deadline_h || !c.hours || *c.hours <= *request.deadline_h;
}

// The fewest nodes of an offer that hold the training and end it in time; if none is fast enough,
// the fastest; empty if none holds it.
std::optional<TrainingCandidate> smallest_gang(const TrainingRequest& request,
                                               Plans& plans,
                                               const Offer& offer) {
  if (!offer.price || !offer.price->on_demand_h || !offer.gpu->memory_mib ||
      !(offer.gpu->bf16_tflops || offer.gpu->fp16_tflops))
    return std::nullopt;
  std::optional<TrainingCandidate> fastest;
  for (int nodes : {1, 2, 4, 8, 16, 32, 64, 128}) {
    // No gang over slow links.
    if (nodes > 1 && (offer.instance->gpus < 8 || offer.instance->network_gbps < 100 ||
                      nodes * offer.instance->gpus > request.offers.gpus_max))
      break;
    auto& plan = plans.fastest(offer, nodes);
    if (!plan)
      continue;
    auto c = candidate_of(request, plans, offer, nodes, *plan);
    if (in_time(request, c))
      return c;
    if (!fastest || c.tokens_per_s > fastest->tokens_per_s)
      fastest = std::move(c);
  }
  return fastest;
}

// USD per token, an older price counted for more.
double counted_per_token(const TrainingRequest& request, const TrainingCandidate& c) {
  return *c.usd_h / c.tokens_per_s * age_factor(price_age_days(c.price_date, request.now));
}

// The same rules as for serving: what a company can buy, and never an auction's lowest bid.
std::vector<Offer> training_offers(const TrainingRequest& request, const Catalogue& catalogue) {
  Request buyer;
  buyer.offers = request.offers;
  buyer.any_offer = request.any_offer;
  auto offers = buyable_offers(buyer, catalogue);
  std::erase_if(offers, [](const Offer& o) { return sells_by_auction(o.instance->provider); });
  return offers;
}

// The cheapest offer for each GPU and number of GPUs, best first: a single node whenever one holds
// the training, then by price per token.
std::vector<TrainingCandidate> ranked_candidates(const TrainingRequest& request,
                                                 const Catalogue& catalogue) {
  std::map<std::tuple<const GpuSpec*, int>, TrainingCandidate> best;
  Plans plans(request);
  for (auto& offer : training_offers(request, catalogue)) {
    auto c = smallest_gang(request, plans, offer);
    if (!c)
      continue;
    auto& slot = best[{c->gpu, c->gpus}];
    if (!slot.gpu || counted_per_token(request, *c) < counted_per_token(request, slot))
      slot = std::move(*c);
  }
  std::vector<TrainingCandidate> ranked;
  for (auto& [key, c] : best)
    ranked.push_back(std::move(c));
  std::stable_sort(ranked.begin(), ranked.end(), [&](auto& a, auto& b) {
    if (in_time(request, a) != in_time(request, b))
      return in_time(request, a);
    if (!in_time(request, a))
      return *a.hours < *b.hours;
    if ((a.nodes == 1) != (b.nodes == 1))
      return a.nodes == 1;
    return counted_per_token(request, a) < counted_per_token(request, b);
  });
  return ranked;
}

// Whether spot pays for this training, with checkpoints at the interval of Young and Daly.
Check spot_check(const TrainingRequest& request, const TrainingCandidate& b) {
  // Writing, and the same again for repeated work.
  double minutes = std::max(1.0, b.checkpoint_minutes),
         lost = 2 * b.checkpoint_cost_s / std::max(60.0, minutes * 60);
  return {
      "spot for training, with checkpoints", lost < 0.2,
      fmt::format(
          "checkpoint every {:.0f} minutes (Young/Daly): each takes {:.1f} s ({}), interruptions "
          "every {:.1f} h ({}); overhead about {:.1f} %; spot price: {}",
          minutes, b.checkpoint_cost_s,
          request.checkpoint_s ? "as measured"
          : request.tuning == Tuning::full
              ? "14 bytes per parameter at 2 GB/s per node; set --checkpoint-time to refine"
              : "adapters only, at 2 GB/s per node; set --checkpoint-time to refine",
          b.interruptions_h,
          request.interruptions_h
              ? "as given"
              : "assumed: one a day on every node, as no provider publishes them; set "
                "--interruptions to refine",
          100 * lost, spot_history_text(b.instance->name))};
}

std::vector<Check> training_checks(const TrainingRequest& request, const TrainingCandidate& b) {
  std::vector<Check> checks;
  if (request.deadline_h && b.hours)
    checks.push_back(
        {"done by the deadline", in_time(request, b),
         fmt::format("{} of {}{}", time_text(*b.hours), time_text(*request.deadline_h),
                     in_time(request, b) ? "" : "; no offer with up to 128 nodes is fast enough")});
  constexpr double long_h = 24 * 90;
  if (!request.deadline_h && b.hours && *b.hours > long_h)
    checks.push_back({"done within three months", false,
                      fmt::format("it takes {}; --deadline 30d finds enough GPUs to end in time",
                                  time_text(*b.hours))});
  const bool linked = b.instance->fabric_gb_s > 0;
  checks.push_back({"one node before many", b.nodes == 1,
                    b.gpus == 1    ? std::string("one GPU holds it")
                    : b.nodes == 1 ? fmt::format("{} GPUs of one node hold it with {}", b.gpus,
                                                 zero_name(b.plan.zero))
                                   : fmt::format("no single node holds it: {} nodes over {}",
                                                 b.nodes, b.instance->network)});
  if (b.gpus > 1)
    checks.push_back({"NVLink before sharding", linked,
                      linked ? "the ranks of a node exchange over NVLink or a similar fabric"
                             : fmt::format("PCIe only: communication takes {:.0f} % of a step",
                                           100 * b.exchange_share)});
  if (b.nodes > 1)
    checks.push_back(
        {"InfiniBand or the like between nodes", b.instance->network_gbps >= 400,
         fmt::format("{} at {:.0f} Gb/s: communication takes {:.0f} % of a step",
                     b.instance->network, b.instance->network_gbps, 100 * b.exchange_share)});
  bool training_class = b.gpu->bandwidth_gb_s.value_or(0) >= 1500;
  checks.push_back(
      {"training hardware for training", training_class || request.tuning != Tuning::full,
       training_class ? "memory bandwidth and matrix rate are those of a training GPU"
                      : "an inference GPU: fine for adapters, slow for full training"});
  checks.push_back(spot_check(request, b));
  return checks;
}

}  // namespace

Result<TrainingAdvice> recommend_training(const TrainingRequest& request,
                                          const Catalogue& catalogue) {
  if (!(request.sequence >= 1 && request.sequence <= 1e7) ||
      !(request.micro_batch >= 1 && request.micro_batch <= 1e5))
    return fail(Code::invalid,
                "the sequence length must be 1 to 10M tokens and the micro-batch 1 to 100000");
  if (!(request.tokens >= 0 && request.tokens <= 1e18))
    return fail(Code::invalid, "the tokens to train on must be 0 to 1e18");
  BILLOW_TRY_VOID(check_offer_names(request.offers, catalogue));
  TrainingAdvice advice;
  advice.notes = request.model.notes;
  for (auto& note : name_notes(request.offers, catalogue))
    advice.notes.push_back(note);
  advice.ranked = ranked_candidates(request, catalogue);
  if (advice.ranked.empty() && training_offers(request, catalogue).empty())
    return fail(Code::not_found,
                "no offer in the catalogue matches these providers, regions and GPUs",
                "see `billow prices` for the offers; --any adds marketplaces and consumer cards");
  if (advice.ranked.empty())
    return fail(Code::infeasible,
                fmt::format("no offer can train {:.1f} B parameters, even sharded over {}",
                            request.model.parameters() / 1e9,
                            request.offers.gpus_max < OfferFilter{}.gpus_max
                                ? fmt::format("{} GPUs", request.offers.gpus_max)
                                : std::string("128 nodes")),
                fmt::format("try {}a shorter --sequence, or other GPUs and providers",
                            request.tuning == Tuning::full   ? "--tuning lora or qlora, "
                            : request.tuning == Tuning::lora ? "--tuning qlora, "
                                                             : ""));
  advice.checks = training_checks(request, advice.ranked.front());
  return advice;
}

}  // namespace billow::advise
