// Offers of a cloud from the price catalogue inside this program, for clouds whose own interface
// lists no prices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/offer.h"

namespace billow::pool {

struct CatalogueQuery {
  std::string provider;              // "aws", as in data/offers.txt
  std::vector<std::string> regions;  // empty: all
  Duration bill_minimum = seconds(60), bill_step = seconds(1);
  bool spot = false;  // also those that the provider may reclaim
};
// One offer per instance, region and market, without a zone, cheapest first. GPUs have the names
// that agents report.
std::vector<MachineOffer> catalogue_offers(const CatalogueQuery& query);

// "H100-SXM" → "H100"; empty: agents report no such GPU.
std::string agent_gpu_type(std::string_view catalogue_name,
                           const std::vector<std::string>& aliases);

}  // namespace billow::pool
