#include "advise/portfolio.h"

#include <algorithm>
#include <cmath>

namespace billow::advise {
namespace {

// What one more GPU above the commitment costs in this hour, for the part that may be interrupted.
double spot_price(const Hour& h, const Market& m) {
  if (!(h.spot > 0) || h.spot >= m.scarce_ratio * h.on_demand) return h.on_demand;
  return std::min(h.on_demand, h.spot * (1 + m.spot_overhead));
}

}  // namespace

Bill replay(const std::vector<Hour>& hours, const Market& market, double committed_gpus, double committed_price) {
  Bill b;
  for (auto& h : hours) {
    b.committed += committed_gpus * committed_price;
    double above = std::max(0.0, h.demand - committed_gpus), flexible = above * market.spot_share;
    double price = spot_price(h, market);
    if (price < h.on_demand) b.spot += flexible * price;
    else b.on_demand += flexible * h.on_demand;
    b.on_demand += (above - flexible) * h.on_demand;
  }
  return b;
}

Bill replay_on_demand(const std::vector<Hour>& hours) {
  Bill b;
  for (auto& h : hours) b.on_demand += h.demand * h.on_demand;
  return b;
}

Bill replay_spot_only(const std::vector<Hour>& hours, const Market& market) {
  Bill b;
  for (auto& h : hours) {
    if (h.spot > 0 && h.spot < market.scarce_ratio * h.on_demand) {
      b.spot += h.demand * h.spot * (1 + market.spot_overhead);
    } else {
      b.unserved += h.demand;
      b.on_demand += h.demand * h.on_demand * (1 + market.spot_overhead);
    }
  }
  return b;
}

double best_commitment(const std::vector<Hour>& hours, const Market& market, double committed_price, double newest_weight) {
  if (hours.empty()) return 0;
  double peak = 0;
  for (auto& h : hours) peak = std::max(peak, h.demand);
  // The R-th GPU is worth committing to while the hours that would use it, at what it would cost otherwise, outweigh its price
  // over all hours. Both fall together as R grows, so the first R that is not worth it ends the search.
  auto top = static_cast<std::size_t>(std::ceil(peak));
  std::vector<double> worth(top + 2);  // worth[r]: sum over hours with demand ≥ r of the alternative's price
  double paid = 0, n = static_cast<double>(hours.size());
  for (std::size_t i = 0; i < hours.size(); ++i) {
    double weight = std::pow(newest_weight, static_cast<double>(i) / n);
    auto& h = hours[i];
    double other = market.spot_share * spot_price(h, market) + (1 - market.spot_share) * h.on_demand;
    worth[static_cast<std::size_t>(std::floor(h.demand))] += weight * other;
    paid += weight * committed_price;
  }
  double above = 0;
  std::size_t best = 0;
  for (std::size_t r = top; r >= 1; --r) {
    above += worth[r];
    if (above >= paid) { best = r; break; }
  }
  return static_cast<double>(best);
}

double baseline_commitment(const std::vector<Hour>& hours, const Market& market, double committed_price, std::size_t window_hours) {
  double whole = best_commitment(hours, market, committed_price), least = whole;
  // Equal stretches of about that length; a past shorter than two of them is judged whole.
  auto windows = std::max<std::size_t>(1, (hours.size() + window_hours / 2) / std::max<std::size_t>(24, window_hours));
  auto each = hours.size() / windows;
  if (windows < 2) return least;
  for (std::size_t at = 0; at + each <= hours.size(); at += each) {
    std::vector<Hour> part(hours.begin() + static_cast<std::ptrdiff_t>(at), hours.begin() + static_cast<std::ptrdiff_t>(at + each));
    least = std::min(least, best_commitment(part, market, committed_price));
  }
  return std::floor(0.75 * least + 0.25 * whole);
}

double price_drop_regret(const std::vector<Hour>& hours, const Market& market, double committed_gpus, double committed_price, double drop) {
  auto dropped = hours;
  for (std::size_t i = hours.size() / 2; i < hours.size(); ++i) dropped[i].on_demand *= 1 - drop, dropped[i].spot *= 1 - drop;
  double with = replay(dropped, market, committed_gpus, committed_price).total();
  double without = 0;
  {
    std::vector<Hour> first(dropped.begin(), dropped.begin() + static_cast<std::ptrdiff_t>(hours.size() / 2)), second(dropped.begin() + static_cast<std::ptrdiff_t>(hours.size() / 2), dropped.end());
    without = replay(first, market, committed_gpus, committed_price).total() +
              std::min(replay(second, market, 0, 0).total(), replay(second, market, committed_gpus, committed_price * (1 - drop)).total());
  }
  return std::max(0.0, with - without);
}

OwnVersusRent own_versus_rent(const Owning& o, double rent_usd_h) {
  constexpr double hours_year = 8766;
  OwnVersusRent r;
  r.rent_usd_h = rent_usd_h;
  double hours = o.life_years * hours_year;
  double capital = o.price_usd * (1 - o.residual) / hours + o.price_usd * (1 + o.residual) / 2 * o.capital_rate / hours_year;
  double running = o.power_kw * o.usd_kwh + o.hosting_usd_month * 12 / hours_year;
  r.own_usd_h = capital + running;
  r.break_even_utilisation = rent_usd_h > 0 ? r.own_usd_h / rent_usd_h : 2;
  double saved = rent_usd_h - running;
  if (saved > 0) r.payback_months = o.price_usd / saved / hours_year * 12;
  return r;
}

std::vector<double> hourly_demand(const std::vector<JobSpan>& jobs, std::size_t hours_max) {
  if (jobs.empty()) return {};
  double first = jobs.front().start_s, last = first;
  for (auto& j : jobs) first = std::min(first, j.start_s), last = std::max(last, j.start_s + j.duration_s);
  auto hours = static_cast<std::size_t>(std::min(static_cast<double>(hours_max), std::ceil((last - first) / 3600) + 1));
  std::vector<double> demand(hours);
  for (auto& j : jobs) {
    double from = (j.start_s - first) / 3600, to = from + j.duration_s / 3600;
    for (auto h = static_cast<std::size_t>(std::max(0.0, from)); h < hours && static_cast<double>(h) < to; ++h) {
      double inside = std::min(to, static_cast<double>(h + 1)) - std::max(from, static_cast<double>(h));
      if (inside > 0) demand[h] += inside * j.gpus;
    }
  }
  return demand;
}

}  // namespace billow::advise
