#include "simulate/csv.h"

#include <charconv>
#include <cstdint>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

namespace billow::sched {

Result<CsvTable> CsvTable::read(const std::string& path) {
  CsvTable t;
  t.path_ = path;
  t.content_ = BILLOW_TRY(read_file(path, std::size_t{512} << 20));
  std::size_t at = 0;
  bool first = true;
  while (at < t.content_.size()) {
    std::size_t end = t.content_.find('\n', at);
    if (end == std::string::npos)
      end = t.content_.size();
    std::size_t stop = end;
    while (stop > at && (t.content_[stop - 1] == '\r'))
      --stop;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> cells;
    for (std::size_t from = at; from <= stop && stop > at;) {
      std::size_t comma = t.content_.find(',', from);
      if (comma == std::string::npos || comma > stop)
        comma = stop;
      cells.emplace_back(static_cast<std::uint32_t>(from),
                         static_cast<std::uint32_t>(comma - from));
      from = comma + 1;
    }
    if (first) {
      for (auto [offset, length] : cells)
        t.header_.emplace_back(trim(std::string_view(t.content_).substr(offset, length)));
      first = false;
    } else if (!cells.empty()) {
      t.rows_.push_back(std::move(cells));
    }
    at = end + 1;
  }
  if (first)
    return fail(Code::invalid, path + " is empty; expected a table with a header line");
  return t;
}

bool CsvTable::has(std::string_view name) const {
  for (const std::string& h : header_) {
    if (h == name)
      return true;
  }
  return false;
}

Result<std::size_t> CsvTable::column(std::string_view name) const {
  for (std::size_t i = 0; i < header_.size(); ++i) {
    if (header_[i] == name)
      return i;
  }
  return fail(Code::invalid,
              fmt::format("{} has no column \"{}\"; it has: {}", path_, name, join(header_, ", ")));
}

std::string_view CsvTable::text(std::size_t row, std::size_t column) const {
  if (column >= rows_[row].size())
    return {};
  const auto [offset, length] = rows_[row][column];
  return trim(std::string_view(content_).substr(offset, length));
}

Result<double> CsvTable::number(std::size_t row, std::size_t column) const {
  const std::string_view cell = text(row, column);
  if (cell.empty())
    return 0.0;
  double value = 0;
  auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size())
    return fail(Code::invalid, fmt::format("{}:{}: \"{}\" in column {} is no number", path_,
                                           row + 2, cell, header_[column]));
  return value;
}

}  // namespace billow::sched
