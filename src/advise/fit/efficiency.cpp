#include "advise/fit/efficiency.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace billow::advise {
namespace {

// The samples with their keys as indices into one parameter vector.
struct Problem {
  struct Row {
    std::vector<double> powers;                           // the terms, each to the power p
    std::vector<std::size_t> groups;                      // first parameter of each
    std::vector<std::pair<std::size_t, double>> offsets;  // parameter, value
    double target, counts;
  };
  std::size_t terms = 0;
  std::vector<Row> rows;
  std::vector<double> precision;  // 1/spread², per parameter
  std::unordered_map<std::string, std::size_t> group_at, offset_at;

  double power;

  Problem(const std::vector<Sample>& samples, double p) : power(p) {
    for (auto& s : samples) {
      terms = s.terms.size();
      Row row{s.terms, {}, {}, std::log(s.measured), s.weight};
      for (auto& t : row.powers)
        t = std::pow(t, power);
      for (auto& g : s.groups)
        row.groups.push_back(place(group_at, g, terms));
      for (auto& o : s.offsets)
        row.offsets.emplace_back(place(offset_at, o, 1), o.value);
      rows.push_back(std::move(row));
    }
  }
  std::size_t place(std::unordered_map<std::string, std::size_t>& at,
                    const Effect& effect,
                    std::size_t width) {
    auto [it, fresh] = at.try_emplace(effect.key, precision.size());
    constexpr double fixed = 1e8;  // precision of a term that the effect leaves alone
    if (fresh)
      for (std::size_t j = 0; j < width; ++j)
        precision.push_back(effect.terms >> j & 1 ? 1 / (effect.spread * effect.spread) : fixed);
    return it->second;
  }

  // log of the sum, and each term's share of it.
  double evaluate(const Row& row,
                  const std::vector<double>& theta,
                  std::vector<double>& share) const {
    double sum = 0, offset = 0;
    share.assign(terms, 0);
    for (std::size_t j = 0; j < terms; ++j) {
      double log_scale = 0;
      for (auto g : row.groups)
        log_scale += theta[g + j];
      share[j] = row.powers[j] * std::exp(power * std::clamp(log_scale, -12.0, 12.0));
      sum += share[j];
    }
    for (auto& s : share)
      s /= sum;
    for (auto& [o, value] : row.offsets)
      offset += theta[o] * value;
    return std::log(sum) / power + offset;
  }
};

// Pseudo-Huber: quadratic near zero, linear in the tails, so that a stalled measurement does not
// distort the rest.
double robust_loss(double e) {
  return 4 * (std::sqrt(1 + e * e / 4) - 1);
}
double robust_weight(double e) {
  return 1 / std::sqrt(1 + e * e / 4);
}

double misfit(const Problem& problem, const std::vector<double>& theta, double noise) {
  double sum = 0;
  std::vector<double> share;
  for (auto& row : problem.rows)
    sum += row.counts * robust_loss((row.target - problem.evaluate(row, theta, share)) / noise);
  for (std::size_t i = 0; i < theta.size(); ++i)
    sum += 0.5 * theta[i] * theta[i] * problem.precision[i];
  return sum;
}

// One Gauss-Newton step by conjugate gradients: the Jacobian has a few dozen entries per row, so
// the normal matrix is never formed.
std::vector<double> newton_step(const Problem& problem,
                                const std::vector<double>& theta,
                                double noise,
                                double damping) {
  std::size_t n = theta.size(), k = problem.terms;
  std::vector<std::vector<double>> shares(problem.rows.size());
  std::vector<double> weight(problem.rows.size()), gradient(n), diagonal = problem.precision;
  for (std::size_t i = 0; i < n; ++i)
    gradient[i] = -problem.precision[i] * theta[i];
  for (std::size_t r = 0; r < problem.rows.size(); ++r) {
    auto& row = problem.rows[r];
    double e = row.target - problem.evaluate(row, theta, shares[r]);
    weight[r] = row.counts * robust_weight(e / noise) / (noise * noise);
    for (auto g : row.groups)
      for (std::size_t j = 0; j < k; ++j) {
        gradient[g + j] += weight[r] * e * shares[r][j];
        diagonal[g + j] += weight[r] * shares[r][j] * shares[r][j];
      }
    for (auto& [o, value] : row.offsets) {
      gradient[o] += weight[r] * e * value;
      diagonal[o] += weight[r] * value * value;
    }
  }
  auto multiply = [&](const std::vector<double>& x, std::vector<double>& out) {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = x[i] * (problem.precision[i] + damping * diagonal[i]);
    for (std::size_t r = 0; r < problem.rows.size(); ++r) {
      auto& row = problem.rows[r];
      auto& share = shares[r];
      double dot = 0;
      for (auto g : row.groups)
        for (std::size_t j = 0; j < k; ++j)
          dot += share[j] * x[g + j];
      for (auto& [o, value] : row.offsets)
        dot += x[o] * value;
      dot *= weight[r];
      for (auto g : row.groups)
        for (std::size_t j = 0; j < k; ++j)
          out[g + j] += dot * share[j];
      for (auto& [o, value] : row.offsets)
        out[o] += dot * value;
    }
  };
  std::vector<double> x(n), residual = gradient, direction(n), product(n), scaled(n);
  double rho = 0;
  for (std::size_t i = 0; i < n; ++i) {
    scaled[i] = residual[i] / diagonal[i];
    direction[i] = scaled[i];
    rho += residual[i] * scaled[i];
  }
  double start = rho;
  for (int step = 0; step < 60 && rho > 1e-5 * start && rho > 1e-12; ++step) {
    multiply(direction, product);
    double curvature = 0;
    for (std::size_t i = 0; i < n; ++i)
      curvature += direction[i] * product[i];
    double alpha = rho / curvature, next = 0;
    for (std::size_t i = 0; i < n; ++i) {
      x[i] += alpha * direction[i];
      residual[i] -= alpha * product[i];
      scaled[i] = residual[i] / diagonal[i];
      next += residual[i] * scaled[i];
    }
    for (std::size_t i = 0; i < n; ++i)
      direction[i] = scaled[i] + next / rho * direction[i];
    rho = next;
  }
  return x;
}

}  // namespace

EfficiencyModel EfficiencyModel::fit(const std::vector<Sample>& samples, const Options& options) {
  BILLOW_CHECK(!samples.empty(), "a model is fitted on something");
  Problem problem(samples, options.power);
  std::vector<double> theta(problem.precision.size());
  double best = misfit(problem, theta, options.noise), damping = 1e-2;
  for (int step = 0; step < options.steps_max; ++step) {
    double before = best;
    for (int attempt = 0; attempt < 5; ++attempt) {
      auto change = newton_step(problem, theta, options.noise, damping);
      auto trial = theta;
      for (std::size_t i = 0; i < theta.size(); ++i)
        trial[i] += change[i];
      double now = misfit(problem, trial, options.noise);
      if (now < best) {
        theta = std::move(trial);
        best = now;
        damping = std::max(damping / 5, 1e-6);
        break;
      }
      damping *= 8;
    }
    if (before - best < 1e-4 * before)
      break;
  }
  EfficiencyModel model;
  model.power_ = options.power;
  for (auto& [key, at] : problem.group_at)
    model.groups_[key].assign(theta.begin() + static_cast<std::ptrdiff_t>(at),
                              theta.begin() + static_cast<std::ptrdiff_t>(at + problem.terms));
  for (auto& [key, at] : problem.offset_at)
    model.offsets_[key] = theta[at];
  return model;
}

EfficiencyModel::Resolved EfficiencyModel::resolve(const Sample& sample) const {
  Resolved r{std::vector<double>(sample.terms.size()), 0, power_};
  for (auto& g : sample.groups)
    if (auto it = groups_.find(g.key); it != groups_.end())
      for (std::size_t j = 0; j < r.scale.size() && j < it->second.size(); ++j)
        r.scale[j] += it->second[j];
  for (auto& o : sample.offsets)
    if (auto it = offsets_.find(o.key); it != offsets_.end())
      r.whole += it->second * o.value;
  for (auto& s : r.scale)
    s = std::exp(std::clamp(s, -12.0, 12.0));
  r.whole = std::exp(r.whole);
  return r;
}

double EfficiencyModel::predict(const Resolved& r,
                                const std::vector<double>& terms,
                                std::vector<double>* terms_out) {
  double sum = 0;
  std::vector<double> parts(terms.size());
  for (std::size_t j = 0; j < terms.size() && j < r.scale.size(); ++j) {
    double part = terms[j] * r.scale[j];
    parts[j] = r.power == 1 ? part : std::pow(part, r.power);
    sum += parts[j];
  }
  double total = (r.power == 1 ? sum : std::pow(sum, 1 / r.power)) * r.whole;
  if (terms_out) {
    for (auto& part : parts)
      part *= total / sum;  // each term's share of the whole
    *terms_out = std::move(parts);
  }
  return total;
}

double EfficiencyModel::predict(const Sample& sample, std::vector<double>* terms_out) const {
  return predict(resolve(sample), sample.terms, terms_out);
}

std::size_t EfficiencyModel::parameters() const {
  std::size_t n = offsets_.size();
  for (auto& [key, values] : groups_)
    n += values.size();
  return n;
}

std::string EfficiencyModel::dump(std::string_view name) const {
  std::vector<std::string> lines{fmt::format("{} power p {}", name, power_)};
  for (auto& [key, values] : groups_) {
    // An effect below one percent on every term is negligible and is not kept.
    if (std::all_of(values.begin(), values.end(), [](double v) { return std::fabs(v) < 0.01; }))
      continue;
    std::string line = fmt::format("{} group {}", name, key);
    for (double v : values)
      line += std::fabs(v) < 5e-3 ? " 0" : fmt::format(" {:.2f}", v);
    lines.push_back(std::move(line));
  }
  for (auto& [key, value] : offsets_)
    if (std::fabs(value) >= 2e-3)
      lines.push_back(fmt::format("{} offset {} {:.3f}", name, key, value));
  std::sort(lines.begin(), lines.end());
  return join(lines, "\n") + "\n";
}

Status EfficiencyModel::read_line(const std::vector<std::string>& words) {
  if (words.size() < 3)
    return fail(Code::invalid, "a calibration line has a kind, a key and values");
  std::vector<double> values;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const auto v = parse_double(words[i]);
    if (!v)
      return fail(Code::invalid, fmt::format("\"{}\" is not a number", words[i]));
    values.push_back(*v);
  }
  if (words[0] == "group")
    groups_[words[1]] = std::move(values);
  else if (words[0] == "offset" && values.size() == 1)
    offsets_[words[1]] = values[0];
  else if (words[0] == "power" && values.size() == 1 && values[0] > 0.1 && values[0] < 10)
    power_ = values[0];
  else
    return fail(Code::invalid, fmt::format("\"{}\" is neither group nor offset", words[0]));
  return {};
}

}  // namespace billow::advise
