#include "advise/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

std::string_view billow_embedded_calibration();

namespace billow::advise {
namespace {

constexpr double run_noise = 0.1;  // width of an interval at a load that was measured here
constexpr char lengths_place[] = "lengths";
// Of so few parts that are held out, the sign of the errors says nothing about the next one.
constexpr std::size_t parts_for_signs = 5;
constexpr double doubling_unmeasured = 0.1;  // what a doubling adds if nothing tells

constexpr EfficiencyModel::Options tpot_options{.noise = 0.104, .power = 1.0};
constexpr EfficiencyModel::Options ttft_options{.noise = 0.18, .power = 1.0};

double quantile(std::vector<double>& values, double q) {
  if (values.empty())
    return 0;
  auto at = static_cast<std::size_t>(std::clamp(q * static_cast<double>(values.size()), 0.0,
                                                static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// First tokens of a light load hardly queue, so they are predicted much better than those of a busy
// one.
std::string spread_key(std::string_view what, std::string_view place, const ServingRow& row) {
  return fmt::format("{}/{}/{}{}", what, place,
                     row.disaggregated     ? "apart"
                     : row.shape->is_moe() ? "moe"
                                           : "dense",
                     what == "ttft" && row.concurrency <= light_load_max ? "/light" : "");
}

// FNV-1a: the same on every machine, so that a fit is reproducible.
std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t h = 1469598103934665603ull;
  for (unsigned char c : text)
    h = (h ^ c) * 1099511628211ull;
  return h;
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::measured:
      return "measured";
    case Kind::interpolated:
      return "interpolated";
    case Kind::extrapolated:
      return "extrapolated";
  }
  return "?";
}

namespace {

// A model that nobody measured may resemble one that was measured ten times as well as one that was
// measured a hundred times: every combination of model, GPU, engine and precision counts the same.
std::vector<Sample> samples_of(const std::vector<ServingRow>& rows,
                               Sample (*sample)(const ServingRow&)) {
  std::map<std::string, double> rows_of;
  for (auto& row : rows)
    ++rows_of[combination_of(row)];
  std::vector<Sample> out;
  double sum = 0;
  for (auto& row : rows) {
    out.push_back(sample(row));
    sum += out.back().weight = 1 / rows_of[combination_of(row)];
  }
  for (auto& s : out)
    s.weight *= static_cast<double>(rows.size()) / sum;
  return out;
}

// Measurements that lists copied from each other, some of them rounded, count once.
constexpr double same_run = 0.015;  // relative difference
std::vector<ServingRow> distinct_runs(const std::vector<ServingRow>& all) {
  std::vector<ServingRow> rows;
  std::map<std::string, std::vector<double>> known;
  for (auto& row : all) {
    if (!row.ttft_ms || !row.tpot_ms || !(*row.ttft_ms > 0) || !(*row.tpot_ms > 0) ||
        !(rates_of(row).bandwidth > 0) || !(rates_of(row).half > 0))
      continue;
    auto& times = known[fmt::format("{} {:.0f} {}", series_key(row), row.concurrency, row.version)];
    if (std::any_of(times.begin(), times.end(),
                    [&](double t) { return std::fabs(*row.tpot_ms / t - 1) < same_run; }))
      continue;
    times.push_back(*row.tpot_ms);
    rows.push_back(row);
  }
  return rows;
}

// Steps are fitted to rows that can be true, if enough are left.
EfficiencyModel fit_tpot(const std::vector<ServingRow>& rows) {
  const auto possible = possible_runs(rows);
  return EfficiencyModel::fit(samples_of(possible.size() < 10 ? rows : possible, tpot_sample),
                              tpot_options);
}

template <class Range>
void widen(Range& range, double v) {
  range.from = range.to > 0 ? std::min(range.from, v) : v;
  range.to = std::max(range.to, v);
}

}  // namespace

// A series is named by its model, GPU, engine, precision, ranks and lengths (series_key).
void Calibration::remember_series(const std::string& series, Range loads) {
  widen(seen_[series], loads.from);
  widen(seen_[series], loads.to);
  const auto parts = split(series, '/');
  if (parts.size() < 6)
    return;
  auto& group = groups_[fmt::format("{}/{}/{}/{}", parts[0], parts[1], parts[2], parts[3])];
  families_.insert(parts[0]);
  gpus_.insert(parts[1]);
  engines_.insert(parts[2]);
  hosts_.insert(parts[1] + "/" + parts[2]);
  const auto lengths = split(parts[5], 'x');
  for (auto* extent : {&group, &everything_}) {
    widen(extent->concurrency, loads.from);
    widen(extent->concurrency, loads.to);
    if (lengths.size() == 2) {
      widen(extent->input, parse_double(lengths[0]).value_or(1));
      widen(extent->output, parse_double(lengths[1]).value_or(1));
    }
  }
}

void Calibration::remember(const std::vector<ServingRow>& rows) {
  for (auto& row : rows) {
    remember_series(one_word(series_key(row)), {row.concurrency, row.concurrency});
    architectures_.insert(one_word(architecture_word(*row.gpu)));
  }
}

std::vector<const char*> Calibration::unknown_parts(const ServingRow& row) const {
  if (groups_.contains(one_word(combination_of(row))))
    return {"near"};
  std::vector<const char*> parts;
  const bool engine = engines_.contains(one_word(row.engine));
  if (!engine)
    parts.push_back("engine");
  const std::string gpu = one_word(row.gpu->name);
  if (engine ? !hosts_.contains(gpu + "/" + one_word(row.engine)) : !gpus_.contains(gpu))
    parts.push_back(
        architectures_.contains(one_word(architecture_word(*row.gpu))) ? "gpu" : "architecture");
  // A new precision of a known model, or a known model where only others ran, is like a new model.
  if (parts.empty() || !families_.contains(one_word(row.family)))
    parts.push_back("model");
  return parts;
}

namespace {

// How far a value lies outside what was measured, in doublings.
template <class Range>
double outside(const Range& range, double v) {
  return std::max({0.0, std::log2(range.from / v), std::log2(v / range.to)});
}
template <class Extent>
double doublings_off(const Extent& e, const ServingRow& row) {
  return outside(e.concurrency, row.concurrency) + outside(e.input, row.input) +
         outside(e.output, row.output);
}

// Lengths that differ by less than a factor of 1.4 count as the same.
std::string lengths_word(const ServingRow& row) {
  return fmt::format("{:.0f}x{:.0f}", std::log2(row.input), std::log2(row.output));
}

}  // namespace

// Errors on held-out data: series of known combinations for "near", and whole models, GPUs,
// architectures and engines. All with some lengths are held out for "lengths": what a doubling
// beyond those measured adds. Several unknowns at once are not measured: variances are added.
void Calibration::measure_errors(const std::vector<ServingRow>& rows, Intervals intervals) {
  std::map<std::string, std::vector<double>> errors;
  std::set<std::string> either_sign;
  auto hold_out = [&](const char* place, auto part_of) {
    std::map<std::string, std::vector<std::size_t>> parts;
    for (std::size_t i = 0; i < rows.size(); ++i)
      parts[part_of(rows[i])].push_back(i);
    if (parts.size() < 2)
      return;
    for (auto& [name, inside] : parts) {
      std::set<std::size_t> held(inside.begin(), inside.end());
      std::vector<ServingRow> seen;
      Extent extent;
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (!held.contains(i)) {
          seen.push_back(rows[i]);
          widen(extent.input, rows[i].input);
          widen(extent.output, rows[i].output);
        }
      auto tpot_model = fit_tpot(seen),
           ttft_model = EfficiencyModel::fit(samples_of(seen, ttft_sample), ttft_options);
      for (auto i : inside) {
        double per = 1;
        if (place == lengths_place) {
          per = outside(extent.input, rows[i].input) + outside(extent.output, rows[i].output);
          if (per < 1)
            continue;
        }
        const auto a = tpot_sample(rows[i]), b = ttft_sample(rows[i]);
        const auto tpot_key = spread_key("tpot", place, rows[i]),
                   ttft_key = spread_key("ttft", place, rows[i]);
        errors[tpot_key].push_back(std::log(a.measured / tpot_model.predict(a)) / per);
        errors[ttft_key].push_back(std::log(b.measured / ttft_model.predict(b)) / per);
        if (parts.size() < parts_for_signs || place == lengths_place)
          either_sign.insert({tpot_key, ttft_key});
      }
    }
  };
  // A fifth at a time: leaving out more of the few configurations with separate prefill would
  // overstate the errors of the fit in use.
  hold_out("near",
           [](const ServingRow& r) { return fmt::format("{}", stable_hash(series_key(r)) % 5); });
  if (intervals == Intervals::all) {
    hold_out("model", [](const ServingRow& r) { return r.family; });
    hold_out("gpu", [](const ServingRow& r) { return r.gpu->name; });
    hold_out("architecture", [](const ServingRow& r) { return architecture_word(*r.gpu); });
    hold_out("engine", [](const ServingRow& r) { return r.engine; });
    hold_out(lengths_place, lengths_word);
  }
  for (auto& [key, list] : errors) {
    Spread s{std::min(0.0, quantile(list, 0.1)), std::max(0.0, quantile(list, 0.9))};
    const double widest = std::max(-s.low, s.high);
    spread_[key] = either_sign.contains(key) ? Spread{-widest, widest} : s;
  }
}

Result<Calibration> Calibration::fit(const std::vector<ServingRow>& all, Intervals intervals) {
  const auto rows = distinct_runs(all);
  if (rows.size() < 10)
    return fail(Code::invalid,
                fmt::format("cannot calibrate on {} measured rows: too few", rows.size()));
  Calibration c;
  c.tpot_ = fit_tpot(rows);
  c.ttft_ = EfficiencyModel::fit(samples_of(rows, ttft_sample), ttft_options);
  c.remember(possible_runs(rows));
  if (intervals != Intervals::none)
    c.measure_errors(rows, intervals);
  return c;
}

Kind Calibration::kind_of(const ServingRow& row) const {
  if (auto it = seen_.find(one_word(series_key(row)));
      it != seen_.end() && row.concurrency >= it->second.from && row.concurrency <= it->second.to)
    return Kind::measured;
  return groups_.contains(one_word(combination_of(row))) ? Kind::interpolated : Kind::extrapolated;
}

namespace {

// The correction by measurements taken here, and how far away (in doublings) the nearest is.
struct LocalCorrection {
  double log_tpot = 0, log_ttft = 0, doublings = 1e9;
};
LocalCorrection local_correction(const std::vector<Calibration::LocalPoint>* points,
                                 const ServingRow& row) {
  LocalCorrection c;
  if (!points)
    return c;
  double tpot = 0, ttft = 0, tpot_weight = 0, ttft_weight = 0;
  for (auto& p : *points) {
    double d = std::hypot(std::log2(row.concurrency / p.concurrency),
                          std::log2(row.input / p.input), std::log2(row.output / p.output));
    double weight = 1 / (d * d + 1e-3);
    c.doublings = std::min(c.doublings, d);
    if (p.tpot) {
      tpot += weight * *p.tpot;
      tpot_weight += weight;
    }
    if (p.ttft) {
      ttft += weight * *p.ttft;
      ttft_weight += weight;
    }
  }
  if (tpot_weight > 0)
    c.log_tpot = tpot / tpot_weight;
  if (ttft_weight > 0)
    c.log_ttft = ttft / ttft_weight;
  return c;
}

}  // namespace

// The spreads of all that is unknown about a row. Loads and lengths at which only other
// combinations were measured widen them by a third per doubling; what a doubling beyond all that
// was measured adds is measured, too. At a load measured here the spread shrinks to the noise
// between two runs.
Calibration::Spread Calibration::spread_of(std::string_view what, const ServingRow& row) const {
  const auto group = groups_.find(one_word(combination_of(row)));
  const double beyond = groups_.empty() ? 0 : doublings_off(everything_, row),
               own = group == groups_.end() ? 0 : doublings_off(group->second, row) - beyond;
  Spread s{0, 0};
  auto add = [&](const char* part, double times, Spread otherwise) {
    const auto it = spread_.find(spread_key(what, part, row));
    const Spread& one = it != spread_.end() ? it->second : otherwise;
    s = {-std::hypot(s.low, one.low * times), std::hypot(s.high, one.high * times)};
  };
  for (const char* part : unknown_parts(row))
    add(part, 1 + own / 3, {});
  add(lengths_place, beyond, {-doubling_unmeasured, doubling_unmeasured});
  auto here = local_.find(combination_of(row));
  const auto local = local_correction(here == local_.end() ? nullptr : &here->second, row);
  const double near =
      std::min(1.0, std::max(run_noise / std::max(run_noise, s.high - s.low), local.doublings / 2));
  return {s.low * near, s.high * near};
}

Calibration::Upper Calibration::upper(const ServingRow& row, double wider) const {
  return {std::exp(spread_of("tpot", row).high * wider),
          std::exp(spread_of("ttft", row).high * wider)};
}

Calibration::Prepared Calibration::prepare(const ServingRow& row) const {
  auto it = local_.find(combination_of(row));
  return {tpot_.resolve(tpot_sample(row)), ttft_.resolve(ttft_sample(row)),
          it == local_.end() ? nullptr : &it->second};
}

Calibration::Quick Calibration::quick(const Prepared& p, const ServingRow& row) {
  auto terms = terms_of(row);
  auto least = roofline_of(row);
  auto local = local_correction(p.local, row);
  return {std::max(least.ttft_ms,
                   EfficiencyModel::predict(p.ttft, terms.ttft) * std::exp(local.log_ttft)),
          std::max(least.tpot_ms,
                   EfficiencyModel::predict(p.tpot, terms.tpot) * std::exp(local.log_tpot))};
}

double Calibration::decode_ms(const Prepared& p, const ServingRow& row) {
  auto terms = terms_of(row).tpot;
  for (std::size_t j = 0; j < terms.size(); ++j)
    if (others_prefill_terms >> j & 1)
      terms[j] = 0;
  return std::max(roofline_of(row).tpot_ms, EfficiencyModel::predict(p.tpot, terms) *
                                                std::exp(local_correction(p.local, row).log_tpot));
}

Result<Prediction> Calibration::predict(const ServingRow& row) const {
  auto r = rates_of(row);
  if (!(r.bandwidth > 0) || !(r.half > 0))
    return fail(
        Code::unsupported,
        fmt::format("the catalogue has no tensor rate or no bandwidth for {}", row.gpu->name),
        "choose another GPU");
  if (row.gpu->memory_mib) {
    double capacity = static_cast<double>(*row.gpu->memory_mib) * 1048576;
    double weights = weight_bytes_per_gpu(*row.shape, row.parallelism);
    double least = weights + 1e9 +
                   kv_bytes(*row.shape, Precision::fp8, row.input,
                            std::max(1, row.parallelism.tensor / row.parallelism.attention_data)) /
                       row.parallelism.pipeline;
    if (least > capacity)
      return fail(Code::infeasible,
                  fmt::format("does not fit: {:.1f} GB of weights per GPU at {} and one sequence "
                              "of {:.0f} tokens need more than the {:.1f} GB of {}",
                              weights / 1e9, parallelism_name(row.parallelism), row.input,
                              capacity / 1e9, row.gpu->name),
                  "use more GPUs, a larger one, or fewer bits");
  }
  Prediction p;
  p.kind = kind_of(row);
  bool known = p.kind != Kind::extrapolated;
  std::vector<double> parts;
  auto prepared = prepare(row);
  auto terms = terms_of(row);
  auto least = roofline_of(row);
  auto local = local_correction(prepared.local, row);
  double tpot_model = EfficiencyModel::predict(prepared.tpot, terms.tpot, &parts);
  double tpot = std::max(least.tpot_ms, tpot_model * std::exp(local.log_tpot));
  double ttft = std::max(least.ttft_ms, EfficiencyModel::predict(prepared.ttft, terms.ttft) *
                                            std::exp(local.log_ttft));
  if (!std::isfinite(tpot) || !std::isfinite(ttft) || tpot <= 0 || ttft <= 0)
    return fail(Code::internal, "the latency model returned no number");
  for (auto& part : parts)
    part *= tpot / tpot_model;
  auto bound = [&](std::string_view what, double value, double lowest) {
    Spread s = spread_of(what, row);
    return Estimate{value, std::max(lowest, value * std::exp(s.low)), value * std::exp(s.high)};
  };
  p.tpot_ms = bound("tpot", tpot, least.tpot_ms);
  p.ttft_ms = bound("ttft", ttft, least.ttft_ms);
  for (std::size_t j = 0; j < parts.size(); ++j)
    p.tpot_parts.emplace_back(tpot_term_names()[j], parts[j]);
  p.basis = known ? fmt::format("this model, {}, {} and {} were measured", row.gpu->name,
                                row.engine, row.precision)
            : tpot_.knows("engine=" + one_word(row.engine))
                ? fmt::format("from physics and from measurements of {}", row.engine)
                : fmt::format(
                      "from physics; {} was never measured, so the mean of vllm, sglang and trtllm "
                      "is used",
                      row.engine);
  return p;
}

Calibration Calibration::with_local(const std::vector<ServingRow>& measured) const {
  Calibration c = *this;
  for (auto& row : measured) {
    auto p = predict(row);
    if (!p)
      continue;
    LocalPoint point{row.concurrency, row.input, row.output, {}, {}};
    if (row.tpot_ms && *row.tpot_ms > 0)
      point.tpot = std::log(*row.tpot_ms / p->tpot_ms.value);
    if (row.ttft_ms && *row.ttft_ms > 0)
      point.ttft = std::log(*row.ttft_ms / p->ttft_ms.value);
    c.local_[combination_of(row)].push_back(point);
  }
  c.remember(measured);
  return c;
}

std::string Calibration::dump() const {
  std::string out =
      "# How fast serving is, fitted by the calibration tool (tools/calibrate) from public serving "
      "measurements.\n"
      "# Effects on physical terms by engine, GPU, family …; spreads of errors on held-out data; "
      "what was measured. No rows.\n";
  for (auto& [key, s] : spread_)
    out += fmt::format("spread {} {:.4f} {:.4f}\n", key, s.low, s.high);
  for (auto& word : architectures_)
    out += fmt::format("architecture {}\n", word);
  for (auto& [key, range] : seen_)
    out += fmt::format("seen {} {:.0f} {:.0f}\n", key, range.from, range.to);
  return out + tpot_.dump("tpot") + ttft_.dump("ttft");
}

Result<Calibration> Calibration::parse(std::string_view text) {
  Calibration c;
  int number = 0;
  for (auto& line : split(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#')
      continue;
    std::vector<std::string> words;
    for (auto& w : split(line, ' '))
      if (!w.empty())
        words.push_back(std::move(w));
    auto name = words[0];
    Status ok;
    if (name == "tpot" || name == "ttft") {
      words.erase(words.begin());
      ok = (name == "tpot" ? c.tpot_ : c.ttft_).read_line(words);
    } else if (words.size() == 2 && name == "architecture") {
      c.architectures_.insert(words[1]);
    } else if (words.size() == 4 && (name == "spread" || name == "seen")) {
      const auto a = parse_double(words[2]), b = parse_double(words[3]);
      if (!a || !b || *a > *b)
        ok = fail(Code::invalid, "the bounds are not two numbers in ascending order");
      else if (name == "spread")
        c.spread_[words[1]] = {*a, *b};
      else
        c.remember_series(words[1], {*a, *b});
    } else {
      ok = fail(Code::invalid, "unknown line");
    }
    if (!ok)
      return pass(ok.error(), fmt::format("calibration line {}", number));
  }
  return c;
}

Calibration Calibration::embedded() {
  auto parsed = parse(billow_embedded_calibration());
  // A test parses the embedded calibration, so a released build always has a valid one.
  if (!parsed)
    check_failed("embedded calibration", __FILE__, __LINE__, parsed.error().message.c_str());
  return std::move(*parsed);
}

}  // namespace billow::advise
