#include "advise/commands.h"

#include <array>
#include <cmath>
#include <limits>

#include "advise/loadtest.h"
#include "advise/measurements.h"
#include "advise/options.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr const char* advise_help =
    "billow advise: which GPU, how many, which instance, at what price.\n"
    "\n"
    "  billow advise --model FILE|NAME|SIZE [--users N | --rps N | --trace CSV] [--ttft 500ms] "
    "[--tps 30]\n"
    "\n"
    "  --model     a Hugging Face config.json, a name found in --models, or a size like 7B\n"
    "  --models    directory of config files\n"
    "  --precision fp32, bf16, fp16, fp8, int8, int4, fp4, nvfp4, several by commas; all when not "
    "given\n"
    "  --context   longest sequence in tokens (default: input + output)\n"
    "  --input --output   tokens of a request (1024, 256)\n"
    "  --ttft --tps       service level: time to first token, tokens per second and user\n"
    "  --users --rps      load; --trace takes it from a CSV of arrivals (timestamp, input tokens, "
    "output tokens)\n"
    "  --engine --engine-version   vllm, sglang, trtllm\n"
    "  --providers --regions       by commas; regions by prefix\n"
    "  --spot      rank by spot price        --mine   among the GPUs of this Billow\n"
    "  --train     [--tuning full|lora|qlora] [--sequence N] [--micro-batch N] [--tokens N]\n"
    "              [--checkpoint-time T] [--interruptions T]   what one checkpoint took, time "
    "between interruptions\n"
    "  --batch CSV predict every row of a CSV in the columns of public serving measurements\n"
    "  --json\n"
    "\n"
    "Example: billow advise --model config.json --users 50 --ttft 500ms --tps 20 --providers "
    "aws,gcp\n";

CommandResult failed(const Error& e, bool json, int code = 1) {
  CommandResult r{.exit_code = code};
  if (json)
    r.out = Json::object({{"error", Json::object({{"code", code_name(e.code)},
                                                  {"message", e.message},
                                                  {"hint", e.hint}})}})
                .dump() +
            "\n";
  r.err = "billow: " + e.message + "\n" + (e.hint.empty() ? "" : "  " + e.hint + "\n");
  return r;
}

// Arrivals per second in the busiest minute (or in all of a shorter trace) and mean lengths.
Status read_trace(const std::string& path, Request& request) {
  auto arrivals =
      trace_arrivals(BILLOW_TRY(read_file(path, 256 << 20)), std::numeric_limits<double>::max(), 1);
  if (!arrivals)
    return pass(arrivals.error(), path);
  std::map<std::int64_t, double> minutes;
  double input = 0, output = 0, n = static_cast<double>(arrivals->size()), busiest = 0;
  for (auto& a : *arrivals) {
    busiest = std::max(busiest, ++minutes[static_cast<std::int64_t>(std::min(a.at_s, 1e15) / 60)]);
    input += a.input, output += a.output;
  }
  request.rps = busiest / std::clamp(arrivals->back().at_s, 1.0, 60.0);
  request.input = std::max(1.0, std::round(input / n));
  request.output = std::max(1.0, std::round(output / n));
  return {};
}

// `--model X`, or the one word that is no option.
std::string model_named(const Options& o) {
  return o.has("--model")        ? o.text("--model")
         : o.words().size() == 1 ? o.words()[0]
                                 : std::string{};
}

Result<Request> read_request(const Options& o, const CommandContext& context) {
  Request r;
  r.model = BILLOW_TRY(find_model(model_named(o), o.text("--models", context.models_dir)));
  for (auto& p : o.list("--precision"))
    r.precisions.push_back(BILLOW_TRY(parse_precision(p)));
  r.input = BILLOW_TRY(o.number("--input", 1024, 1, 1e7));
  r.output = BILLOW_TRY(o.number("--output", 256, 1, 1e7));
  r.rps = BILLOW_TRY(o.number("--rps", 0, 1e-6, 1e6));
  r.users = BILLOW_TRY(o.number("--users", 0, 1, 1e8));
  if ((r.rps > 0) + (r.users > 0) + o.has("--trace") > 1)
    return fail(Code::invalid, "--rps, --users and --trace each say the load: give one");
  if (o.has("--trace"))
    BILLOW_TRY_VOID(read_trace(o.text("--trace"), r));
  r.context = BILLOW_TRY(o.number("--context", 0, 1, 1e8));
  if (o.has("--ttft"))
    r.ttft_ms_max = BILLOW_TRY(o.milliseconds("--ttft", 0));
  if (o.has("--tps"))
    r.tokens_per_s_min = BILLOW_TRY(o.number("--tps", 0, 0.01, 1e5));
  r.engine = engine_word(o.text("--engine", "vllm"));
  r.version = o.text("--engine-version");
  r.offers.providers = o.list("--providers");
  for (auto& p : r.offers.providers)
    p = lower(p);
  r.offers.regions = o.list("--regions");
  r.spot = o.has("--spot");
  if (o.has("--mine")) {
    r.fleet = context.fleet;
    if (r.fleet.empty())
      return fail(Code::not_found, "--mine: this Billow has no GPUs, or is not running",
                  "start it with billow up, or leave --mine out");
  }
  r.now = context.now;
  return r;
}

CommandResult run_batch(const Options& o,
                        const CommandContext& context,
                        const Catalogue& catalogue,
                        const Calibration& calibration) {
  bool json = o.has("--json");
  auto text = read_file(o.text("--batch"), 256 << 20);
  if (!text)
    return failed(text.error(), json);
  auto rows = read_csv(*text);
  if (!rows)
    return failed(rows.error(), json);
  ModelShelf shelf(o.text("--models", context.models_dir));
  CommandResult r;
  Json out = Json::array();
  std::string table =
      "id,ttft_ms,ttft_ms_low,ttft_ms_high,tpot_ms,tpot_ms_low,tpot_ms_high,kind,error\n";
  int line = 1;
  for (auto& fields : *rows) {
    ++line;
    auto row = read_serving_row(fields, shelf, catalogue);
    Result<Prediction> p = row ? calibration.predict(*row) : Result<Prediction>(pass(row.error()));
    std::string id = fields.contains("id") ? fields.at("id") : fmt::format("{}", line);
    if (!p) {
      out.push(Json::object(
          {{"id", id}, {"ttft_ms", Json()}, {"tpot_ms", Json()}, {"error", p.error().message}}));
      auto message = p.error().message;
      for (char& c : message)
        if (c == ',' || c == '\n' || c == '"')
          c = ';';
      table += fmt::format("{},,,,,,,,{}\n", id, message);
      continue;
    }
    auto& t = p->ttft_ms;
    auto& d = p->tpot_ms;
    if (json)
      out.push(Json::object({{"id", id},
                             {"ttft_ms", t.value},
                             {"ttft_ms_low", t.low},
                             {"ttft_ms_high", t.high},
                             {"tpot_ms", d.value},
                             {"tpot_ms_low", d.low},
                             {"tpot_ms_high", d.high},
                             {"kind", kind_name(p->kind)}}));
    else
      table += fmt::format("{},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{},\n", id, t.value, t.low,
                           t.high, d.value, d.low, d.high, kind_name(p->kind));
  }
  r.out = json ? out.dump() + "\n" : table;
  return r;
}

CommandResult run_training(const Options& o,
                           const CommandContext& context,
                           const Catalogue& catalogue) {
  bool json = o.has("--json");
  auto answer = [&]() -> Result<std::string> {
    TrainingRequest t;
    t.model = BILLOW_TRY(find_model(model_named(o), o.text("--models", context.models_dir)));
    auto tuning = o.text("--tuning", "full");
    if (tuning == "lora")
      t.tuning = Tuning::lora;
    else if (tuning == "qlora")
      t.tuning = Tuning::qlora;
    else if (tuning != "full")
      return fail(Code::invalid, fmt::format("--tuning is \"{}\"", tuning),
                  "one of full, lora, qlora");
    t.sequence = BILLOW_TRY(o.number("--sequence", 4096, 1, 1e7));
    t.micro_batch = BILLOW_TRY(o.number("--micro-batch", 1, 1, 1e5));
    t.tokens = BILLOW_TRY(o.number("--tokens", 0, 0, 1e18));
    if (o.has("--checkpoint-time"))
      t.checkpoint_s = BILLOW_TRY(o.milliseconds("--checkpoint-time", 0)) / 1e3;
    if (o.has("--interruptions"))
      t.interruptions_h = BILLOW_TRY(o.milliseconds("--interruptions", 0)) / 3.6e6;
    t.offers.providers = o.list("--providers");
    t.offers.regions = o.list("--regions");
    t.now = context.now;
    auto advice = BILLOW_TRY(recommend_training(t, catalogue));
    return json ? training_json(t, advice).dump() + "\n" : training_text(t, advice);
  }();
  if (!answer)
    return failed(answer.error(), json, answer.error().code == Code::invalid ? 2 : 1);
  return {.out = *answer};
}

// Imports laid over each other: a price stays until a later file names the same instance in the
// same region.
Result<std::string> merged_prices(const std::string& kept, const std::string& fresh) {
  constexpr std::array columns = {"provider",
                                  "instance",
                                  "region",
                                  "on_demand_usd_h",
                                  "spot_usd_h",
                                  "committed_1y_usd_h",
                                  "committed_3y_usd_h",
                                  "date",
                                  "gpu",
                                  "gpus"};
  std::map<std::tuple<std::string, std::string, std::string>, std::string> lines;
  for (auto* text : {&kept, &fresh}) {
    std::string data;
    for (auto& line : split(*text, '\n'))
      if (!trim(line).empty() && trim(line)[0] != '#')
        data += line + "\n";
    if (data.empty())
      continue;
    for (auto& row : BILLOW_TRY(read_csv(data))) {
      CsvRow named;
      for (auto& [name, value] : row)
        named[lower(name)] = value;
      std::string line;
      for (auto column : columns)
        line += (line.empty() && column == columns[0] ? "" : ",") + named[column];
      lines[{lower(named["provider"]), named["instance"], named["region"]}] = std::move(line);
    }
  }
  std::string out = fmt::format("{}\n", fmt::join(columns, ","));
  for (auto& [key, line] : lines)
    out += line + "\n";
  return out;
}

std::string price_cell(const std::optional<NanoUsd>& p) {
  return p ? fmt::format("{:.4f}", usd(*p)) : "unknown";
}

}  // namespace

Result<Catalogue> catalogue_with_imports(const std::string& data_dir) {
  auto catalogue = Catalogue::embedded();
  auto path = data_dir + "/prices.csv";
  if (data_dir.empty() || !file_exists(path))
    return catalogue;
  auto text = BILLOW_TRY(read_file(path));
  if (auto report = catalogue.update(text); !report)
    return pass(report.error(), path);
  return catalogue;
}

CommandResult run_advise(const std::vector<std::string>& args, const CommandContext& context) {
  auto parsed = Options::parse(args, {{"--model"},
                                      {"--models"},
                                      {"--precision"},
                                      {"--context"},
                                      {"--input"},
                                      {"--output"},
                                      {"--ttft"},
                                      {"--tps"},
                                      {"--users"},
                                      {"--rps"},
                                      {"--trace"},
                                      {"--engine"},
                                      {"--engine-version"},
                                      {"--providers"},
                                      {"--regions"},
                                      {"--spot", false},
                                      {"--mine", false},
                                      {"--train", false},
                                      {"--tuning"},
                                      {"--sequence"},
                                      {"--micro-batch"},
                                      {"--tokens"},
                                      {"--checkpoint-time"},
                                      {"--interruptions"},
                                      {"--batch"},
                                      {"--json", false},
                                      {"--help", false}});
  if (!parsed)
    return failed(parsed.error(), false, 2);
  auto& o = *parsed;
  if (o.has("--help"))
    return {.out = advise_help};
  bool json = o.has("--json");
  // The model may stand alone; anything more, or beside --model, is a mistake.
  if (o.words().size() > (o.has("--model") || o.has("--batch") ? 0u : 1u))
    return failed({Code::invalid, fmt::format("unexpected \"{}\"", o.words().back()),
                   "--help shows how it is used"},
                  json, 2);
  auto catalogue = catalogue_with_imports(context.data_dir);
  if (!catalogue)
    return failed(catalogue.error(), json);
  auto calibration = Calibration::embedded();
  auto own =
      read_measurements(context.data_dir, o.text("--models", context.models_dir), *catalogue);
  if (!own)
    return failed(own.error(), json);
  own->rows.insert(own->rows.end(), context.measured.begin(), context.measured.end());
  if (!own->rows.empty())
    calibration = calibration.with_local(own->rows);
  if (o.has("--batch"))
    return run_batch(o, context, *catalogue, calibration);
  if (model_named(o).empty())
    return failed({Code::invalid, "no --model",
                   "give a config.json, a name or a size: billow advise --model 7B"},
                  json, 2);
  if (o.has("--train"))
    return run_training(o, context, *catalogue);
  auto request = read_request(o, context);
  if (!request)
    return failed(request.error(), json, request.error().code == Code::invalid ? 2 : 1);
  auto advice = recommend(*request, *catalogue, calibration);
  if (!advice)
    return failed(advice.error(), json);
  return {.out =
              json ? advice_json(*request, *advice).dump() + "\n" : advice_text(*request, *advice)};
}

CommandResult run_prices(const std::vector<std::string>& args, const CommandContext& context) {
  constexpr const char* help =
      "billow prices: what GPUs cost, and how old each price is.\n\n"
      "  billow prices [H100] [--gpu H100] [--instance p5.48xlarge] [--providers aws,gcp] "
      "[--regions us-] [--gpus-min N] [--limit N] [--json]\n"
      "  billow prices --gpus            the GPUs themselves\n"
      "  billow prices update FILE       import fresher prices (CSV: "
      "provider,instance,region,on_demand_usd_h,spot_usd_h,date)\n\n"
      "Example: billow prices --gpu H200 --regions us-\n";
  auto parsed = Options::parse(args, {{"--gpu"},
                                      {"--instance"},
                                      {"--providers"},
                                      {"--regions"},
                                      {"--gpus-min"},
                                      {"--limit"},
                                      {"--gpus", false},
                                      {"--json", false},
                                      {"--help", false}});
  if (!parsed)
    return failed(parsed.error(), false, 2);
  auto& o = *parsed;
  bool json = o.has("--json");
  if (o.has("--help"))
    return {.out = help};
  auto loaded = catalogue_with_imports(context.data_dir);
  if (!loaded)
    return failed(loaded.error(), json);
  auto& catalogue = *loaded;
  if (o.words().size() == 1 && o.words()[0] == "update")
    return failed({Code::invalid, "update from which file?", "billow prices update FILE"}, json, 2);
  // A word alone is a GPU, or an instance: what somebody types who has not read the help.
  std::string gpu = o.text("--gpu"), instance = o.text("--instance");
  if (o.words().size() == 1) {
    const std::string& word = o.words()[0];
    if (!gpu.empty() || !instance.empty())
      return failed({Code::invalid, fmt::format("unexpected \"{}\"", word),
                     "billow prices GPU, or --gpu GPU"},
                    json, 2);
    const auto known = catalogue.gpu(word);
    if (known)
      gpu = word;
    else if (catalogue.instances_named(word))
      instance = word;
    else
      return failed(known.error(), json);
  } else if (!o.words().empty()) {
    if (o.words().size() != 2 || o.words()[0] != "update")
      return failed({Code::invalid, fmt::format("unexpected \"{}\"", o.words()[0]),
                     "billow prices H100, or billow prices update FILE"},
                    json, 2);
    auto text = read_file(o.words()[1]);
    if (!text)
      return failed(text.error(), json);
    auto report = catalogue.update(*text);
    if (!report)
      return failed(report.error(), json);
    if (context.data_dir.empty())
      return failed({Code::invalid, "nowhere to keep the prices", "set BILLOW_DATA or --data"},
                    json);
    auto path = context.data_dir + "/prices.csv";
    if (auto made = make_directories(context.data_dir); !made)
      return failed(made.error(), json);
    auto before = file_exists(path) ? read_file(path) : Result<std::string>(std::string{});
    if (!before)
      return failed(before.error(), json);
    auto merged = merged_prices(*before, *text);
    if (!merged)
      return failed(merged.error(), json);
    if (auto kept = write_file_atomic(path, *merged); !kept)
      return failed(kept.error(), json);
    CommandResult r;
    if (json) {
      Json refused = Json::array(), changed = Json::array();
      for (auto& line : report->refused)
        refused.push(line);
      for (auto& line : report->changed)
        changed.push(line);
      r.out =
          Json::object({{"accepted", report->accepted}, {"refused", refused}, {"changed", changed}})
              .dump() +
          "\n";
    } else {
      r.out = fmt::format("{} prices taken, {} lines refused\n", report->accepted,
                          report->refused.size());
      for (auto& line : report->changed)
        r.out += "  " + line + "\n";
      for (auto& line : report->refused)
        r.out += "  refused " + line + "\n";
    }
    return r;
  }
  CommandResult r;
  if (o.has("--gpus")) {
    Json list = Json::array();
    for (auto& g : catalogue.gpus()) {
      auto known = [](const std::optional<double>& v) {
        return v ? Json(*v) : Json("unknown");
      };
      list.push(Json::object({{"gpu", g.name},
                              {"kind", g.is_gpu ? "gpu" : "accelerator"},
                              {"memory_mib", g.memory_mib ? Json(*g.memory_mib) : Json("unknown")},
                              {"bandwidth_gb_s", known(g.bandwidth_gb_s)},
                              {"bf16_tflops", known(g.bf16_tflops)},
                              {"fp8_tflops", known(g.fp8_tflops)},
                              {"nvlink_gb_s", known(g.nvlink_gb_s)},
                              {"source", g.source}}));
      r.out += fmt::format("{:<24} {:>8} MiB {:>6} GB/s  bf16 {:>6} TFLOP/s  {}\n", g.name,
                           g.memory_mib ? fmt::format("{}", *g.memory_mib) : "unknown",
                           g.bandwidth_gb_s ? fmt::format("{:.0f}", *g.bandwidth_gb_s) : "?",
                           g.bf16_tflops ? fmt::format("{:.0f}", *g.bf16_tflops) : "-",
                           g.is_gpu ? "" : "accelerator, not a GPU");
    }
    if (json)
      r.out = list.dump() + "\n";
    return r;
  }
  auto minimum = o.number("--gpus-min", 1, 1, 1024), limit = o.number("--limit", 40, 1, 100000);
  if (!minimum || !limit)
    return failed(minimum ? limit.error() : minimum.error(), json, 2);
  if (!gpu.empty())
    if (auto g = catalogue.gpu(gpu); !g)
      return failed(g.error(), json);
  std::vector<const Instance*> only;
  if (!instance.empty()) {
    auto found = catalogue.instances_named(instance);
    if (!found)
      return failed(found.error(), json);
    only = *found;
  }
  auto offers = catalogue.offers({.providers = o.list("--providers"),
                                  .regions = o.list("--regions"),
                                  .gpu = gpu,
                                  .gpus_min = static_cast<int>(*minimum),
                                  .gpus_only = only.empty(),
                                  .with_unknown_price = true});
  if (!only.empty())
    std::erase_if(offers, [&](auto& offer) {
      return std::find(only.begin(), only.end(), offer.instance) == only.end();
    });
  auto each = [](const Offer& offer) {
    return offer.price && offer.price->on_demand_h
               ? usd(*offer.price->on_demand_h) / offer.instance->gpus
               : 1e9;
  };
  std::stable_sort(offers.begin(), offers.end(),
                   [&](auto& a, auto& b) { return each(a) < each(b); });
  if (offers.empty() && !gpu.empty() && instance.empty()) {
    // A GPU that is known and that nobody offers (here): its facts, and a price that is unknown.
    auto& g = **catalogue.gpu(gpu);
    if (json)
      r.out = Json(Json::Array{Json::object({{"provider", "unknown"},
                                             {"instance", "unknown"},
                                             {"region", "unknown"},
                                             {"gpu", g.name},
                                             {"gpus", "unknown"},
                                             {"fabric", "unknown"},
                                             {"memory_mib_per_gpu",
                                              g.memory_mib ? Json(*g.memory_mib) : Json("unknown")},
                                             {"on_demand_usd_h", "unknown"},
                                             {"spot_usd_h", "unknown"},
                                             {"price_date", "unknown"},
                                             {"price_age_days", "unknown"}})})
                  .dump() +
              "\n";
    else
      r.out =
          fmt::format("{}: {} MiB, {} GB/s; no offer of it is known{}, so its price is unknown\n",
                      g.name, g.memory_mib ? fmt::format("{}", *g.memory_mib) : "unknown",
                      g.bandwidth_gb_s ? fmt::format("{:.0f}", *g.bandwidth_gb_s) : "unknown",
                      o.has("--providers") || o.has("--regions") ? " there" : "");
    return r;
  }
  if (offers.empty())
    return failed({Code::not_found, "no offer matches", "fewer filters, or billow prices --gpus"},
                  json);
  Json list = Json::array();
  r.out =
      fmt::format("{:<14} {:<34} {:<20} {:>3} × {:<20} {:>10} {:>10} {:>10}  {}\n", "provider",
                  "instance", "region", "", "gpu", "on-demand", "spot", "1 year", "price of (age)");
  for (std::size_t i = 0; i < offers.size() && i < static_cast<std::size_t>(*limit); ++i) {
    auto& f = offers[i];
    static const Price none;
    auto& p = f.price ? *f.price : none;
    auto age = price_age_days(p.date, context.now);
    r.out += fmt::format(
        "{:<14} {:<34} {:<20} {:>3} × {:<20} {:>10} {:>10} {:>10}  {}\n", f.instance->provider,
        f.instance->name, f.region.empty() ? "?" : f.region, f.instance->gpus, f.gpu->name,
        price_cell(p.on_demand_h), price_cell(p.spot_h), price_cell(p.committed_1y_h),
        p.date.empty() ? "unknown" : p.date + (age ? fmt::format(" ({} days)", *age) : ""));
    auto cell = [](const std::optional<NanoUsd>& v) {
      return v ? Json(usd(*v)) : Json("unknown");
    };
    list.push(Json::object(
        {{"provider", f.instance->provider},
         {"instance", f.instance->name},
         {"region", std::string(f.region)},
         {"gpu", f.gpu->name},
         {"gpus", f.instance->gpus},
         {"fabric", fabric_name(f.instance->fabric)},
         {"network", f.instance->network},
         {"network_gbps", f.instance->network_gbps},
         {"memory_mib_per_gpu", f.gpu->memory_mib ? Json(*f.gpu->memory_mib) : Json("unknown")},
         {"on_demand_usd_h", cell(p.on_demand_h)},
         {"spot_usd_h", cell(p.spot_h)},
         {"committed_1y_usd_h", cell(p.committed_1y_h)},
         {"committed_3y_usd_h", cell(p.committed_3y_h)},
         {"price_date", p.date.empty() ? Json("unknown") : Json(p.date)},
         {"price_age_days", age ? Json(*age) : Json("unknown")}}));
  }
  if (json)
    r.out = list.dump() + "\n";
  else
    r.out +=
        "dollars for an hour of the whole instance, cheapest per GPU first; each price is of the "
        "day it says\n";
  if (!json && offers.size() > static_cast<std::size_t>(*limit))
    r.out +=
        fmt::format("… and {} more (--limit)\n", offers.size() - static_cast<std::size_t>(*limit));
  return r;
}

}  // namespace billow::advise
