#include "core/ledger/meter.h"

#include <algorithm>
#include <vector>

#include "core/ledger/catalogue.h"

namespace billow::ledger {

std::int64_t median(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

namespace {

// On demand: the median price of one GPU-hour over all offers, or zero if there is none. Spot and
// reserved: that price less the median discount of offers that have both prices. Sellers of spot
// capacity differ from the others, so a median of spot prices alone could exceed the on-demand
// price.
Rate market_rate(const Catalogue& catalogue, std::string_view gpu_type, PriceClass price_class) {
  const auto spec = catalogue.gpu(gpu_type);
  if (!spec || price_class == PriceClass::suspended)
    return {};
  OfferFilter filter;
  filter.gpu = (*spec)->name;
  std::vector<std::int64_t> per_gpu_h, parts_per_million;
  for (const Offer& offer : catalogue.offers(filter)) {
    if (!offer.price || offer.instance->gpus < 1)
      continue;
    const auto full = price_of(*offer.price, Purchase::on_demand);
    if (!full || full->value <= 0)
      continue;
    per_gpu_h.push_back(full->value / offer.instance->gpus);
    if (price_class == PriceClass::on_demand)
      continue;
    if (const auto price =
            price_of(*offer.price,
                     price_class == PriceClass::spot ? Purchase::spot : Purchase::committed_1y))
      parts_per_million.push_back(
          static_cast<std::int64_t>(static_cast<__int128>(price->value) * 1'000'000 / full->value));
  }
  if (per_gpu_h.empty())
    return {};
  const std::int64_t on_demand = median(per_gpu_h) / 3600;
  if (price_class == PriceClass::on_demand)
    return {on_demand};
  return parts_per_million.empty()
             ? Rate{}
             : Rate{static_cast<std::int64_t>(static_cast<__int128>(on_demand) *
                                              median(parts_per_million) / 1'000'000)};
}

}  // namespace

PriceBook PriceBook::market() {
  PriceBook book;
  book.catalogue_ = std::make_shared<const Catalogue>(Catalogue::embedded());
  // The catalogue prices machines, not their memory. Clouds that sell memory by the GiB charge
  // about $0.003 an hour.
  book.set(memory_type, PriceClass::suspended, Rate{3'000'000 / 3600});
  return book;
}

void PriceBook::set(std::string gpu_type, PriceClass price_class, Rate rate) {
  rates_[{std::move(gpu_type), price_class}] = rate;
}

Rate PriceBook::rate(std::string_view gpu_type, PriceClass price_class) const {
  const std::pair<std::string, PriceClass> key(gpu_type, price_class);
  if (const auto found = rates_.find(key); found != rates_.end())
    return found->second;
  const Rate rate = catalogue_ ? market_rate(*catalogue_, gpu_type, price_class) : Rate{};
  rates_[key] = rate;  // looked up once per type and class
  return rate;
}

Rate PriceBook::memory_rate() const {
  return rate(memory_type, PriceClass::suspended);
}

std::int64_t gpu_milli(const Task& task) {
  if (task.price_class == PriceClass::suspended)
    return 0;
  std::int64_t milli = 0;
  for (const auto& grant : task.gpus)
    milli += grant.share.milli;
  return milli;
}

NanoUsd lease_cost(const Task& task, WallTime until) {
  const Duration held = std::max(until - task.lease_from, Duration{0});
  return amount(task.rate, held, charged_milli(task));
}

LeaseId lease_id(const Task& task) {
  return LeaseId(task.id.value | static_cast<std::uint64_t>(task.lease_number) << 44);
}

std::int64_t charged_milli(const Task& task) {
  return task.price_class == PriceClass::suspended ? task.ram_mib * 1000 / 1024 : gpu_milli(task);
}

}  // namespace billow::ledger
