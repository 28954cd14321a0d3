// A served configuration: which model, on which GPUs, how it is split and how it is loaded. Shared
// by predictions, by the measurements behind the calibration, and by `billow advise --batch`, whose
// CSV it reads.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "advise/workload.h"
#include "base/formats/csv.h"
#include "core/ledger/catalogue.h"

namespace billow::advise {

struct ServingRow {
  std::string id;
  std::shared_ptr<const ModelShape> shape;  // at the precision asked
  std::string family;  // fine-tunes and requantizations of one architecture share it
  const GpuSpec* gpu = nullptr;
  std::string engine, version;
  std::string precision;  // as named: "fp8", "fp4", "int4", "bf16"
  Precision kv = Precision::bf16;
  bool disaggregated = false;
  Parallelism parallelism;       // of the ranks that decode
  double prefill_gpus = 0;       // disaggregated: all prefill ranks
  double prefill_rank_gpus = 0;  // of one prefill worker
  bool prefill_data = false;     // its attention is data-parallel
  // The number of prefill workers is known; otherwise prefill_gpus counts one.
  bool prefill_told = false;
  double concurrency = 1;  // over the whole deployment
  double decode_workers = 1;
  int nodes = 1;  // that the tensor ranks of one replica lie on
  double input = 1024, output = 1024;
  ServingExtras extras{};
  std::optional<double> ttft_ms, tpot_ms;  // measured
};

// The family of a shape, which decides how its kernels behave. Two checkpoints with the same layers
// are one family.
std::string family_of(const ModelShape& shape);

// Model, GPU, engine and precision: how well its kernels are tuned, no config tells.
std::string combination_of(const ServingRow& row);

// One name for an engine: "TensorRT-LLM", "trt" and "dynamo-trt" are trtllm. An engine that is not
// known keeps its name.
std::string engine_word(std::string_view name);

// How an engine stores the KV cache by default.
Precision engine_kv(const std::string& engine,
                    const std::string& precision,
                    const ModelShape& shape);

// Finds each model once and creates each precision once.
class ModelShelf {
 public:
  explicit ModelShelf(std::string directory) : directory_(std::move(directory)) {}
  // `precision` as named in a row; empty means that of the checkpoint (BF16 if it is not
  // quantized).
  Result<std::shared_ptr<const ModelShape>> get(const std::string& model,
                                                const std::string& precision);

 private:
  std::string directory_;
  std::map<std::string, std::shared_ptr<const ModelShape>> shelf_;
};

// Without a version any version is meant: no version effect applies. (Published rows without one
// form a separate batch with its own effect.)
inline constexpr const char* version_unsaid = "any";

// One row of a CSV in the columns of the public serving measurements, by column name. Missing
// columns are empty.
using CsvRow = std::map<std::string, std::string>;
Result<ServingRow> read_serving_row(const CsvRow& fields,
                                    ModelShelf& shelf,
                                    const Catalogue& catalogue);

// How people write the tables that are read by column name.
inline constexpr CsvFormat table_format{.short_rows = true, .trimmed = true, .comments = true};
// All rows of such a table.
Result<std::vector<CsvRow>> read_csv(std::string_view text);

}  // namespace billow::advise
