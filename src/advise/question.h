// What may be asked: figures in range, and GPUs and providers that exist, since a misspelt one
// would look like an empty market.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

// The GPUs of a list such as "4090,H100", each found by itself; empty for an empty list.
Result<std::vector<const GpuSpec*>> named_gpus(std::string_view list, const Catalogue& catalogue);
// An error for the first name of the filter that the catalogue does not have, with the nearest ones
// and the list of all.
Status check_offer_names(const OfferFilter& filter, const Catalogue& catalogue);
// "4090 is taken as RTX-4090", for each name that is spelt differently in the catalogue.
std::vector<std::string> name_notes(const OfferFilter& filter, const Catalogue& catalogue);

// The precision of a KV cache, by name: what engines store caches in.
Result<Precision> parse_kv_cache(std::string_view text);

Status check_request(const Request& request, const Catalogue& catalogue);
// A hint for a question that nothing answers.
std::string what_would_help(const Request& request);

}  // namespace billow::advise
