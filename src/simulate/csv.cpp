#include "simulate/csv.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/formats/utc.h"
#include "base/text.h"

namespace billow::sched {

Result<TraceTable> TraceTable::read(const std::string& path) {
  constexpr std::size_t bytes_max = std::size_t{512} << 20;
  const std::string content = BILLOW_TRY(read_file(path, bytes_max));
  auto table = parse_csv(content, {.short_rows = true, .trimmed = true});
  if (!table)
    return pass(table.error(), path);
  TraceTable out;
  out.path_ = path;
  out.table_ = std::move(*table);
  return out;
}

bool TraceTable::has(std::string_view name) const {
  return table_.column(name) != std::string::npos;
}

Result<std::size_t> TraceTable::column(std::string_view name) const {
  if (const std::size_t at = table_.column(name); at != std::string::npos)
    return at;
  return fail(Code::invalid, fmt::format("{} has no column \"{}\"; it has: {}", path_, name,
                                         join(table_.header, ", ")));
}

std::string_view TraceTable::text(std::size_t row, std::size_t column) const {
  return table_.rows[row][column];
}

Result<double> TraceTable::number(std::size_t row, std::size_t column) const {
  const std::string_view cell = text(row, column);
  if (cell.empty())
    return 0.0;
  const auto value = parse_double(cell);
  if (!value)
    return bad_cell(row, column, value.error());
  return *value;
}

Result<double> TraceTable::time_s(std::size_t row, std::size_t column) const {
  const auto at = parse_utc(text(row, column));
  if (!at)
    return bad_cell(row, column, at.error());
  return static_cast<double>(at->ns) / 1e9;
}

std::unexpected<Error> TraceTable::bad_cell(std::size_t row,
                                            std::size_t column,
                                            const Error& why) const {
  return fail(Code::invalid, fmt::format("{}:{}: column {}: {}", path_, table_.lines[row],
                                         table_.header[column], why.message));
}

}  // namespace billow::sched
