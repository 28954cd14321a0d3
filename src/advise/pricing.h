// What a candidate costs, and which offers count: by default those a company can buy from a cloud,
// at prices that are not stale, on hosts that can load the model.
//
// Invariants: a price older than `price_fresh_days` is used only where no fresh one is known; an
// auction's floor is never an on-demand price; a missing price is unknown, never zero.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

inline constexpr double hours_month = 730;
inline constexpr std::int64_t price_fresh_days = 90;

// Who sells: hyperscalers; neoclouds, which own their GPUs and sell at list prices; marketplaces,
// which pass on other people's machines. Unknown providers count as marketplaces.
enum class Tier { hyperscaler, neocloud, marketplace };
Tier tier_of(std::string_view provider);
const char* tier_name(Tier tier);

// Sells by auction: what it lists is the lowest bid, and the machine may be taken away.
bool sells_by_auction(std::string_view provider);

// GeForce cards: their driver's licence excludes data centres, and no hyperscaler rents them.
bool consumer_card(std::string_view gpu);

// Host memory that loading `weight_bytes` on one instance needs, in GiB.
double host_memory_gib(double weight_bytes);

// The offers a request may use.
std::vector<Offer> buyable_offers(const Request& request, const Catalogue& catalogue);

// Sets the cheapest fresh offer, or the cheapest stale one.
void price_candidate(Candidate& candidate,
                     const Request& request,
                     const std::vector<Offer>& offers);
// The offers whose prices tell what a GPU of one's own is worth; and what one GPU of it rents for
// per month, as part of the offer that a renter of `candidate` would take.
std::vector<Offer> rentable(const GpuSpec& gpu, const Catalogue& catalogue);
std::optional<double> rent_gpu_month(const Candidate& candidate,
                                     const Request& request,
                                     const std::vector<Offer>& offers);
// USD per month by which candidates are ranked; unknown prices come after every known one.
double rank_cost(const Candidate& candidate, const Request& request);
bool stale_price(const Candidate& candidate);
// USD per million output tokens at the requested load; nothing where the price is unknown.
std::optional<double> usd_per_million(const Candidate& candidate, const Request& request);

}  // namespace billow::advise
