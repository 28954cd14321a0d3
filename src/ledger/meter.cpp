#include "ledger/meter.h"

#include <algorithm>

namespace billow::ledger {

void PriceBook::set(std::string gpu_type, PriceClass price_class, Rate rate) { rates_[{std::move(gpu_type), price_class}] = rate; }

Rate PriceBook::rate(std::string_view gpu_type, PriceClass price_class) const {
  const auto found = rates_.find(std::pair<std::string, PriceClass>(gpu_type, price_class));
  return found == rates_.end() ? Rate{} : found->second;
}

std::int64_t gpu_milli(const Task& task) {
  std::int64_t milli = 0;
  for (const auto& grant : task.gpus) milli += grant.share.milli;
  return milli;
}

NanoUsd lease_cost(const Task& task, WallTime until) {
  const Duration held = std::max(until - task.lease_from, Duration{0});
  return amount(task.rate, held, gpu_milli(task));
}

}  // namespace billow::ledger
