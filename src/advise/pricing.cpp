#include "advise/pricing.h"

#include <algorithm>
#include <cmath>

namespace billow::advise {
namespace {

constexpr double seconds_month = hours_month * 3600;
constexpr double stage_network_gbps = 100;  // between machines that hold stages of one replica

std::optional<double> month(const std::optional<NanoUsd>& price, int instances) {
  if (!price)
    return std::nullopt;
  return usd(*price) * hours_month * instances;
}

std::optional<NanoUsd> counted_price(const Offer& offer, const Request& request) {
  const bool bids = sells_by_auction(offer.instance->provider);
  if (request.spot)
    return offer.price->spot_h ? offer.price->spot_h : offer.price->on_demand_h;
  return bids ? std::nullopt : offer.price->on_demand_h;
}

bool stale(const std::optional<std::int64_t>& age_days) {
  return !age_days || *age_days > price_fresh_days;
}

}  // namespace

double age_factor(const std::optional<std::int64_t>& age_days) {
  constexpr double days_per_unit = 200;
  const auto age = static_cast<double>(age_days.value_or(365));
  return 1 + std::max(0.0, age - price_fresh_days) / days_per_unit;
}

bool sells_by_auction(std::string_view provider) {
  return provider == "mithril";
}

Tier tier_of(std::string_view provider) {
  for (auto name : {"aws", "gcp", "azure", "oci", "ibm"})
    if (provider == name)
      return Tier::hyperscaler;
  for (auto name : {"lambda", "nebius", "coreweave", "crusoe", "together", "vultr", "runpod",
                    "verda", "seeweb", "ovhcloud", "scaleway", "paperspace", "do", "hyperstack",
                    "fluidstack", "cudo", "scp", "yotta"})
    if (provider == name)
      return Tier::neocloud;
  return Tier::marketplace;
}

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::hyperscaler:
      return "hyperscaler";
    case Tier::neocloud:
      return "neocloud";
    case Tier::marketplace:
      return "marketplace";
  }
  return "?";
}

bool consumer_card(std::string_view gpu) {
  // RTX-3060 … RTX-5090: four digits that start with 2 to 5, and no suffix that names a
  // workstation card.
  constexpr std::string_view brand = "RTX-";
  if (!gpu.starts_with(brand) || gpu.size() < brand.size() + 4)
    return false;
  const auto number = gpu.substr(brand.size(), 4);
  const bool digits =
      std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool workstation = gpu.find("Ada") != std::string_view::npos || gpu == "RTX-6000";
  return digits && !workstation && number[0] >= '2' && number[0] <= '5';
}

double host_memory_gib(double weight_bytes) {
  // Engines map the files and copy them piece by piece: a quarter of the weights and the process
  // itself must fit.
  return 8 + 0.25 * weight_bytes / 1073741824.0;
}

std::vector<Offer> buyable_offers(const Request& request, const Catalogue& catalogue) {
  auto offers = catalogue.offers(request.offers);
  const bool named = !request.offers.providers.empty();
  std::erase_if(offers, [&](const Offer& offer) {
    if (request.any_offer)
      return false;
    if (!named && tier_of(offer.instance->provider) == Tier::marketplace)
      return true;
    return request.offers.gpu.empty() && consumer_card(offer.gpu->name);
  });
  return offers;
}

void price_candidate(Candidate& c, const Request& request, const std::vector<Offer>& offers) {
  c.offer.reset();
  double best = 1e300;
  for (auto& offer : offers) {
    if (offer.gpu != c.gpu || offer.instance->gpus < c.parallelism.tensor || !offer.price)
      continue;
    // Stages may lie on several machines, if a network fit for it connects them.
    const int stages_here =
        std::min(c.parallelism.pipeline, offer.instance->gpus / c.parallelism.tensor);
    const bool spread = stages_here < c.parallelism.pipeline;
    if (spread && (offer.instance->network_gbps < stage_network_gbps))
      continue;
    const bool linked =
        offer.instance->fabric != Fabric::pcie && offer.instance->fabric != Fabric::single;
    // Tensor parallelism beyond one GPU needs a fabric; on PCIe it is used only for two ranks, and
    // the checks mention it.
    if (c.parallelism.tensor > 2 && !linked)
      continue;
    const auto price = counted_price(offer, request);
    if (!price)
      continue;
    const double weights = c.memory.weights * c.parallelism.tensor * stages_here;
    if (offer.instance->memory_gib > 0 &&
        static_cast<double>(offer.instance->memory_gib) < host_memory_gib(weights))
      continue;
    const int per_instance = spread ? 1 : offer.instance->gpus / c.parallelism.gpus();
    const int each = (c.parallelism.pipeline + stages_here - 1) / stages_here;
    // Prefill workers are groups of GPUs like those that decode.
    const int groups = c.replicas * c.replica_gpus() / c.parallelism.gpus();
    const int instances = spread ? c.replicas * each : (groups + per_instance - 1) / per_instance;
    if (request.offers.gpus_max < OfferFilter{}.gpus_max &&
        instances * offer.instance->gpus > request.offers.gpus_max)
      continue;
    const auto age = price_age_days(offer.price->date, request.now);
    const double total = usd(*price) * instances * age_factor(age);
    if (total >= best)
      continue;
    best = total;
    Offered o{
        .instance = offer.instance, .region = std::string(offer.region), .instances = instances};
    o.on_demand_month = sells_by_auction(offer.instance->provider)
                            ? std::nullopt
                            : month(offer.price->on_demand_h, instances);
    o.spot_month = month(offer.price->spot_h, instances);
    o.committed_1y_month = month(offer.price->committed_1y_h, instances);
    o.committed_3y_month = month(offer.price->committed_3y_h, instances);
    o.price_date = offer.price->date;
    o.price_age_days = age;
    c.offer = std::move(o);
  }
}

std::vector<Offer> rentable(const GpuSpec& gpu, const Catalogue& catalogue) {
  Request renter;
  renter.offers.gpu = gpu.name;
  auto offers = buyable_offers(renter, catalogue);
  renter.any_offer = true;
  return offers.empty() ? buyable_offers(renter, catalogue) : offers;
}

std::optional<GpuRent> cheapest_rent(const GpuSpec& gpu,
                                     const OfferFilter& filter,
                                     const Catalogue& catalogue,
                                     WallTime now) {
  Request renter;
  renter.offers = filter;
  renter.offers.gpu = gpu.name;
  std::optional<GpuRent> cheapest;
  double least = 0;
  for (const bool any : {false, true}) {
    renter.any_offer = any;
    for (auto& offer : buyable_offers(renter, catalogue)) {
      if (!offer.price || !offer.price->on_demand_h || sells_by_auction(offer.instance->provider))
        continue;
      const double each = usd(*offer.price->on_demand_h) / offer.instance->gpus;
      const double counted = each * age_factor(price_age_days(offer.price->date, now));
      if (!cheapest || counted < least) {
        cheapest = GpuRent{each, offer};
        least = counted;
      }
    }
    if (cheapest)
      break;
  }
  return cheapest;
}

std::optional<double> rent_gpu_month(const Candidate& candidate,
                                     const Request& request,
                                     const std::vector<Offer>& offers) {
  Request renter;
  renter.now = request.now;
  Candidate rented = candidate;
  rented.replicas = 1;
  price_candidate(rented, renter, offers);
  if (!rented.offer || !rented.offer->on_demand_month)
    return std::nullopt;
  return *rented.offer->on_demand_month / rented.offer->instances / rented.offer->instance->gpus;
}

double rank_cost(const Candidate& c, const Request& request) {
  if (c.worth_month > 0)
    return c.worth_month;
  if (c.offer) {
    const auto paid =
        request.spot && c.offer->spot_month ? c.offer->spot_month : c.offer->on_demand_month;
    if (paid)
      return *paid;
  }
  return 1e12 + c.gpus;
}

double counted_cost(const Candidate& c, const Request& request) {
  const double cost = rank_cost(c, request);
  return c.offer && c.offer->instance && cost < 1e12 ? cost * age_factor(c.offer->price_age_days)
                                                     : cost;
}

bool stale_price(const Candidate& c) {
  return c.offer && c.offer->instance && stale(c.offer->price_age_days);
}

std::optional<double> usd_per_million(const Candidate& c, const Request& request) {
  const double cost = rank_cost(c, request);
  const double served =
      request.rps > 0
          ? request.rps
          : c.concurrency * c.replicas /
                (c.latency.ttft_ms.value + request.output * c.latency.tpot_ms.value) * 1e3;
  if (cost >= 1e12 || !(served > 0) || !std::isfinite(served))
    return std::nullopt;
  return cost / (served * request.output * seconds_month) * 1e6;
}

}  // namespace billow::advise
