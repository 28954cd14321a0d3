// advise: which GPU a model needs. The advisor is computation alone (src/advise); this reads the
// options, asks a running head for its GPUs where --mine wants them, and prints.
#include <fmt/format.h>

#include <limits>
#include <span>
#include <tuple>

#include "advise/imported_prices.h"
#include "advise/load/loadtest.h"
#include "advise/measurements.h"
#include "advise/media/media.h"
#include "advise/question.h"
#include "advise/recommend.h"
#include "base/file.h"
#include "base/text.h"
#include "client/advice/advice.h"
#include "client/advice/observe.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

constexpr std::size_t trace_bytes_max = 256 << 20;

constexpr OptionSpec model_options[] = {
    {"model", 'm', "MODEL", "Hugging Face config.json, name like Llama-3.1-70B, or size like 7B",
     false, Completes::file},
    {"models", 0, "DIR", "directory of config files (BILLOW_MODELS)", false, Completes::directory},
    {"precision", 0, "A,B",
     "fp32, bf16, fp16, fp8, int8, int4, fp4 or nvfp4 (default: try all of them)"},
    {"engine", 0, "NAME", "serving engine: vllm (default), sglang or trtllm", false,
     Completes::choice, "vllm,sglang,trtllm"},
    {"engine-version", 0, "V", "version of the engine"},
    {"kv-cache", 0, "P", "precision of the KV cache: bf16, fp8 or fp4 (default: the engine's)",
     false, Completes::choice, "bf16,fp8,fp4"},
    {"cached-share", 0, "X", "share of the input found in the prefix cache, e.g. 0.5 (default 0)"},
    {"draft-tokens", 0, "N", "speculative decoding: tokens proposed per step (default 0)"},
    {"accepted", 0, "X", "chance that a proposed token is accepted (default 0.7)"},
    {"adapters", 0, "N", "LoRA adapters served beside the model (default 0)"},
    {"adapter-rank", 0, "N", "rank of these adapters (default 16)"},
    {"eager", 0, nullptr, "the engine runs without CUDA graphs"},
    {"way", 0, "WAY", "tensor (default), data-attention (experts spread) or separate-prefill",
     false, Completes::choice, "tensor,data-attention,separate-prefill"},
};
constexpr OptionSpec load_options[] = {
    {"context", 0, "N", "longest sequence in tokens (default: input + output)"},
    {"input", 0, "N", "tokens per request (default 1024)"},
    {"output", 0, "N", "tokens per answer (default 256)"},
    {"ttft", 0, "T", "longest acceptable time to the first token, e.g. 500ms"},
    {"tps", 0, "N", "lowest acceptable tokens per second per user"},
    {"percentile", 0, "P",
     "requests that must meet --ttft and --tps: mean (default), p50, p95 or p99", false,
     Completes::choice, "mean,p50,p95,p99"},
    {"input-p95", 0, "N", "95th percentile of the input tokens (default: as in conversations)"},
    {"output-p95", 0, "N", "95th percentile of the output tokens (default: as in conversations)"},
    {"users", 0, "N", "concurrent users"},
    {"rps", 0, "N", "requests per second"},
    {"trace", 0, "CSV",
     "take the load from a trace of requests (timestamp, input tokens, output tokens)", false,
     Completes::file},
};
constexpr OptionSpec offer_options[] = {
    {"providers", 0, "A,B", "only these providers, e.g. aws,gcp"},
    {"regions", 0, "A,B", "only regions with these prefixes, e.g. us-"},
    {"gpu", 0, "A,B", "only these GPUs, e.g. L40S,4090"},
    {"max-gpus", 0, "N", "at most this many GPUs in all"},
    {"any", 0, nullptr, "also marketplaces and consumer cards"},
    {"spot", 0, nullptr, "rank by spot price"},
    {"mine", 0, nullptr, "choose among the GPUs of this installation"},
};
constexpr OptionSpec training_options[] = {
    {"train", 0, nullptr, "advise on training instead of serving"},
    {"tuning", 0, "KIND", "with --train: full (default), lora or qlora", false, Completes::choice,
     "full,lora,qlora"},
    {"sequence", 0, "N", "with --train: tokens per sequence (default 4096)"},
    {"micro-batch", 0, "N", "with --train: sequences per GPU and step (default 1)"},
    {"tokens", 0, "N", "with --train: number of tokens to train on"},
    {"deadline", 0, "T", "with --train and --tokens: time until the training must end, e.g. 30d"},
    {"checkpoint-time", 0, "T", "with --train: time to write one checkpoint, e.g. 40s"},
    {"interruptions", 0, "T", "with --train: mean time between spot interruptions, e.g. 6h"},
};
constexpr OptionSpec prediction_options[] = {
    {"batch", 0, "CSV", "predict each row of a table of serving measurements", false,
     Completes::file},
};

Status read_tail(const Parsed& parsed, advise::Request& r) {
  r.percentile = BILLOW_TRY(advise::parse_percentile(parsed.get("percentile", "mean")));
  if (r.percentile != advise::Percentile::mean && !r.ttft_ms_max && !r.tokens_per_s_min)
    return fail(Code::invalid, "--percentile needs a service level",
                "add --ttft 500ms, --tps 20 or both");
  for (auto [option, mean, variation] : {std::tuple{"input-p95", r.input, &r.variation.input},
                                         std::tuple{"output-p95", r.output, &r.variation.output}}) {
    if (!parsed.has(option))
      continue;
    if (parsed.has("trace"))
      return fail(Code::invalid, fmt::format("--trace has its own lengths: omit --{}", option));
    const double p95 = BILLOW_TRY(number_option(parsed, option, mean, 1, 1e7));
    if (p95 < mean)
      return fail(Code::invalid,
                  fmt::format("--{} {:g} is below the mean of {:g}", option, p95, mean));
    *variation = advise::variation_of(mean, p95);
  }
  return {};
}

Status read_load(const Parsed& parsed, advise::Request& r) {
  r.input = BILLOW_TRY(number_option(parsed, "input", 1024, 1, 1e7));
  r.output = BILLOW_TRY(number_option(parsed, "output", 256, 1, 1e7));
  r.rps = BILLOW_TRY(number_option(parsed, "rps", 0, 1e-6, 1e6));
  r.users = BILLOW_TRY(number_option(parsed, "users", 0, 1, 1e8));
  if ((r.rps > 0) + (r.users > 0) + parsed.has("trace") > 1)
    return fail(Code::invalid, "--rps, --users and --trace exclude each other: give one");
  if (parsed.has("trace")) {
    const std::string csv = BILLOW_TRY(read_file(parsed.get("trace"), trace_bytes_max));
    const auto arrivals = advise::trace_arrivals(csv, std::numeric_limits<double>::max(), 1);
    if (!arrivals)
      return pass(arrivals.error(), parsed.get("trace"));
    const advise::TraceLoad load = advise::load_of(*arrivals);
    r.rps = load.rps;
    r.input = load.input;
    r.output = load.output;
    r.lengths = *arrivals;
  }
  r.context = BILLOW_TRY(number_option(parsed, "context", 0, 1, 1e8));
  r.ttft_ms_max = BILLOW_TRY(milliseconds_option(parsed, "ttft"));
  if (parsed.has("tps"))
    r.tokens_per_s_min = BILLOW_TRY(number_option(parsed, "tps", 0, 0.01, 1e5));
  return read_tail(parsed, r);
}

Status read_extras(const Parsed& parsed, advise::Request& r) {
  if (parsed.has("kv-cache"))
    r.model.kv_native = BILLOW_TRY(advise::parse_kv_cache(parsed.get("kv-cache")));
  advise::ServingExtras& x = r.extras;
  x.cached_share = BILLOW_TRY(number_option(parsed, "cached-share", 0, 0, 0.99));
  x.draft_tokens = static_cast<int>(BILLOW_TRY(number_option(parsed, "draft-tokens", 0, 0, 16)));
  x.accepted = BILLOW_TRY(number_option(parsed, "accepted", x.accepted, 0, 1));
  x.adapters = static_cast<int>(BILLOW_TRY(number_option(parsed, "adapters", 0, 0, 10000)));
  x.eager = parsed.has("eager");
  r.way = BILLOW_TRY(advise::parse_way(parsed.get("way", "tensor")));
  x.adapter_rank =
      static_cast<int>(BILLOW_TRY(number_option(parsed, "adapter-rank", x.adapter_rank, 1, 1024)));
  return {};
}

Result<OfferFilter> read_filter(const Parsed& parsed) {
  OfferFilter offers;
  for (const std::string& p : list_option(parsed, "providers"))
    offers.providers.push_back(lower(p));
  offers.regions = list_option(parsed, "regions");
  offers.gpu = parsed.get("gpu");
  offers.gpus_max = static_cast<int>(
      BILLOW_TRY(number_option(parsed, "max-gpus", offers.gpus_max, 1, offers.gpus_max)));
  return offers;
}

Status read_offers(const Parsed& parsed, advise::Request& r) {
  r.offers = BILLOW_TRY(read_filter(parsed));
  r.any_offer = parsed.has("any");
  r.spot = parsed.has("spot");
  r.now = now();
  return {};
}

// Options of one kind of question only. In another they are refused, since an answer that ignores
// them would be taken for one that does not.
Status refuse(const Parsed& parsed,
              std::span<const OptionSpec> options,
              std::string_view why,
              std::string_view hint) {
  for (const OptionSpec& option : options) {
    const std::string_view name = option.name;
    if (name != "model" && name != "models" && name != "train" && parsed.has(name))
      return fail(Code::invalid, fmt::format("--{} {}", name, why), std::string(hint));
  }
  return {};
}

Result<advise::Request> read_request(const Parsed& parsed) {
  BILLOW_TRY_VOID(refuse(parsed, training_options, "applies to training only", "add --train"));
  if (parsed.has("mine"))
    for (const char* option : {"providers", "regions", "any", "spot"})
      if (parsed.has(option))
        return fail(Code::invalid,
                    fmt::format("--{} does not apply to --mine: it is about rented GPUs", option));
  advise::Request r;
  r.model = BILLOW_TRY(advise::find_model(model_named(parsed), models_directory(parsed)));
  for (const std::string& p : list_option(parsed, "precision"))
    r.precisions.push_back(BILLOW_TRY(advise::parse_precision(p)));
  BILLOW_TRY_VOID(read_load(parsed, r));
  BILLOW_TRY_VOID(read_extras(parsed, r));
  r.engine = advise::engine_word(parsed.get("engine", "vllm"));
  r.version = parsed.get("engine-version");
  BILLOW_TRY_VOID(read_offers(parsed, r));
  return r;
}

Result<advise::TrainingRequest> read_training(const Parsed& parsed) {
  constexpr std::string_view why = "does not apply to --train";
  constexpr std::string_view hint = "see the options \"with --train\" in billow advise --help";
  BILLOW_TRY_VOID(refuse(parsed, model_options, why, hint));
  BILLOW_TRY_VOID(refuse(parsed, load_options, why, hint));
  if (parsed.has("mine"))
    return fail(Code::invalid, "--mine does not apply to --train",
                "name the GPUs you have: --gpu A100-80GB --max-gpus 4");
  if (parsed.has("spot"))
    return fail(Code::invalid, "--spot does not apply to --train",
                "omit it: the answer shows spot prices and how often to write checkpoints");
  advise::TrainingRequest t;
  t.model = BILLOW_TRY(advise::find_model(model_named(parsed), models_directory(parsed)));
  const std::string tuning = BILLOW_TRY(choice_option(parsed, "tuning", "full", "full,lora,qlora"));
  if (tuning == "lora")
    t.tuning = advise::Tuning::lora;
  else if (tuning == "qlora")
    t.tuning = advise::Tuning::qlora;
  t.sequence = BILLOW_TRY(number_option(parsed, "sequence", 4096, 1, 1e7));
  t.micro_batch = BILLOW_TRY(number_option(parsed, "micro-batch", 1, 1, 1e5));
  t.tokens = BILLOW_TRY(number_option(parsed, "tokens", 0, 0, 1e18));
  if (const auto ms = BILLOW_TRY(milliseconds_option(parsed, "deadline")))
    t.deadline_h = *ms / 3.6e6;
  if (t.deadline_h && !(t.tokens > 0))
    return fail(Code::invalid, "--deadline needs --tokens, the number of tokens to train on");
  if (const auto ms = BILLOW_TRY(milliseconds_option(parsed, "checkpoint-time")))
    t.checkpoint_s = *ms / 1e3;
  if (const auto ms = BILLOW_TRY(milliseconds_option(parsed, "interruptions")))
    t.interruptions_h = *ms / 3.6e6;
  t.offers = BILLOW_TRY(read_filter(parsed));
  t.any_offer = parsed.has("any");
  t.now = now();
  return t;
}

// Image and speech models: a rate and offers are all that can be asked about.
int advise_media(const Parsed& parsed,
                 const Catalogue& catalogue,
                 const advise::MediaModel& model) {
  for (const char* option : {"train", "mine", "users", "ttft", "tps", "percentile", "trace"})
    if (parsed.has(option))
      return report_advice(
          parsed, {Code::invalid,
                   fmt::format("--{} does not apply to {}: only whole answers per second are known",
                               option, model.name),
                   fmt::format("billow advise --model {} --rps 2", model.name)});
  advise::MediaRequest request{.model = &model, .rps = 1, .offers = {}};
  const auto rps = number_option(parsed, "rps", 1, 1e-6, 1e6);
  if (!rps)
    return report_advice(parsed, rps.error());
  request.rps = *rps;
  if (const Status read = read_offers(parsed, request.offers); !read)
    return report_advice(parsed, read.error());
  const auto advice = advise::recommend_media(request, catalogue);
  if (!advice)
    return report_advice_failed(parsed, advice.error());
  if (parsed.has("json"))
    print_json(advise::media_json(request, *advice));
  else
    print(advise::media_text(request, *advice));
  return 0;
}

int advise_training(const Parsed& parsed, const Catalogue& catalogue) {
  const auto request = read_training(parsed);
  if (!request)
    return report_advice(parsed, request.error());
  const auto advice = advise::recommend_training(*request, catalogue);
  if (!advice)
    return report_advice(parsed, advice.error());
  if (parsed.has("json"))
    print_json(advise::training_json(*request, *advice));
  else
    print(advise::training_text(*request, *advice));
  return 0;
}

// The GPUs of the head, for --mine.
Result<std::vector<advise::FleetGpu>> own_gpus(const Parsed& parsed, const Catalogue& catalogue) {
  auto client = connect(parsed);
  if (!client)
    return pass(client.error(), "--mine");
  auto listed = fleet_of_head(*client, catalogue);
  if (!listed)
    return pass(listed.error(), "--mine");
  std::vector<advise::FleetGpu> fleet = std::move(*listed);
  if (fleet.empty())
    return fail(Code::infeasible, "--mine: no node of this installation has a GPU",
                "omit --mine to choose among rented GPUs");
  return fleet;
}

int advise_serving(const Parsed& parsed,
                   const Catalogue& catalogue,
                   const advise::Calibration& calibration) {
  auto request = read_request(parsed);
  if (!request)
    return report_advice(parsed, request.error());
  if (parsed.has("mine")) {
    auto fleet = own_gpus(parsed, catalogue);
    if (!fleet)
      return report_advice_failed(parsed, fleet.error());
    request->fleet = std::move(*fleet);
  }
  const auto advice = advise::recommend(*request, catalogue, calibration);
  if (!advice)
    return report_advice_failed(parsed, advice.error());
  if (parsed.has("json"))
    print_json(advise::advice_json(*request, *advice));
  else
    print(advise::advice_text(*request, *advice));
  return 0;
}

int cmd_advise(const Parsed& parsed) {
  const bool named = parsed.has("model") || parsed.has("batch");
  if (parsed.operands.size() > (named ? 0u : 1u))
    return report_advice(parsed,
                         {Code::invalid, fmt::format("unexpected \"{}\"", parsed.operands.back()),
                          "give one model: billow advise --model 7B"});
  const std::string data = data_directory(parsed.get("data"));
  auto catalogue = advise::catalogue_with_imports(data);
  if (!catalogue)
    return report_advice_failed(parsed, catalogue.error());
  auto calibration = advise::Calibration::embedded();
  const auto own = advise::read_measurements(data, models_directory(parsed), *catalogue);
  if (!own)
    return report_advice_failed(parsed, own.error());
  if (!own->rows.empty())
    calibration = calibration.with_local(own->rows);
  if (parsed.has("batch"))
    return predict_rows(parsed, *catalogue, calibration);
  if (model_named(parsed).empty())
    return report_advice(parsed,
                         {Code::invalid, "no --model",
                          "give a config.json, a name or a size: billow advise --model 7B"});
  if (const auto* media = advise::media_model(model_named(parsed)))
    return advise_media(parsed, *catalogue, *media);
  return parsed.has("train") ? advise_training(parsed, *catalogue)
                             : advise_serving(parsed, *catalogue, calibration);
}

}  // namespace

void add_advise_commands(CommandTable& table) {
  table.push_back({.name = "advise",
                   .summary = "recommend a GPU, count, instance and price for a model",
                   .example = "billow advise --model config.json --users 50 --ttft 500ms --tps 20 "
                              "--providers aws,gcp\nbillow advise --model 7B --rps 4 --mine",
                   .run = cmd_advise,
                   .usage = "[MODEL]",
                   .options = {model_options, load_options, offer_options, training_options,
                               prediction_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = "money and advice"});
  add_price_list_commands(table);
  add_plan_commands(table);
}

}  // namespace billow::client
