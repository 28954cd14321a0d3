// The purchase plan: how many GPUs to commit to, what to leave to on-demand and spot, what that
// costs compared with the alternatives, and whether owning pays off. `billow plan` shows it.
//
// Invariants: demand is hourly, and hours without a job count as zero; a price missing from the
// catalogue is an error, never a guess; assumed ratios are marked as assumed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "advise/portfolio.h"
#include "advise/review.h"
#include "core/ledger/catalogue.h"

namespace billow::advise {

// Less than a day of demand supports no commitment.
inline constexpr std::size_t plan_hours_min = 24;

// A CSV of jobs: timestamp (seconds, or "2026-01-31 23:58:00"), duration in seconds, num_gpus. Rows
// without work are skipped; text where a number belongs is an error that names the line.
Result<std::vector<JobSpan>> read_job_trace(std::string_view csv);
// GPUs in use hour by hour until the last arrival: after it no new work arrives.
std::vector<double> demand_of_trace(const std::vector<JobSpan>& jobs);

// GPUs in use hour by hour from the first job until now, of one GPU type or ("") of all.
std::vector<double> demand_of_usage(const std::vector<UsedSpan>& used,
                                    const std::string& gpu,
                                    WallTime now);
// The GPU type with the most GPU-hours; empty where nothing was used.
std::string most_used_gpu(const std::vector<UsedSpan>& used);

struct PlanRequest {
  std::string gpu;
  std::vector<double> demand;  // GPUs, hour by hour
  OfferFilter offers;
  Market market;                          // its committed_ratio is replaced by the price's
  std::optional<double> committed_ratio;  // given by the user: takes precedence over the catalogue
  double price_drop = 0.44;               // fall of on-demand prices during the term
  std::optional<double> buy_usd;          // price of one owned GPU
  WallTime now{};                         // for the age of prices
};

struct GpuPrice {
  double on_demand_usd_h = 0, committed_ratio = 0.63;
  double spot_ratio = 0;  // 0: no spot price is known, and the plan uses none
  std::string where, date, committed_source, spot_source;
};

struct PurchasePlan {
  GpuPrice price;
  double hours = 0, months = 0, peak_gpus = 0;
  double commit_gpus = 0;
  Bill mix, all_on_demand, reserve_peak, spot_only;
  double price_drop_regret_usd = 0;
  std::optional<OwnVersusRent> own;
};
Result<PurchasePlan> make_plan(const PlanRequest& request, const Catalogue& catalogue);

}  // namespace billow::advise
