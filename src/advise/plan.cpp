#include "advise/plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "advise/load/loadtest.h"
#include "advise/pricing.h"
#include "advise/recommend.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr const char* trace_columns = "columns: timestamp, duration (s), num_gpus";

// The number in a column; 0 where the cell is empty or the column does not exist.
Result<double> plan_cell(const CsvRow& row, const char* column, std::size_t line) {
  const auto it = row.find(column);
  if (it == row.end() || it->second.empty())
    return 0.0;
  const auto value = parse_double(trim(it->second));
  if (!value)
    return fail(
        Code::invalid,
        fmt::format("line {}: {} is \"{}\", not a number", line, column, it->second.substr(0, 40)),
        trace_columns);
  return *value;
}

Result<GpuPrice> price_of_gpu(const PlanRequest& request, const Catalogue& catalogue) {
  const GpuSpec* gpu = BILLOW_TRY(catalogue.gpu(request.gpu));
  const auto cheapest = cheapest_rent(*gpu, request.offers, catalogue, request.now);
  if (!cheapest)
    return fail(Code::not_found, fmt::format("no on-demand price of {} is known there", gpu->name),
                "choose other --providers or --regions, or import prices: billow prices update");
  const Offer& offer = cheapest->offer;
  GpuPrice price;
  price.on_demand_usd_h = cheapest->usd_h;
  price.where =
      fmt::format("{} {} in {}", offer.instance->provider, offer.instance->name, offer.region);
  price.date = offer.price->date;
  price.committed_source = "assumed";
  if (request.committed_ratio) {
    price.committed_ratio = *request.committed_ratio;
    price.committed_source = "as given";
  } else if (offer.price->committed_1y_h) {
    price.committed_ratio = usd(*offer.price->committed_1y_h) / usd(*offer.price->on_demand_h);
    price.committed_source = "catalogue, one year";
  }
  if (offer.price->spot_h) {
    price.spot_ratio = usd(*offer.price->spot_h) / usd(*offer.price->on_demand_h);
    price.spot_source = "catalogue";
  } else if (const auto history = spot_history(offer.instance->name)) {
    price.spot_ratio = history->ratio_median;
    price.spot_source = "a year of history";
  } else {
    price.spot_source = "unknown";
  }
  return price;
}

}  // namespace

Result<std::vector<JobSpan>> read_job_trace(std::string_view csv) {
  std::vector<JobSpan> jobs;
  const CsvTable table = BILLOW_TRY(parse_csv(csv, table_format));
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const CsvRow row = table.by_name(i);
    const std::size_t line = table.lines[i];
    const auto when = row.find("timestamp");
    JobSpan job;
    job.duration_s = BILLOW_TRY(plan_cell(row, "duration", line));
    job.gpus = BILLOW_TRY(plan_cell(row, "num_gpus", line));
    if (when != row.end() && !when->second.empty()) {
      const auto start = trace_time_s(when->second);
      if (!start)
        return fail(Code::invalid,
                    fmt::format("line {}: timestamp is \"{}\", neither seconds nor a date", line,
                                when->second.substr(0, 40)),
                    trace_columns);
      job.start_s = *start;
    }
    if (job.duration_s > 0 && job.duration_s < 1e9 && job.gpus > 0 && job.gpus < 1e6)
      jobs.push_back(job);
  }
  if (jobs.empty())
    return fail(Code::invalid, "the trace contains no jobs", trace_columns);
  return jobs;
}

std::vector<double> demand_of_trace(const std::vector<JobSpan>& jobs) {
  std::vector<double> demand = hourly_demand(jobs);
  double first = jobs.front().start_s, last = first;
  for (const JobSpan& job : jobs) {
    first = std::min(first, job.start_s);
    last = std::max(last, job.start_s);
  }
  const auto arrivals = static_cast<std::size_t>((last - first) / 3600) + 1;
  if (arrivals >= plan_hours_min && arrivals < demand.size())
    demand.resize(arrivals);
  return demand;
}

std::vector<double> demand_of_usage(const std::vector<UsedSpan>& used,
                                    const std::string& gpu,
                                    WallTime now) {
  const double now_s = static_cast<double>(now.ns) / 1e9;
  std::vector<JobSpan> jobs;
  double first = now_s;
  for (const UsedSpan& span : used) {
    if (!gpu.empty() && span.gpu != gpu)
      continue;
    jobs.push_back({span.start_s, span.end_s - span.start_s, span.gpus});
    first = std::min(first, span.start_s);
  }
  std::vector<double> demand = hourly_demand(jobs);
  const auto until_now = static_cast<std::size_t>(std::max(0.0, (now_s - first) / 3600));
  if (!demand.empty() && until_now > demand.size())
    demand.resize(until_now);
  return demand;
}

std::string most_used_gpu(const std::vector<UsedSpan>& used) {
  std::map<std::string, double> hours;
  for (const UsedSpan& span : used)
    hours[span.gpu] += (span.end_s - span.start_s) / 3600 * span.gpus;
  std::string most;
  for (const auto& [gpu, n] : hours)
    if (most.empty() || n > hours[most])
      most = gpu;
  return most;
}

Result<PurchasePlan> make_plan(const PlanRequest& request, const Catalogue& catalogue) {
  PurchasePlan plan;
  plan.price = BILLOW_TRY(price_of_gpu(request, catalogue));
  const double on_demand = plan.price.on_demand_usd_h;
  Market market = request.market;
  market.committed_ratio = plan.price.committed_ratio;
  std::vector<Hour> hours;
  for (const double demand : request.demand)
    hours.push_back({demand, on_demand, on_demand * plan.price.spot_ratio});
  const double committed_price = on_demand * plan.price.committed_ratio;
  plan.hours = static_cast<double>(hours.size());
  plan.months = plan.hours / hours_month;
  plan.peak_gpus = *std::max_element(request.demand.begin(), request.demand.end());
  plan.commit_gpus = baseline_commitment(hours, market, committed_price);
  plan.mix = replay(hours, market, plan.commit_gpus, committed_price);
  plan.all_on_demand = replay_on_demand(hours);
  plan.reserve_peak = replay(hours, market, std::ceil(plan.peak_gpus), committed_price);
  plan.spot_only = replay_spot_only(hours, market);
  plan.price_drop_regret_usd =
      price_drop_regret(hours, market, plan.commit_gpus, committed_price, request.price_drop);
  if (request.buy_usd)
    plan.own = own_versus_rent({.price_usd = *request.buy_usd}, on_demand);
  return plan;
}

}  // namespace billow::advise
