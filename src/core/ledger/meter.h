// What a lease costs. Prices are facts at the moment a lease begins: the rate is written into the
// event that opens it, and everything billed later comes from that figure, never from a price list
// looked up again.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/money.h"
#include "core/model/job.h"
#include "core/model/states.h"

namespace billow {
class Catalogue;
}

namespace billow::ledger {

// Rates by GPU type and class. A type that neither the operator nor the catalogue prices is free:
// none is invented.
class PriceBook {
 public:
  static constexpr const char* memory_type = "RAM";

  // What the market asks: the median per GPU over the catalogue's offers, for installations that
  // have not set their own.
  static PriceBook market();

  void set(std::string gpu_type, PriceClass price_class, Rate rate);
  Rate rate(std::string_view gpu_type, PriceClass price_class) const;
  // Of one GiB of a node's memory that a suspended job holds: priced as type "RAM", class
  // suspended.
  Rate memory_rate() const;

 private:
  std::shared_ptr<const Catalogue> catalogue_;  // none: only what was set
  mutable std::map<std::pair<std::string, PriceClass>, Rate> rates_;
};

// Thousandths of a GPU a task holds, over all its cards: none while it is suspended.
std::int64_t gpu_milli(const Task& task);
// Thousandths of what its rate is for: of a GPU, or of a GiB of memory while it is suspended.
std::int64_t charged_milli(const Task& task);
// The number of the lease a task holds now: a suspend or resume closes one and opens the next.
LeaseId lease_id(const Task& task);
// The whole amount of a lease from its beginning until `until` (clamped to its beginning).
NanoUsd lease_cost(const Task& task, WallTime until);

}  // namespace billow::ledger
