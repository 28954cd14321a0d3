// `billow advise --batch`: one prediction per row of a CSV, in order. A row that cannot be
// predicted gets an error in its place, so that answers and rows always line up.
#include <fmt/format.h>

#include "advise/serving_row.h"
#include "base/file.h"
#include "base/formats/csv.h"
#include "client/advice/advice.h"

namespace billow::client {
namespace {

constexpr std::size_t batch_bytes_max = 256 << 20;
constexpr const char* header =
    "id,ttft_ms,ttft_ms_low,ttft_ms_high,tpot_ms,tpot_ms_low,tpot_ms_high,kind,error\n";

Json row_json(const std::string& id, const Result<advise::Prediction>& p) {
  if (!p)
    return Json::object(
        {{"id", id}, {"ttft_ms", Json()}, {"tpot_ms", Json()}, {"error", p.error().message}});
  return Json::object({{"id", id},
                       {"ttft_ms", p->ttft_ms.value},
                       {"ttft_ms_low", p->ttft_ms.low},
                       {"ttft_ms_high", p->ttft_ms.high},
                       {"tpot_ms", p->tpot_ms.value},
                       {"tpot_ms_low", p->tpot_ms.low},
                       {"tpot_ms_high", p->tpot_ms.high},
                       {"kind", kind_name(p->kind)}});
}

void append_row(std::string& table, const std::string& id, const Result<advise::Prediction>& p) {
  std::vector<std::string> fields{id};
  if (p)
    for (const double ms : {p->ttft_ms.value, p->ttft_ms.low, p->ttft_ms.high, p->tpot_ms.value,
                            p->tpot_ms.low, p->tpot_ms.high})
      fields.push_back(fmt::format("{:.4f}", ms));
  else
    fields.resize(7);
  fields.emplace_back(p ? kind_name(p->kind) : "");
  fields.push_back(p ? std::string() : p.error().message);
  append_csv_row(table, fields);
}

}  // namespace

int predict_rows(const Parsed& parsed,
                 const Catalogue& catalogue,
                 const advise::Calibration& calibration) {
  const auto text = read_file(parsed.get("batch"), batch_bytes_max);
  if (!text)
    return report_advice_failed(parsed, text.error());
  const auto rows = parse_csv(*text, advise::table_format);
  if (!rows)
    return report_advice_failed(parsed, Error(rows.error()).in(parsed.get("batch")));
  advise::ModelShelf shelf(models_directory(parsed));
  Json list = Json::array();
  std::string table = header;
  for (std::size_t i = 0; i < rows->rows.size(); ++i) {
    const advise::CsvRow fields = rows->by_name(i);
    const std::size_t line = rows->lines[i];
    const auto row = advise::read_serving_row(fields, shelf, catalogue);
    const Result<advise::Prediction> p =
        row ? calibration.predict(*row) : Result<advise::Prediction>(pass(row.error()));
    const std::string id = fields.contains("id") ? fields.at("id") : fmt::format("{}", line);
    if (parsed.has("json"))
      list.push(row_json(id, p));
    else
      append_row(table, id, p);
  }
  if (parsed.has("json"))
    print(list.dump() + "\n");
  else
    print(table);
  return 0;
}

}  // namespace billow::client
