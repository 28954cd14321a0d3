// Answers about training as text for people and as JSON for programs, with the same content.
#include <algorithm>
#include <set>

#include "advise/answer/output_parts.h"
#include "base/text.h"

namespace billow::advise {
namespace {

const char* checkpointing_name(Checkpointing c) {
  switch (c) {
    case Checkpointing::none:
      return "none";
    case Checkpointing::selective:
      return "selective";
    case Checkpointing::full:
      return "full";
  }
  return "?";
}
const char* recomputation(Checkpointing c) {
  switch (c) {
    case Checkpointing::none:
      return "all activations kept";
    case Checkpointing::selective:
      return "attention recomputed";
    case Checkpointing::full:
      return "activations recomputed";
  }
  return "?";
}

// Every kind of rank that the plan uses.
std::string split_text(const TrainingPlan& p) {
  std::string out;
  auto add = [&](int ranks, const char* what) {
    if (ranks > 1)
      out += fmt::format(", {} {}", ranks, what);
  };
  add(p.tensor, "tensor ranks");
  add(p.pipeline, "pipeline stages");
  add(p.context, "context ranks");
  add(p.expert, "expert ranks");
  add(p.data(), "data ranks");
  const double step = p.step_tokens();
  return out + (step < 1e6 ? fmt::format(", {:.0f} thousand tokens per step", step / 1e3)
                           : fmt::format(", {:.2g} million tokens per step", step / 1e6));
}

Json age_json(const std::string& date, WallTime now) {
  auto age = price_age_days(date, now);
  return age ? Json(*age) : Json("unknown");
}

// What each way of splitting the model needs on the GPUs of one candidate; this explains the plan.
struct Stage {
  TrainingPlan plan;
  double bytes = 0;
  bool fits = false;
};
std::vector<Stage> stages_of(const TrainingRequest& request, const TrainingCandidate& c) {
  std::vector<Stage> out;
  double usable = training_usable_bytes(*c.gpu);
  const TrainingShape counts(request.model);
  for (auto zero : {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters}) {
    if (zero != Zero::none && c.plan.data() * c.plan.context == 1)
      break;
    for (auto checkpointing :
         {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
      Stage s{.plan = c.plan};
      s.plan.zero = zero;
      s.plan.checkpointing = checkpointing;
      s.bytes = training_memory(counts, s.plan).total();
      s.fits = s.bytes <= usable;
      out.push_back(s);
    }
  }
  return out;
}

std::string candidate_text(const TrainingRequest& request,
                           const TrainingCandidate& c,
                           const char* label) {
  const auto age = price_age_days(c.price_date, request.now);
  return fmt::format(
      "{} {}{} × {} {} ({} × {}): {}, {}{}; {:.0f} tokens/s (estimate), ${:.2f}/h (price of "
      "{}{}){}{}{}\n",
      label, c.hours ? time_text(*c.hours) + " on " : "", c.nodes, c.instance->provider,
      c.instance->name, c.gpus, c.gpu->name, zero_name(c.plan.zero),
      recomputation(c.plan.checkpointing), split_text(c.plan), c.tokens_per_s, *c.usd_h,
      c.price_date, age ? fmt::format(", {} days old", *age) : "",
      c.spot_usd_h ? fmt::format(", ${:.2f}/h on spot", *c.spot_usd_h) : "",
      c.usd_total ? fmt::format(", ${:.0f} in total", *c.usd_total) : "",
      request.deadline_h && c.hours && *c.hours > *request.deadline_h ? "; MISSES THE DEADLINE"
                                                                      : "");
}

// The fewest GPUs that do it in time, since more may do it cheaper per token; among equals the
// first ranked.
const TrainingCandidate* smallest(const TrainingRequest& request,
                                  const std::vector<TrainingCandidate>& ranked) {
  const TrainingCandidate* least = nullptr;
  for (auto& c : ranked)
    if ((!least || c.gpus < least->gpus) &&
        (!request.deadline_h || !c.hours || *c.hours <= *request.deadline_h))
      least = &c;
  return least;
}

}  // namespace

Json training_json(const TrainingRequest& request, const TrainingAdvice& advice) {
  Json ranked = Json::array(), notes = Json::array();
  for (auto& n : advice.notes)
    notes.push(n);
  for (std::size_t i = 0; i < advice.ranked.size() && i < 20; ++i) {
    auto& c = advice.ranked[i];
    ranked.push(Json::object(
        {{"gpu", c.gpu->name},
         {"provider", c.instance->provider},
         {"instance", c.instance->name},
         {"region", c.region},
         {"price_date", c.price_date},
         {"nodes", c.nodes},
         {"gpus", c.gpus},
         {"price_age_days", age_json(c.price_date, request.now)},
         {"zero", zero_name(c.plan.zero)},
         {"activation_checkpointing", checkpointing_name(c.plan.checkpointing)},
         {"fabric", fabric_name(c.instance->fabric)},
         {"network", c.instance->network},
         {"network_gbps", c.instance->network_gbps},
         {"tensor_ranks", c.plan.tensor},
         {"pipeline_stages", c.plan.pipeline},
         {"context_ranks", c.plan.context},
         {"expert_ranks", c.plan.expert},
         {"data_ranks", c.plan.data()},
         {"micro_batches", c.plan.micro_batches},
         {"step_tokens", c.plan.step_tokens()},
         {"pipeline_bubble", rounded(pipeline_bubble(c.plan), 3)},
         {"tokens_per_s", rounded(c.tokens_per_s)},
         {"hours", c.hours ? rounded(*c.hours, 1) : Json()},
         {"kind", "extrapolated"},
         {"exchange_share", rounded(c.exchange_share, 3)},
         {"memory_per_gpu", Json::object({{"weights_bytes", std::round(c.memory.weights)},
                                          {"gradients_bytes", std::round(c.memory.gradients)},
                                          {"optimizer_bytes", std::round(c.memory.optimizer)},
                                          {"activations_bytes", std::round(c.memory.activations)},
                                          {"overhead_bytes", std::round(c.memory.overhead)},
                                          {"total_bytes", std::round(c.memory.total())}})},
         {"usd_h", or_unknown(c.usd_h)},
         {"spot_usd_h", or_unknown(c.spot_usd_h)},
         {"usd_total", or_unknown(c.usd_total)},
         {"checkpoint_minutes", rounded(c.checkpoint_minutes, 3)},
         {"checkpoint_s", rounded(c.checkpoint_cost_s, 3)},
         {"interruptions_h", rounded(c.interruptions_h, 3)}}));
  }
  Json stages = Json::array();
  for (auto& s : stages_of(request, advice.ranked.front()))
    stages.push(
        Json::object({{"zero", zero_name(s.plan.zero)},
                      {"activation_checkpointing", checkpointing_name(s.plan.checkpointing)},
                      {"total_bytes", std::round(s.bytes)},
                      {"fits", s.fits}}));
  return Json::object(
      {{"model", Json::object({{"name", request.model.name},
                               {"parameters", std::round(request.model.parameters())},
                               {"notes", notes}})},
       {"ranked", ranked},
       {"stages", stages},
       {"checks", checks_json(advice.checks)}});
}

std::string training_text(const TrainingRequest& request, const TrainingAdvice& advice) {
  std::string out = fmt::format(
      "training {}: {:.2f} B parameters, sequences of {:.0f}, micro-batch {:.0f}\n",
      request.model.name, request.model.parameters() / 1e9, request.sequence, request.micro_batch);
  for (auto& n : advice.notes)
    out += "  note: " + n + "\n";
  std::set<const GpuSpec*> shown;  // one line for each GPU
  int fewest = advice.ranked.front().gpus;
  for (std::size_t i = 0; i < advice.ranked.size() && shown.size() < 5; ++i) {
    auto& c = advice.ranked[i];
    if (!shown.insert(c.gpu).second)
      continue;
    fewest = std::min(fewest, c.gpus);
    out += candidate_text(request, c, i ? "    " : "best");
    if (i == 0)
      out += fmt::format(
          "  memory per GPU: weights {} + gradients {} + optimizer {} + activations {} + overhead "
          "{} = {}\n",
          gb(c.memory.weights), gb(c.memory.gradients), gb(c.memory.optimizer),
          gb(c.memory.activations), gb(c.memory.overhead), gb(c.memory.total()));
  }
  if (const auto* least = smallest(request, advice.ranked); least && least->gpus < fewest)
    out += candidate_text(request, *least, "smallest");
  auto& best = advice.ranked.front();
  out +=
      fmt::format("memory per GPU on {} × {} (GB; * does not fit):\n", best.gpus, best.gpu->name);
  for (auto& s : stages_of(request, best)) {
    if (s.plan.checkpointing == Checkpointing::none)
      out += fmt::format("  {:<8}", zero_name(s.plan.zero));
    out += fmt::format("  {} {:.1f}{}{}", recomputation(s.plan.checkpointing), s.bytes / 1e9,
                       s.fits ? "" : "*", s.plan.checkpointing == Checkpointing::full ? "\n" : ";");
  }
  for (auto& c : advice.checks)
    out += fmt::format("{} {}: {}\n", c.good ? "ok  " : "mind", c.rule, c.why);
  return out;
}

}  // namespace billow::advise
