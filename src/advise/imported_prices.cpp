#include "advise/imported_prices.h"

#include <array>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "advise/serving_row.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr std::array columns = {"provider",
                                "instance",
                                "region",
                                "on_demand_usd_h",
                                "spot_usd_h",
                                "committed_1y_usd_h",
                                "committed_3y_usd_h",
                                "date",
                                "gpu",
                                "gpus"};

using Key = std::tuple<std::string, std::string, std::string>;  // provider, instance, region

std::string prices_path(const std::string& data_dir) {
  return data_dir + "/prices.csv";
}

// The rows of one CSV text in our column order; later rows replace earlier ones with the same key.
Status add_rows(const std::string& text, std::map<Key, std::vector<std::string>>& rows) {
  const CsvTable table = BILLOW_TRY(parse_csv(text, table_format));
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    CsvRow named;
    for (const auto& [name, value] : table.by_name(i))
      named[lower(name)] = value;
    std::vector<std::string> cells;
    for (const char* column : columns)
      cells.push_back(named[column]);
    rows[{lower(named["provider"]), named["instance"], named["region"]}] = std::move(cells);
  }
  return {};
}

Result<std::string> merged_prices(const std::string& kept, const std::string& fresh) {
  std::map<Key, std::vector<std::string>> rows;
  if (!trim(kept).empty())
    BILLOW_TRY_VOID(add_rows(kept, rows));
  BILLOW_TRY_VOID(add_rows(fresh, rows));
  std::string out = fmt::format("{}\n", fmt::join(columns, ","));
  for (const auto& [key, row] : rows)
    append_csv_row(out, row);
  return out;
}

}  // namespace

Result<ImportedCatalogue> catalogue_and_changes(const std::string& data_dir) {
  ImportedCatalogue imported{Catalogue::embedded(), {}};
  const std::string path = prices_path(data_dir);
  if (data_dir.empty() || !file_exists(path))
    return imported;
  auto report = imported.catalogue.update(BILLOW_TRY(read_file(path)));
  if (!report)
    return pass(report.error(), path);
  imported.changes = std::move(report->changed);
  return imported;
}

Result<Catalogue> catalogue_with_imports(const std::string& data_dir) {
  return std::move(BILLOW_TRY(catalogue_and_changes(data_dir)).catalogue);
}

Result<Catalogue::UpdateReport> import_prices(Catalogue& catalogue,
                                              const std::string& data_dir,
                                              const std::string& csv) {
  auto report = BILLOW_TRY(catalogue.update(csv));
  if (data_dir.empty())
    return fail(Code::invalid, "no data directory to keep the prices in",
                "set BILLOW_DATA or --data");
  const std::string path = prices_path(data_dir);
  BILLOW_TRY_VOID(make_directories(data_dir));
  const std::string kept = file_exists(path) ? BILLOW_TRY(read_file(path)) : std::string{};
  BILLOW_TRY_VOID(write_file_atomic(path, BILLOW_TRY(merged_prices(kept, csv))));
  return report;
}

}  // namespace billow::advise
