// Comma-separated values (RFC 4180): fields are quoted if needed, quotes in them doubled, line
// breaks allowed between quotes; lines end with LF or CRLF, the last one with either or nothing.
// Text that could be read in two ways (a quote inside an unquoted field) is refused, and every
// error names the line. Rows, fields and columns are limited, so a file that lacks a closing quote
// fails early.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow {

struct CsvFormat {
  bool short_rows = false;  // missing trailing fields are empty; otherwise such a row is an error
  bool trimmed = false;     // without the spaces around fields
  bool comments = false;    // lines that begin with # are skipped
};

// Reads row by row, for files that are too large for a table or have no header. Empty lines are
// skipped. The text must outlive the reader.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text, CsvFormat format = {});
  // Fills `row`; false at the end of the text.
  Result<bool> next(std::vector<std::string>& row);
  // The line that the row begins on, from 1.
  std::size_t line() const { return line_; }

 private:
  Status read_row(std::vector<std::string>& row);
  Result<std::string> read_field();
  Result<std::string> read_quoted();
  Status check_length(std::size_t end) const;
  void skip_spaces();
  bool at_line_end(std::size_t at) const;

  std::string_view text_;
  CsvFormat format_;
  std::size_t at_ = 0;
  std::size_t row_begin_ = 0;
  std::size_t line_ = 1;
  std::size_t next_line_ = 1;
  bool quoted_ = false;  // a field of the row was in quotes
};

struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;       // each as long as the header
  std::vector<std::size_t> lines;                   // the line that each row begins on
  std::size_t column(std::string_view name) const;  // npos if there is none
  std::map<std::string, std::string> by_name(std::size_t row) const;
};
// The first row is the header; its names must differ. At most 5,000,000 rows.
Result<CsvTable> parse_csv(std::string_view text, CsvFormat format = {});

void append_csv_row(std::string& out, const std::vector<std::string>& fields);

}  // namespace billow
