// Comma-separated tables with a header line, read whole: the traces. Columns are found by name; a
// missing one is an error that names it, a bad number one that names the line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow::sched {

class CsvTable {
 public:
  static Result<CsvTable> read(const std::string& path);
  std::size_t rows() const { return rows_.size(); }
  bool has(std::string_view column) const;
  Result<std::size_t> column(std::string_view name) const;
  std::string_view text(std::size_t row, std::size_t column) const;
  Result<double> number(std::size_t row, std::size_t column) const;  // "" is 0

 private:
  std::string path_, content_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>>
      rows_;  // offset and length of each cell
};

}  // namespace billow::sched
