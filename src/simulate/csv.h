// A trace: a CSV file with a header line. Columns are found by name. Errors name the missing
// column, or the line of a bad number.
#pragma once

#include <string>
#include <string_view>

#include "base/formats/csv.h"
#include "base/result.h"

namespace billow::sched {

class TraceTable {
 public:
  static Result<TraceTable> read(const std::string& path);
  std::size_t rows() const { return table_.rows.size(); }
  bool has(std::string_view column) const;
  Result<std::size_t> column(std::string_view name) const;
  std::string_view text(std::size_t row, std::size_t column) const;
  Result<double> number(std::size_t row, std::size_t column) const;  // "" is 0
  Result<double> time_s(std::size_t row,
                        std::size_t column) const;  // a date, as seconds since 1970

 private:
  std::unexpected<Error> bad_cell(std::size_t row, std::size_t column, const Error& why) const;

  std::string path_;
  CsvTable table_;
};

}  // namespace billow::sched
