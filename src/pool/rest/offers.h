// Turns a provider's lists of machine kinds, prices and free capacity into offers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/model/offer.h"
#include "pool/rest/api.h"
#include "pool/rest/provider.h"

namespace billow::pool::rest {

// What the lists beside the main one say.
struct OfferFacts {
  // Where an instance can be had: on demand (false) and as spot (true).
  std::map<std::pair<std::string, bool>, std::set<std::string>> places;
  std::map<std::string, double> gpu_price;  // by the provider's name of the GPU, any case
};

// Pure. Items without GPUs, with a fraction of one, or of an unknown size are left out.
std::vector<MachineOffer> offers_of(const OfferCall& call,
                                    const std::vector<Json>& items,
                                    const OfferFacts& facts,
                                    WallTime now);

// Billow's name for a GPU: "H100 (80 GB SXM5)" → "H100". `memory_gb` 0: not known.
std::string gpu_type_of(const OfferCall& call, const std::string& theirs, double memory_gb);

Result<std::vector<MachineOffer>> fetch_offers(const Provider& provider,
                                               Api& api,
                                               const Values& values,
                                               WallTime now);

}  // namespace billow::pool::rest
