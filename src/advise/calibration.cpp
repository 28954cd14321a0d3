#include "advise/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

std::string_view billow_embedded_calibration();

namespace billow::advise {
namespace {

std::string ranks_key(const ServingRow& row) {
  auto stages = row.parallelism.pipeline;
  return fmt::format("{}{}{}{}{}", row.disaggregated ? "d" : "a", row.parallelism.tensor,
                     stages > 1 ? fmt::format("p{}", stages) : "",
                     row.parallelism.attention_data > 1 ? "d" : "",
                     row.parallelism.expert > 1 ? "e" : "");
}

std::string series_key(const ServingRow& row) {
  return fmt::format("{}/{}/{:.0f}x{:.0f}", combination_of(row), ranks_key(row), row.input,
                     row.output);
}

// A version string goes into the calibration's file as one word.
std::string one_word(std::string text) {
  for (char& c : text)
    if (c == ' ' || c == '\t' || c == '\n')
      c = '_';
  return text.substr(0, 64);
}

// How a model attends decides which kernels run, whatever its size.
std::string attention_word(const ModelShape& shape) {
  bool latent = false, sparse = false, recurrent = false, window = false;
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    latent |= a.kind == AttentionKind::mla;
    sparse |= a.index_topk > 0;
    recurrent |= a.kind == AttentionKind::linear || a.kind == AttentionKind::mamba;
    window |= a.window > 0;
  }
  return sparse      ? "sparse"
         : latent    ? "latent"
         : recurrent ? "recurrent"
         : window    ? "window"
                     : "full";
}

// GPUs of one architecture run the same kernels: an unseen one borrows from its relatives.
std::string architecture_word(const GpuSpec& gpu) {
  auto& c = gpu.compute_capability;
  return c.empty() ? "unknown" : c.substr(0, c.find('.'));
}

struct Keys {
  std::string family, gpu, architecture, engine, precision, mix, attention, mode, ranks, group,
      version;
};
Keys keys_of(const ServingRow& row) {
  return {row.family,
          row.gpu->name,
          one_word(architecture_word(*row.gpu)),
          one_word(row.engine),
          one_word(row.precision),
          row.shape->is_moe() ? "moe" : "dense",
          attention_word(*row.shape),
          row.disaggregated ? "apart" : "together",
          ranks_key(row),
          one_word(combination_of(row)),
          one_word(row.engine + "/" + row.version)};
}

constexpr unsigned prefill_terms = 1u << 7 | 1u << 8;  // of tpot_term_names()

// How far an efficiency may vary between engines, GPUs, families … before any measurement. What an
// unseen model or GPU shares with others (engine, architecture, precision) is held tight: wider, it
// fits better and predicts worse, as leaving models and GPUs out shows. How a model attends and
// whether it is a mixture decide which kernels run, so these vary more.
struct Spreads {
  double all, engine, gpu, architecture, precision, mix, engine_mix, attention, mode, family,
      schedule, ranks, family_gpu_engine, group, config;
};
constexpr Spreads tpot_spreads{.all = 0.074,
                               .engine = 0.06,
                               .gpu = 0.067,
                               .architecture = 0.03,
                               .precision = 0.044,
                               .mix = 0.15,
                               .engine_mix = 0.1,
                               .attention = 0.2,
                               .mode = 0.11,
                               .family = 0.1,
                               .schedule = 0.4,
                               .ranks = 0.04,
                               .family_gpu_engine = 0.06,
                               .group = 0.06,
                               .config = 0.067};
// First tokens depend on queueing, which differs greatly between engines.
constexpr Spreads ttft_spreads{.all = 1.05,
                               .engine = 0.264,
                               .gpu = 0.11,
                               .architecture = 0.066,
                               .precision = 0.176,
                               .mix = 0.176,
                               .engine_mix = 0.1,
                               .attention = 0.22,
                               .mode = 0.242,
                               .family = 0.286,
                               .schedule = 0.88,
                               .ranks = 0.088,
                               .family_gpu_engine = 0.132,
                               .group = 0.132,
                               .config = 0.11};

// Effects on each physical term. Engines that prefill first leave the prefill out of the time
// between tokens: `scheduled` are the terms that this concerns.
std::vector<Effect> term_effects(const Keys& k, const Spreads& s, unsigned scheduled) {
  const std::string host = k.family + "/" + k.gpu + "/" + k.engine;
  return {{"all", s.all},
          {"engine=" + k.engine, s.engine},
          {"gpu=" + k.gpu, s.gpu},
          {"architecture=" + k.architecture, s.architecture},
          {"precision=" + k.precision, s.precision},
          {"mix=" + k.mix, s.mix},
          {"engine-mix=" + k.engine + "/" + k.mix, s.engine_mix},
          {"attention=" + k.attention, s.attention},
          {"mode=" + k.mode, s.mode},
          {"family=" + k.family, s.family},
          {"schedule=" + k.engine, s.schedule, scheduled},
          {"engine-ranks=" + k.engine + "/" + k.mode + (k.ranks.back() == 'e' ? "/e" : "") +
               (k.ranks.find('d', 1) != std::string::npos ? "/d" : ""),
           s.ranks},
          {"family-gpu-engine=" + host, s.family_gpu_engine},
          {"group=" + k.group, s.group},
          {"config=" + k.group + "/" + k.ranks, s.config}};
}

// Large models keep a GPU busier than small ones, and engines differ in how much that matters.
constexpr double parameters_middle = 3e10;
double size_of(const ServingRow& row) {
  return std::log(row.shape->active_parameters() / parameters_middle);
}

// How far a whole step may vary: one factor of all these was chosen, by models and GPUs left out
// twice over. Chosen one by one, they predict what had no say in the choice worse.
std::vector<Effect> whole_effects(const Keys& k, double size) {
  return {{"gpu=" + k.gpu, 0.035},
          {"engine=" + k.engine, 0.07},
          {"precision=" + k.precision, 0.042},
          {"mix=" + k.mix, 0.042},
          // How well the kernels of a combination are tuned, which says little about others.
          {"family=" + k.family, 0.14},
          {"family-gpu-engine=" + k.family + "/" + k.gpu + "/" + k.engine, 0.21},
          {"group=" + k.group, 0.21},
          {"config=" + k.group + "/" + k.ranks, 0.043},
          {"kernels=" + k.engine + "/" + k.architecture + "/" + k.precision + "/" + k.mix, 0.035},
          {"kernels=" + k.architecture + "/" + k.precision + "/" + k.mix, 0.07},
          {"size=" + k.engine, 0.105, ~0u, size},
          {"version=" + k.version, 0.07},
          {"group-version=" + k.group + "/" + k.version, 0.116}};
}

constexpr double run_noise = 0.1;  // width of an interval at a load that was measured here

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

Sample tpot_sample(const ServingRow& row) {
  auto k = keys_of(row);
  return {terms_of(row).tpot, term_effects(k, tpot_spreads, prefill_terms),
          whole_effects(k, size_of(row)), row.tpot_ms.value_or(0)};
}

Sample ttft_sample(const ServingRow& row) {
  auto k = keys_of(row);
  Sample s{terms_of(row).ttft,
           term_effects(k, ttft_spreads, ~0u),
           {{"version=" + k.version, 0.15}, {"group-version=" + k.group + "/" + k.version, 0.1}},
           row.ttft_ms.value_or(0)};
  // An engine keeps its settings for chunking and prompt order for a mix of lengths.
  s.groups.push_back(
      {fmt::format("engine-lengths={}/{:.0f}x{:.0f}", k.engine, row.input, row.output), 0.35});
  if (row.disaggregated)
    s.groups.push_back(
        {row.prefill_told ? "prefill-workers=told" : "prefill-workers=untold", 0.15});
  return s;
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
  hosts_.insert(parts[1] + "/" + parts[2]);
  widen(group.concurrency, loads.from);
  widen(group.concurrency, loads.to);
  const auto lengths = split(parts[5], 'x');
  if (lengths.size() == 2) {
    widen(group.input, parse_double(lengths[0]).value_or(1));
    widen(group.output, parse_double(lengths[1]).value_or(1));
  }
}

void Calibration::remember(const std::vector<ServingRow>& rows) {
  for (auto& row : rows)
    remember_series(one_word(series_key(row)), {row.concurrency, row.concurrency});
}

const char* Calibration::place_of(const ServingRow& row) const {
  if (groups_.contains(one_word(combination_of(row))))
    return "near";
  bool host = hosts_.contains(one_word(row.gpu->name + "/" + row.engine));
  bool family = families_.contains(one_word(row.family));
  return host ? "model" : family ? "gpu" : "far";
}

double Calibration::doublings_off(const ServingRow& row) const {
  auto it = groups_.find(one_word(combination_of(row)));
  if (it == groups_.end())
    return 0;
  auto off = [](const Range& range, double v) {
    return std::max({0.0, std::log2(range.from / v), std::log2(v / range.to)});
  };
  return off(it->second.concurrency, row.concurrency) + off(it->second.input, row.input) +
         off(it->second.output, row.output);
}

// Errors on held-out data: series of known combinations for "near"; whole models for "model", whole
// GPUs for "gpu". Both at once are not measured: their variances are added.
void Calibration::measure_errors(const std::vector<ServingRow>& rows, Intervals intervals) {
  std::map<std::string, std::vector<double>> errors;
  auto hold_out = [&](const char* place, auto part_of) {
    std::map<std::string, std::vector<std::size_t>> parts;
    for (std::size_t i = 0; i < rows.size(); ++i)
      parts[part_of(rows[i])].push_back(i);
    if (parts.size() < 2)
      return;
    for (auto& [name, inside] : parts) {
      std::set<std::size_t> held(inside.begin(), inside.end());
      std::vector<ServingRow> seen;
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (!held.contains(i))
          seen.push_back(rows[i]);
      auto tpot_model = fit_tpot(seen),
           ttft_model = EfficiencyModel::fit(samples_of(seen, ttft_sample), ttft_options);
      for (auto i : inside) {
        auto a = tpot_sample(rows[i]), b = ttft_sample(rows[i]);
        errors[spread_key("tpot", place, rows[i])].push_back(
            std::log(a.measured / tpot_model.predict(a)));
        errors[spread_key("ttft", place, rows[i])].push_back(
            std::log(b.measured / ttft_model.predict(b)));
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
  }
  for (auto& [key, list] : errors)
    spread_[key] = {std::min(0.0, quantile(list, 0.1)), std::max(0.0, quantile(list, 0.9))};
  for (std::string what : {"tpot", "ttft"})
    for (std::string mix : {"dense", "moe", "apart", "dense/light", "moe/light", "apart/light"}) {
      auto model = spread_.find(what + "/model/" + mix), gpu = spread_.find(what + "/gpu/" + mix);
      if (model != spread_.end() && gpu != spread_.end())
        spread_[what + "/far/" + mix] = {-std::hypot(model->second.low, gpu->second.low),
                                         std::hypot(model->second.high, gpu->second.high)};
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
    if (p.tpot)
      tpot += weight * *p.tpot, tpot_weight += weight;
    if (p.ttft)
      ttft += weight * *p.ttft, ttft_weight += weight;
  }
  if (tpot_weight > 0)
    c.log_tpot = tpot / tpot_weight;
  if (ttft_weight > 0)
    c.log_ttft = ttft / ttft_weight;
  return c;
}

}  // namespace

// Outside the loads and lengths that were measured an interval grows by a third per doubling; at a
// load measured here it shrinks to the noise between two runs.
Calibration::Spread Calibration::spread_of(std::string_view what, const ServingRow& row) const {
  Spread s;
  if (auto it = spread_.find(spread_key(what, place_of(row), row)); it != spread_.end())
    s = it->second;
  auto here = local_.find(combination_of(row));
  const auto local = local_correction(here == local_.end() ? nullptr : &here->second, row);
  const double near =
      std::min(1.0, std::max(run_noise / std::max(run_noise, s.high - s.low), local.doublings / 2));
  const double scale = (1 + doublings_off(row) / 3) * near;
  return {s.low * scale, s.high * scale};
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
    if (prefill_terms >> j & 1)
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
