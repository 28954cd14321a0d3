#include "ledger/meter.h"

#include <algorithm>
#include <vector>

#include "ledger/catalogue.h"

namespace billow::ledger {

namespace {

// The median price of one GPU-hour over all offers that have it, or zero where there is none.
Rate market_rate(const Catalogue& catalogue, std::string_view gpu_type, PriceClass price_class) {
  const auto spec = catalogue.gpu(gpu_type);
  if (!spec || price_class == PriceClass::suspended) return {};
  const Purchase purchase = price_class == PriceClass::spot       ? Purchase::spot
                            : price_class == PriceClass::reserved ? Purchase::committed_1y
                                                                  : Purchase::on_demand;
  std::vector<std::int64_t> per_gpu_h;
  OfferFilter filter;
  filter.gpu = (*spec)->name;
  for (const Offer& offer : catalogue.offers(filter)) {
    if (!offer.price || offer.instance->gpus < 1) continue;
    if (const auto price = price_of(*offer.price, purchase)) per_gpu_h.push_back(price->value / offer.instance->gpus);
  }
  if (per_gpu_h.empty()) return {};
  const auto middle = per_gpu_h.begin() + static_cast<std::ptrdiff_t>(per_gpu_h.size() / 2);
  std::nth_element(per_gpu_h.begin(), middle, per_gpu_h.end());
  return {*middle / 3600};
}

}  // namespace

PriceBook PriceBook::market() {
  PriceBook book;
  book.catalogue_ = std::make_shared<const Catalogue>(Catalogue::embedded());
  // The catalogue prices machines, not their memory. Clouds that sell memory by the GiB ask about $0.003 an hour for it.
  book.set(memory_type, PriceClass::suspended, Rate{3'000'000 / 3600});
  return book;
}

void PriceBook::set(std::string gpu_type, PriceClass price_class, Rate rate) { rates_[{std::move(gpu_type), price_class}] = rate; }

Rate PriceBook::rate(std::string_view gpu_type, PriceClass price_class) const {
  const std::pair<std::string, PriceClass> key(gpu_type, price_class);
  if (const auto found = rates_.find(key); found != rates_.end()) return found->second;
  const Rate rate = catalogue_ ? market_rate(*catalogue_, gpu_type, price_class) : Rate{};
  rates_[key] = rate;  // looked up once per type and class
  return rate;
}

Rate PriceBook::memory_rate() const { return rate(memory_type, PriceClass::suspended); }

std::int64_t gpu_milli(const Task& task) {
  if (task.price_class == PriceClass::suspended) return 0;
  std::int64_t milli = 0;
  for (const auto& grant : task.gpus) milli += grant.share.milli;
  return milli;
}

NanoUsd lease_cost(const Task& task, WallTime until) {
  const Duration held = std::max(until - task.lease_from, Duration{0});
  return amount(task.rate, held, charged_milli(task));
}

LeaseId lease_id(const Task& task) { return LeaseId(task.id.value | static_cast<std::uint64_t>(task.lease_number) << 44); }

std::int64_t charged_milli(const Task& task) {
  return task.price_class == PriceClass::suspended ? task.ram_mib * 1000 / 1024 : gpu_milli(task);
}

}  // namespace billow::ledger
