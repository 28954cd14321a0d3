// The cost of a lease. The price is fixed when a lease begins: the rate is written into the event
// that opens it, and all later billing uses that figure, never a new look at a price list.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/money.h"
#include "core/model/job.h"
#include "core/model/states.h"

namespace billow {
class Catalogue;
}

namespace billow::ledger {

// Rates by GPU type and class. A type priced neither by the operator nor by the catalogue is free.
class PriceBook {
 public:
  static constexpr const char* memory_type = "RAM";

  // Market prices: the median per GPU over the catalogue's offers, for installations without their
  // own prices.
  static PriceBook market();

  void set(std::string gpu_type, PriceClass price_class, Rate rate);
  Rate rate(std::string_view gpu_type, PriceClass price_class) const;
  // The rate of one GiB of node memory that a suspended job holds: priced as type "RAM", class
  // suspended.
  Rate memory_rate() const;

 private:
  std::shared_ptr<const Catalogue> catalogue_;  // none: only configured prices
  mutable std::map<std::pair<std::string, PriceClass>, Rate> rates_;
};

// Of at least one value; of two middle ones the larger.
std::int64_t median(std::vector<std::int64_t> values);
// Thousandths of a GPU that a task holds, over all its cards: none while it is suspended.
std::int64_t gpu_milli(const Task& task);
// Thousandths of the unit that its rate is for: a GPU, or a GiB of memory while it is suspended.
std::int64_t charged_milli(const Task& task);
// The number of the lease that a task holds now: a suspend or resume closes one and opens the next.
LeaseId lease_id(const Task& task);
// The whole amount of a lease from its beginning until `until` (clamped to its beginning).
NanoUsd lease_cost(const Task& task, WallTime until);

}  // namespace billow::ledger
