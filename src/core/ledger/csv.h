// Comma-separated values (RFC 4180): quoted if needed, quotes doubled, line breaks allowed inside
// quotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/money.h"
#include "base/result.h"

namespace billow::ledger {

void append_csv_row(std::string& out, const std::vector<std::string>& cells);

struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;       // each as long as the header
  std::size_t column(std::string_view name) const;  // npos if there is none
};
enum class CsvRows {
  complete,      // a row must be as long as the header
  may_be_short,  // missing trailing fields are empty
};
// The first line is the header. An error names the line. At most 5,000,000 rows.
Result<CsvTable> parse_csv(std::string_view text, CsvRows rows = CsvRows::complete);

// "12.5", "-0.000000001": exact, without trailing zeros.
std::string decimal_usd(NanoUsd amount);
// Reads amounts as billing files write them, including "1.2E-7" and more than nine decimals (which
// are rounded half away from zero).
Result<NanoUsd> parse_decimal_usd(std::string_view text);

}  // namespace billow::ledger
