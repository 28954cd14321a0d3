#include "advise/review.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "advise/pricing.h"
#include "advise/recommend.h"
#include "base/text.h"

namespace billow::advise {
namespace {

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

namespace {

constexpr std::size_t changes_max = 20;
constexpr std::int64_t price_days_max = 45;  // an older price gets a note

// One GPU type in use, with the market's price for it.
struct Priced {
  const TypeUsage& usage;
  const GpuSpec& gpu;
  const Offer& offer;
  double on_demand;  // USD per GPU-hour
  double hours, months;

  double paid() const { return usage.paid_usd > 0 ? usage.paid_usd / hours : 0; }
  // The price that savings are measured against: the rate paid, or the market's if none was paid.
  double base() const { return paid() > 0 ? paid() : on_demand; }
};

std::optional<ReviewAction> cheaper_provider(const Priced& p) {
  if (p.paid() <= p.on_demand * 1.02)
    return std::nullopt;
  return ReviewAction{
      p.usage.gpu,
      fmt::format("rent {} from {} ({} in {}) at ${:.2f} per GPU-hour", p.gpu.name,
                  p.offer.instance->provider, p.offer.instance->name, p.offer.region, p.on_demand),
      fmt::format("you paid ${:.2f} for {:.0f} GPU-hours; price of {}", p.paid(), p.hours,
                  p.offer.price->date),
      (p.paid() - p.on_demand) * p.hours / p.months};
}

// Commitments, spot, and both: what each would have saved in the period.
void add_purchases(const Priced& p, Market market, std::vector<ReviewAction>& possible) {
  const double base = p.base();
  const Price& price = *p.offer.price;
  const auto history = spot_history(p.offer.instance->name);
  const bool listed = price.spot_h && price.on_demand_h;
  const double spot = listed    ? usd(*price.spot_h) / usd(*price.on_demand_h)
                      : history ? history->ratio_median
                                : 0;  // no spot price is known: nothing is claimed
  std::vector<Hour> demand;
  for (double g : p.usage.hourly_gpus)
    demand.push_back({g, base, base * spot});
  if (price.committed_1y_h && price.on_demand_h)
    market.committed_ratio = usd(*price.committed_1y_h) / usd(*price.on_demand_h);
  const double committed_price = base * market.committed_ratio;
  const double commit = baseline_commitment(demand, market, committed_price);
  Market no_spot = market;
  no_spot.spot_share = 0;
  const double all = replay_on_demand(demand).total();
  const auto saved = [&](const Market& m, double gpus, double usd_h) {
    return (all - replay(demand, m, gpus, usd_h).total()) / p.months;
  };
  if (commit > 0)
    possible.push_back({p.usage.gpu,
                        fmt::format("commit to {:.0f} × {} for a year at {:.0f} % of on-demand",
                                    commit, p.gpu.name, 100 * market.committed_ratio),
                        "this baseline pays even if demand shrinks; the risk is a price cut",
                        saved(no_spot, commit, committed_price)});
  if (!(spot > 0))
    return;
  possible.push_back(
      {p.usage.gpu,
       fmt::format("run {:.0f} % of it on spot at {:.0f} % of on-demand", 100 * market.spot_share,
                   100 * spot),
       fmt::format("{}; {:.0f} % is set aside for interruptions of jobs that checkpoint",
                   listed ? fmt::format("spot price of {}", price.date)
                          : std::string("the median of a year of spot prices"),
                   100 * market.spot_overhead),
       saved(market, 0, 0)});
  if (commit > 0)
    possible.push_back(
        {p.usage.gpu,
         fmt::format("commit to {:.0f} × {} for a year and run {:.0f} % of the rest on spot",
                     commit, p.gpu.name, 100 * market.spot_share),
         "both of the actions above", saved(market, commit, committed_price)});
}

// Adds the actions for one GPU type; only the best of them counts in the total.
void review_type(const TypeUsage& u,
                 const ReviewInput& input,
                 const Catalogue& catalogue,
                 Review& r) {
  const double hours = u.gpu_hours(),
               months = static_cast<double>(u.hourly_gpus.size()) / hours_month;
  r.gpu_hours += hours;
  r.paid_usd += u.paid_usd;
  r.days = std::max(r.days, static_cast<double>(u.hourly_gpus.size()) / 24);
  const auto gpu = catalogue.gpu(u.gpu);
  if (!gpu) {
    r.notes.push_back(fmt::format("{}: not in the catalogue, so its price is unknown", u.gpu));
    return;
  }
  if (!(hours > 0) || !(months > 0))
    return;
  const auto cheapest = cheapest_rent(**gpu, {}, catalogue, input.now);
  if (!cheapest) {
    r.notes.push_back(
        fmt::format("{}: the on-demand price is unknown (billow prices update)", (*gpu)->name));
    return;
  }
  if (auto age = price_age_days(cheapest->offer.price->date, input.now);
      age && *age > price_days_max)
    r.notes.push_back(fmt::format("{}: the newest price is {} days old (billow prices update)",
                                  (*gpu)->name, *age));
  const Priced priced{u, **gpu, cheapest->offer, cheapest->usd_h, hours, months};
  std::vector<ReviewAction> possible;
  if (auto cheaper = cheaper_provider(priced))
    possible.push_back(std::move(*cheaper));
  add_purchases(priced, input.market, possible);
  double most = 0;
  for (auto& action : possible) {
    if (action.usd_month < saving_min_usd)
      continue;
    most = std::max(most, action.usd_month);
    r.actions.push_back(std::move(action));
  }
  r.usd_month += most;
}

// Price changes of instances that carry a GPU type in use.
void add_changes(const ReviewInput& input, const Catalogue& catalogue, Review& r) {
  std::vector<std::string> names;
  for (auto& u : input.usage)
    if (catalogue.gpu(u.gpu))
      for (auto& offer : catalogue.offers({.gpu = u.gpu, .with_unknown_price = true}))
        names.push_back(offer.instance->name);
  std::sort(names.begin(), names.end());
  for (auto& change : input.price_changes) {
    // "aws p5.48xlarge us-east-1: $98.32/h → …": the second word is the instance.
    auto words = split(change, ' ');
    if (words.size() >= 2 && std::binary_search(names.begin(), names.end(), words[1]))
      r.changes.push_back(change);
  }
  if (r.changes.size() > changes_max) {
    r.notes.push_back(fmt::format("and {} more price changes", r.changes.size() - changes_max));
    r.changes.resize(changes_max);
  }
}

}  // namespace

Review review(const ReviewInput& input, const Catalogue& catalogue) {
  Review r;
  r.period = input.period;
  for (auto& u : input.usage)
    review_type(u, input, catalogue, r);
  add_changes(input, catalogue, r);
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
      "Billow review of {}: {:.0f} GPU-hours, {} changed price{}, possible savings up to ${:.0f} "
      "per month",
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
    out += "changed prices:\n";
  for (auto& c : r.changes)
    out += "  " + c + "\n";
  if (!r.actions.empty())
    out += "what to do:\n";
  for (auto& a : r.actions)
    out += fmt::format("  ${:.0f} per month: {} ({})\n", a.usd_month, a.what, a.why);
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

}  // namespace billow::advise
