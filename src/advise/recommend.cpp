#include "advise/recommend.h"

#include <algorithm>
#include <cmath>

#include "advise/answer/field_rules.h"
#include "advise/answer/launch.h"
#include "advise/pricing.h"
#include "advise/question.h"
#include "advise/ranking.h"
#include "advise/tails.h"
#include "advise/ways.h"
#include "base/text.h"

namespace billow::advise {
namespace {

bool runs(const GpuSpec& gpu, Precision p, bool native) {
  if (!gpu.is_gpu || !gpu.memory_mib || !gpu.bandwidth_gb_s)
    return false;
  bool half = gpu.bf16_tflops || gpu.fp16_tflops;
  switch (p) {
    case Precision::fp32:
      return half;
    case Precision::bf16:
      return gpu.bf16_tflops.has_value();
    case Precision::fp16:
      return half;
    case Precision::fp8:
      return gpu.fp8_tflops.has_value();
    case Precision::int8:
      return gpu.int8_tops.has_value() && half;
    case Precision::int4:
      return half;
    case Precision::fp4:
      return half &&
             (gpu.fp4_tflops || native);  // MXFP4 checkpoints also run as weight-only kernels
    case Precision::nvfp4:
      return gpu.fp4_tflops.has_value();
  }
  return false;
}

std::vector<Precision> precisions_for(const Request& request, const GpuSpec& gpu) {
  std::vector<Precision> out;
  auto consider = [&](Precision p) {
    if (std::find(out.begin(), out.end(), p) == out.end() &&
        runs(gpu, p, p == request.model.native))
      out.push_back(p);
  };
  if (!request.precisions.empty()) {
    for (auto p : request.precisions)
      consider(p);
    return out;
  }
  consider(request.model.native == Precision::bf16 && !gpu.bf16_tflops ? Precision::fp16
                                                                       : request.model.native);
  if (!request.model.quantized) {
    consider(gpu.bf16_tflops ? Precision::bf16 : Precision::fp16);
    consider(Precision::fp8);
    if (!gpu.fp8_tflops)
      consider(Precision::int8);
    consider(Precision::int4);
    consider(Precision::nvfp4);
  }
  return out;
}

struct Place {  // somewhere a replica may run
  const GpuSpec* gpu;
  int gpus_max;  // in one machine
  double memory_bytes, bandwidth_share = 1;
  std::string slice;
  const FleetGpu* fleet = nullptr;
  std::string mig = {};
};

struct Limits {
  double context, tpot_ms, ttft_ms;
  double both() const { return tpot_ms < 1e12 && ttft_ms < 1e12 ? 1.28 : 1; }
};

// The heaviest load of one replica that fits and meets the service level; empty if not even one
// sequence does.
struct Fit {
  Candidate candidate;
  bool fits = false, meets = false;
  double miss = 1;  // by which factor the service level is missed at the lightest load
  std::string why;
};

// Which figure of the next larger load exceeds the service level: the prediction, or its bound.
std::string limit_text(double load, const char* what, double ms, double sure, double limit) {
  const auto text = fmt::format("with {:.0f} sequence{} per replica {} {:.0f} ms", load,
                                load == 1 ? "" : "s", what, ms);
  return ms > limit ? text : text + fmt::format(", or {:.0f} if the prediction errs", sure);
}

Candidate candidate_at(const Request& request,
                       Precision precision,
                       const Place& place,
                       const Parallelism& split) {
  Candidate c;
  c.gpu = place.gpu;
  c.precision = precision;
  c.native = precision == request.model.native;
  c.parallelism = split;
  c.slice = place.slice;
  c.mig = place.mig;
  c.part = place.mig.empty() ? place.bandwidth_share : 1;
  c.own_type = place.fleet ? place.fleet->gpu : "";
  return c;
}

Fit try_place(const Request& request,
              const Calibration& calibration,
              const std::shared_ptr<const ModelShape>& shape,
              Precision precision,
              const Place& place,
              const Parallelism& split,
              const Limits& limits,
              double load_max,
              bool with_margin) {
  Fit fit;
  auto& c = fit.candidate;
  c = candidate_at(request, precision, place, split);
  ServingLoad one{.context = limits.context, .sequences = 1};
  auto memory = serving_memory(*shape, shape->kv_native, c.parallelism, one, place.memory_bytes,
                               memory_options(*shape, request.extras));
  if (!memory.fits()) {
    fit.why =
        fmt::format("{} at {} needs {:.1f} GB of {:.1f} usable", precision_name(precision),
                    parallelism_name(c.parallelism), memory.total() / 1e9, memory.usable / 1e9);
    return fit;
  }
  fit.fits = true;
  ServingRow row = serving_row_of(c, request, shape, *place.gpu);
  c.memory = memory;
  auto prepared = calibration.prepare(row);
  double slow = 1 / place.bandwidth_share;
  // Upper bounds hold nine times in ten each; to hold together so often, each needs a little more.
  LoadMargin margin(calibration, row, with_margin ? limits.both() : 0);
  c.binding = "memory";
  for (double load : replica_loads) {
    if (load > load_max * 1.5 && c.concurrency > 0) {
      c.binding = "load";
      break;
    }
    if (load > memory.sequences_max) {
      c.binding = "memory";
      break;
    }
    row.concurrency = load;
    if (row.disaggregated)
      give_prefill_workers(prepared, row);
    auto now = Calibration::quick(prepared, row);
    fit.miss = std::max(now.tpot_ms * slow / limits.tpot_ms, now.ttft_ms * slow / limits.ttft_ms);
    if (const double sure = now.tpot_ms * slow * margin.at(load).tpot; sure > limits.tpot_ms) {
      c.binding = "tokens per second";
      c.limit = limit_text(load, "a token takes", now.tpot_ms * slow, sure, limits.tpot_ms);
      break;
    }
    if (const double sure = now.ttft_ms * slow * margin.at(load).ttft; sure > limits.ttft_ms) {
      c.binding = "time to first token";
      c.limit = limit_text(load, "it is", now.ttft_ms * slow, sure, limits.ttft_ms);
      break;
    }
    double rps = load / ((now.ttft_ms + request.output * now.tpot_ms) * slow) * 1e3;
    if (rps < c.rps_replica * 1.02) {
      c.binding = "throughput";
      break;
    }  // higher concurrency serves no more
    c.prefill_gpus = static_cast<int>(row.prefill_gpus);
    c.concurrency = load;
    c.rps_replica = rps;
    fit.meets = true;
  }
  if (!fit.meets)
    fit.why = fmt::format("{} at {}: {} not met even for one user", precision_name(precision),
                          parallelism_name(c.parallelism), c.binding);
  if (!fit.meets && fit.miss > 1)
    fit.why += fmt::format(" (missed by a factor of {:.2g})", fit.miss);
  return fit;
}

// The real operating point of the replicas: the requested load shared among them, not the most that
// each could carry. Latencies are reported at this point; the capacity stays.
double operating_point(const Candidate& c,
                       const Request& request,
                       const Calibration& calibration,
                       ServingRow row,
                       double slow) {
  if (request.users > 0)
    return std::min(c.concurrency, std::ceil(request.users / c.replicas - 1e-9));
  if (!(request.rps > 0))
    return 1;
  auto prepared = calibration.prepare(row);
  double wanted = request.rps / c.replicas;
  for (double load : replica_loads) {
    if (load >= c.concurrency)
      break;
    row.concurrency = load;
    auto now = Calibration::quick(prepared, row);
    if (load / ((now.ttft_ms + request.output * now.tpot_ms) * slow) * 1e3 >= wanted)
      return load;
  }
  return c.concurrency;
}

void finish(Candidate& c,
            const Request& request,
            const Calibration& calibration,
            const std::shared_ptr<const ModelShape>& shape,
            const Place& place,
            const Limits& limits) {
  ServingRow row = serving_row_of(c, request, shape, *place.gpu);
  double slow = 1 / place.bandwidth_share;
  c.concurrency = row.concurrency = operating_point(c, request, calibration, row, slow);
  if (auto p = calibration.predict(row))
    c.latency = std::move(*p);
  for (auto* e : {&c.latency.ttft_ms, &c.latency.tpot_ms}) {
    e->value *= slow;
    e->low *= slow;
    e->high *= slow;
  }
  for (auto& [name, ms] : c.latency.tpot_parts)
    ms *= slow;
  c.memory = serving_memory(*shape, shape->kv_native, c.parallelism,
                            {.context = limits.context, .sequences = c.concurrency},
                            place.memory_bytes, memory_options(*shape, request.extras));
  c.tokens_per_s_replica = c.rps_replica * request.output;
  c.sure = c.latency.tpot_ms.high <= limits.tpot_ms && c.latency.ttft_ms.high <= limits.ttft_ms;
  c.chance = chance_of(c, {limits.tpot_ms, limits.ttft_ms});
  c.usd_per_million = usd_per_million(c, request);
}

std::vector<Place> places(const Request& request,
                          const Catalogue& catalogue,
                          const std::vector<Offer>& offers) {
  std::vector<Place> out;
  if (!request.fleet.empty()) {
    const auto only = named_gpus(request.offers.gpu, catalogue);
    for (auto& f : request.fleet) {
      auto g = catalogue.gpu(f.gpu);
      if (!g || !(*g)->memory_mib)
        continue;
      if (only && !only->empty() && std::find(only->begin(), only->end(), *g) == only->end())
        continue;
      double whole = static_cast<double>(*(*g)->memory_mib) * 1048576;
      // A card that is not partitioned gives no MIG instances to jobs, whatever it could be cut to.
      for (auto& m : f.mig)
        if (!f.whole)
          out.push_back({*g, 1, m.memory_gb * 1e9, std::max(1, m.sevenths) / 7.0, "MIG " + m.name,
                         &f, m.name});
      if (f.slices)
        for (double part : {0.125, 0.25, 0.5, 0.75})
          out.push_back(
              {*g, 1, whole * part, part, fmt::format("{} of one {}", part, (*g)->name), &f});
      if (f.whole)
        out.push_back({*g, f.per_node, whole, 1, "whole", &f});
    }
    return out;
  }
  std::map<const GpuSpec*, int> most;
  for (auto& offer : offers)
    most[offer.gpu] = std::max(most[offer.gpu], offer.instance->gpus);
  for (auto& [gpu, n] : most)
    if (gpu->memory_mib)
      out.push_back({gpu, n, static_cast<double>(*gpu->memory_mib) * 1048576, 1, "", nullptr});
  return out;
}

// The catalogue, or the fleet, scanned place by place.
class Scan {
 public:
  Scan(const Request& request,
       const Catalogue& catalogue,
       const Calibration& calibration,
       const std::vector<Offer>& offers,
       const Limits& limits,
       Advice& advice)
      : request_(request),
        catalogue_(catalogue),
        calibration_(calibration),
        offers_(offers),
        limits_(limits),
        advice_(advice) {}

  void run() {
    for (auto& place : places(request_, catalogue_, offers_)) {
      look_at(place);
      scanned_.push_back(place);
    }
    if (!replayed())
      return;
    const bool mean = request_.percentile == Percentile::mean;
    // A tail is replayed only where it matters: the cheapest options are given replicas until they
    // carry the load and meet the percentile, which may make others the cheapest.
    for (int i = 0; i < replays_max; ++i) {
      rank(advice_, request_);
      const Candidate* open = nullptr;
      for (auto* c : {&advice_.best, &advice_.runner_up, &advice_.third})
        if (!open && *c && !(*c)->tails)
          open = &**c;
      if (!open)
        break;
      auto at = std::find_if(advice_.ranked.begin(), advice_.ranked.end(), [&](const Candidate& c) {
        return c.place == open->place && c.precision == open->precision &&
               c.parallelism == open->parallelism;
      });
      if (mean) {
        keep_up(*at);
        continue;
      }
      if (!widen(*at)) {
        missed(at->miss, fmt::format("{}: its {} misses the service level", at->gpu->name,
                                     percentile_name(request_.percentile)));
        advice_.ranked.erase(at);
      }
    }
    if (!mean)
      std::erase_if(advice_.ranked, [](const Candidate& c) { return !c.tails; });
  }

  // For answers whose tail was not asked for.
  void show_tails(std::optional<Candidate>& c) const {
    if (c && !c->tails && replayed())
      add_tails(*c, request_, calibration_, shapes_.at(c->precision),
                1 / scanned_[c->place].bandwidth_share);
  }

  // Why nothing was found: if nothing fits, the largest place; otherwise the one that came nearest
  // to the service level.
  std::unexpected<Error> nothing_found() const {
    if (!unmet_why_.empty())
      return fail(
          Code::infeasible,
          fmt::format("no GPU {}; the nearest: {}",
                      request_.ttft_ms_max || request_.tokens_per_s_min ? "meets the service level"
                                                                        : "carries this load",
                      unmet_why_),
          what_would_help(request_));
    return fail(
        Code::infeasible,
        fmt::format(
            "{} ({:.1f} B parameters) fits on no GPU with a context of {:.0f}; the largest, {}",
            request_.model.name.empty() ? "the model" : request_.model.name,
            request_.model.parameters() / 1e9, limits_.context, largest_why_),
        "use fewer bits, a shorter context, or several nodes");
  }

 private:
  // The replay knows engines whose prompts and answers share the GPUs.
  bool replayed() const { return request_.way != Way::separate_prefill; }

  // At most this many options are replayed before the cheapest that meets the percentile is found.
  static constexpr int replays_max = 60;

  void look_at(const Place& place) {
    std::string why;
    bool any = false;
    for (auto precision : precisions_for(request_, *place.gpu)) {
      auto& shape = shapes_[precision];
      if (!shape)
        shape = std::make_shared<const ModelShape>(at_precision(request_.model, precision));
      for (auto& option : options_at(place, precision, shape, why, any)) {
        option.place = scanned_.size();
        finish(option, request_, calibration_, shape, place, limits_);
        advice_.ranked.push_back(std::move(option));
      }
    }
    if (any)
      return;
    if (!why.empty() && place.memory_bytes * place.gpus_max > largest_) {
      largest_ = place.memory_bytes * place.gpus_max;
      largest_why_ = fmt::format("{} × {}: {}", place.gpus_max, place.gpu->name, why);
    }
    advice_.no_fit.push_back(
        {place.slice.empty() || place.slice == "whole" ? place.gpu->name : place.slice,
         why.empty() ? "its rates are unknown, or it has none of these precisions" : why,
         !why.empty()});
  }

  // The cheapest split of one precision here; for a percentile every split, since the cheapest by
  // its means may need many replicas for its tail. `why` is the reason if one did not fit; `any`
  // becomes true if one did.
  std::vector<Candidate> options_at(const Place& place,
                                    Precision precision,
                                    const std::shared_ptr<const ModelShape>& shape,
                                    std::string& why,
                                    bool& any) {
    const double load_max = request_.users > 0 ? request_.users : request_.rps > 0 ? 1e9 : 1;
    const bool each = request_.percentile != Percentile::mean && replayed();
    std::vector<Candidate> options;
    if (request_.way != Way::tensor && place.bandwidth_share < 1)
      return options;
    const int nodes = place.fleet ? place.fleet->nodes : 4;
    for (auto& split : splits_of(request_.way, place.gpus_max, nodes, shape->is_moe())) {
      if (split.pipeline > 1 && any)
        break;
      ++advice_.candidates_scanned;
      auto fit = try_place(request_, calibration_, shape, precision, place, split, limits_,
                           load_max, request_.chance_min > even_chance);
      if (fit.fits && !fit.meets)  // not for sure; perhaps on average
        fit = try_place(request_, calibration_, shape, precision, place, split, limits_, load_max,
                        false);
      if (!fit.fits) {
        why = fit.why;
        continue;
      }
      any = true;
      if (!fit.meets) {
        missed(fit.miss, fmt::format("{}: {}", place.gpu->name, fit.why));
        continue;
      }
      if (!size_and_price(fit.candidate, place))
        continue;
      if (each || options.empty())
        options.push_back(std::move(fit.candidate));
      else if (counted_cost(fit.candidate, request_) < counted_cost(options.front(), request_))
        options.front() = std::move(fit.candidate);
    }
    return options;
  }

  // More replicas, until the queue no longer grows: capacities are of equal lengths, and real ones
  // vary. What three times as many do not carry stays overloaded, and is ranked last.
  void keep_up(Candidate& c) {
    const Place& place = scanned_[c.place];
    const auto& shape = shapes_.at(c.precision);
    const double slow = 1 / place.bandwidth_share;
    add_tails(c, request_, calibration_, shape, slow);
    for (Candidate more = c; overloaded(more) && more.replicas < 3 * c.replicas;) {
      more.replicas = std::max(more.replicas + 1, more.replicas * 5 / 4);
      if (!sized(more, place))
        return;
      finish(more, request_, calibration_, shape, place, limits_);
      add_tails(more, request_, calibration_, shape, slow);
      if (!overloaded(more)) {
        c = std::move(more);
        return;
      }
    }
  }

  // More replicas, until the percentile is met with the chance that was asked for; else with what
  // chance there is. Certainty that triples the price is not bought: a test is cheaper. False if
  // not even one sequence per replica meets it.
  bool widen(Candidate& c) {
    const Place& place = scanned_[c.place];
    const TailLimits limits{limits_.tpot_ms, limits_.ttft_ms};
    const auto& shape = shapes_.at(c.precision);
    std::optional<Candidate> fair, before;  // before: what did not suffice
    int first = 0;                          // replicas that would do if the prediction were exact
    for (Candidate more = c;; more.replicas = std::max(more.replicas + 1, more.replicas * 5 / 4)) {
      if (!sized(more, place))
        break;
      finish(more, request_, calibration_, shape, place, limits_);
      add_tails(more, request_, calibration_, shape, 1 / place.bandwidth_share);
      c.miss = miss_of(more, request_.percentile, limits);
      more.chance = chance_of(more, limits, request_.percentile);
      if (c.miss <= 1 && (!fair || more.chance > fair->chance + 0.01)) {
        fair = more;
        if (before)
          std::tie(fair->binding, fair->limit) = binding_tail(*before, request_.percentile, limits);
      }
      if (first == 0 && c.miss <= 1)
        first = more.replicas;
      if (more.chance >= request_.chance_min || alone(more, request_) ||
          (first > 0 && more.replicas >= 3 * first))
        break;
      before = more;
    }
    if (fair)
      c = std::move(*fair);
    return fair.has_value();
  }

  void missed(double factor, std::string why) {
    if (factor < unmet_least_) {
      unmet_least_ = factor;
      unmet_why_ = std::move(why);
    }
  }

  // False if the fleet does not have as many GPUs as the load needs.
  bool size_and_price(Candidate& c, const Place& place) {
    double needed = request_.rps > 0     ? request_.rps / c.rps_replica / 0.85
                    : request_.users > 0 ? request_.users / c.concurrency
                                         : 1;  // 15 % headroom for bursts
    c.replicas = static_cast<int>(std::min(1e6, std::ceil(needed - 1e-9)));
    return sized(c, place);
  }

  // The GPUs and the price of its replicas.
  bool sized(Candidate& c, const Place& place) {
    c.gpus = c.replicas * c.replica_gpus();
    const int most = request_.offers.gpus_max;
    const bool few = most < OfferFilter{}.gpus_max;
    if (!place.fleet)
      price_candidate(c, request_, offers_);
    if (few && (c.gpus > most || (!place.fleet && !c.offer))) {
      missed(static_cast<double>(c.gpus) / most,
             fmt::format("{}: {} needed, at most {} allowed", place.gpu->name, c.gpus, most));
      return false;
    }
    if (!place.fleet)
      return true;
    if (c.gpus * place.bandwidth_share > place.fleet->per_node * place.fleet->nodes + 1e-9) {
      const int owned = place.fleet->per_node * place.fleet->nodes;
      missed(c.gpus * place.bandwidth_share / owned,
             fmt::format("{}: {} needed, {} present", place.gpu->name, c.gpus, owned));
      return false;
    }
    if (place.fleet->usd_per_gpu_h > 0) {
      c.worth_month = place.fleet->usd_per_gpu_h * hours_month * c.gpus * place.bandwidth_share;
      c.offer = Offered{.instances = c.replicas};
      c.offer->on_demand_month = c.worth_month;
      return true;
    }
    // Own hardware counts at the rent of the same hardware: so a small card is preferred to a large
    // one, and a slice to a card.
    auto [at, fresh] = rents_.try_emplace(place.gpu);
    if (fresh)
      at->second = rentable(*place.gpu, catalogue_);
    const auto rent = rent_gpu_month(c, request_, at->second);
    c.worth_month = rent.value_or(place.gpu->tdp_w.value_or(300)) * c.gpus * place.bandwidth_share;
    c.offer = Offered{.instances = c.replicas};
    return true;
  }

  const Request& request_;
  const Catalogue& catalogue_;
  const Calibration& calibration_;
  const std::vector<Offer>& offers_;
  const Limits& limits_;
  Advice& advice_;
  std::map<Precision, std::shared_ptr<const ModelShape>> shapes_;
  std::vector<Place> scanned_;
  std::map<const GpuSpec*, std::vector<Offer>> rents_;
  double unmet_least_ = 1e300;
  std::string unmet_why_;
  double largest_ = 0;
  std::string largest_why_ = "no GPU to choose from";
};

}  // namespace

Result<Advice> recommend(const Request& request,
                         const Catalogue& catalogue,
                         const Calibration& calibration) {
  BILLOW_TRY_VOID(check_request(request, catalogue));
  BILLOW_TRY_VOID(check_way(request));
  Advice advice;
  advice.notes = request.model.notes;
  const auto offers = buyable_offers(request, catalogue);
  advice.offers_scanned = static_cast<int>(offers.size());
  if (request.fleet.empty() && offers.empty())
    return fail(Code::not_found,
                "no offer in the catalogue matches these providers, regions and GPUs",
                "see `billow prices` for the offers; --any adds marketplaces and consumer cards");
  for (auto& note : name_notes(request.offers, catalogue))
    advice.notes.push_back(note);
  const Limits limits{request.context > 0 ? request.context : request.input + request.output,
                      request.tokens_per_s_min ? 1e3 / *request.tokens_per_s_min : 1e12,
                      request.ttft_ms_max.value_or(1e12)};
  Scan scan(request, catalogue, calibration, offers, limits, advice);
  scan.run();
  rank(advice, request);
  if (!advice.best)
    return scan.nothing_found();
  for (auto* c : {&advice.best, &advice.runner_up, &advice.third})
    scan.show_tails(*c);
  advice.curve = curve_of(*advice.best, request, calibration);
  if (overloaded(*advice.best))
    advice.notes.insert(advice.notes.begin(),
                        "NO OPTION CARRIES THIS LOAD: the queue of the one shown grows");
  if (const auto note = checkpoint_note(*advice.best, request); !note.empty())
    advice.notes.push_back(note);
  advice.checks = field_rules(request, advice);
  explain_changes(advice, request);
  if (request.fleet.empty() && request.chance_min > even_chance)
    say_cost_of_certainty(advice, request, catalogue, calibration);
  advice.ways = other_ways(*advice.best, request, calibration,
                           {limits.context, limits.tpot_ms, limits.ttft_ms});
  if (auto& o = advice.best->offer; o && o->on_demand_month && o->committed_1y_month)
    advice.reserved_mix = fmt::format(
        "committed for one year ${:.0f}, for three ${:.0f} per month; pays for GPUs in use more "
        "than {:.0f} % of the time",
        *o->committed_1y_month, o->committed_3y_month.value_or(*o->committed_1y_month),
        100 * *o->committed_1y_month / *o->on_demand_month);
  return advice;
}

}  // namespace billow::advise
