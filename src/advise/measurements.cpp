#include "advise/measurements.h"

#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr const char* header =
    "id,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_size,tp_size,"
    "silicon_ttft_ms,silicon_tpot_ms,measured_at\n";

}  // namespace

std::string measurements_path(const std::string& data_dir) {
  return data_dir + "/measurements.csv";
}

Status append_measurement(const std::string& data_dir, const ServingMeasurement& m) {
  BILLOW_TRY_VOID(make_directories(data_dir));
  auto path = measurements_path(data_dir);
  std::string text = header;
  if (file_exists(path))
    text = BILLOW_TRY(read_file(path));
  if (!text.empty() && text.back() != '\n')
    text += '\n';
  append_csv_row(
      text, {"loadtest " + m.measured_at, m.engine, m.version, m.model, m.gpu, m.precision, "agg",
             fmt::format("{:.0f}", m.input), fmt::format("{:.0f}", m.output),
             fmt::format("{:.2f}", m.concurrency), fmt::format("{}", m.tensor),
             fmt::format("{:.4f}", m.ttft_ms), fmt::format("{:.4f}", m.tpot_ms), m.measured_at});
  return write_file_atomic(path, text);
}

Result<Measurements> read_measurements(const std::string& data_dir,
                                       const std::string& models_dir,
                                       const Catalogue& catalogue) {
  Measurements out;
  auto path = measurements_path(data_dir);
  if (data_dir.empty() || !file_exists(path))
    return out;
  auto text = BILLOW_TRY(read_file(path));
  const auto table = parse_csv(text, table_format);
  if (!table)
    return pass(table.error(), path);
  ModelShelf shelf(models_dir);
  for (std::size_t i = 0; i < table->rows.size(); ++i) {
    const std::size_t line = table->lines[i];
    auto row = read_serving_row(table->by_name(i), shelf, catalogue);
    if (!row)
      out.left_out.push_back(
          fmt::format("measurements.csv line {}: {}", line, row.error().message));
    else if (!row->tpot_ms && !row->ttft_ms)
      out.left_out.push_back(fmt::format("measurements.csv line {}: no measured time", line));
    else {
      if (row->version.empty())
        row->version = version_unsaid;
      out.rows.push_back(std::move(*row));
    }
  }
  return out;
}

}  // namespace billow::advise
