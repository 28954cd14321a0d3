#include "advise/media/media.h"

#include <algorithm>
#include <cmath>

#include "advise/pricing.h"
#include "advise/question.h"
#include "base/text.h"

std::string_view billow_embedded_media();

namespace billow::advise {
namespace {

// Beside its 16-bit weights a pipeline needs room for activations, the decoder and the runtime.
constexpr double runtime_bytes = 5e9;
constexpr double headroom = 0.85;  // of a rate that is planned with, as for language models
constexpr double runs_differ = 0.05;

std::vector<MediaModel> read_media() {
  std::vector<MediaModel> out;
  for (auto& line : split(billow_embedded_media(), '\n')) {
    if (line.empty() || line[0] == '#')
      continue;
    const auto f = split(line, '|');
    auto number = [&](std::size_t i) {
      return parse_double(f[i]).value_or(0);
    };
    if (f[0] == "model" && f.size() == 10) {
      out.push_back({.name = std::string(f[1]),
                     .counted = std::string(f[3]),
                     .aliases = {},
                     .parameters = number(4),
                     .tensor_weight = number(5),
                     .bandwidth_weight = number(6),
                     .bits = static_cast<int>(number(7)),
                     .source = std::string(f[8]),
                     .caveat = std::string(f[9]),
                     .rates = {}});
      for (auto& alias : split(f[2], ','))
        out.back().aliases.emplace_back(alias);
    } else if (f[0] == "rate" && f.size() == 7 && !out.empty() && out.back().name == f[1]) {
      out.back().rates.push_back({std::string(f[2]), static_cast<int>(number(3)), number(4),
                                  number(5), std::string(f[6])});
    }
  }
  return out;
}

double per_gpu(const MediaRate& r) {
  return (r.server > 0 ? r.server : r.offline) / r.gpus;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

// What the datasheet says about the speed of this model on a card; 0: unknown.
double capability(const MediaModel& m, const GpuSpec& gpu) {
  const double half = gpu.bf16_tflops.value_or(gpu.fp16_tflops.value_or(0));
  const double tensor = m.bits == 8 ? gpu.fp8_tflops.value_or(half) : half;
  const double bandwidth = gpu.bandwidth_gb_s.value_or(0);
  return tensor > 0 && bandwidth > 0
             ? std::pow(tensor, m.tensor_weight) * std::pow(bandwidth, m.bandwidth_weight)
             : 0;
}

// The median rate of each published card; its entries agree within a few percent.
std::map<std::string, double> by_card(const MediaModel& m) {
  std::map<std::string, std::vector<double>> all;
  for (auto& r : m.rates)
    all[r.gpu].push_back(per_gpu(r));
  std::map<std::string, double> out;
  for (auto& [gpu, rates] : all)
    out[gpu] = median(rates);
  return out;
}

// Rate per capability, the median of the published cards but one.
double yield(const MediaModel& m, const Catalogue& catalogue, const std::string& without) {
  std::vector<double> yields;
  for (auto& [name, rate] : by_card(m))
    if (const auto gpu = catalogue.gpu(name); gpu && name != without)
      if (const double c = capability(m, **gpu); c > 0)
        yields.push_back(rate / c);
  return median(yields);
}

const Catalogue& shipped() {
  static const Catalogue c = Catalogue::embedded();
  return c;
}

}  // namespace

double MediaModel::memory_bytes() const {
  return 2 * parameters + runtime_bytes;
}

const std::vector<MediaModel>& media_models() {
  static const std::vector<MediaModel> models = read_media();
  return models;
}

const MediaModel* media_model(std::string_view name) {
  const auto wanted = lower(name.substr(name.rfind('/') + 1));
  for (auto& m : media_models())
    if (m.name == wanted ||
        std::find(m.aliases.begin(), m.aliases.end(), wanted) != m.aliases.end())
      return &m;
  return nullptr;
}

std::vector<double> media_errors(const MediaModel& model, const Catalogue& catalogue) {
  std::vector<double> out;
  for (auto& [name, rate] : by_card(model))
    if (const auto gpu = catalogue.gpu(name))
      if (const double c = capability(model, **gpu); c > 0)
        out.push_back(std::log(rate / (c * yield(model, catalogue, name))));
  return out;
}

std::optional<MediaEstimate> media_rate(const MediaModel& model, const GpuSpec& gpu) {
  const double memory = static_cast<double>(gpu.memory_mib.value_or(0)) * 1048576;
  if (!gpu.is_gpu || memory < model.memory_bytes())
    return std::nullopt;
  std::vector<double> rates;
  std::string entry;
  for (auto& r : model.rates)
    if (r.gpu == gpu.name) {
      rates.push_back(per_gpu(r));
      entry = r.entry;
    }
  if (!rates.empty()) {
    const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
    return MediaEstimate{
        median(rates), *least * (1 - runs_differ), *most * (1 + runs_differ), Kind::measured,
        fmt::format("published: {}, {}", model.source,
                    rates.size() == 1
                        ? entry
                        : fmt::format("{} entries, among them {}", rates.size(), entry))};
  }
  const double c = capability(model, gpu);
  const auto errors = media_errors(model, shipped());
  if (!(c > 0) || errors.empty())
    return std::nullopt;
  const auto [low, high] = std::minmax_element(errors.begin(), errors.end());
  const double rate = c * yield(model, shipped(), "");
  return MediaEstimate{
      rate, rate * std::exp(std::min(*low, -runs_differ)),
      rate * std::exp(std::max(*high, runs_differ)), Kind::extrapolated,
      fmt::format("scaled by its datasheet from {} published cards", by_card(model).size())};
}

Result<MediaAdvice> recommend_media(const MediaRequest& request, const Catalogue& catalogue) {
  if (!(request.rps > 0 && request.rps <= 1e6))
    return fail(Code::invalid, fmt::format("a rate of {:g} is out of range", request.rps));
  BILLOW_TRY_VOID(check_offer_names(request.offers.offers, catalogue));
  const auto offers = buyable_offers(request.offers, catalogue);
  std::set<const GpuSpec*> gpus;
  for (auto& offer : offers)
    gpus.insert(offer.gpu);
  MediaAdvice advice;
  for (const GpuSpec* gpu : gpus) {
    const auto rate = media_rate(*request.model, *gpu);
    if (!rate)
      continue;
    // A published rate is planned with as it is; of a scaled one, the lower bound.
    const double sure = rate->kind == Kind::measured ? rate->per_s : rate->low;
    Candidate priced;
    priced.gpu = gpu;
    priced.memory.weights = 2 * request.model->parameters;
    priced.replicas = static_cast<int>(std::ceil(request.rps / (sure * headroom) - 1e-9));
    price_candidate(priced, request.offers, offers);
    const double usd = rank_cost(priced, request.offers);
    if (!priced.offer || usd >= 1e12)
      continue;
    advice.ranked.push_back({gpu, priced.replicas, *rate, *priced.offer, usd,
                             usd / (request.rps * hours_month * 3600) * 1e3});
  }
  if (advice.ranked.empty())
    return fail(Code::infeasible, fmt::format("no offer has a GPU for {}", request.model->name),
                "omit --providers, --regions, --gpu or --max-gpus; --any adds marketplaces");
  std::stable_sort(advice.ranked.begin(), advice.ranked.end(), [](auto& a, auto& b) {
    return a.usd_month * age_factor(a.offer.price_age_days) <
           b.usd_month * age_factor(b.offer.price_age_days);
  });
  return advice;
}

Json media_json(const MediaRequest& request, const MediaAdvice& advice) {
  auto rounded = [](double v) {
    return std::round(v * 1e4) / 1e4;
  };
  Json ranked = Json::array();
  for (auto& c : advice.ranked)
    ranked.push(Json::object(
        {{"gpu", c.gpu->name},
         {"gpus", c.gpus},
         {"per_second_of_one_gpu", rounded(c.rate.per_s)},
         {"low", rounded(c.rate.low)},
         {"high", rounded(c.rate.high)},
         {"kind", kind_name(c.rate.kind)},
         {"basis", c.rate.basis},
         {"instances", c.offer.instances},
         {"provider", c.offer.instance->provider},
         {"instance", c.offer.instance->name},
         {"region", c.offer.region},
         {"usd_month", std::round(c.usd_month)},
         {"usd_per_thousand", c.usd_per_thousand ? Json(rounded(*c.usd_per_thousand)) : Json()},
         {"price_date", c.offer.price_date}}));
  return Json::object({{"model", request.model->name},
                       {"counted", request.model->counted},
                       {"caveat", request.model->caveat},
                       {"rps", request.rps},
                       {"ranked", ranked}});
}

namespace {

// "image" → "images", "segment of speech" → "segments of speech".
std::string plural(const std::string& counted) {
  std::string out = counted;
  return out.insert(std::min(out.find(' '), out.size()), "s");
}

}  // namespace

std::string media_text(const MediaRequest& request, const MediaAdvice& advice) {
  const std::string many = plural(request.model->counted);
  auto line = [&](const MediaCandidate& c) {
    return fmt::format(
        "{} × {}: {} × {} {} in {}, ${:.0f} per month, ${:.3g} per thousand {}\n"
        "  {:.3g} {} per second and GPU ({:.3g} to {:.3g}; {}); price of {}\n",
        c.gpus, c.gpu->name, c.offer.instances, c.offer.instance->provider, c.offer.instance->name,
        c.offer.region.empty() ? "any region" : c.offer.region, c.usd_month,
        c.usd_per_thousand.value_or(0), many, c.rate.per_s, many, c.rate.low, c.rate.high,
        c.rate.basis, c.offer.price_date);
  };
  std::string out = "best: " + line(advice.ranked[0]);
  out += fmt::format("  for {:g} {} of {} per second, 15 % headroom\n", request.rps,
                     request.rps == 1 ? request.model->counted : many, request.model->name);
  for (std::size_t i = 1; i < advice.ranked.size() && i < 3; ++i)
    out += (i == 1 ? "runner-up: " : "or: ") + line(advice.ranked[i]);
  return out + fmt::format("mind: {}. Measure yours before you buy much.\n", request.model->caveat);
}

}  // namespace billow::advise
