#include "bench/advise/portfolio.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include "advise/portfolio.h"
#include "base/file.h"
#include "base/formats/csv.h"
#include "base/text.h"
#include "core/ledger/catalogue.h"

namespace billow::advise {
namespace {

// The commitment that costs least on these hours (whole GPUs), with perfect foresight. Each further
// GPU is used less than the one before it, so the last one that pays is found by bisection.
double best_commitment(const std::vector<Hour>& hours, const Market& market, double price) {
  const auto cost = [&](double gpus) {
    return replay(hours, market, gpus, price).total();
  };
  double least = 0, most = 0;
  for (const Hour& hour : hours)
    most = std::max(most, std::ceil(hour.demand));
  while (least < most) {
    const double middle = std::ceil((least + most) / 2);
    if (cost(middle) <= cost(middle - 1))
      least = middle;
    else
      most = middle - 1;
  }
  return least;
}

double seconds_of(const std::string& when) {
  int y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0;
  if (std::sscanf(when.c_str(), "%d-%d-%d %d:%d:%d", &y, &mo, &d, &h, &mi, &s) < 3)
    return -1;
  std::chrono::year_month_day ymd{std::chrono::year(y),
                                  std::chrono::month(static_cast<unsigned>(mo)),
                                  std::chrono::day(static_cast<unsigned>(d))};
  return ymd.ok()
             ? static_cast<double>(std::chrono::sys_days(ymd).time_since_epoch().count()) * 86400 +
                   h * 3600 + mi * 60 + s
             : -1;
}

using Days = std::map<std::int64_t, std::pair<double, double>>;
struct Place {
  std::string instance, region;
  bool operator<(const Place& o) const {
    return instance != o.instance ? instance < o.instance : region < o.region;
  }
};

// The cheapest zone's spot price and the on-demand price of one GPU, day by day, for every instance
// type and region.
std::map<Place, Days> spot_days(const std::string& path, const Catalogue& catalogue) {
  std::map<Place, Days> all;
  auto text = read_file(path, 256 << 20);
  if (!text)
    return all;
  std::map<std::string, int> gpus;
  CsvReader reader(*text);
  std::vector<std::string> f;
  while (*reader.next(f)) {
    if (f.size() < 6)
      continue;
    auto [known, fresh] = gpus.try_emplace(f[1], 0);
    if (fresh)
      if (auto found = catalogue.instances_named(f[1]);
          found && catalogue.gpus()[found->front()->gpu].is_gpu)
        known->second = found->front()->gpus;
    if (known->second == 0)
      continue;
    double on_demand = std::strtod(f[4].c_str(), nullptr) / known->second,
           spot = std::strtod(f[5].c_str(), nullptr) / known->second;
    auto day = static_cast<std::int64_t>(seconds_of(f[0]) / 86400);
    if (!(on_demand > 0) || !(spot > 0))
      continue;
    auto [it, first] = all[{f[1], f[2]}].try_emplace(day, on_demand, spot);
    if (!first)
      it->second.second = std::min(it->second.second, spot);
  }
  return all;
}

struct Outcome {
  double commit = 0, ideal = 0, ours = 0, optimum = 0, all = 0, peaked = 0, spot = 0, unserved = 0,
         regret = 0;
  double ratio() const { return ours / optimum; }
};
// Fitted on the first `fitted` of the demand, replayed on the 40 % after it; nothing where the
// history is shorter than the demand. With `foresight` the fit is told what the alternative will
// cost on average: what is lost then is lost to the demand alone.
std::optional<Outcome> replay_case(const std::vector<double>& demand,
                                   double peak,
                                   const Days& days,
                                   const Market& market,
                                   double fitted = 0.6,
                                   bool foresight = false) {
  auto needed = (demand.size() + 23) / 24;
  if (days.size() < needed)
    return std::nullopt;
  std::vector<std::pair<double, double>> series;
  for (auto& [day, price] : days)
    series.push_back(price);
  std::size_t from = series.size() - needed;
  std::vector<Hour> hours;
  for (std::size_t h = 0; h < demand.size(); ++h) {
    auto& [on_demand, spot] = series[std::min(series.size() - 1, from + h / 24)];
    hours.push_back({demand[h], on_demand, spot});
  }
  auto n = static_cast<double>(hours.size());
  auto cut = static_cast<std::ptrdiff_t>(n * fitted),
       end = std::min(static_cast<std::ptrdiff_t>(hours.size()),
                      static_cast<std::ptrdiff_t>(n * (fitted + 0.4)));
  if (fitted == 0.6)
    end = static_cast<std::ptrdiff_t>(hours.size());
  std::vector<Hour> past(hours.begin(), hours.begin() + cut),
      future(hours.begin() + cut, hours.begin() + end);
  double committed_price = past.front().on_demand * market.committed_ratio;
  Outcome o;
  auto seen = past;
  if (foresight)
    for (std::size_t i = 0; i < seen.size(); ++i) {
      seen[seen.size() - 1 - i].on_demand = future[i % future.size()].on_demand;
      seen[seen.size() - 1 - i].spot = future[i % future.size()].spot;
    }
  o.commit = baseline_commitment(seen, market, committed_price);
  o.ideal = best_commitment(future, market, committed_price);
  o.ours = replay(future, market, o.commit, committed_price).total();
  o.optimum = replay(future, market, o.ideal, committed_price).total();
  auto spot = replay_spot_only(future, market);
  o.all = replay_on_demand(future).total();
  o.peaked = replay(future, market, std::ceil(peak), committed_price).total();
  o.spot = spot.total();
  o.unserved = spot.unserved;
  o.regret = price_drop_regret(future, market, o.commit, committed_price, 0.44);
  return o;
}

void replay_cases(const std::vector<double>& demand,
                  double peak,
                  const std::map<Place, Days>& history,
                  const Market& market) {
  std::printf("  %.0f %% of what is above the commitment tolerates interruption\n",
              100 * market.spot_share);
  for (auto& place : {Place{"p5.48xlarge", "us-east-1"}, Place{"p4d.24xlarge", "us-east-1"},
                      Place{"g6.12xlarge", "us-east-1"}, Place{"p5en.48xlarge", "us-east-2"}}) {
    auto days = history.find(place);
    auto o = days == history.end() ? std::nullopt : replay_case(demand, peak, days->second, market);
    if (!o) {
      std::printf("    %s %s: too little history\n", place.instance.c_str(), place.region.c_str());
      continue;
    }
    std::printf(
        "    %-14s %s: commit %.0f (clairvoyant %.0f): $%.0f = %.3f × the clairvoyant $%.0f; all "
        "on-demand %.2f ×, reserve the peak %.2f ×, spot only %.2f × (%.0f GPU-hours unserved); "
        "a 44 %% price cut half-way would cost $%.0f\n",
        place.instance.c_str(), place.region.c_str(), o->commit, o->ideal, o->ours, o->ratio(),
        o->optimum, o->all / o->optimum, o->peaked / o->optimum, o->spot / o->optimum, o->unserved,
        o->regret);
  }
  // The same demand at the prices of every other instance and region of the history: the four above
  // are not chosen for their result. Then with the cut elsewhere, for the rule was not made for one
  // cut; and with the prices of the term foretold, which says what they cost.
  auto all = [&](const char* what, double fitted, bool foresight) {
    std::vector<double> ratios;
    for (auto& [place, days] : history)
      if (auto o = replay_case(demand, peak, days, market, fitted, foresight))
        ratios.push_back(o->ratio());
    std::sort(ratios.begin(), ratios.end());
    if (ratios.empty())
      return;
    double sum = 0;
    auto within = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r <= 1.05; });
    for (double r : ratios)
      sum += r;
    std::printf(
        "    all %zu instances and regions with enough history%s: mean %.3f ×, %.0f %% within 1.05 "
        "×, worst %.3f ×\n",
        ratios.size(), what, sum / static_cast<double>(ratios.size()),
        100.0 * static_cast<double>(within) / static_cast<double>(ratios.size()), ratios.back());
  };
  all("", 0.6, false);
  all(", fitted on the first 35 %", 0.35, false);
  all(", fitted on the first 45 %", 0.45, false);
  all(", had the prices of the term been known", 0.6, true);
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
  CsvReader reader(*text);
  std::vector<std::string> f;
  while (*reader.next(f)) {
    if (f.size() < 4)
      continue;
    JobSpan j{seconds_of(f[0]), std::strtod(f[1].c_str(), nullptr),
              std::strtod(f[2].c_str(), nullptr)};
    if (j.start_s > 0 && j.duration_s > 0 && j.gpus > 0)
      jobs.push_back(j);
  }
  auto demand = hourly_demand(jobs);
  // The first and last days only fill and drain the cluster; they are no demand.
  double peak = *std::max_element(demand.begin(), demand.end());
  std::size_t first = 0, last = demand.size();
  while (first < last && demand[first] < peak / 10)
    ++first;
  while (last > first && demand[last - 1] < peak / 10)
    --last;
  demand = {demand.begin() + static_cast<std::ptrdiff_t>(first),
            demand.begin() + static_cast<std::ptrdiff_t>(last)};
  Market market;
  std::printf(
      "portfolio: Philly's GPUs in use by the hour (%zu hours, peak %.0f) at the newest days of "
      "the spot history of as many days, one GPU for one GPU;\n"
      "  committed for a year at %.0f %% of the on-demand price of the first day (median of the "
      "catalogue's one-year prices);\n"
      "  spot at %.0f %% of on-demand or more counts as sold out, and loses %.0f %% of its work; "
      "fitted on the first 60 %%, replayed on the rest. \"Spot only\" also interrupts what does "
      "not tolerate it\n",
      demand.size(), peak, 100 * market.committed_ratio, 100 * market.scarce_ratio,
      100 * market.spot_overhead);
  auto history = spot_days(unpacked, Catalogue::embedded());
  for (double share : {0.7, 0.5, 0.3})
    replay_cases(demand, peak, history, {.spot_share = share});
}

}  // namespace billow::advise
