// How to buy: the mix of committed, on-demand and spot capacity that costs least for a demand,
// replayed hour by hour against history; and when owning beats renting.
//
// The model: committed GPUs are paid every hour of the term. Above them, the share of demand that
// tolerates interruption uses spot while spot with its overhead is cheaper than on-demand and not
// scarce (at 95 % of on-demand or more it counts as sold out); the rest uses on-demand. Spot loses
// a fraction of its work to interruptions and checkpoints. The commitment is the newsvendor
// solution generalised to two alternatives, averaged over several futures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::advise {

struct Market {
  double committed_ratio = 0.63;  // of on-demand, one year
  double spot_share = 0.7;        // of the demand above the commitment that tolerates interruption
  double spot_overhead = 0.06;    // repeated work and checkpoints
  double scarce_ratio = 0.95;     // at or above this, spot counts as sold out
};

struct Hour {
  double demand = 0;     // GPUs
  double on_demand = 1;  // USD per GPU-hour
  double spot = 0;       // USD per GPU-hour; 0: unavailable
};

struct Bill {
  double committed = 0, on_demand = 0, spot = 0;  // USD
  double unserved = 0;                            // GPU-hours that a spot-only buyer could not get
  double total() const { return committed + on_demand + spot; }
};

// What a policy would have cost. `committed_price` is fixed at the start of the term, whatever
// on-demand prices do later.
Bill replay(const std::vector<Hour>& hours,
            const Market& market,
            double committed_gpus,
            double committed_price);
Bill replay_on_demand(const std::vector<Hour>& hours);
// Spot whenever available, otherwise wait: unserved hours are billed at on-demand later, with the
// overhead.
Bill replay_spot_only(const std::vector<Hour>& hours, const Market& market);

// Only the baseline. A commitment outlives the demand and the prices it was made for, so it is
// judged on four futures: the last four weeks' demand again, or what it may shrink to; at the
// alternative price of the last two weeks, or of the whole past. The result is the commitment with
// the smallest average regret over the four. A past of less than half the term cannot show how far
// demand may shrink, so half is assumed; a past as long as the term is trusted (its leanest four
// weeks).
double baseline_commitment(const std::vector<Hour>& hours,
                           const Market& market,
                           double committed_price);

// The loss on a commitment if on-demand falls by `drop` in the middle of the term.
double price_drop_regret(const std::vector<Hour>& hours,
                         const Market& market,
                         double committed_gpus,
                         double committed_price,
                         double drop);

struct Owning {
  double price_usd = 30000;  // one GPU with its share of the server and network
  double life_years = 4, residual = 0.15;
  double power_kw = 0.9;  // GPU, share of the host, cooling
  double usd_kwh = 0.12;
  double hosting_usd_month = 120;  // space, labour, spares
  double capital_rate = 0.08;      // per year
};
struct OwnVersusRent {
  double own_usd_h = 0;  // every hour, used or not
  double rent_usd_h = 0;
  double break_even_utilisation = 0;     // above it owning is cheaper; above 1: never
  std::optional<double> payback_months;  // at full use
};
OwnVersusRent own_versus_rent(const Owning& owning, double rent_usd_h);

// GPUs in use, hour by hour, from jobs (start s, duration s, gpus).
struct JobSpan {
  double start_s = 0, duration_s = 0, gpus = 0;
};
std::vector<double> hourly_demand(const std::vector<JobSpan>& jobs,
                                  std::size_t hours_max = 24 * 366 * 5);

}  // namespace billow::advise
