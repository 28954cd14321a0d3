// What the catalogue (core/ledger) knows of a provider's machines: their GPUs and list prices.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/money.h"
#include "core/ledger/catalogue.h"

namespace billow::pool {

struct ListPrice {
  std::string gpu_type;  // the short name that nodes report: "H100"
  std::int32_t gpus = 0;
  std::int32_t cpus = 0;
  std::int64_t memory_mib = 0;
  std::optional<Rate> on_demand, spot;  // of one machine
  WallTime priced_at;                   // zero: no price is known
};

// `provider` is the catalogue's name for it: "gcp", "azure". Empty if the catalogue does not know
// the instance; without prices if it is not known in this region.
std::optional<ListPrice> list_price(const Catalogue& catalogue,
                                    std::string_view provider,
                                    std::string_view instance,
                                    std::string_view region);

}  // namespace billow::pool
