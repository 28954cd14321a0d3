// prices: what GPUs cost by the catalogue and the prices imported over it, and how old each price
// is.
#include <fmt/format.h>

#include <algorithm>

#include "advise/imported_prices.h"
#include "advise/pricing.h"
#include "base/file.h"
#include "client/advice/advice.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

constexpr OptionSpec price_options[] = {
    {"gpu", 0, "TYPE", "only this GPU"},
    {"instance", 0, "NAME", "only this instance"},
    {"providers", 0, "A,B", "only these providers"},
    {"regions", 0, "A,B", "only regions with these prefixes, e.g. us-"},
    {"gpus-min", 0, "N", "only instances with at least this many GPUs"},
    {"limit", 0, "N", "show at most this many rows (default 40)"},
    {"gpus", 0, nullptr, "list the GPUs themselves instead of offers"},
};

// What the listing is narrowed to.
struct PriceQuery {
  std::string gpu, instance;
  OfferFilter filter;
  std::vector<const Instance*> instances;  // those of that name; empty: all
  std::size_t limit = 40;
};

template <class T>
Json or_unknown(const std::optional<T>& value) {
  return value ? Json(*value) : Json("unknown");
}
Json usd_or_unknown(const std::optional<NanoUsd>& price) {
  return price ? Json(usd(*price)) : Json("unknown");
}
std::string price_cell(const std::optional<NanoUsd>& price) {
  return price ? fmt::format("{:.4f}", usd(*price)) : "unknown";
}

int import_file(const Parsed& parsed, Catalogue& catalogue) {
  if (parsed.operands.size() == 1)
    return report_advice(parsed, {Code::invalid, "prices update needs a file",
                                  "give its name: billow prices update FILE"});
  if (parsed.operands.size() > 2)
    return report_advice(parsed,
                         {Code::invalid, fmt::format("unexpected \"{}\"", parsed.operands[2]),
                          "give one file: billow prices update FILE"});
  const auto text = read_file(parsed.operands[1]);
  if (!text)
    return report_advice_failed(parsed, text.error());
  const auto report = advise::import_prices(catalogue, data_directory(parsed.get("data")), *text);
  if (!report)
    return report_advice_failed(parsed, report.error());
  if (parsed.has("json")) {
    Json refused = Json::array(), changed = Json::array();
    for (const std::string& line : report->refused)
      refused.push(line);
    for (const std::string& line : report->changed)
      changed.push(line);
    print_json(
        Json::object({{"accepted", report->accepted}, {"refused", refused}, {"changed", changed}}));
    return 0;
  }
  std::string out = fmt::format("imported {} prices, refused {} lines\n", report->accepted,
                                report->refused.size());
  for (const std::string& line : report->changed)
    out += "  " + line + "\n";
  for (const std::string& line : report->refused)
    out += "  refused " + line + "\n";
  print(out);
  return 0;
}

int list_gpus(const Parsed& parsed, const Catalogue& catalogue) {
  Json list = Json::array();
  std::string out;
  for (const GpuSpec& g : catalogue.gpus()) {
    list.push(Json::object({{"gpu", g.name},
                            {"kind", g.is_gpu ? "gpu" : "accelerator"},
                            {"memory_mib", or_unknown(g.memory_mib)},
                            {"bandwidth_gb_s", or_unknown(g.bandwidth_gb_s)},
                            {"bf16_tflops", or_unknown(g.bf16_tflops)},
                            {"fp8_tflops", or_unknown(g.fp8_tflops)},
                            {"nvlink_gb_s", or_unknown(g.nvlink_gb_s)},
                            {"source", g.source}}));
    out += fmt::format("{:<24} {:>8} MiB {:>6} GB/s  bf16 {:>6} TFLOP/s  {}\n", g.name,
                       g.memory_mib ? fmt::format("{}", *g.memory_mib) : "unknown",
                       g.bandwidth_gb_s ? fmt::format("{:.0f}", *g.bandwidth_gb_s) : "?",
                       g.bf16_tflops ? fmt::format("{:.0f}", *g.bf16_tflops) : "-",
                       g.is_gpu ? "" : "accelerator, not a GPU");
  }
  if (parsed.has("json"))
    print_json(list);
  else
    print(out);
  return 0;
}

Result<PriceQuery> read_query(const Parsed& parsed, const Catalogue& catalogue) {
  PriceQuery q{.gpu = parsed.get("gpu"), .instance = parsed.get("instance")};
  if (parsed.operands.size() > 1 ||
      (parsed.operands.size() == 1 && !(q.gpu.empty() && q.instance.empty())))
    return fail(Code::invalid, fmt::format("unexpected \"{}\"", parsed.operands.front()),
                "use `billow prices H100` or `billow prices update FILE`");
  // A single word is a GPU or an instance.
  if (parsed.operands.size() == 1) {
    const std::string& word = parsed.operands.front();
    const auto known = catalogue.gpu(word);
    if (known)
      q.gpu = word;
    else if (catalogue.instances_named(word))
      q.instance = word;
    else
      return pass(Error{Code::not_found, known.error().message, known.error().hint});
  }
  const double gpus_min = BILLOW_TRY(number_option(parsed, "gpus-min", 1, 1, 1024));
  q.limit = static_cast<std::size_t>(BILLOW_TRY(number_option(parsed, "limit", 40, 1, 100000)));
  if (!q.gpu.empty())
    BILLOW_TRY_VOID(catalogue.gpu(q.gpu));
  if (!q.instance.empty())
    q.instances = BILLOW_TRY(catalogue.instances_named(q.instance));
  q.filter = {.providers = list_option(parsed, "providers"),
              .regions = list_option(parsed, "regions"),
              .gpu = q.gpu,
              .gpus_min = static_cast<int>(gpus_min),
              .gpus_only = q.instances.empty() && q.gpu.empty(),
              .with_unknown_price = true};
  return q;
}

// The offers asked for, cheapest per GPU first; those without a price come last.
std::vector<Offer> matching_offers(const PriceQuery& q, const Catalogue& catalogue) {
  std::vector<Offer> offers = catalogue.offers(q.filter);
  if (!q.instances.empty())
    std::erase_if(offers, [&](const Offer& offer) {
      return std::ranges::find(q.instances, offer.instance) == q.instances.end();
    });
  const auto usd_per_gpu = [](const Offer& offer) {
    return offer.price && offer.price->on_demand_h
               ? usd(*offer.price->on_demand_h) / offer.instance->gpus
               : 1e9;
  };
  std::ranges::stable_sort(offers, {}, usd_per_gpu);
  return offers;
}

// A GPU that the catalogue knows but no provider offers there: its facts, with an unknown price.
void print_unoffered(const Parsed& parsed, const GpuSpec& g) {
  if (!parsed.has("json")) {
    const bool narrowed = parsed.has("providers") || parsed.has("regions");
    print(fmt::format("{}: {} MiB, {} GB/s; price unknown: the catalogue has no offer of it{}\n",
                      g.name, g.memory_mib ? fmt::format("{}", *g.memory_mib) : "unknown",
                      g.bandwidth_gb_s ? fmt::format("{:.0f}", *g.bandwidth_gb_s) : "unknown",
                      narrowed ? " there" : ""));
    return;
  }
  print_json(Json(Json::Array{Json::object({{"provider", "unknown"},
                                            {"instance", "unknown"},
                                            {"region", "unknown"},
                                            {"gpu", g.name},
                                            {"gpus", "unknown"},
                                            {"fabric", "unknown"},
                                            {"memory_mib_per_gpu", or_unknown(g.memory_mib)},
                                            {"on_demand_usd_h", "unknown"},
                                            {"spot_usd_h", "unknown"},
                                            {"price_date", "unknown"},
                                            {"price_age_days", "unknown"}})}));
}

const Price& price_of(const Offer& offer) {
  static const Price none;
  return offer.price ? *offer.price : none;
}

Json offer_json(const Offer& f) {
  const Price& p = price_of(f);
  const auto age = price_age_days(p.date, now());
  return Json::object({{"provider", f.instance->provider},
                       {"instance", f.instance->name},
                       {"region", std::string(f.region)},
                       {"gpu", f.gpu->name},
                       {"gpus", f.instance->gpus},
                       {"fabric", fabric_name(f.instance->fabric)},
                       {"network", f.instance->network},
                       {"network_gbps", f.instance->network_gbps},
                       {"memory_mib_per_gpu", or_unknown(f.gpu->memory_mib)},
                       {"on_demand_usd_h", usd_or_unknown(p.on_demand_h)},
                       {"auction", advise::sells_by_auction(f.instance->provider)},
                       {"spot_usd_h", usd_or_unknown(p.spot_h)},
                       {"committed_1y_usd_h", usd_or_unknown(p.committed_1y_h)},
                       {"committed_3y_usd_h", usd_or_unknown(p.committed_3y_h)},
                       {"price_date", p.date.empty() ? Json("unknown") : Json(p.date)},
                       {"price_age_days", or_unknown(age)}});
}

std::string offer_line(const Offer& f) {
  const Price& p = price_of(f);
  const auto age = price_age_days(p.date, now());
  return fmt::format(
      "{:<14} {:<34} {:<20} {:>3} × {:<20} {:>10} {:>10} {:>10}  {}\n", f.instance->provider,
      f.instance->name, f.region.empty() ? "?" : f.region, f.instance->gpus, f.gpu->name,
      price_cell(p.on_demand_h), price_cell(p.spot_h), price_cell(p.committed_1y_h),
      (p.date.empty() ? "unknown" : p.date + (age ? fmt::format(" ({} days)", *age) : "")) +
          (advise::sells_by_auction(f.instance->provider) ? ", lowest bid of an auction" : ""));
}

void print_offers(const Parsed& parsed, const std::vector<Offer>& offers, std::size_t limit) {
  const std::size_t shown = std::min(offers.size(), limit);
  if (parsed.has("json")) {
    Json list = Json::array();
    for (std::size_t i = 0; i < shown; ++i)
      list.push(offer_json(offers[i]));
    print_json(list);
    return;
  }
  std::string out =
      fmt::format("{:<14} {:<34} {:<20} {:>3} × {:<20} {:>10} {:>10} {:>10}  {}\n", "provider",
                  "instance", "region", "", "gpu", "on-demand", "spot", "1 year", "price of (age)");
  for (std::size_t i = 0; i < shown; ++i)
    out += offer_line(offers[i]);
  out += "USD per hour for the whole instance, cheapest per GPU first\n";
  if (offers.size() > limit)
    out += fmt::format("… and {} more (--limit)\n", offers.size() - limit);
  print(out);
}

int cmd_prices(const Parsed& parsed) {
  auto catalogue = advise::catalogue_with_imports(data_directory(parsed.get("data")));
  if (!catalogue)
    return report_advice_failed(parsed, catalogue.error());
  if (!parsed.operands.empty() && parsed.operands.front() == "update")
    return import_file(parsed, *catalogue);
  if (parsed.has("gpus"))
    return list_gpus(parsed, *catalogue);
  const auto query = read_query(parsed, *catalogue);
  if (!query)
    return report_advice(parsed, query.error());
  const std::vector<Offer> offers = matching_offers(*query, *catalogue);
  if (!offers.empty()) {
    print_offers(parsed, offers, query->limit);
    return 0;
  }
  if (query->gpu.empty() || !query->instance.empty())
    return report_advice(parsed, {Code::not_found, "no offer matches",
                                  "use fewer filters, or list the GPUs: billow prices --gpus"});
  print_unoffered(parsed, **catalogue->gpu(query->gpu));
  return 0;
}

}  // namespace

void add_price_list_commands(CommandTable& table) {
  table.push_back({.name = "prices",
                   .summary = "show GPU prices and how old each one is",
                   .example = "billow prices H100\nbillow prices --gpu H200 --regions us-\nbillow "
                              "prices update fresh.csv",
                   .run = cmd_prices,
                   .usage = "[GPU | update FILE]",
                   .details = "`update` imports prices from a CSV file with the columns "
                              "provider,instance,region,on_demand_usd_h,spot_usd_h,date.",
                   .options = {price_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = "money and advice"});
}

}  // namespace billow::client
