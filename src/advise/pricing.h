// What a candidate costs, and which offers count: by default those a company can buy from a cloud,
// at prices that are not stale, on hosts that can load the model.
//
// Invariants: a price older than `price_fresh_days` counts for more than it says, so that it is
// taken only where fresh ones are clearly dearer; an auction's floor is never an on-demand price; a
// missing price is unknown, never zero.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

inline constexpr double hours_month = 730;
inline constexpr std::int64_t price_fresh_days = 90;

// The factor by which an old price is multiplied before comparison: 1 % for every two days beyond
// `price_fresh_days`. So no price drops out from one day to the next. An unknown age counts as a
// year. What is shown is the price itself, with its age.
double age_factor(const std::optional<std::int64_t>& age_days);

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

// Sets the cheapest offer, older prices counted for more.
void price_candidate(Candidate& candidate,
                     const Request& request,
                     const std::vector<Offer>& offers);
// The offers whose prices show what a GPU that one owns is worth; and what one GPU of it rents for
// per month, as part of the offer that a renter of `candidate` would take.
std::vector<Offer> rentable(const GpuSpec& gpu, const Catalogue& catalogue);
// What one GPU rents for per hour, by the same rules: from hyperscalers and neoclouds if they have
// it, older prices counted for more, and never at an auction's floor.
struct GpuRent {
  double usd_h = 0;
  Offer offer;
};
std::optional<GpuRent> cheapest_rent(const GpuSpec& gpu,
                                     const OfferFilter& filter,
                                     const Catalogue& catalogue,
                                     WallTime now);
std::optional<double> rent_gpu_month(const Candidate& candidate,
                                     const Request& request,
                                     const std::vector<Offer>& offers);
// USD per month; unknown prices come after every known one. `counted_cost` ranks candidates by it,
// older prices counted for more.
double rank_cost(const Candidate& candidate, const Request& request);
double counted_cost(const Candidate& candidate, const Request& request);
bool stale_price(const Candidate& candidate);
// USD per million output tokens at the requested load; nothing where the price is unknown.
std::optional<double> usd_per_million(const Candidate& candidate, const Request& request);

}  // namespace billow::advise
