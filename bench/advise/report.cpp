// `./dev bench advise`: every figure the advisor claims, made anew from the data. Predictions are
// judged on splits the fit did not see: the calibration is refitted for each.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "advise/calibration.h"
#include "advise/recommend.h"
#include "base/file.h"
#include "bench/advise/ibm.h"
#include "bench/advise/portfolio.h"

using namespace billow;
using namespace billow::advise;

namespace {

struct Errors {
  std::vector<double> tpot, ttft;
  int covered_tpot = 0, covered_ttft = 0;
};

double mean(const std::vector<double>& v) {
  double s = 0;
  for (double x : v)
    s += x;
  return v.empty() ? 0 : s / static_cast<double>(v.size());
}
double middle(std::vector<double> v) {
  if (v.empty())
    return 0;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void print(const char* what, const Errors& e, bool intervals) {
  if (e.tpot.empty())
    return;
  double n = static_cast<double>(e.tpot.size());
  std::printf(
      "    %-22s n %5zu   TPOT MAPE %5.1f %% median %5.1f %%   TTFT MAPE %5.1f %% median %5.1f %%",
      what, e.tpot.size(), 100 * mean(e.tpot), 100 * middle(e.tpot), 100 * mean(e.ttft),
      100 * middle(e.ttft));
  if (intervals)
    std::printf("   80 %% intervals cover %.1f %% / %.1f %%", 100 * e.covered_tpot / n,
                100 * e.covered_ttft / n);
  std::printf("\n");
}

// Rows in groups that are held out whole; `folds` 0: one fold per group.
template <class Key>
void judge(
    const char* name, const std::vector<ServingRow>& rows, Key key, int folds, bool intervals) {
  std::map<std::string, std::vector<std::size_t>> parts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto k = key(rows[i]);
    std::uint64_t h = 1469598103934665603ull;
    for (unsigned char c : k)
      h = (h ^ c) * 1099511628211ull;
    parts[folds ? fmt::format("fold {}", (h >> 7) % static_cast<std::uint64_t>(folds)) : k]
        .push_back(i);
  }
  Errors all, dense, moe, apart, every;
  std::printf("  %s (%zu folds)\n", name, parts.size());
  for (auto& [part, inside] : parts) {
    std::set<std::size_t> held(inside.begin(), inside.end());
    std::vector<ServingRow> train;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (!held.contains(i))
        train.push_back(rows[i]);
    auto fitted = Calibration::fit(train, intervals ? Intervals::known : Intervals::none);
    if (!fitted)
      continue;
    Errors mine;
    for (auto i : inside) {
      auto p = fitted->predict(rows[i]);
      if (!p)
        continue;
      double a = std::fabs(p->tpot_ms.value / *rows[i].tpot_ms - 1),
             b = std::fabs(p->ttft_ms.value / *rows[i].ttft_ms - 1);
      bool in_a = *rows[i].tpot_ms >= p->tpot_ms.low && *rows[i].tpot_ms <= p->tpot_ms.high,
           in_b = *rows[i].ttft_ms >= p->ttft_ms.low && *rows[i].ttft_ms <= p->ttft_ms.high;
      auto& kind = rows[i].disaggregated ? apart : rows[i].shape->is_moe() ? moe : dense;
      for (auto* e : {&mine, &kind, &every})
        e->tpot.push_back(a), e->ttft.push_back(b), e->covered_tpot += in_a,
            e->covered_ttft += in_b;
      if (!rows[i].disaggregated)
        all.tpot.push_back(a), all.ttft.push_back(b), all.covered_tpot += in_a,
            all.covered_ttft += in_b;
    }
    if (!folds)
      print(part.c_str(), mine, false);
  }
  print("dense", dense, intervals);
  print("mixture of experts", moe, intervals);
  print("all (one engine)", all, intervals);
  print("prefill apart", apart, intervals);
  if (!apart.tpot.empty())
    print("all", every, intervals);
  std::fflush(stdout);
}

std::string series(const ServingRow& r) {
  return fmt::format("{}/{}/{}/{}/{}/{}/{}/{}/{}x{}", r.family, r.gpu->name, r.engine, r.precision,
                     r.disaggregated, r.parallelism.tensor, r.parallelism.attention_data,
                     r.parallelism.expert, r.input, r.output);
}

void report_latency(const std::string& data) {
  auto text = read_file(data + "/advisor/silicon_sample.csv");
  if (!text) {
    std::printf("latency: no measurements, skipped\n");
    return;
  }
  auto csv = read_csv(*text);
  auto catalogue = Catalogue::embedded();
  ModelShelf shelf(data + "/advisor/model_configs");
  std::vector<ServingRow> rows;
  std::set<std::string> twice;
  int refused = 0, total = 0;
  for (auto& fields : *csv) {
    auto row = read_serving_row(fields, shelf, catalogue);
    if (!row)
      continue;
    ++total;
    // What ran must fit: how many measured rows does the memory model call impossible?
    if (!row->disaggregated && row->gpu->memory_mib) {
      auto m = serving_memory(*row->shape, Precision::fp8, row->parallelism,
                              {.context = row->input + row->output, .sequences = 1},
                              static_cast<double>(*row->gpu->memory_mib) * 1048576);
      refused += !m.fits();
    }
    if (twice
            .insert(fmt::format("{} {} {} {:.4f}", series(*row), row->concurrency, row->version,
                                *row->tpot_ms))
            .second)
      rows.push_back(std::move(*row));
  }
  std::printf(
      "latency on %zu distinct measurements of %d rows; measured rows the memory model calls "
      "impossible: %d\n",
      rows.size(), total, refused);
  judge(
      "known model, GPU and engine at new loads (split by load of a configuration)", rows,
      [](const ServingRow& r) { return series(r) + fmt::format("/{}", r.concurrency); }, 5, false);
  judge(
      "known model, GPU and engine at new configurations (split by ranks and lengths, all loads "
      "held out)",
      rows, series, 5, true);
  std::vector<ServingRow> together;
  for (auto& r : rows)
    if (!r.disaggregated)
      together.push_back(r);
  judge(
      "leave one model out", together, [](const ServingRow& r) { return r.family; }, 0, false);
  judge(
      "leave one GPU out", together, [](const ServingRow& r) { return r.gpu->name; }, 0, false);
}

void report_speed() {
  using clock = std::chrono::steady_clock;
  double worst = 0, sum = 0;
  int n = 0;
  for (auto model : {"7B", "13B", "70B", "405B", "1B"}) {
    auto start = clock::now();
    Request request;
    request.model = *model_of_size(model);
    request.users = 100;
    request.tokens_per_s_min = 10;
    auto r = recommend(request, Catalogue::embedded(), Calibration::embedded());
    double ms = std::chrono::duration<double, std::milli>(clock::now() - start).count();
    worst = std::max(worst, ms);
    sum += ms;
    ++n;
    if (!r)
      std::printf("  %s: %s\n", model, r.error().message.c_str());
  }
  std::printf(
      "an answer, the catalogue read and scanned whole: mean %.0f ms, worst %.0f ms (asked: < "
      "100)\n",
      sum / n, worst);
}

}  // namespace

int main(int argc, char** argv) {
  std::string data = "../shared/data", only;
  for (int i = 1; i + 1 < argc; ++i) {
    if (!std::strcmp(argv[i], "--data"))
      data = argv[i + 1];
    if (!std::strcmp(argv[i], "--only"))
      only = argv[i + 1];  // speed, portfolio, pilot or latency
  }
  auto wanted = [&](const char* part) {
    return only.empty() || only == part;
  };
  if (wanted("speed"))
    report_speed();
  if (wanted("portfolio"))
    report_portfolio(data);
  if (wanted("pilot"))
    report_ibm(data + "/advisor/ibm_llmpilot");
  if (wanted("latency"))
    report_latency(data);
}
