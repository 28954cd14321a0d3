#include "bench/advise/portfolio.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include "advise/portfolio.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

double seconds_of(const std::string& when) {
  int y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0;
  if (std::sscanf(when.c_str(), "%d-%d-%d %d:%d:%d", &y, &mo, &d, &h, &mi, &s) < 3) return -1;
  std::chrono::year_month_day ymd{std::chrono::year(y), std::chrono::month(static_cast<unsigned>(mo)), std::chrono::day(static_cast<unsigned>(d))};
  return ymd.ok() ? static_cast<double>(std::chrono::sys_days(ymd).time_since_epoch().count()) * 86400 + h * 3600 + mi * 60 + s : -1;
}

// The cheapest zone's spot price and the on-demand price of one GPU, day by day, for one instance type in one region.
std::map<std::int64_t, std::pair<double, double>> spot_days(const std::string& path, const std::string& instance, const std::string& region, int gpus) {
  std::map<std::int64_t, std::pair<double, double>> days;
  auto text = read_file(path, 256 << 20);
  if (!text) return days;
  std::string_view rest = *text;
  while (!rest.empty()) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find(instance) == std::string_view::npos || line.find(region) == std::string_view::npos) continue;
    auto f = split(line, ',');
    if (f.size() < 6 || f[1] != instance || f[2] != region) continue;
    double on_demand = std::strtod(f[4].c_str(), nullptr) / gpus, spot = std::strtod(f[5].c_str(), nullptr) / gpus;
    auto day = static_cast<std::int64_t>(seconds_of(f[0]) / 86400);
    if (!(on_demand > 0) || !(spot > 0)) continue;
    auto [it, fresh] = days.try_emplace(day, on_demand, spot);
    if (!fresh) it->second.second = std::min(it->second.second, spot);
  }
  return days;
}

void replay_cases(const std::vector<double>& demand, double peak, const char* spot_csv, const Market& market) {
  std::printf("portfolio: Philly's GPUs in use by the hour (%zu hours, peak %.0f) at the newest days of the spot history of as many days, one GPU for one GPU;\n"
              "  committed for a year at %.0f %% of the on-demand price of the first day (median of the catalogue's one-year prices); %.0f %% of what is above tolerates interruption;\n"
              "  spot at %.0f %% of on-demand or more counts as sold out, and loses %.0f %% of its work; fitted on the first 60 %%, replayed on the rest. \"Spot only\" also interrupts what does not tolerate it\n",
              demand.size(), peak, 100 * market.committed_ratio, 100 * market.spot_share, 100 * market.scarce_ratio, 100 * market.spot_overhead);
  struct Case { const char* instance; const char* region; int gpus; };
  for (auto& c : {Case{"p5.48xlarge", "us-east-1", 8}, Case{"p4d.24xlarge", "us-east-1", 8}, Case{"g6.12xlarge", "us-east-1", 4}, Case{"p5en.48xlarge", "us-east-2", 8}}) {
    auto days = spot_days(spot_csv, c.instance, c.region, c.gpus);
    std::vector<std::pair<double, double>> series;
    for (auto& [day, price] : days) series.push_back(price);
    auto needed = (demand.size() + 23) / 24;
    if (series.size() < needed / 2) {
      std::printf("  %s %s: only %zu days of history\n", c.instance, c.region, series.size());
      continue;
    }
    std::size_t from = series.size() > needed ? series.size() - needed : 0;
    std::vector<Hour> hours;
    for (std::size_t h = 0; h < demand.size(); ++h) {
      auto& [on_demand, spot] = series[std::min(series.size() - 1, from + h / 24)];
      hours.push_back({demand[h], on_demand, spot});
    }
    auto cut = static_cast<std::ptrdiff_t>(hours.size() * 6 / 10);
    std::vector<Hour> past(hours.begin(), hours.begin() + cut), future(hours.begin() + cut, hours.end());
    double committed_price = past.front().on_demand * market.committed_ratio;
    double commit = baseline_commitment(past, market, committed_price), ideal = best_commitment(future, market, committed_price);
    double ours = replay(future, market, commit, committed_price).total(), optimum = replay(future, market, ideal, committed_price).total();
    double all = replay_on_demand(future).total(), peaked = replay(future, market, std::ceil(peak), committed_price).total(), spot = replay_spot_only(future, market).total();
    std::printf("  %-14s %s: commit %.0f (clairvoyant %.0f): $%.0f = %.3f × the clairvoyant $%.0f; all on-demand %.2f ×, reserve the peak %.2f ×, spot only %.2f × (%.0f GPU-hours unserved); "
                "a 44 %% price cut half-way would cost $%.0f\n",
                c.instance, c.region, commit, ideal, ours, ours / optimum, optimum, all / optimum, peaked / optimum, spot / optimum, replay_spot_only(future, market).unserved,
                price_drop_regret(future, market, commit, committed_price, 0.44));
  }
}

}  // namespace

// `data` holds philly/philly.csv; BILLOW_SPOT_CSV names the unpacked spot history.
void report_portfolio(const std::string& data) {
  auto text = read_file(data + "/philly/philly.csv", 256 << 20);
  const char* unpacked = std::getenv("BILLOW_SPOT_CSV");
  if (!text || !unpacked) {
    std::printf("portfolio: no demand or no spot history, skipped\n");
    return;
  }
  std::vector<JobSpan> jobs;
  for (auto& line : split(*text, '\n')) {
    auto f = split(line, ',');
    if (f.size() < 4) continue;
    JobSpan j{seconds_of(f[0]), std::strtod(f[1].c_str(), nullptr), std::strtod(f[2].c_str(), nullptr)};
    if (j.start_s > 0 && j.duration_s > 0 && j.gpus > 0) jobs.push_back(j);
  }
  auto demand = hourly_demand(jobs);
  // The first and last days only fill and drain the cluster; they are no demand.
  double peak = *std::max_element(demand.begin(), demand.end());
  std::size_t first = 0, last = demand.size();
  while (first < last && demand[first] < peak / 10) ++first;
  while (last > first && demand[last - 1] < peak / 10) --last;
  demand = {demand.begin() + static_cast<std::ptrdiff_t>(first), demand.begin() + static_cast<std::ptrdiff_t>(last)};
  for (double share : {0.7, 0.3}) replay_cases(demand, peak, unpacked, {.spot_share = share});
}

}  // namespace billow::advise
