#include "bench/advise/latency.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>

#include "advise/calibration.h"
#include "base/file.h"

namespace billow::advise {
namespace {

struct Times {
  double ttft = 0, tpot = 0;
};
// Requests per second of a closed loop: each of the `concurrency` users waits for an answer.
double throughput(const ServingRow& row, const Times& t) {
  return row.concurrency / (t.ttft + std::max(0.0, row.output - 1) * t.tpot) * 1e3;
}

// log(measured / predicted) of the rows of one part that was held out.
struct Errors {
  std::string part;
  std::vector<double> tpot, ttft, rate;
};

double quantile(std::vector<double> v, double q) {
  if (v.empty())
    return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<std::size_t>(q * static_cast<double>(v.size())))];
}

std::vector<double> relative(const std::vector<double>& logs) {
  std::vector<double> out;
  for (double e : logs)
    out.push_back(std::fabs(std::exp(-e) - 1));
  return out;
}

using Pick = const std::vector<double>& (*)(const Errors&);

// The share of each part's rows inside an interval made from the errors of the other parts: what an
// 80 % interval holds on a model or GPU that had no say in it.
double coverage(const std::vector<Errors>& parts, Pick pick) {
  double inside = 0, all = 0;
  for (auto& part : parts) {
    std::vector<double> others;
    for (auto& other : parts)
      if (&other != &part)
        others.insert(others.end(), pick(other).begin(), pick(other).end());
    double low = std::min(0.0, quantile(others, 0.1)), high = std::max(0.0, quantile(others, 0.9));
    for (double e : pick(part)) {
      inside += e >= low && e <= high;
      ++all;
    }
  }
  return all > 0 ? inside / all : 0;
}

const std::vector<double>& tpot_of(const Errors& e) {
  return e.tpot;
}
const std::vector<double>& ttft_of(const Errors& e) {
  return e.ttft;
}
const std::vector<double>& rate_of(const Errors& e) {
  return e.rate;
}

void print_row(const char* name, const std::vector<Errors>& parts, bool covers) {
  std::printf("    %-24s", name);
  for (Pick pick : {&tpot_of, &ttft_of, &rate_of}) {
    std::vector<double> all;
    for (auto& part : parts)
      for (double e : relative(pick(part)))
        all.push_back(e);
    std::printf("  %5.1f %6.1f", 100 * quantile(all, 0.5), 100 * quantile(all, 0.9));
    if (covers)
      std::printf(" %4.0f", 100 * coverage(parts, pick));
    else
      std::printf("    –");
  }
  std::size_t n = 0;
  for (auto& part : parts)
    n += part.tpot.size();
  std::printf("  %5zu\n", n);
}

// Answers for held-out rows after seeing the others.
using Predictor = std::function<std::vector<Times>(const std::vector<ServingRow>& train,
                                                   const std::vector<ServingRow>& test)>;

std::vector<Times> shipped(const std::vector<ServingRow>& train,
                           const std::vector<ServingRow>& test) {
  std::vector<Times> out;
  auto fitted = Calibration::fit(train, Intervals::none);
  for (auto& row : test) {
    auto p = fitted ? fitted->predict(row) : Result<Prediction>(fail(Code::internal, "no fit"));
    out.push_back(p ? Times{p->ttft_ms.value, p->tpot_ms.value} : Times{});
  }
  return out;
}

// The same after one load test of each held-out combination of model, GPU, engine and precision, at
// its middle load, as `billow loadtest` would leave it. The rows that were tested are not judged.
std::vector<Times> after_one_test(const std::vector<ServingRow>& train,
                                  const std::vector<ServingRow>& test) {
  std::map<std::string, std::vector<std::size_t>> combinations;
  for (std::size_t i = 0; i < test.size(); ++i)
    combinations[fmt::format("{}/{}/{}/{}", test[i].family, test[i].gpu->name, test[i].engine,
                             test[i].precision)]
        .push_back(i);
  std::set<std::size_t> tested;
  std::vector<ServingRow> local;
  for (auto& [name, inside] : combinations) {
    std::stable_sort(inside.begin(), inside.end(), [&](std::size_t a, std::size_t b) {
      return test[a].concurrency < test[b].concurrency;
    });
    tested.insert(inside[inside.size() / 2]);
    local.push_back(test[inside[inside.size() / 2]]);
  }
  auto fitted = Calibration::fit(train, Intervals::none);
  std::vector<Times> out(test.size());
  if (!fitted)
    return out;
  const auto calibration = fitted->with_local(local);
  for (std::size_t i = 0; i < test.size(); ++i)
    if (auto p = calibration.predict(test[i]); p && !tested.contains(i))
      out[i] = {p->ttft_ms.value, p->tpot_ms.value};
  return out;
}

// A textbook: 80 % of the bandwidth, half of the tensor rate, prefills shared by the steps.
std::vector<Times> naive(const std::vector<ServingRow>&, const std::vector<ServingRow>& test) {
  std::vector<Times> out;
  for (auto& row : test) {
    auto r = rates_of(row);
    double load = row.concurrency / row.decode_workers;
    auto w = work_of(*row.shape, row.kv, row.parallelism, {load, row.input, row.output});
    double bytes = (w.weight_bytes + w.expert_bytes + w.kv_bytes) / r.bandwidth / 0.8 * 1e3;
    double prefill = (w.prefill_flops + w.prefill_attention_flops) / r.matrix / 0.5 * 1e3;
    out.push_back(
        {prefill * std::sqrt(load),
         std::max(bytes,
                  (w.step_flops / r.matrix + w.step_attention_flops / r.attention) / 0.5 * 1e3) +
             load / row.output * prefill});
  }
  return out;
}

// Ten coefficients per engine over the same terms, nothing else.
std::vector<Times> ten_coefficients(const std::vector<ServingRow>& train,
                                    const std::vector<ServingRow>& test) {
  auto plain = [](Sample s, const ServingRow& row) {
    s.groups = {{"all", 20}, {"engine=" + row.engine, 20}};
    s.offsets.clear();
    return s;
  };
  std::vector<Sample> tpot, ttft;
  for (auto& row : train) {
    tpot.push_back(plain(tpot_sample(row), row));
    ttft.push_back(plain(ttft_sample(row), row));
  }
  auto a = EfficiencyModel::fit(tpot, {.noise = 0.1}),
       b = EfficiencyModel::fit(ttft, {.noise = 0.2});
  std::vector<Times> out;
  for (auto& row : test)
    out.push_back(
        {b.predict(plain(ttft_sample(row), row)), a.predict(plain(tpot_sample(row), row))});
  return out;
}

template <class Key>
std::vector<Errors> judge(const std::vector<ServingRow>& rows, Key key, const Predictor& predict) {
  std::map<std::string, std::vector<std::size_t>> parts;
  for (std::size_t i = 0; i < rows.size(); ++i)
    parts[key(rows[i])].push_back(i);
  std::vector<Errors> out;
  for (auto& [part, inside] : parts) {
    std::set<std::size_t> held(inside.begin(), inside.end());
    std::vector<ServingRow> train, test;
    for (std::size_t i = 0; i < rows.size(); ++i)
      (held.contains(i) ? test : train).push_back(rows[i]);
    auto answers = predict(train, test);
    Errors e{part, {}, {}, {}};
    for (std::size_t i = 0; i < test.size(); ++i) {
      if (!(answers[i].tpot > 0))
        continue;
      Times measured{*test[i].ttft_ms, *test[i].tpot_ms};
      e.tpot.push_back(std::log(measured.tpot / answers[i].tpot));
      e.ttft.push_back(std::log(measured.ttft / answers[i].ttft));
      e.rate.push_back(std::log(throughput(test[i], measured) / throughput(test[i], answers[i])));
    }
    out.push_back(std::move(e));
  }
  return out;
}

template <class Key>
void compare(const char* title, const std::vector<ServingRow>& rows, Key key, bool parts) {
  std::printf(
      "  %s\n    %-24s  TPOT p50    p90  80%%  TTFT p50    p90  80%%  rate p50    p90  80%%"
      "  rows\n",
      title, "errors in %");
  auto ours = judge(rows, key, shipped);
  if (parts)
    for (auto& part : ours)
      print_row(part.part.c_str(), {part}, false);
  print_row("this model", ours, true);
  if (parts)
    print_row("after one load test", judge(rows, key, after_one_test), true);
  print_row("naive roofline", judge(rows, key, naive), false);
  print_row("ten coefficients", judge(rows, key, ten_coefficients), false);
  std::fflush(stdout);
}

std::string series(const ServingRow& r) {
  return fmt::format("{}/{}/{}/{}/{}/{}/{}/{}/{}x{}", r.family, r.gpu->name, r.engine, r.precision,
                     r.disaggregated, r.parallelism.tensor, r.parallelism.attention_data,
                     r.parallelism.expert, r.input, r.output);
}

// Five parts by a hash that is the same on every machine.
std::string fifth(const std::string& text) {
  std::uint64_t h = 1469598103934665603ull;
  for (unsigned char c : text)
    h = (h ^ c) * 1099511628211ull;
  return fmt::format("part {}", (h >> 7) % 5);
}

struct Measured {
  std::vector<ServingRow> together, apart;
  int total = 0, refused = 0;
};
Measured read_measured(const std::string& data, const Catalogue& catalogue) {
  Measured out;
  auto text = read_file(data + "/advisor/silicon_sample.csv");
  if (!text)
    return out;
  auto csv = read_csv(*text);
  ModelShelf shelf(data + "/advisor/model_configs");
  std::set<std::string> twice;
  for (auto& fields : *csv) {
    auto row = read_serving_row(fields, shelf, catalogue);
    if (!row || !row->tpot_ms || !row->ttft_ms)
      continue;
    ++out.total;
    // What ran must fit: how many measured rows does the memory model call impossible?
    if (!row->disaggregated && row->gpu->memory_mib) {
      auto m = serving_memory(*row->shape, Precision::fp8, row->parallelism,
                              {.context = row->input + row->output, .sequences = 1},
                              static_cast<double>(*row->gpu->memory_mib) * 1048576);
      out.refused += !m.fits();
    }
    if (twice
            .insert(fmt::format("{} {} {} {:.4f}", series(*row), row->concurrency, row->version,
                                *row->tpot_ms))
            .second)
      (row->disaggregated ? out.apart : out.together).push_back(std::move(*row));
  }
  return out;
}

}  // namespace

void report_latency(const std::string& data, const std::string& only) {
  auto catalogue = Catalogue::embedded();
  auto measured = read_measured(data, catalogue);
  if (measured.together.empty()) {
    std::printf("latency: no measurements, skipped\n");
    return;
  }
  std::printf(
      "latency on %zu distinct measurements (%zu with prefill apart) of %d rows; measured rows the "
      "memory model calls impossible: %d\n",
      measured.together.size() + measured.apart.size(), measured.apart.size(), measured.total,
      measured.refused);
  auto& rows = measured.together;
  int beyond = 0;
  for (auto& row : rows)
    beyond += *row.tpot_ms < roofline_of(row).tpot_ms;
  std::printf("  measured faster than the roofline: %d\n", beyond);
  if (only.empty() || only == "models")
    compare(
        "leave one model out", rows, [](const ServingRow& r) { return r.family; }, true);
  if (only.empty() || only == "gpus")
    compare(
        "leave one GPU out", rows, [](const ServingRow& r) { return r.gpu->name; }, true);
  if (!only.empty())
    return;
  compare(
      "known model, GPU and engine at new ranks and lengths", rows,
      [](const ServingRow& r) { return fifth(series(r)); }, false);
  auto every = rows;
  every.insert(every.end(), measured.apart.begin(), measured.apart.end());
  compare(
      "the same with prefill apart", every, [](const ServingRow& r) { return fifth(series(r)); },
      false);
}

}  // namespace billow::advise
