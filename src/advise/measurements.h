// Measurements of this installation's own serving (`billow loadtest`): kept as CSV in the columns
// that `billow advise --batch` reads, so that anyone can inspect, correct or move it. `advise`
// adjusts its calibration to them.
//
// Invariants: an unreadable line is skipped and reported, the others count; appending never loses
// existing lines.
#pragma once

#include <string>
#include <vector>

#include "advise/serving_row.h"

namespace billow::advise {

struct ServingMeasurement {
  std::string model;  // a config file (kept by its full path), a name, or a size
  std::string gpu, engine, version, precision;
  int tensor = 1;
  double concurrency = 1, input = 0, output = 0;
  double ttft_ms = 0, tpot_ms = 0;
  std::string measured_at;  // "2026-11-15T06:00:00Z"
};

std::string measurements_path(const std::string& data_dir);
Status append_measurement(const std::string& data_dir, const ServingMeasurement& measurement);

struct Measurements {
  std::vector<ServingRow> rows;
  std::vector<std::string> left_out;  // "measurements.csv line 3: …"
};
// Empty if there is no file. The rows point into `catalogue`.
Result<Measurements> read_measurements(const std::string& data_dir,
                                       const std::string& models_dir,
                                       const Catalogue& catalogue);

}  // namespace billow::advise
