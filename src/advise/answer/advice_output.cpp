// Answers about serving as text for people and as JSON for programs, with the same content.
#include <cmath>

#include "advise/answer/launch.h"
#include "advise/answer/output_parts.h"
#include "advise/pricing.h"
#include "base/text.h"

namespace billow::advise {
namespace {

void set_estimate(Json& j, const std::string& name, const Estimate& e) {
  j.set(name, rounded(e.value, 6));
  j.set(name + "_low", rounded(e.low, 6));
  j.set(name + "_high", rounded(e.high, 6));
}
Json memory_json(const Memory& m) {
  return Json::object({{"weights_bytes", std::round(m.weights)},
                       {"kv_bytes", std::round(m.kv)},
                       {"activations_bytes", std::round(m.activations)},
                       {"communication_bytes", std::round(m.communication)},
                       {"overhead_bytes", std::round(m.overhead)},
                       {"total_bytes", std::round(m.total())},
                       {"capacity_bytes", std::round(m.capacity)},
                       {"usable_bytes", std::round(m.usable)},
                       {"sequences_max", m.sequences_max}});
}

Json tails_json(const Tails& t) {
  auto one = [](const Percentiles& p) {
    return Json::object(
        {{"p50", rounded(p.p50)}, {"p95", rounded(p.p95)}, {"p99", rounded(p.p99)}});
  };
  return Json::object({{"ttft_ms", one(t.ttft_ms)},
                       {"tpot_ms", one(t.tpot_ms)},
                       {"concurrency", rounded(t.concurrency)},
                       {"keeps_up", t.keeps_up}});
}

Json candidate_json(const Candidate& c) {
  Json j = Json::object({{"gpu", c.gpu->name},
                         {"precision", precision_name(c.precision)},
                         {"checkpoint_as_is", c.native},
                         {"parallelism", parallelism_name(c.parallelism)},
                         {"tensor", c.parallelism.tensor},
                         {"prefill_gpus_per_replica", c.prefill_gpus},
                         {"replicas", c.replicas},
                         {"gpus", c.gpus},
                         {"concurrency_per_replica", c.concurrency},
                         {"kind", kind_name(c.latency.kind)},
                         {"basis", c.latency.basis},
                         {"requests_per_s", rounded(c.rps_replica * c.replicas)},
                         {"tokens_per_s", rounded(c.tokens_per_s_replica * c.replicas)},
                         {"memory_per_gpu", memory_json(c.memory)},
                         {"binding", c.binding},
                         {"upper_bound_meets_it_too", c.sure},
                         {"chance", std::round(c.chance * 1000) / 1000},
                         {"usd_per_million_output_tokens", or_unknown(c.usd_per_million)}});
  set_estimate(j, "ttft_ms", c.latency.ttft_ms);
  set_estimate(j, "tpot_ms", c.latency.tpot_ms);
  if (c.tails)
    j.set("percentiles", tails_json(*c.tails));
  if (!c.slice.empty())
    j.set("slice", c.slice);
  if (c.worth_month > 0)
    j.set("worth_usd_month", std::round(c.worth_month));
  Json parts = Json::object();
  for (auto& [name, ms] : c.latency.tpot_parts)
    parts.set(name, rounded(ms, 3));
  j.set("tpot_parts_ms", parts);
  if (c.offer) {
    auto& o = *c.offer;
    Json price = Json::object({{"instances", o.instances},
                               {"on_demand_usd_month", or_unknown(o.on_demand_month)},
                               {"spot_usd_month", or_unknown(o.spot_month)},
                               {"committed_1y_usd_month", or_unknown(o.committed_1y_month)},
                               {"committed_3y_usd_month", or_unknown(o.committed_3y_month)}});
    if (o.instance) {
      price.set("provider", o.instance->provider);
      price.set("tier", tier_name(tier_of(o.instance->provider)));
      price.set("instance", o.instance->name);
      price.set("region", o.region);
      price.set("fabric", fabric_name(o.instance->fabric));
      price.set("price_date", o.price_date);
      price.set("price_age_days", o.price_age_days ? Json(*o.price_age_days) : Json("unknown"));
    }
    j.set("offer", price);
  } else {
    j.set("offer", "unknown");
  }
  return j;
}

Json ways_json(const std::vector<OtherWay>& ways) {
  Json out = Json::array();
  for (auto& w : ways)
    out.push(Json::object({{"name", w.name},
                           {"parallelism", parallelism_name(w.parallelism)},
                           {"gpus", w.gpus},
                           {"prefill_gpus", w.prefill_gpus},
                           {"concurrency", w.concurrency},
                           {"ttft_ms", rounded(w.ttft_ms)},
                           {"tpot_ms", rounded(w.tpot_ms)},
                           {"requests_per_s_and_gpu", rounded(w.rps_gpu, 4)},
                           {"gain", rounded(w.gain)},
                           {"why", w.why}}));
  return out;
}

std::string way_text(const OtherWay& w) {
  return fmt::format(
      "considered: {} ({}{}): {:+.0f} % requests per GPU, {:.1f} ms per token, first token after "
      "{:.0f} ms; {}\n",
      w.name, parallelism_name(w.parallelism),
      w.prefill_gpus > 0 ? fmt::format(", {} of {} GPUs prefill", w.prefill_gpus, w.gpus) : "",
      100 * w.gain, w.tpot_ms, w.ttft_ms, w.why);
}

std::string usd_month(const std::optional<double>& v) {
  return v ? fmt::format("${:.0f}", *v) : "unknown";
}
std::string hardware_text(const Candidate& c, const Request& request) {
  const std::string how = conversion_text(c, request);
  const std::string what = c.slice.empty() || c.slice == "whole" ? c.gpu->name
                           : c.mig.empty()                       ? c.slice
                                                                 : c.gpu->name + " as " + c.slice;
  return fmt::format("{} × {} ({}{}{})", c.gpus, what, precision_name(c.precision),
                     how.empty() ? "" : ", ", how);
}

std::string price_text(const Candidate& c, const Request& request) {
  if (c.offer && c.offer->instance) {
    const bool spot = (request.spot && c.offer->spot_month) || !c.offer->on_demand_month;
    return fmt::format(
        "{} × {} {} in {}, {} per month{}", c.offer->instances, c.offer->instance->provider,
        c.offer->instance->name,
        c.offer->region.empty() || c.offer->region == "any" ? "any region" : c.offer->region,
        usd_month(spot ? c.offer->spot_month : c.offer->on_demand_month),
        spot           ? " by auction or spot"
        : request.spot ? " on demand (no spot price is known)"
                       : "");
  }
  if (c.offer && c.offer->on_demand_month)
    return fmt::format("{} per month", usd_month(c.offer->on_demand_month));
  return c.worth_month > 0
             ? fmt::format("you own it; renting the same would cost about ${:.0f} per month",
                           c.worth_month)
             : std::string("price unknown");
}

std::string per_million_text(const Candidate& c) {
  return c.usd_per_million ? fmt::format(", ${:.2f} per million output tokens", *c.usd_per_million)
                           : std::string{};
}

// One line: what to take, what it costs, how sure it is.
std::string answer_text(const Candidate& c, const Request& request) {
  std::string out = fmt::format("{}: {}{}", hardware_text(c, request), price_text(c, request),
                                per_million_text(c));
  if (request.ttft_ms_max || request.tokens_per_s_min)
    out += fmt::format("; {:.0f} % chance of meeting the service level", 100 * c.chance);
  if (stale_price(c))
    out += c.offer->price_age_days ? fmt::format("; PRICE {} DAYS OLD", *c.offer->price_age_days)
                                   : std::string("; PRICE OF UNKNOWN AGE");
  return out + "\n";
}

std::string latency_text(const Candidate& c) {
  return fmt::format(
      "time to first token {:.0f} ms ({:.0f}–{:.0f}), per token {:.1f} ms ({:.1f}–{:.1f}); means "
      "with 80 % intervals, as in benchmarks, where requests of one length start together; {}: {}",
      c.latency.ttft_ms.value, c.latency.ttft_ms.low, c.latency.ttft_ms.high,
      c.latency.tpot_ms.value, c.latency.tpot_ms.low, c.latency.tpot_ms.high,
      kind_name(c.latency.kind), c.latency.basis);
}

// The tail of the load: queueing and lengths replayed.
std::string tails_text(const Tails& t, const Request& request, double mean_tpot_ms) {
  std::string out = fmt::format(
      "p50 / p95 / p99: first token {:.0f} / {:.0f} / {:.0f} ms, per token {:.1f} / {:.1f} / "
      "{:.1f} "
      "ms",
      t.ttft_ms.p50, t.ttft_ms.p95, t.ttft_ms.p99, t.tpot_ms.p50, t.tpot_ms.p95, t.tpot_ms.p99);
  out += request.lengths.empty() ? "; requests start at random, lengths vary as in conversations"
                                 : "; requests start at random, lengths of the trace";
  if (t.tpot_ms.p50 > 1.5 * mean_tpot_ms)
    out +=
        "; MUCH SLOWER THAN THE MEAN ABOVE, as prompts come faster than in any benchmark: test it";
  return t.keeps_up ? out : out + "; THE QUEUE GROWS: this load exceeds the replicas";
}

// Latency against price as the load of one replica grows; a bar is the time per token.
std::string curve_text(const std::vector<CurvePoint>& curve, const Candidate& best) {
  if (curve.size() < 3)
    return {};
  // The replicas carry the load that was asked for at the next larger number of sequences, so a
  // token costs more than on its line.
  const std::string chosen =
      best.usd_per_million
          ? fmt::format("  ← at this load: ${:.2f}/M for what is asked", *best.usd_per_million)
          : std::string("  ← at this load");
  double most = 0;
  for (auto& p : curve)
    most = std::max(most, p.tpot_ms);
  std::string out =
      "load of one replica: sequences, time per token, first token, price if it is always so "
      "busy\n";
  for (auto& p : curve) {
    const auto width = static_cast<std::size_t>(std::lround(24 * p.tpot_ms / most));
    std::string bar;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, width); ++i)
      bar += "█";
    bar += std::string(24 - std::min<std::size_t>(24, std::max<std::size_t>(1, width)), ' ');
    out += fmt::format("  {:>4.0f} {} {:>7.1f} ms {:>8.0f} ms  {}{}\n", p.concurrency, bar,
                       p.tpot_ms, p.ttft_ms,
                       p.usd_per_million ? fmt::format("${:.2f}/M tokens", *p.usd_per_million) : "",
                       p.concurrency == best.concurrency ? chosen : "");
  }
  return out;
}

}  // namespace

Json advice_json(const Request& request, const Advice& advice) {
  auto kv = kv_per_token(request.model, request.model.kv_native);
  auto w = weight_parts(request.model);
  Json notes = Json::array(), changes = Json::array(), ranked = Json::array(),
       no_fit = Json::array();
  for (auto& n : advice.notes)
    notes.push(n);
  for (auto& c : advice.would_change)
    changes.push(c);
  for (std::size_t i = 0; i < advice.ranked.size() && i < 20; ++i)
    ranked.push(candidate_json(advice.ranked[i]));
  for (auto& n : advice.no_fit)
    no_fit.push(Json::object({{"gpu", n.gpu}, {"why", n.why}}));
  Json model = Json::object({{"name", request.model.name},
                             {"architecture", request.model.architecture},
                             {"parameters", std::round(request.model.parameters())},
                             {"active_parameters", std::round(request.model.active_parameters())},
                             {"attention", request.model.attention_summary()},
                             {"precision", precision_name(request.model.native)},
                             {"weights_bytes", std::round(w.total())},
                             {"kv_bytes_per_token", kv.bytes},
                             {"kv_bytes_per_token_beyond_windows", kv.bytes_far},
                             {"index_bytes_per_token", kv.index_bytes},
                             {"state_bytes_per_sequence", kv.state_bytes},
                             {"kv_precision", precision_name(request.model.kv_native)},
                             {"draft_parameters", std::round(request.model.mtp_parameters)},
                             {"notes", notes}});
  Json out = Json::object({{"model", model},
                           {"engine", request.engine},
                           {"input", request.input},
                           {"output", request.output},
                           {"way", way_name(request.way)}});
  if (request.rps > 0)
    out.set("rps", rounded(request.rps, 4));
  if (request.users > 0)
    out.set("users", request.users);
  out.set("percentile", percentile_name(request.percentile));
  if (advice.best) {
    set_estimate(out, "ttft_ms", advice.best->latency.ttft_ms);
    set_estimate(out, "tpot_ms", advice.best->latency.tpot_ms);
    out.set("kind", kind_name(advice.best->latency.kind));
  }
  out.set("best", advice.best ? candidate_json(*advice.best) : Json());
  out.set("runner_up", advice.runner_up ? candidate_json(*advice.runner_up) : Json());
  out.set("third", advice.third ? candidate_json(*advice.third) : Json());
  Json curve = Json::array();
  for (auto& p : advice.curve)
    curve.push(Json::object({{"concurrency", p.concurrency},
                             {"ttft_ms", rounded(p.ttft_ms)},
                             {"tpot_ms", rounded(p.tpot_ms)},
                             {"requests_per_s", rounded(p.rps)},
                             {"usd_per_million_output_tokens", or_unknown(p.usd_per_million)}}));
  out.set("curve", curve);
  if (advice.best)
    out.set("launch", launch_text(*advice.best, request));
  out.set("checks", checks_json(advice.checks));
  out.set("considered", ways_json(advice.ways));
  out.set("would_change", changes);
  out.set("reserved", advice.reserved_mix);
  out.set("ranked", ranked);
  out.set("does_not_fit", no_fit);
  out.set("candidates_scanned", advice.candidates_scanned);
  out.set("offers_scanned", advice.offers_scanned);
  return out;
}

namespace {

std::string why_text(const Candidate& b, const Request& request) {
  std::string out = fmt::format(
      "  {} replica{} of {}{}, each with {:.0f} concurrent sequence{} at this load\n", b.replicas,
      b.replicas == 1 ? "" : "s", parallelism_name(b.parallelism),
      b.prefill_gpus > 0 ? fmt::format(" and {} GPUs that prefill", b.prefill_gpus) : "",
      b.concurrency, b.concurrency == 1 ? "" : "s");
  out += "  " + latency_text(b) + "\n";
  if (b.tails)
    out += "  " + tails_text(*b.tails, request, b.latency.tpot_ms.value) + "\n";
  out += fmt::format("  up to {:.2f} requests/s, {:.0f} tokens/s; limited by {}{}\n",
                     b.rps_replica * b.replicas, b.tokens_per_s_replica * b.replicas, b.binding,
                     b.limit.empty() ? "" : ": " + b.limit);
  if (b.offer && b.offer->instance) {
    auto& o = *b.offer;
    out += fmt::format(
        "  per month {} on demand, {} on spot, {} committed for a year (prices of "
        "{}{}, {})\n",
        usd_month(o.on_demand_month), usd_month(o.spot_month), usd_month(o.committed_1y_month),
        o.price_date, o.price_age_days ? fmt::format(", {} days old", *o.price_age_days) : "",
        tier_name(tier_of(o.instance->provider)));
    if (const double cost = rank_cost(b, request); cost < 1e12 && b.replicas > 0)
      out += fmt::format("  with one replica to spare (N+1): about ${:.0f} per month\n",
                         cost * (b.replicas + 1) / b.replicas);
    // Stages on several machines are loaded by each of them.
    const double loaded =
        b.memory.weights *
        (o.instance->gpus < b.parallelism.gpus() ? b.parallelism.tensor : b.parallelism.gpus());
    out += fmt::format("  each host needs {:.0f} GiB of memory (it has {}) and {:.0f} GB of disk\n",
                       host_memory_gib(loaded),
                       o.instance->memory_gib > 0 ? fmt::format("{} GiB", o.instance->memory_gib)
                                                  : std::string("an unknown amount"),
                       20 + 1.2 * loaded / 1e9);
  }
  out += fmt::format(
      "  memory per GPU: weights {} + KV {} + activations {} + exchange {} + overhead {} = {} of "
      "{} usable; {:.0f} sequences would fit\n",
      gb(b.memory.weights), gb(b.memory.kv), gb(b.memory.activations), gb(b.memory.communication),
      gb(b.memory.overhead), gb(b.memory.total()), gb(b.memory.usable), b.memory.sequences_max);
  out += "  time per token:";
  for (auto& [name, ms] : b.latency.tpot_parts)
    if (ms > 0.02 * b.latency.tpot_ms.value)
      out += fmt::format(" {} {:.2f}", name, ms);
  return out + " ms\n";
}

std::string no_fit_text(const std::vector<Advice::NoFit>& all, bool runs, const char* what) {
  constexpr std::size_t shown_max = 8;
  std::vector<std::string> names;
  for (auto& n : all)
    if (n.runs == runs)
      names.push_back(n.gpu);
  if (names.empty())
    return {};
  const std::size_t more = names.size() > shown_max ? names.size() - shown_max : 0;
  names.resize(names.size() - more);
  return fmt::format("{}: {}{}\n", what, join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// The service level that was asked for, so that a wrong unit is seen beside the answer.
std::string level_text(const Request& request) {
  std::string asked;
  if (request.ttft_ms_max)
    asked = fmt::format("first token within {:.0f} ms", *request.ttft_ms_max);
  if (request.tokens_per_s_min)
    asked += fmt::format("{}at least {:g} tokens/s per user", asked.empty() ? "" : ", ",
                         *request.tokens_per_s_min);
  if (asked.empty())
    return asked;
  const auto whom = request.percentile == Percentile::mean
                        ? std::string("on average")
                        : fmt::format("at {}", percentile_name(request.percentile));
  return fmt::format("  service level: {} {}\n", asked, whom);
}

}  // namespace

// The answer first, then why, two alternatives, how to start it, and what would change it.
std::string advice_text(const Request& request, const Advice& advice) {
  auto kv = kv_per_token(request.model, request.model.kv_native);
  std::string out = "best: " + answer_text(*advice.best, request);
  out += fmt::format(
      "  {}: {:.2f} B parameters{}, {} attention, stored as {}: {}; KV cache {:.1f} KiB per token "
      "({})\n",
      request.model.name, request.model.parameters() / 1e9,
      request.model.is_moe()
          ? fmt::format(" ({:.2f} B active)", request.model.active_parameters() / 1e9)
          : "",
      request.model.attention_summary(), precision_name(request.model.native),
      gb(weight_parts(request.model).total()), kv.bytes / 1024,
      precision_name(request.model.kv_native));
  for (auto& n : advice.notes)
    out += "  note: " + n + "\n";
  if (request.rps > 0 || request.users > 0)
    out += fmt::format("  for {} of {:.0f} + {:.0f} tokens\n",
                       request.rps > 0
                           ? fmt::format("{:.3g} requests/s", request.rps)
                           : fmt::format("{:.0f} concurrent users, requests", request.users),
                       request.input, request.output);
  out += level_text(request);
  auto& b = *advice.best;
  out += why_text(b, request);
  if (advice.runner_up)
    out += "runner-up: " + answer_text(*advice.runner_up, request);
  if (advice.third)
    out += "or: " + answer_text(*advice.third, request);
  out += "launch: " + launch_text(b, request) + "\n";
  out += curve_text(advice.curve, b);
  for (auto& c : advice.checks)
    out += fmt::format("{} {}: {}\n", c.good ? "ok  " : "mind", c.rule, c.why);
  for (auto& w : advice.ways)
    out += way_text(w);
  for (auto& c : advice.would_change)
    out += "would change the answer: " + c + "\n";
  if (!advice.reserved_mix.empty())
    out += advice.reserved_mix + "\n";
  return out + no_fit_text(advice.no_fit, true, "does not fit") +
         no_fit_text(advice.no_fit, false,
                     "not considered, as their rates are unknown or the precision is missing");
}

}  // namespace billow::advise
