#include "bench/advise/pilot_model.h"

#include <algorithm>
#include <cmath>

namespace billow::advise::pilot {
namespace {

// The constants, as logarithms (factors) with a prior mean and spread. Names say what they scale.
enum Constant {
  launch,
  launch_ranks,
  launch_encdec,
  weights,
  cache,
  cache_padded,
  prompts,
  prompts_encdec,
  prompts_padded,
  sequence,
  tokens_flash,
  room_padded,
  room_below,
  room_knee,
  room_above,
  first_base,
  first_step,
  first_batch,
  first_half,
  queue,
  queue_flash,
  usable,
  soft,
  launch_a10,
  launch_a100,
  launch_h100,
  launch_t4,
  launch_v100,
  rate_a10,
  rate_a100,
  rate_h100,
  rate_t4,
  rate_v100,
  prompts_ranks,
  power,
  exchange,
  constants_count
};
struct Prior {
  double mean, spread;
};
const std::array<Prior, constants_count>& priors() {
  static const std::array<Prior, constants_count> table = {
      {{std::log(0.4), 1},
       {0.2, 0.4},
       {0, 0.5},              // ms a layer; more with ranks, with two stacks
       {std::log(1.3), 0.3},  // over the time the bandwidth allows
       {std::log(300), 0.7},
       {0.5, 0.7},  // tokens of cache read a sequence
       {std::log(15), 0.7},
       {0, 0.5},
       {0.3, 0.5},            // prompt tokens a sequence and step, over the peak rate
       {std::log(0.05), 1},   // ms a sequence
       {std::log(350), 0.5},  // tokens a request reserves, paged
       {std::log(10), 0.7},
       {std::log(0.8), 0.5},
       {std::log(40e3), 0.4},
       {std::log(1.7), 0.3},  // requests held, padded: at a knee, and how it goes on
       {std::log(0.05), 1},
       {std::log(0.02), 0.7},
       {std::log(0.12), 0.7},
       {std::log(10), 0.7},
       {std::log(0.35), 0.7},
       {0, 0.5},
       {0, 0.05},
       {std::log(4), 0.5},
       {0, 0.2},
       {0, 0.2},
       {0, 0.2},
       {0, 0.2},
       {0, 0.2},
       {0, 0.3},
       {0, 0.3},
       {0, 0.3},
       {0, 0.3},
       {0, 0.3},
       {0, 0.3},
       {std::log(2), 0.4},
       {std::log(0.05), 1}}};
  return table;
}

int type_index(const std::string& type) {
  static const std::array<const char*, 5> types = {"A10", "A100", "H100", "T4", "V100"};
  for (std::size_t i = 0; i < types.size(); ++i)
    if (type == types[i])
      return static_cast<int>(i);
  return -1;
}

struct Times {
  double log_itl, log_nttft;
};
using Constants = std::vector<double>;

// Factors shared by all rows, made once for a set of constants.
struct Factors {
  std::array<double, constants_count> f{};
  explicit Factors(const Constants& c) {
    for (std::size_t i = 0; i < f.size(); ++i)
      f[i] = std::exp(c[i]);
  }
};

Times times_of(const Llm& m, const Card& c, double users, const Factors& k) {
  auto& f = k.f;
  double n = c.n, bandwidth = c.bandwidth * n;
  double free = std::max(0.5e9, c.memory * n * 0.92 * f[usable] - 2 * m.parameters - 1.5e9 * n),
         held = free / m.kv_token_bytes;
  double x = held / f[room_knee];
  double room =
      std::max(1.0, m.flash ? held / f[tokens_flash]
                            : f[room_padded] * std::pow(x, x < 1 ? f[room_below] : f[room_above]));
  double batch = std::pow(std::pow(users, -f[soft]) + std::pow(room, -f[soft]), -1 / f[soft]);
  int type = type_index(c.type);
  double of_type = type < 0 ? 1 : f[static_cast<std::size_t>(launch_a10 + type)],
         rate_type = type < 0 ? 1 : f[static_cast<std::size_t>(rate_a10 + type)];
  bool ranks = c.n > 1;
  double host = m.layers * f[launch] * of_type * (ranks ? f[launch_ranks] : 1) *
                (m.encoder_decoder ? f[launch_encdec] : 1);
  double card = 2 * m.decode_parameters / bandwidth * 1e3 * f[weights];
  card += batch * m.kv_token_bytes / bandwidth * 1e3 * f[cache] * (m.flash ? 1 : f[cache_padded]);
  card += batch * 2 * m.prefill_parameters / (c.flops * n) * 1e3 * f[prompts] * rate_type *
          (m.encoder_decoder ? f[prompts_encdec] : 1) * (m.flash ? 1 : f[prompts_padded]) *
          (ranks ? f[prompts_ranks] : 1);
  card += batch * f[sequence];
  double itl = std::pow(std::pow(host, f[power]) + std::pow(card, f[power]), 1 / f[power]) +
               m.layers * (n - 1) * f[exchange];
  double nttft = f[first_base] +
                 itl * (f[first_step] + f[first_batch] * batch / (batch + f[first_half])) +
                 (users / batch - 1) * itl * f[queue] * (m.flash ? f[queue_flash] : 1);
  return {std::log(itl), std::log(nttft)};
}

constexpr double itl_noise = 0.1, nttft_noise = 0.3;

std::vector<double> residuals(const std::vector<Point>& points, const Constants& c) {
  Factors k(c);
  std::vector<double> r;
  r.reserve(points.size() * 2);
  for (auto& p : points) {
    auto t = times_of(*p.llm, *p.card, p.users, k);
    r.push_back((std::log(p.itl) - t.log_itl) / itl_noise);
    r.push_back((std::log(p.nttft) - t.log_nttft) / nttft_noise);
  }
  return r;
}

double cost_of(const std::vector<double>& r, const Constants& c) {
  double sum = 0;
  for (double e : r)
    sum += 4 * (std::sqrt(1 + e * e / 4) - 1);
  for (std::size_t i = 0; i < c.size(); ++i)
    sum += 0.5 * std::pow((c[i] - priors()[i].mean) / priors()[i].spread, 2);
  return sum;
}

// Solves A x = b for a symmetric positive A by Cholesky. A is small.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double s = a[i][j];
      for (std::size_t k = 0; k < j; ++k)
        s -= a[i][k] * a[j][k];
      a[i][j] = i == j ? std::sqrt(std::max(s, 1e-12)) : s / a[j][j];
    }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k)
      b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k)
      b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

// Gauss-Newton with damping; derivatives by differences, since a row costs less than a microsecond.
Constants fit_mechanism(const std::vector<Point>& points) {
  Constants c;
  for (auto& p : priors())
    c.push_back(p.mean);
  std::size_t n = c.size();
  auto r = residuals(points, c);
  double best = cost_of(r, c), damping = 1e-2;
  for (int step = 0; step < 40; ++step) {
    std::vector<std::vector<double>> columns;
    for (std::size_t i = 0; i < n; ++i) {
      auto moved = c;
      moved[i] += 1e-4;
      auto column = residuals(points, moved);
      for (std::size_t k = 0; k < r.size(); ++k)
        column[k] = (column[k] - r[k]) / 1e-4;
      columns.push_back(std::move(column));
    }
    std::vector<double> weight(r.size()), gradient(n);
    for (std::size_t k = 0; k < r.size(); ++k)
      weight[k] = 1 / std::sqrt(1 + r[k] * r[k] / 4);
    std::vector<std::vector<double>> a(n, std::vector<double>(n));
    for (std::size_t i = 0; i < n; ++i) {
      double precision = 1 / (priors()[i].spread * priors()[i].spread);
      gradient[i] = -(c[i] - priors()[i].mean) * precision;
      for (std::size_t k = 0; k < r.size(); ++k)
        gradient[i] -= weight[k] * r[k] * columns[i][k];
      for (std::size_t j = 0; j <= i; ++j) {
        double s = i == j ? precision : 0;
        for (std::size_t k = 0; k < r.size(); ++k)
          s += weight[k] * columns[i][k] * columns[j][k];
        a[i][j] = a[j][i] = s;
      }
    }
    double before = best;
    for (int attempt = 0; attempt < 8; ++attempt) {
      auto damped = a;
      for (std::size_t i = 0; i < n; ++i)
        damped[i][i] *= 1 + damping;
      auto change = solve(damped, gradient);
      auto trial = c;
      for (std::size_t i = 0; i < n; ++i)
        trial[i] += change[i];
      auto now = residuals(points, trial);
      if (double cost = cost_of(now, trial); cost < best) {
        c = std::move(trial);
        r = std::move(now);
        best = cost;
        damping = std::max(damping / 5, 1e-7);
        break;
      }
      damping *= 6;
    }
    if (before - best < 1e-4 * before)
      break;
  }
  return c;
}

std::vector<double> features(const Llm& m, const Card& c) {
  double free = std::max(1e9, c.memory * c.n * 0.92 - 2 * m.parameters - 1.5e9 * c.n);
  return {1,
          std::log(free / m.kv_token_bytes / 4e4),
          std::log(c.bandwidth * c.n / 1.5e12),
          std::log(m.parameters / 1e10),
          c.n > 1 ? 1.0 : 0,
          m.encoder_decoder ? 1.0 : 0};
}

// Robust ridge regression of the load at which first tokens come too late, over padded models:
// paged ones reach their other limit first.
std::vector<double> fit_regression(const std::vector<Point>& points) {
  std::map<std::pair<const Llm*, const Card*>, std::map<double, const Point*>> series;
  for (auto& p : points)
    if (!p.llm->flash)
      series[{p.llm, p.card}][p.users] = &p;
  std::vector<std::vector<double>> x;
  std::vector<double> y;
  for (auto& [key, loads] : series) {
    x.push_back(features(*key.first, *key.second));
    y.push_back(std::log(users_at_limit(loads)));
  }
  std::size_t n = 6;
  std::vector<double> weight(y.size(), 1), beta(n);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<double>> a(n, std::vector<double>(n));
    std::vector<double> b(n);
    for (std::size_t i = 0; i < n; ++i)
      a[i][i] = i == 0 ? 1e-6 : 0.3;
    for (std::size_t k = 0; k < y.size(); ++k)
      for (std::size_t i = 0; i < n; ++i) {
        b[i] += weight[k] * x[k][i] * y[k];
        for (std::size_t j = 0; j < n; ++j)
          a[i][j] += weight[k] * x[k][i] * x[k][j];
      }
    beta = solve(a, b);
    for (std::size_t k = 0; k < y.size(); ++k) {
      double e = y[k];
      for (std::size_t i = 0; i < n; ++i)
        e -= x[k][i] * beta[i];
      weight[k] = 1 / std::sqrt(1 + e * e / 0.04);
    }
  }
  return beta;
}

}  // namespace

double users_at_limit(const std::map<double, const Point*>& loads) {
  const Point *before = nullptr, *last = nullptr;
  for (auto& [users, p] : loads) {
    if (p->nttft > nttft_max) {
      if (!last)
        return users * nttft_max / p->nttft;
      double share = std::log(nttft_max / last->nttft) / std::log(p->nttft / last->nttft);
      return std::exp(std::log(last->users) + share * std::log(users / last->users));
    }
    before = last;
    last = p;
  }
  if (!before)
    return last->users;
  double slope =
      std::max(0.5, std::log(last->nttft / before->nttft) / std::log(last->users / before->users));
  return std::min(1000.0, last->users * std::exp(std::log(nttft_max / last->nttft) / slope));
}

Model Model::fit(const std::vector<Point>& points) {
  Model m;
  m.constants_ = fit_mechanism(points);
  m.regression_ = fit_regression(points);
  return m;
}

Outlook Model::outlook(const Llm& llm, const Card& card) const {
  Outlook o;
  Factors k(constants_);
  for (std::size_t i = 0; i < grid.size(); ++i)
    o.log_itl[i] = times_of(llm, card, grid[i], k).log_itl;
  // First tokens only come later with more users, so the limit is found by halving.
  double low = 0, high = std::log(1024.0);
  for (int i = 0; i < 40; ++i) {
    double middle = (low + high) / 2;
    (times_of(llm, card, std::exp(middle), k).log_nttft > std::log(nttft_max) ? high : low) =
        middle;
  }
  o.log_users_mechanism = low;
  auto x = features(llm, card);
  for (std::size_t i = 0; i < x.size(); ++i)
    o.log_users_regression += x[i] * regression_[i];
  return o;
}

}  // namespace billow::advise::pilot
