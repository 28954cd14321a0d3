#include "pool/rest/offers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/limits.h"
#include "base/text.h"
#include "gpu/types.h"

namespace billow::pool::rest {
namespace {

constexpr std::size_t offers_max = 5'000;

// A number, also where the provider writes it as a text: "0.60". Negative: there is none. More than
// a billion of anything is nonsense, and would overflow.
double number_at(const std::optional<JsonPath>& path, const Json& item) {
  if (!path)
    return -1;
  const auto parsed = parse_double(scalar_text(path->first(item)), 0, 1e9);
  return parsed ? *parsed : -1;
}

// A price below zero is a mistake, and not a price that is not known.
bool is_negative(const std::optional<JsonPath>& path, const Json& item) {
  return path && scalar_text(path->first(item)).starts_with('-');
}

NanoUsd hourly_of(double price, const OfferCall& call, int gpus) {
  if (price <= 0)
    return {};
  double usd_per_hour = price;
  if (call.unit == PriceUnit::cents_per_hour)
    usd_per_hour = price / 100;
  else if (call.unit == PriceUnit::usd_per_month)
    usd_per_hour = price / call.hours_per_month;
  if (call.price_of_gpu)
    usd_per_hour *= gpus;
  constexpr double most_usd_per_hour = 1e6;
  return {static_cast<std::int64_t>(std::llround(std::min(usd_per_hour, most_usd_per_hour) * 1e9))};
}

std::string instance_of(const OfferCall& call, const Json& item) {
  std::vector<std::string> parts;
  for (const JsonPath& path : call.instance)
    parts.push_back(scalar_text(path.first(item)));
  if (std::find(parts.begin(), parts.end(), "") != parts.end())
    return {};
  return join(parts, "/");
}

// The places of an item. One empty name: the provider chooses.
std::vector<std::string> places_of(const OfferCall& call,
                                   const Json& item,
                                   const std::string& instance,
                                   bool spot,
                                   const OfferFacts& facts) {
  if (!call.availability.empty()) {
    const auto found = facts.places.find({instance, spot});
    if (found == facts.places.end())
      return {};
    return {found->second.begin(), found->second.end()};
  }
  if (!call.places)
    return {""};
  std::vector<std::string> out;
  for (const Json* place : call.places->all(item)) {
    if (call.place_when && !call.place_when->holds(*place))
      continue;
    const std::string name = scalar_text(call.place ? call.place->first(*place) : *place);
    if (!name.empty())
      out.push_back(name);
  }
  return out;
}

// How many GPUs the machines of an item have. Several: the provider offers several sizes.
std::vector<int> sizes_of(const OfferCall& call, const Json& item, const std::string& type) {
  if (!call.counts.empty()) {
    const double most = call.gpus_max ? number_at(call.gpus_max, item) : 64;
    std::vector<int> out;
    for (const int count : call.counts)
      if (count <= most)
        out.push_back(count);
    return out;
  }
  double count = number_at(call.gpus, item);
  if (!call.gpus && call.gpu_memory_of_all) {
    const GpuTypeFacts* facts = find_gpu_type(type);
    const double memory_gb = number_at(call.gpu_memory_gb, item);
    if (!facts || memory_gb <= 0)
      return {};
    // Marketed sizes are a little more or less than what the driver shows.
    count = memory_gb * 1024 / static_cast<double>(facts->memory_mib);
    if (std::abs(count - std::round(count)) > 0.15)
      return {};
    count = std::round(count);
  }
  if (count < 1 || count > static_cast<double>(limits::gpus_per_node_max) ||
      count != std::floor(count))
    return {};
  return {static_cast<int>(count)};
}

// "A100 (40 GB PCIe)" → 40.
double memory_in_name(const std::string& name) {
  const std::string low = lower(name);
  for (std::size_t i = 0; i < low.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(low[i])) ||
        (i > 0 && std::isalnum(static_cast<unsigned char>(low[i - 1]))))
      continue;
    std::size_t end = i;
    while (end < low.size() && std::isdigit(static_cast<unsigned char>(low[end])))
      ++end;
    std::size_t unit = end;
    while (unit < low.size() && low[unit] == ' ')
      ++unit;
    const auto value = parse_int(std::string_view(low).substr(i, end - i), 1, 100'000);
    if (value && unit < low.size() && low[unit] == 'g')
      return static_cast<double>(*value);
    i = end;
  }
  return 0;
}

void add_offers(const OfferCall& call,
                const Json& item,
                MachineOffer offer,
                double price,
                const OfferFacts& facts,
                std::vector<MachineOffer>& out) {
  offer.price_h = hourly_of(price, call, offer.gpus);
  offer.price = {(offer.price_h.value + 1800) / 3600};
  if (offer.price.nano_usd_per_s == 0)
    offer.priced_at = {};
  for (const std::string& place : places_of(call, item, offer.instance, offer.spot, facts)) {
    if (out.size() >= offers_max)
      return;
    offer.region = place;
    out.push_back(offer);
  }
}

}  // namespace

std::string gpu_type_of(const OfferCall& call, const std::string& theirs, double memory_gb) {
  const auto named = call.gpu_names.find(lower(theirs));
  if (named != call.gpu_names.end())
    return named->second;
  if (memory_gb <= 0)
    memory_gb = memory_in_name(theirs);
  // Drivers write the names of cards in capitals; some providers do not.
  std::string name = theirs;
  if (lower(name) == name)
    for (char& c : name)
      c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return normalise_gpu_type(name, static_cast<std::int64_t>(memory_gb * 1000));
}

std::vector<MachineOffer> offers_of(const OfferCall& call,
                                    const std::vector<Json>& items,
                                    const OfferFacts& facts,
                                    WallTime now) {
  std::vector<MachineOffer> out;
  for (const Json& item : items) {
    if (!std::all_of(call.when.begin(), call.when.end(),
                     [&](const Condition& c) { return c.holds(item); }))
      continue;
    const std::string theirs = scalar_text(call.gpu.first(item));
    MachineOffer offer;
    offer.instance = instance_of(call, item);
    if (offer.instance.empty() || theirs.empty() || is_negative(call.price, item))
      continue;
    const double memory_gb = number_at(call.gpu_memory_gb, item);
    const double gpus_told = number_at(call.gpus, item);
    double memory_of_one = memory_gb;
    if (call.gpu_memory_of_all)
      memory_of_one = gpus_told > 0 ? memory_gb / gpus_told : 0;
    offer.gpu_type = gpu_type_of(call, theirs, memory_of_one);
    offer.cpus = static_cast<std::int32_t>(std::max(0.0, number_at(call.cpus, item)));
    const double gib = number_at(call.memory_gib, item);
    const double mib = number_at(call.memory_mib, item);
    offer.memory_mib = static_cast<std::int64_t>(gib > 0 ? gib * 1024 : std::max(0.0, mib));
    offer.priced_at = now;
    double price = number_at(call.price, item);
    if (const auto listed = facts.gpu_price.find(lower(theirs)); listed != facts.gpu_price.end())
      price = listed->second;
    for (const int gpus : sizes_of(call, item, offer.gpu_type)) {
      offer.gpus = gpus;
      offer.spot = call.spot;
      add_offers(call, item, offer, price, facts, out);
      const double spot_price = number_at(call.spot_price, item);
      if (spot_price <= 0)
        continue;
      offer.spot = true;
      add_offers(call, item, offer, spot_price, facts, out);
    }
  }
  return out;
}

Result<std::vector<MachineOffer>> fetch_offers(const Provider& provider,
                                               Api& api,
                                               const Values& values,
                                               WallTime now) {
  std::vector<MachineOffer> out;
  for (const OfferCall& call : provider.offers) {
    OfferFacts facts;
    for (const OfferCall::Availability& availability : call.availability) {
      for (const Json& item : BILLOW_TRY(api.list(availability.list, values))) {
        if (availability.more_than_zero && number_at(availability.more_than_zero, item) <= 0)
          continue;
        const std::string region = scalar_text(availability.region.first(item));
        for (const Json* instance : availability.instance.all(item))
          facts.places[{scalar_text(*instance), availability.spot}].insert(region);
      }
    }
    if (call.prices)
      for (const Json& item : BILLOW_TRY(api.list(call.prices->list, values)))
        facts.gpu_price[lower(scalar_text(call.prices->name.first(item)))] =
            number_at(call.prices->value, item);
    const auto items = BILLOW_TRY(api.list(call.list, values));
    const auto some = offers_of(call, items, facts, now);
    out.insert(out.end(), some.begin(), some.end());
  }
  if (out.size() > offers_max)
    out.resize(offers_max);
  for (MachineOffer& offer : out) {
    offer.bill_step = provider.billing.step;
    offer.bill_minimum = provider.billing.minimum;
  }
  return out;
}

}  // namespace billow::pool::rest
