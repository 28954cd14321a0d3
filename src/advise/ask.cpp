#include "advise/ask.h"

#include <algorithm>
#include <cmath>

#include "advise/imported_prices.h"
#include "advise/measurements.h"
#include "advise/media/media.h"
#include "advise/question.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr const char* question_fields[] = {
    "model", "config", "precision", "context", "input", "output", "ttft_ms", "tps", "users", "rps",
    "engine", "engine_version", "providers", "regions", "gpu", "any", "spot", "mine", "train",
    "tuning", "sequence", "micro_batch", "tokens", "checkpoint_s", "interruptions_h", "deadline_h",
    "percentile", "input_p95", "output_p95", "kv_cache", "cached_share", "draft_tokens", "accepted",
    "adapters", "adapter_rank", "eager", "max_gpus", "way",
    // other names for precision, input, output, rps and (as its inverse) tps
    "weights", "input_tokens", "output_tokens", "requests_per_s", "tpot_ms"};

// Fields of one kind of question only. In another they are refused, since an answer that ignores
// them would be taken for one that does not.
constexpr const char* serving_fields[] = {
    "precision",  "context",   "input",        "output",         "ttft_ms",      "tps",
    "users",      "rps",       "engine",       "engine_version", "spot",         "mine",
    "percentile", "input_p95", "output_p95",   "kv_cache",       "cached_share", "draft_tokens",
    "accepted",   "adapters",  "adapter_rank", "eager",          "way"};
constexpr const char* training_fields[] = {
    "tuning", "sequence", "micro_batch", "tokens", "checkpoint_s", "interruptions_h", "deadline_h"};
constexpr const char* renting_fields[] = {"providers", "regions", "any", "spot"};
constexpr const char* not_media_fields[] = {"train",   "mine", "users",
                                            "ttft_ms", "tps",  "percentile"};

Status refuse(const Json& q, std::span<const char* const> fields, std::string_view why) {
  for (const char* name : fields)
    if (!q[name].is_null() && !(q[name].is_bool() && !q[name].bool_or(true)))
      return fail(Code::invalid, fmt::format("\"{}\" {}", name, why));
  return {};
}

Result<double> number(const Json& q, const char* name, double fallback, double min, double max) {
  auto& v = q[name];
  if (v.is_null())
    return fallback;
  double d = v.double_or(NAN);
  if (!v.is_number() || !(d >= min && d <= max))
    return fail(Code::invalid,
                fmt::format("\"{}\" must be a number from {:g} to {:g}", name, min, max));
  return d;
}
// A string, or a list of them.
Result<std::vector<std::string>> words(const Json& q, const char* name) {
  std::vector<std::string> out;
  auto& v = q[name];
  if (v.is_null())
    return out;
  if (v.is_string()) {
    for (auto& part : split(v.str_or(""), ','))
      if (!trim(part).empty())
        out.emplace_back(trim(part));
    return out;
  }
  if (!v.is_array())
    return fail(Code::invalid, fmt::format("\"{}\" must be a string or a list of strings", name));
  for (auto& item : v.items()) {
    if (!item.is_string())
      return fail(Code::invalid, fmt::format("\"{}\" must contain strings", name));
    out.emplace_back(item.str_or(""));
  }
  return out;
}
Result<std::string> word(const Json& q, const char* name, std::string_view fallback) {
  auto& v = q[name];
  if (!v.is_null() && !v.is_string())
    return fail(Code::invalid, fmt::format("\"{}\" must be a string", name));
  return std::string(v.str_or(fallback));
}
Result<bool> flag(const Json& q, const char* name) {
  auto& v = q[name];
  if (!v.is_null() && !v.is_bool())
    return fail(Code::invalid, fmt::format("\"{}\" must be true or false", name));
  return v.bool_or(false);
}

Result<ModelShape> model_of(const Json& q) {
  if (q["config"].is_object())
    return read_model_config(q["config"].dump(), {}, q["model"].str_or("the model"));
  if (!q["config"].is_null())
    return fail(Code::invalid, "\"config\" must be a JSON object, the content of a config.json");
  if (!q["model"].is_string())
    return fail(Code::invalid, "\"model\" is missing",
                "give a size such as \"7B\", or the content of a config.json as \"config\"");
  const std::string named(q["model"].str_or(""));
  if (auto shape = model_of_size(named))
    return shape;
  if (auto shape = shipped_model(named))
    return shape;
  const auto near = join(models_like(named.substr(0, 80)), ", ");
  return fail(Code::invalid,
              fmt::format("\"{}\" is neither a size nor a known model", named.substr(0, 80)),
              (near.empty() ? "" : fmt::format("did you mean {}? ", near)) +
                  "give a size such as \"7B\"; for another model send its config.json as "
                  "\"config\"");
}

// One candidate as a table row.
Json row_of(const Candidate& c) {
  Json row = Json::object({{"gpu", c.gpu->name},
                           {"gpus", c.gpus},
                           {"precision", precision_name(c.precision)},
                           {"parallelism", parallelism_name(c.parallelism)},
                           {"replicas", c.replicas}});
  if (!c.slice.empty())
    row.set("slice", c.slice);
  bool rented = c.offer && c.offer->instance;
  row.set("instance", rented
                          ? Json(fmt::format("{} × {} {}", c.offer->instances,
                                             c.offer->instance->provider, c.offer->instance->name))
                          : Json());
  row.set("usd_month", c.offer && c.offer->on_demand_month
                           ? Json(std::round(*c.offer->on_demand_month))
                           : Json());
  row.set("ttft_ms", std::round(c.latency.ttft_ms.value));
  row.set("tpot_ms", std::round(c.latency.tpot_ms.value * 10) / 10);
  row.set("kind", kind_name(c.latency.kind));
  row.set("binding", c.binding);
  row.set("price_date", rented ? Json(c.offer->price_date) : Json());
  row.set("price_age_days",
          rented && c.offer->price_age_days ? Json(*c.offer->price_age_days) : Json());
  return row;
}

// Renames the alternative names, and refuses fields that do not exist.
Result<Json> normalised(const Json& question) {
  if (!question.is_object())
    return fail(Code::invalid, "the request body must be a JSON object",
                "for example {\"model\": \"7B\", \"users\": 50}");
  Json q = question;
  for (auto [other, name] : {std::pair{"weights", "precision"},
                             {"input_tokens", "input"},
                             {"output_tokens", "output"},
                             {"requests_per_s", "rps"}})
    if (!q[other].is_null() && q[name].is_null())
      q.set(name, Json(q[other]));
  const double tpot_ms = BILLOW_TRY(number(q, "tpot_ms", 0, 0.01, 1e5));
  if (tpot_ms > 0 && q["tps"].is_null())
    q.set("tps", 1e3 / tpot_ms);
  const auto known = advice_question_fields();
  for (auto& [name, value] : q.members())
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      auto near = nearest(name, std::vector<std::string>(known.begin(), known.end()));
      return fail(Code::invalid, fmt::format("unknown field \"{}\"", name.substr(0, 80)),
                  near.empty() ? "" : fmt::format("did you mean \"{}\"?", near));
    }
  return q;
}

Result<OfferFilter> offers_of(const Json& q) {
  OfferFilter offers;
  for (auto& p : BILLOW_TRY(words(q, "providers")))
    offers.providers.push_back(lower(p));
  offers.regions = BILLOW_TRY(words(q, "regions"));
  offers.gpu = join(BILLOW_TRY(words(q, "gpu")), ",");
  offers.gpus_max =
      static_cast<int>(BILLOW_TRY(number(q, "max_gpus", offers.gpus_max, 1, offers.gpus_max)));
  return offers;
}

Result<TrainingRequest> training_request(const Json& q, const AskContext& context) {
  BILLOW_TRY_VOID(refuse(q, serving_fields, "does not apply to training: omit it or \"train\""));
  TrainingRequest t;
  t.model = BILLOW_TRY(model_of(q));
  const std::string tuning = BILLOW_TRY(word(q, "tuning", "full"));
  if (tuning == "lora")
    t.tuning = Tuning::lora;
  else if (tuning == "qlora")
    t.tuning = Tuning::qlora;
  else if (tuning != "full")
    return fail(Code::invalid, "\"tuning\" must be full, lora or qlora");
  t.sequence = BILLOW_TRY(number(q, "sequence", 4096, 1, 1e7));
  t.micro_batch = BILLOW_TRY(number(q, "micro_batch", 1, 1, 1e5));
  t.tokens = BILLOW_TRY(number(q, "tokens", 0, 0, 1e18));
  if (!q["checkpoint_s"].is_null())
    t.checkpoint_s = BILLOW_TRY(number(q, "checkpoint_s", 0, 1e-3, 1e6));
  if (!q["interruptions_h"].is_null())
    t.interruptions_h = BILLOW_TRY(number(q, "interruptions_h", 0, 1e-2, 1e6));
  if (!q["deadline_h"].is_null())
    t.deadline_h = BILLOW_TRY(number(q, "deadline_h", 0, 1e-2, 1e6));
  if (t.deadline_h && !(t.tokens > 0))
    return fail(Code::invalid, "\"deadline_h\" needs \"tokens\", the number to train on");
  t.offers = BILLOW_TRY(offers_of(q));
  t.any_offer = BILLOW_TRY(flag(q, "any"));
  t.now = context.now;
  return t;
}

Result<Request> serving_request(const Json& q, const AskContext& context) {
  BILLOW_TRY_VOID(refuse(q, training_fields, "applies to training only: add \"train\": true"));
  Request r;
  r.model = BILLOW_TRY(model_of(q));
  for (auto& p : BILLOW_TRY(words(q, "precision")))
    r.precisions.push_back(BILLOW_TRY(parse_precision(p)));
  r.input = BILLOW_TRY(number(q, "input", 1024, 1, 1e7));
  r.output = BILLOW_TRY(number(q, "output", 256, 1, 1e7));
  r.rps = BILLOW_TRY(number(q, "rps", 0, 1e-6, 1e6));
  r.users = BILLOW_TRY(number(q, "users", 0, 1, 1e8));
  if (r.rps > 0 && r.users > 0)
    return fail(Code::invalid, "\"rps\" and \"users\" exclude each other: give one");
  r.context = BILLOW_TRY(number(q, "context", 0, 1, 1e8));
  if (!q["ttft_ms"].is_null())
    r.ttft_ms_max = BILLOW_TRY(number(q, "ttft_ms", 0, 0.1, 1e7));
  if (!q["tps"].is_null())
    r.tokens_per_s_min = BILLOW_TRY(number(q, "tps", 0, 0.01, 1e5));
  r.percentile = BILLOW_TRY(parse_percentile(BILLOW_TRY(word(q, "percentile", "mean"))));
  if (r.percentile != Percentile::mean && !r.ttft_ms_max && !r.tokens_per_s_min)
    return fail(Code::invalid, "\"percentile\" needs a service level: \"ttft_ms\" or \"tps\"");
  if (!q["input_p95"].is_null())
    r.variation.input =
        variation_of(r.input, BILLOW_TRY(number(q, "input_p95", r.input, r.input, 1e7)));
  if (!q["output_p95"].is_null())
    r.variation.output =
        variation_of(r.output, BILLOW_TRY(number(q, "output_p95", r.output, r.output, 1e7)));
  if (const auto kv = BILLOW_TRY(word(q, "kv_cache", "")); !kv.empty())
    r.model.kv_native = BILLOW_TRY(parse_kv_cache(kv));
  r.extras.cached_share = BILLOW_TRY(number(q, "cached_share", 0, 0, 0.99));
  r.extras.draft_tokens = static_cast<int>(BILLOW_TRY(number(q, "draft_tokens", 0, 0, 16)));
  r.extras.accepted = BILLOW_TRY(number(q, "accepted", r.extras.accepted, 0, 1));
  r.extras.adapters = static_cast<int>(BILLOW_TRY(number(q, "adapters", 0, 0, 10000)));
  r.extras.adapter_rank = static_cast<int>(BILLOW_TRY(number(q, "adapter_rank", 16, 1, 1024)));
  r.extras.eager = BILLOW_TRY(flag(q, "eager"));
  r.way = BILLOW_TRY(parse_way(BILLOW_TRY(word(q, "way", "tensor"))));
  r.engine = engine_word(BILLOW_TRY(word(q, "engine", "vllm")));
  r.version = BILLOW_TRY(word(q, "engine_version", ""));
  r.offers = BILLOW_TRY(offers_of(q));
  r.any_offer = BILLOW_TRY(flag(q, "any"));
  r.spot = BILLOW_TRY(flag(q, "spot"));
  if (BILLOW_TRY(flag(q, "mine"))) {
    BILLOW_TRY_VOID(
        refuse(q, renting_fields, "does not apply to \"mine\": it is about rented GPUs"));
    r.fleet = context.fleet;
    if (r.fleet.empty())
      return fail(Code::infeasible, "this installation has no GPUs",
                  "omit \"mine\" to choose among rented GPUs");
  }
  r.now = context.now;
  return r;
}

Result<Json> media_answer(const Json& q,
                          const MediaModel& model,
                          const Catalogue& catalogue,
                          const AskContext& context) {
  BILLOW_TRY_VOID(
      refuse(q, not_media_fields, "does not apply to image and speech models: give \"rps\""));
  MediaRequest r{.model = &model, .rps = BILLOW_TRY(number(q, "rps", 1, 1e-6, 1e6)), .offers = {}};
  r.offers.offers = BILLOW_TRY(offers_of(q));
  r.offers.any_offer = BILLOW_TRY(flag(q, "any"));
  r.offers.spot = BILLOW_TRY(flag(q, "spot"));
  r.offers.now = context.now;
  const auto advice = BILLOW_TRY(recommend_media(r, catalogue));
  auto out = media_json(r, advice);
  out.set("text", media_text(r, advice));
  return out;
}

}  // namespace

std::span<const char* const> advice_question_fields() {
  return question_fields;
}

Result<Json> answer(const Json& question, const AskContext& context) {
  const Json q = BILLOW_TRY(normalised(question));
  auto catalogue = BILLOW_TRY(catalogue_with_imports(context.data_dir));
  if (const auto* media = media_model(q["model"].str_or("")); media && q["config"].is_null())
    return media_answer(q, *media, catalogue, context);
  if (BILLOW_TRY(flag(q, "train"))) {
    const auto t = BILLOW_TRY(training_request(q, context));
    const auto advice = BILLOW_TRY(recommend_training(t, catalogue));
    auto out = training_json(t, advice);
    out.set("text", training_text(t, advice));
    return out;
  }
  const auto r = BILLOW_TRY(serving_request(q, context));
  auto calibration = Calibration::embedded();
  auto own = BILLOW_TRY(read_measurements(context.data_dir, {}, catalogue));
  if (!own.rows.empty())
    calibration = calibration.with_local(own.rows);
  auto advice = BILLOW_TRY(recommend(r, catalogue, calibration));
  auto out = advice_json(r, advice);
  Json options = Json::array();
  for (std::size_t i = 0; i < advice.ranked.size() && i < 12; ++i)
    options.push(row_of(advice.ranked[i]));
  out.set("options", options);
  out.set("text", advice_text(r, advice));
  return out;
}

}  // namespace billow::advise
