#include "advise/review.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "advise/recommend.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr double hours_month = 730;
constexpr double saving_min_usd = 1;  // a month; less is not worth a line

std::chrono::year_month_day date_of(WallTime t) {
  return std::chrono::year_month_day(std::chrono::floor<std::chrono::days>(
      std::chrono::sys_time<std::chrono::nanoseconds>(std::chrono::nanoseconds(t.ns))));
}

}  // namespace

double TypeUsage::gpu_hours() const {
  double sum = 0;
  for (double g : hourly_gpus)
    sum += g;
  return sum;
}

std::vector<TypeUsage> usage_of(const std::vector<UsedSpan>& spans, double from_s, double to_s) {
  std::map<std::string, TypeUsage> types;
  auto hours =
      static_cast<std::size_t>(std::clamp(std::ceil((to_s - from_s) / 3600), 0.0, 24.0 * 366 * 5));
  for (auto& s : spans) {
    double from = std::max(s.start_s, from_s), to = std::min(s.end_s, to_s);
    if (!(to > from) || !(s.gpus > 0) || s.gpu.empty())
      continue;
    auto& t = types[s.gpu];
    t.gpu = s.gpu;
    t.hourly_gpus.resize(hours);
    t.paid_usd += s.paid_usd * (to - from) / std::max(1e-9, s.end_s - s.start_s);
    double a = (from - from_s) / 3600, b = (to - from_s) / 3600;
    for (auto h = static_cast<std::size_t>(a); h < hours && static_cast<double>(h) < b; ++h)
      t.hourly_gpus[h] +=
          s.gpus * (std::min(b, static_cast<double>(h + 1)) - std::max(a, static_cast<double>(h)));
  }
  std::vector<TypeUsage> out;
  for (auto& [name, t] : types)
    out.push_back(std::move(t));
  std::stable_sort(out.begin(), out.end(),
                   [](auto& a, auto& b) { return a.gpu_hours() > b.gpu_hours(); });
  return out;
}

Review review(const ReviewInput& input, const Catalogue& catalogue) {
  Review r;
  r.period = input.period;
  std::vector<std::string> names;  // instances that carry a type in use: their price changes matter
  for (auto& u : input.usage) {
    double hours = u.gpu_hours();
    r.gpu_hours += hours;
    r.paid_usd += u.paid_usd;
    r.days = std::max(r.days, static_cast<double>(u.hourly_gpus.size()) / 24);
    auto gpu = catalogue.gpu(u.gpu);
    if (!gpu) {
      r.notes.push_back(fmt::format("{}: not in the catalogue, so no price is known", u.gpu));
      continue;
    }
    for (auto& offer : catalogue.offers({.gpu = u.gpu, .with_unknown_price = true}))
      names.push_back(offer.instance->name);
    double months = static_cast<double>(u.hourly_gpus.size()) / hours_month;
    if (!(hours > 0) || !(months > 0))
      continue;
    auto cheapest = catalogue.cheapest_gpu_hour(u.gpu, Purchase::on_demand, {});
    if (!cheapest) {
      r.notes.push_back(
          fmt::format("{}: no on-demand price is known (billow prices update)", (*gpu)->name));
      continue;
    }
    double on_demand = usd(cheapest->per_gpu_h), paid = u.paid_usd > 0 ? u.paid_usd / hours : 0;
    auto& offer = cheapest->offer;
    if (auto age = price_age_days(offer.price->date, input.now); age && *age > 45)
      r.notes.push_back(fmt::format("{}: the newest price is {} days old (billow prices update)",
                                    (*gpu)->name, *age));
    std::vector<ReviewAction> possible;
    // A dearer rate than the market's.
    if (paid > on_demand * 1.02)
      possible.push_back(
          {u.gpu,
           fmt::format("rent {} from {} ({} in {}) at ${:.2f} per GPU-hour", (*gpu)->name,
                       offer.instance->provider, offer.instance->name, offer.region, on_demand),
           fmt::format("you paid ${:.2f} for {:.0f} GPU-hours; price of {}", paid, hours,
                       offer.price->date),
           (paid - on_demand) * hours / months});
    // How it is bought: against on-demand at the rate paid, or the market's where nothing was paid.
    double base = paid > 0 ? paid : on_demand;
    auto history = spot_history(offer.instance->name);
    double spot = offer.price->spot_h && offer.price->on_demand_h
                      ? usd(*offer.price->spot_h) / usd(*offer.price->on_demand_h)
                      : history.ratio_median;
    std::vector<Hour> demand;
    for (double g : u.hourly_gpus)
      demand.push_back({g, base, base * spot});
    double all = replay_on_demand(demand).total();
    Market market = input.market;
    if (offer.price->committed_1y_h && offer.price->on_demand_h)
      market.committed_ratio = usd(*offer.price->committed_1y_h) / usd(*offer.price->on_demand_h);
    double commit = baseline_commitment(demand, market, base * market.committed_ratio);
    Market no_spot = market;
    no_spot.spot_share = 0;
    if (commit > 0) {
      double saved =
          (all - replay(demand, no_spot, commit, base * market.committed_ratio).total()) / months;
      possible.push_back({u.gpu,
                          fmt::format("commit to {:.0f} × {} for a year at {:.0f} % of on-demand",
                                      commit, (*gpu)->name, 100 * market.committed_ratio),
                          "the baseline that pays even if demand shrinks; a price cut is the risk",
                          saved});
    }
    double spot_saved = (all - replay(demand, market, 0, 0).total()) / months;
    possible.push_back({u.gpu,
                        fmt::format("run {:.0f} % of it on spot at {:.0f} % of on-demand",
                                    100 * market.spot_share, 100 * spot),
                        fmt::format("{}; jobs that checkpoint lose about {:.0f} % to interruptions",
                                    history.known ? "a year of prices"
                                                  : "assumed, no history of this instance is known",
                                    100 * market.spot_overhead),
                        spot_saved});
    if (commit > 0) {
      double both =
          (all - replay(demand, market, commit, base * market.committed_ratio).total()) / months;
      possible.push_back(
          {u.gpu,
           fmt::format("commit to {:.0f} × {} for a year and run {:.0f} % of the rest on spot",
                       commit, (*gpu)->name, 100 * market.spot_share),
           "both of the above together", both});
    }
    double most = 0;
    for (auto& a : possible)
      if (a.usd_month >= saving_min_usd)
        most = std::max(most, a.usd_month), r.actions.push_back(std::move(a));
    r.usd_month += most;
  }
  std::sort(names.begin(), names.end());
  for (auto& change : input.price_changes) {
    // "aws p5.48xlarge us-east-1: $98.32/h → …": the second word is the instance.
    auto words = split(change, ' ');
    if (words.size() >= 2 && std::binary_search(names.begin(), names.end(), words[1]))
      r.changes.push_back(change);
  }
  if (r.changes.size() > 20) {
    r.notes.push_back(fmt::format("{} more prices changed", r.changes.size() - 20));
    r.changes.resize(20);
  }
  std::stable_sort(r.actions.begin(), r.actions.end(),
                   [](auto& a, auto& b) { return a.usd_month > b.usd_month; });
  if (input.usage.empty())
    r.notes.push_back("no GPU was used in this period");
  return r;
}

std::string Review::summary() const {
  if (gpu_hours <= 0)
    return fmt::format("Billow review of {}: no GPU was used", period);
  return fmt::format(
      "Billow review of {}: {:.0f} GPU-hours, {} changed price{}, up to ${:.0f} a month to save",
      period, gpu_hours, changes.size(), changes.size() == 1 ? "" : "s", usd_month);
}

Json review_json(const Review& r) {
  Json changes = Json::array(), actions = Json::array(), notes = Json::array();
  for (auto& c : r.changes)
    changes.push(c);
  for (auto& a : r.actions)
    actions.push(Json::object({{"gpu", a.gpu},
                               {"what", a.what},
                               {"why", a.why},
                               {"usd_month", std::round(a.usd_month * 100) / 100}}));
  for (auto& n : r.notes)
    notes.push(n);
  return Json::object({{"period", r.period},
                       {"summary", r.summary()},
                       {"gpu_hours", std::round(r.gpu_hours * 100) / 100},
                       {"paid_usd", std::round(r.paid_usd * 100) / 100},
                       {"saves_usd_month", std::round(r.usd_month * 100) / 100},
                       {"changes", changes},
                       {"actions", actions},
                       {"notes", notes}});
}

std::string review_text(const Review& r) {
  std::string out = r.summary() + "\n";
  if (!r.changes.empty())
    out += "prices that changed:\n";
  for (auto& c : r.changes)
    out += "  " + c + "\n";
  if (!r.actions.empty())
    out += "what to do:\n";
  for (auto& a : r.actions)
    out += fmt::format("  ${:.0f} a month: {} ({})\n", a.usd_month, a.what, a.why);
  for (auto& n : r.notes)
    out += "note: " + n + "\n";
  return out;
}

namespace {
Period period_of(std::chrono::year_month month) {
  auto seconds = [](std::chrono::year_month m) {
    return static_cast<double>(std::chrono::sys_days(m / 1).time_since_epoch().count()) * 86400;
  };
  return {fmt::format("{:04}-{:02}", static_cast<int>(month.year()),
                      static_cast<unsigned>(month.month())),
          seconds(month), seconds(month + std::chrono::months(1))};
}
std::chrono::year_month month_at(WallTime t) {
  auto day = date_of(t);
  return {day.year(), day.month()};
}
}  // namespace

Period month_of(WallTime now) {
  return period_of(month_at(now));
}
Period month_before(WallTime now) {
  return period_of(month_at(now) - std::chrono::months(1));
}
bool review_due(WallTime last, WallTime now) {
  return month_at(last) < month_at(now);
}

}  // namespace billow::advise
