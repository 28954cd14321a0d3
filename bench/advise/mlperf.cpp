#include "bench/advise/mlperf.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "advise/calibration.h"
#include "base/file.h"

namespace billow::advise {
namespace {

struct Best {
  double tokens_per_s = 0, load = 0;
  Parallelism split;
};

// Who submits offline results tunes split and load, so the best of both is compared.
Best best_of(ServingRow row, const Calibration& calibration, int gpus) {
  Best best;
  for (int tensor = 1; tensor <= std::min(8, gpus); tensor *= 2)
    for (const bool data : {false, true}) {
      if (data && (!row.shape->is_moe() || tensor == 1))
        continue;
      row.parallelism = {.tensor = tensor,
                         .attention_data = data ? tensor : 1,
                         .expert = row.shape->is_moe() && tensor > 1 ? tensor : 1};
      const auto prepared = calibration.prepare(row);
      for (double load = 8; load <= 8192; load *= 2) {
        row.concurrency = load;
        if (!calibration.predict(row) || decode_batch(row) < load * 0.999)
          break;
        const auto now = Calibration::quick(prepared, row);
        const double rate = load * row.output / (now.ttft_ms + (row.output - 1) * now.tpot_ms) *
                            1e3 * gpus / tensor;
        if (rate > best.tokens_per_s)
          best = {rate, load, row.parallelism};
      }
    }
  return best;
}

struct Entry {
  ServingRow row;
  std::string name;
  int gpus = 1;
  double tokens_per_s = 0;
};

Result<Entry> read_entry(const CsvRow& fields, ModelShelf& shelf, const Catalogue& catalogue) {
  Entry e;
  auto number = [&](const char* column) {
    return std::strtod(fields.at(column).c_str(), nullptr);
  };
  e.name = fields.at("model");
  e.row.precision = fields.at("precision");
  e.row.shape = BILLOW_TRY(shelf.get(e.name, e.row.precision));
  e.row.family = family_of(*e.row.shape);
  e.row.gpu = BILLOW_TRY(catalogue.gpu(fields.at("gpu")));
  e.row.engine = fields.at("engine");
  e.row.version = version_unsaid;
  e.row.kv = Precision::fp8;  // what these submissions use
  e.row.input = number("input");
  e.row.output = number("output");
  e.gpus = static_cast<int>(number("gpus"));
  e.tokens_per_s = number("tokens_per_s");
  return e;
}

void compare_entries(const std::vector<CsvRow>& rows) {
  const auto catalogue = Catalogue::embedded();
  const auto calibration = Calibration::embedded();
  ModelShelf shelf("");
  std::printf("  %-9s %-18s %-13s %4s %-4s %-7s %10s %10s %6s\n", "entry", "model", "GPU", "n", "",
              "engine", "published", "predicted", "ratio");
  std::vector<double> off;
  std::map<std::string, std::vector<double>> by_model;
  int left_out = 0;
  for (auto& fields : rows) {
    auto e = read_entry(fields, shelf, catalogue);
    if (!e) {
      ++left_out;
      continue;
    }
    const auto best = best_of(e->row, calibration, e->gpus);
    const double ratio = best.tokens_per_s / e->tokens_per_s;
    std::printf("  %-9s %-18s %-13s %4d %-4s %-7s %10.0f %10.0f %6.2f  %s, %.0f at once\n",
                fields.at("entry").c_str(), e->name.c_str(), e->row.gpu->name.c_str(), e->gpus,
                e->row.precision.c_str(), e->row.engine.c_str(), e->tokens_per_s, best.tokens_per_s,
                ratio, parallelism_name(best.split).c_str(), best.load);
    off.push_back(std::fabs(ratio - 1));
    by_model[e->name].push_back(ratio);
  }
  auto middle = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0 : v[v.size() / 2];
  };
  for (auto& [model, ratios] : by_model)
    std::printf("  %-18s %3zu entries, ratio median %.2f, %.2f to %.2f\n", model.c_str(),
                ratios.size(), middle(ratios), *std::min_element(ratios.begin(), ratios.end()),
                *std::max_element(ratios.begin(), ratios.end()));
  std::printf("  all: %zu entries, median %.0f %% off; %d left out (model or GPU unknown)\n",
              off.size(), 100 * middle(off), left_out);
}

}  // namespace

void report_mlperf(const std::string& facts) {
  auto text = read_file(facts);
  if (!text) {
    std::printf("MLPerf: no %s, skipped\n", facts.c_str());
    return;
  }
  std::printf(
      "MLPerf Inference v5.1, closed, offline: predicted over published tokens/s (best split and "
      "load; none of it was fitted on)\n");
  compare_entries(*read_csv(*text));
}

void report_steady(const std::string& table) {
  auto text = read_file(table);
  if (!text) {
    std::printf("TensorRT-LLM's published throughput: no %s, skipped\n", table.c_str());
    return;
  }
  std::printf(
      "TensorRT-LLM's published throughput, steady at the highest load: predicted over published "
      "tokens/s (best split and load; none of it was fitted on)\n");
  std::vector<CsvRow> rows;
  const auto published = read_csv(*text);
  for (auto& r : *published) {
    // "DEP4", "TP8": the GPUs of one replica.
    const auto& split = r.at("parallel");
    const auto digits = split.find_first_of("0123456789");
    const double gpus =
        digits == std::string::npos ? 1 : std::strtod(split.c_str() + digits, nullptr);
    const double each = std::strtod(r.at("output_tok_per_s_per_gpu").c_str(), nullptr);
    std::string model = r.at("model");
    for (const char* full :
         {"DeepSeek-R1", "Llama-3.3-70B-Instruct", "Llama-4-Maverick-17B-128E-Instruct"})
      if (std::string_view(full).starts_with(model) || model.starts_with(full))
        model = full;
    rows.push_back({{"entry", fmt::format("{}", rows.size() + 1)},
                    {"model", model},
                    {"gpu", r.at("gpu")},
                    {"gpus", fmt::format("{}", gpus)},
                    {"precision", r.at("precision")},
                    {"engine", "trtllm"},
                    {"input", r.at("isl")},
                    {"output", r.at("osl")},
                    {"tokens_per_s", fmt::format("{}", each * gpus)}});
  }
  compare_entries(rows);
}

}  // namespace billow::advise
