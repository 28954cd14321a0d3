#include "advise/measurements.h"

#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr const char* header =
    "id,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_size,tp_size,"
    "silicon_ttft_ms,silicon_tpot_ms,measured_at\n";

std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos)
    return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n' || c == '\r')
      c = ' ';
    if (c == '"')
      out += '"';
    out += c;
  }
  return out + "\"";
}

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
  text += fmt::format("{},{},{},{},{},{},agg,{:.0f},{:.0f},{:.2f},{},{:.4f},{:.4f},{}\n",
                      cell("loadtest " + m.measured_at), cell(m.engine), cell(m.version),
                      cell(m.model), cell(m.gpu), cell(m.precision), m.input, m.output,
                      m.concurrency, m.tensor, m.ttft_ms, m.tpot_ms, m.measured_at);
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
  auto rows = read_csv(text);
  if (!rows)
    return pass(rows.error(), path);
  ModelShelf shelf(models_dir);
  int line = 1;
  for (auto& fields : *rows) {
    ++line;
    auto row = read_serving_row(fields, shelf, catalogue);
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
