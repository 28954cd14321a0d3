#include "advise/portfolio.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace billow::advise {
namespace {

// The price of one more GPU above the commitment in this hour, for interruptible work.
double spot_price(const Hour& h, const Market& m) {
  if (!(h.spot > 0) || h.spot >= m.scarce_ratio * h.on_demand)
    return h.on_demand;
  return std::min(h.on_demand, h.spot * (1 + m.spot_overhead));
}

// The average price of a GPU-hour above the commitment: part on spot, part on demand.
double alternative(const Hour& h, const Market& m) {
  return m.spot_share * spot_price(h, m) + (1 - m.spot_share) * h.on_demand;
}

template <class Value>
double mean_of_last(const std::vector<Hour>& hours, std::size_t n, Value value) {
  n = std::min(n, hours.size());
  double sum = 0;
  for (std::size_t i = hours.size() - n; i < hours.size(); ++i)
    sum += value(hours[i]);
  return n ? sum / static_cast<double>(n) : 0;
}

constexpr std::size_t four_weeks = 24 * 28, two_weeks = 24 * 14;
constexpr double term_hours = 8760, shrinks_to = 0.5;

// The fraction of the last four weeks' demand that may remain during the term.
double lean_share(const std::vector<Hour>& hours) {
  auto demand = [](const Hour& h) {
    return h.demand;
  };
  double newest = mean_of_last(hours, four_weeks, demand), leanest = newest;
  for (std::size_t end = hours.size(); end >= four_weeks; end -= four_weeks) {
    std::vector<Hour> part(hours.begin() + static_cast<std::ptrdiff_t>(end - four_weeks),
                           hours.begin() + static_cast<std::ptrdiff_t>(end));
    leanest = std::min(leanest, mean_of_last(part, four_weeks, demand));
  }
  double known = std::clamp(2 * static_cast<double>(hours.size()) / term_hours - 1, 0.0, 1.0);
  return (1 - known) * shrinks_to + known * (newest > 0 ? leanest / newest : 1);
}

}  // namespace

Bill replay(const std::vector<Hour>& hours,
            const Market& market,
            double committed_gpus,
            double committed_price) {
  Bill b;
  for (auto& h : hours) {
    b.committed += committed_gpus * committed_price;
    double above = std::max(0.0, h.demand - committed_gpus), flexible = above * market.spot_share;
    double price = spot_price(h, market);
    if (price < h.on_demand)
      b.spot += flexible * price;
    else
      b.on_demand += flexible * h.on_demand;
    b.on_demand += (above - flexible) * h.on_demand;
  }
  return b;
}

Bill replay_on_demand(const std::vector<Hour>& hours) {
  Bill b;
  for (auto& h : hours)
    b.on_demand += h.demand * h.on_demand;
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

double baseline_commitment(const std::vector<Hour>& hours,
                           const Market& market,
                           double committed_price) {
  if (hours.empty())
    return 0;
  std::size_t shown = std::min(hours.size(), four_weeks);
  double peak = 0;
  for (std::size_t i = hours.size() - shown; i < hours.size(); ++i)
    peak = std::max(peak, hours[i].demand);
  auto other = [&](const Hour& h) {
    return alternative(h, market);
  };
  std::vector<double> regret(static_cast<std::size_t>(std::ceil(peak)) + 1), cost(regret.size());
  for (double share : {lean_share(hours), 1.0})
    for (double price :
         {mean_of_last(hours, two_weeks, other), mean_of_last(hours, hours.size(), other)}) {
      // Committed GPUs are always paid; demand above them at the other price. Counted down from the
      // peak: one GPU less adds the hours that needed it.
      std::vector<double> left;
      for (std::size_t i = hours.size() - shown; i < hours.size(); ++i)
        left.push_back(hours[i].demand * share);
      std::sort(left.begin(), left.end(), std::greater<>());
      double above = 0, sum = 0;  // number of hours above r, and their total demand
      std::size_t next = 0;
      for (std::size_t r = cost.size(); r-- > 0;) {
        for (; next < left.size() && left[next] > static_cast<double>(r); ++next) {
          sum += left[next];
          ++above;
        }
        cost[r] = static_cast<double>(r) * committed_price +
                  price * (sum - above * static_cast<double>(r)) / static_cast<double>(shown);
      }
      double least = *std::min_element(cost.begin(), cost.end());
      for (std::size_t r = 0; r < cost.size(); ++r)
        regret[r] += least > 0 ? cost[r] / least : static_cast<double>(r);
    }
  return static_cast<double>(std::min_element(regret.begin(), regret.end()) - regret.begin());
}

double price_drop_regret(const std::vector<Hour>& hours,
                         const Market& market,
                         double committed_gpus,
                         double committed_price,
                         double drop) {
  auto dropped = hours;
  for (std::size_t i = hours.size() / 2; i < hours.size(); ++i) {
    dropped[i].on_demand *= 1 - drop;
    dropped[i].spot *= 1 - drop;
  }
  double with = replay(dropped, market, committed_gpus, committed_price).total();
  double without = 0;
  {
    std::vector<Hour> first(dropped.begin(),
                            dropped.begin() + static_cast<std::ptrdiff_t>(hours.size() / 2)),
        second(dropped.begin() + static_cast<std::ptrdiff_t>(hours.size() / 2), dropped.end());
    without =
        replay(first, market, committed_gpus, committed_price).total() +
        std::min(replay(second, market, 0, 0).total(),
                 replay(second, market, committed_gpus, committed_price * (1 - drop)).total());
  }
  return std::max(0.0, with - without);
}

OwnVersusRent own_versus_rent(const Owning& o, double rent_usd_h) {
  constexpr double hours_year = 8766;
  OwnVersusRent r;
  r.rent_usd_h = rent_usd_h;
  double hours = o.life_years * hours_year;
  double capital = o.price_usd * (1 - o.residual) / hours +
                   o.price_usd * (1 + o.residual) / 2 * o.capital_rate / hours_year;
  double running = o.power_kw * o.usd_kwh + o.hosting_usd_month * 12 / hours_year;
  r.own_usd_h = capital + running;
  r.break_even_utilisation = rent_usd_h > 0 ? r.own_usd_h / rent_usd_h : 2;
  double saved = rent_usd_h - running;
  if (saved > 0)
    r.payback_months = o.price_usd / saved / hours_year * 12;
  return r;
}

std::vector<double> hourly_demand(const std::vector<JobSpan>& jobs, std::size_t hours_max) {
  if (jobs.empty())
    return {};
  double first = jobs.front().start_s, last = first;
  for (auto& j : jobs) {
    first = std::min(first, j.start_s);
    last = std::max(last, j.start_s + j.duration_s);
  }
  auto hours = static_cast<std::size_t>(
      std::min(static_cast<double>(hours_max), std::ceil((last - first) / 3600) + 1));
  std::vector<double> demand(hours);
  for (auto& j : jobs) {
    double from = (j.start_s - first) / 3600, to = from + j.duration_s / 3600;
    for (auto h = static_cast<std::size_t>(std::max(0.0, from));
         h < hours && static_cast<double>(h) < to; ++h) {
      double inside =
          std::min(to, static_cast<double>(h + 1)) - std::max(from, static_cast<double>(h));
      if (inside > 0)
        demand[h] += inside * j.gpus;
    }
  }
  return demand;
}

}  // namespace billow::advise
