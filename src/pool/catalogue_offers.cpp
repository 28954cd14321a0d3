#include "pool/catalogue_offers.h"

#include <time.h>

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "core/ledger/catalogue.h"
#include "gpu/types.h"

namespace billow::pool {
namespace {

// "2026-08-22"; zero: not a date.
WallTime date_of(const std::string& text) {
  struct tm day {};
  if (!::strptime(text.c_str(), "%Y-%m-%d", &day))
    return {};
  return WallTime{} + seconds(::timegm(&day));
}

}  // namespace

std::string agent_gpu_type(std::string_view catalogue_name,
                           const std::vector<std::string>& aliases) {
  if (const GpuTypeFacts* facts = find_gpu_type(catalogue_name))
    return facts->type;
  for (const std::string& alias : aliases)
    if (const GpuTypeFacts* facts = find_gpu_type(alias))
      return facts->type;
  return {};
}

std::vector<MachineOffer> catalogue_offers(const CatalogueQuery& query) {
  static const Catalogue catalogue = Catalogue::embedded();
  OfferFilter filter;
  filter.providers = {query.provider};
  std::vector<MachineOffer> out;
  for (const Offer& listed : catalogue.offers(filter)) {
    const std::string region(listed.region);
    if (!listed.price ||
        (!query.regions.empty() &&
         std::find(query.regions.begin(), query.regions.end(), region) == query.regions.end()))
      continue;
    MachineOffer offer;
    offer.gpu_type = agent_gpu_type(listed.gpu->name, listed.gpu->aliases);
    if (offer.gpu_type.empty())
      continue;
    offer.instance = listed.instance->name;
    offer.region = region;
    offer.gpus = listed.instance->gpus;
    offer.cpus = listed.instance->vcpus;
    offer.memory_mib = listed.instance->memory_gib * 1024;
    offer.priced_at = date_of(listed.price->date);
    offer.bill_minimum = query.bill_minimum;
    offer.bill_step = query.bill_step;
    const auto add = [&](const std::optional<NanoUsd>& hourly, bool spot) {
      if (!hourly)
        return;
      offer.spot = spot;
      offer.price_h = *hourly;
      offer.price = {hourly->value / 3600};
      out.push_back(offer);
    };
    add(listed.price->on_demand_h, false);
    if (query.spot)
      add(listed.price->spot_h, true);
  }
  std::stable_sort(out.begin(), out.end(), [](const MachineOffer& a, const MachineOffer& b) {
    return std::tuple(a.price.nano_usd_per_s, a.instance, a.region) <
           std::tuple(b.price.nano_usd_per_s, b.instance, b.region);
  });
  return out;
}

}  // namespace billow::pool
