#include "advise/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

std::string_view billow_embedded_calibration();

namespace billow::advise {
namespace {

// The rates at which a row's kernels run, in operations and bytes per second.
struct Rates {
  double bandwidth = 0, matrix = 0, half = 0, link = 0;
};

Rates rates_of(const ServingRow& row) {
  auto& g = *row.gpu;
  Rates r;
  r.bandwidth = g.bandwidth_gb_s.value_or(0) * 1e9;
  r.half = g.bf16_tflops.value_or(g.fp16_tflops.value_or(0)) * 1e12;
  auto p = parse_precision(row.precision).value_or(Precision::bf16);
  r.matrix = r.half;
  if (p == Precision::fp8)
    r.matrix = g.fp8_tflops.value_or(r.half / 1e12) * 1e12;
  if (p == Precision::fp4 || p == Precision::nvfp4)
    r.matrix = g.fp4_tflops.value_or(r.half / 1e12) * 1e12;
  if (p == Precision::int8)
    r.matrix = g.int8_tops.value_or(r.half / 1e12) * 1e12;
  r.link = std::max(32.0, g.nvlink_gb_s.value_or(0) / 2) * 1e9;
  return r;
}

std::string group_key(const ServingRow& row) {
  return fmt::format("{}/{}/{}/{}", row.family, row.gpu->name, row.engine, row.precision);
}

std::string ranks_key(const ServingRow& row) {
  return fmt::format("{}{}{}{}", row.disaggregated ? "d" : "a", row.parallelism.tensor,
                     row.parallelism.attention_data > 1 ? "d" : "",
                     row.parallelism.expert > 1 ? "e" : "");
}

std::string series_key(const ServingRow& row) {
  return fmt::format("{}/{}/{:.0f}x{:.0f}", group_key(row), ranks_key(row), row.input, row.output);
}

// A version string goes into the calibration's file as one word.
std::string word(std::string text) {
  for (char& c : text)
    if (c == ' ' || c == '\t' || c == '\n')
      c = '_';
  return text.substr(0, 64);
}

struct Keys {
  std::string family, gpu, engine, precision, mix, mode, ranks, group, version;
};
Keys keys_of(const ServingRow& row) {
  return {row.family,
          row.gpu->name,
          word(row.engine),
          word(row.precision),
          row.shape->is_moe() ? "moe" : "dense",
          row.disaggregated ? "apart" : "together",
          ranks_key(row),
          word(group_key(row)),
          word(row.engine + "/" + row.version)};
}

// Effects on each physical term. The spreads state how far an efficiency may vary between engines,
// GPUs, families … before any measurement; they were chosen once by leaving models and GPUs out,
// and are not fitted.
std::vector<Effect> term_effects(const Keys& k) {
  return {{"all", 20},
          {"engine=" + k.engine, 0.22},
          {"gpu=" + k.gpu, 0.13},
          {"precision=" + k.precision, 0.06},
          {"mix=" + k.mix, 0.18},
          {"mode=" + k.mode, 0.11},
          {"family=" + k.family, 0.13},
          {"engine-gpu=" + k.engine + "/" + k.gpu, 0.09},
          {"engine-ranks=" + k.engine + "/" + k.mode + (k.ranks.back() == 'e' ? "/e" : "") +
               (k.ranks.find('d', 1) != std::string::npos ? "/d" : ""),
           0.11},
          {"family-gpu-engine=" + k.family + "/" + k.gpu + "/" + k.engine, 0.13},
          {"group=" + k.group, 0.13},
          {"config=" + k.group + "/" + k.ranks, 0.07}};
}

std::vector<Effect> whole_effects(const Keys& k) {
  return {{"gpu=" + k.gpu, 0.15},
          {"engine=" + k.engine, 0.48},
          {"precision=" + k.precision, 0.15},
          {"mix=" + k.mix, 0.2},
          {"family=" + k.family, 0.2},
          {"family-gpu-engine=" + k.family + "/" + k.gpu + "/" + k.engine, 0.15},
          {"group=" + k.group, 0.15},
          {"config=" + k.group + "/" + k.ranks, 0.083},
          {"version=" + k.version, 0.15},
          {"group-version=" + k.group + "/" + k.version, 0.165}};
}

constexpr EfficiencyModel::Options tpot_options{.noise = 0.104, .power = 0.8};
constexpr EfficiencyModel::Options ttft_options{.noise = 0.18, .power = 1.0};

double quantile(std::vector<double>& values, double q) {
  if (values.empty())
    return 0;
  auto at = static_cast<std::size_t>(std::clamp(q * static_cast<double>(values.size()), 0.0,
                                                static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

std::string spread_key(std::string_view what, bool known, const ServingRow& row) {
  return fmt::format("{}/{}/{}", what, known ? "known" : "new",
                     row.disaggregated     ? "apart"
                     : row.shape->is_moe() ? "moe"
                                           : "dense");
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

const std::vector<std::string>& tpot_term_names() {
  static const std::vector<std::string> names = {
      "per layer", "weights",         "experts",         "KV cache",          "arithmetic",
      "exchanges", "exchanged bytes", "others' prefill", "starting prefills", "per sequence"};
  return names;
}

Terms terms_of(const ServingRow& row) {
  Traffic traffic{row.concurrency / row.decode_workers, row.input, row.output};
  auto w = work_of(*row.shape, row.kv, row.parallelism, traffic);
  auto r = rates_of(row);
  double ranks = row.parallelism.tensor, ring = ranks > 1 ? 2 * (ranks - 1) / ranks : 0;
  double prefill_ms =
      (w.prefill_flops / r.matrix / 0.5 + w.prefill_attention_flops / r.half / 0.4) * 1e3;
  // In a shared engine each step also carries the prefills of arriving requests: concurrency/output
  // of them per step.
  double arrivals = row.disaggregated ? 0 : traffic.concurrency / row.output;
  constexpr double floor_ms = 1e-9;
  Terms t;
  t.tpot = {w.layers * 5e-3,
            w.weight_bytes / r.bandwidth / 0.8 * 1e3,
            w.expert_bytes / r.bandwidth / 0.6 * 1e3 + floor_ms,
            w.kv_bytes / r.bandwidth / 0.7 * 1e3,
            w.step_flops / r.matrix / 0.5 * 1e3,
            w.exchanges * 8e-3 + floor_ms,
            w.exchange_bytes / r.link * ring * 1e3 + floor_ms,
            arrivals * prefill_ms + floor_ms,
            arrivals * w.layers * 40e-3 + floor_ms,
            traffic.concurrency * 5e-3};
  double waiting = traffic.concurrency;
  if (row.disaggregated) {
    prefill_ms *= ranks / std::max(1.0, row.prefill_rank_gpus);
    // If the number of prefill workers is unknown, assume that larger loads had more of them, but
    // not in proportion.
    double workers = row.prefill_told ? row.prefill_gpus / std::max(1.0, row.prefill_rank_gpus)
                                      : std::pow(row.concurrency / 64, 0.45);
    waiting = row.concurrency / std::max(1.0, workers);
  }
  t.ttft = {w.layers * 40e-3,
            prefill_ms,
            w.prefill_bytes / r.bandwidth / 0.7 * 1e3 * 0.3,
            (w.weight_bytes / 0.8 + w.expert_bytes / 0.6 + w.kv_bytes / 0.7) / r.bandwidth * 1e3,
            prefill_ms * std::sqrt(waiting),
            prefill_ms * waiting * 0.05,
            w.layers * 5e-3 * waiting * 0.1,
            5.0};
  return t;
}

Sample tpot_sample(const ServingRow& row) {
  auto k = keys_of(row);
  return {terms_of(row).tpot, term_effects(k), whole_effects(k), row.tpot_ms.value_or(0)};
}

Sample ttft_sample(const ServingRow& row) {
  auto k = keys_of(row);
  Sample s{terms_of(row).ttft,
           term_effects(k),
           {{"version=" + k.version, 0.15}, {"group-version=" + k.group + "/" + k.version, 0.1}},
           row.ttft_ms.value_or(0)};
  // First tokens depend on queueing, which differs greatly between engines.
  for (auto& g : s.groups)
    if (g.key != "all")
      g.spread *= 2.2;
  // An engine keeps its settings for chunking and prompt order for a mix of lengths, whatever the
  // model.
  s.groups.push_back(
      {fmt::format("engine-lengths={}/{:.0f}x{:.0f}", k.engine, row.input, row.output), 0.35});
  if (row.disaggregated)
    s.groups.push_back(
        {row.prefill_told ? "prefill-workers=told" : "prefill-workers=untold", 0.15});
  return s;
}

void Calibration::remember(const std::vector<ServingRow>& rows) {
  for (auto& row : rows) {
    groups_.insert(word(group_key(row)));
    auto [it, fresh] =
        seen_.try_emplace(word(series_key(row)), Range{row.concurrency, row.concurrency});
    it->second.from = std::min(it->second.from, row.concurrency);
    it->second.to = std::max(it->second.to, row.concurrency);
  }
}

// Errors on held-out data: series of known combinations for "known"; whole models and whole GPUs
// for "new".
void Calibration::measure_errors(const std::vector<ServingRow>& rows, Intervals intervals) {
  std::map<std::string, std::vector<double>> errors;
  auto hold_out = [&](bool known, auto part_of) {
    std::map<std::string, std::vector<std::size_t>> parts;
    for (std::size_t i = 0; i < rows.size(); ++i)
      parts[part_of(rows[i])].push_back(i);
    if (parts.size() < 2)
      return;
    for (auto& [name, inside] : parts) {
      std::set<std::size_t> held(inside.begin(), inside.end());
      std::vector<Sample> tpot, ttft;
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (!held.contains(i))
          tpot.push_back(tpot_sample(rows[i])), ttft.push_back(ttft_sample(rows[i]));
      auto tpot_model = EfficiencyModel::fit(tpot, tpot_options),
           ttft_model = EfficiencyModel::fit(ttft, ttft_options);
      for (auto i : inside) {
        auto a = tpot_sample(rows[i]), b = ttft_sample(rows[i]);
        errors[spread_key("tpot", known, rows[i])].push_back(
            std::log(a.measured / tpot_model.predict(a)));
        errors[spread_key("ttft", known, rows[i])].push_back(
            std::log(b.measured / ttft_model.predict(b)));
      }
    }
  };
  // A tenth at a time: leaving out more of the few configurations with separate prefill would
  // overstate the errors of the fit in use.
  hold_out(true,
           [](const ServingRow& r) { return fmt::format("{}", stable_hash(series_key(r)) % 10); });
  if (intervals == Intervals::all) {
    hold_out(false, [](const ServingRow& r) { return r.family; });
    hold_out(false, [](const ServingRow& r) { return r.gpu->name; });
  }
  for (auto& [key, list] : errors)
    spread_[key] = {std::min(0.0, quantile(list, 0.1)), std::max(0.0, quantile(list, 0.9))};
}

Result<Calibration> Calibration::fit(const std::vector<ServingRow>& all, Intervals intervals) {
  std::vector<ServingRow> rows;
  std::set<std::string> twice;  // lists copied into each other must not count twice
  for (auto& row : all)
    if (row.ttft_ms && row.tpot_ms && *row.ttft_ms > 0 && *row.tpot_ms > 0 &&
        rates_of(row).bandwidth > 0 && rates_of(row).half > 0 &&
        twice
            .insert(fmt::format("{} {:.0f} {} {:.4f}", series_key(row), row.concurrency,
                                row.version, *row.tpot_ms))
            .second)
      rows.push_back(row);
  if (rows.size() < 10)
    return fail(Code::invalid,
                fmt::format("cannot calibrate on {} measured rows: too few", rows.size()));
  Calibration c;
  std::vector<Sample> tpot, ttft;
  for (auto& row : rows)
    tpot.push_back(tpot_sample(row)), ttft.push_back(ttft_sample(row));
  c.tpot_ = EfficiencyModel::fit(tpot, tpot_options);
  c.ttft_ = EfficiencyModel::fit(ttft, ttft_options);
  c.remember(rows);
  if (intervals != Intervals::none)
    c.measure_errors(rows, intervals);
  return c;
}

Kind Calibration::kind_of(const ServingRow& row) const {
  if (auto it = seen_.find(word(series_key(row)));
      it != seen_.end() && row.concurrency >= it->second.from && row.concurrency <= it->second.to)
    return Kind::measured;
  return groups_.contains(word(group_key(row))) ? Kind::interpolated : Kind::extrapolated;
}

Calibration::Prepared Calibration::prepare(const ServingRow& row) const {
  Prepared p{tpot_.resolve(tpot_sample(row)), ttft_.resolve(ttft_sample(row))};
  if (auto it = local_tpot_.find(group_key(row)); it != local_tpot_.end())
    p.local_tpot = std::exp(it->second);
  if (auto it = local_ttft_.find(group_key(row)); it != local_ttft_.end())
    p.local_ttft = std::exp(it->second);
  return p;
}

Calibration::Quick Calibration::quick(const Prepared& p, const ServingRow& row) {
  auto terms = terms_of(row);
  return {EfficiencyModel::predict(p.ttft, terms.ttft) * p.local_ttft,
          EfficiencyModel::predict(p.tpot, terms.tpot) * p.local_tpot};
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
  double tpot = EfficiencyModel::predict(prepared.tpot, terms.tpot, &parts) * prepared.local_tpot;
  double ttft = EfficiencyModel::predict(prepared.ttft, terms.ttft) * prepared.local_ttft;
  if (!std::isfinite(tpot) || !std::isfinite(ttft) || tpot <= 0 || ttft <= 0)
    return fail(Code::internal, "the latency model returned no number");
  auto bound = [&](std::string_view what, double value) {
    Spread s;
    if (auto it = spread_.find(spread_key(what, known, row)); it != spread_.end())
      s = it->second;
    return Estimate{value, value * std::exp(s.low), value * std::exp(s.high)};
  };
  p.tpot_ms = bound("tpot", tpot);
  p.ttft_ms = bound("ttft", ttft);
  for (std::size_t j = 0; j < parts.size(); ++j)
    p.tpot_parts.emplace_back(tpot_term_names()[j], parts[j]);
  p.basis = known ? fmt::format("this model, {}, {} and {} were measured", row.gpu->name,
                                row.engine, row.precision)
            : tpot_.knows("engine=" + word(row.engine))
                ? fmt::format("from physics and from measurements of {}", row.engine)
                : fmt::format(
                      "from physics; {} was never measured, so the mean of vllm, sglang and trtllm "
                      "is used",
                      row.engine);
  return p;
}

Calibration Calibration::with_local(const std::vector<ServingRow>& measured) const {
  Calibration c = *this;
  std::map<std::string, std::vector<double>> tpot, ttft;
  for (auto& row : measured)
    if (auto p = predict(row)) {
      if (row.tpot_ms && *row.tpot_ms > 0)
        tpot[group_key(row)].push_back(std::log(*row.tpot_ms / p->tpot_ms.value));
      if (row.ttft_ms && *row.ttft_ms > 0)
        ttft[group_key(row)].push_back(std::log(*row.ttft_ms / p->ttft_ms.value));
    }
  auto shrink = [](std::map<std::string, std::vector<double>>& from,
                   std::map<std::string, double>& into) {
    for (auto& [key, list] : from) {
      double n = static_cast<double>(list.size()), middle = quantile(list, 0.5);
      into[key] += middle * n / (n + 1);  // one measurement has a weight of one half
    }
  };
  shrink(tpot, c.local_tpot_);
  shrink(ttft, c.local_ttft_);
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
      else {
        c.seen_[words[1]] = {*a, *b};
        auto parts = split(words[1], '/');
        if (parts.size() >= 4)
          c.groups_.insert(fmt::format("{}/{}/{}/{}", parts[0], parts[1], parts[2], parts[3]));
      }
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
