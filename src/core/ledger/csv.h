// Comma-separated values as RFC 4180 writes them: quoted where needed, quotes doubled, line breaks
// inside quotes allowed.
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
  std::size_t column(std::string_view name) const;  // npos where there is none
};
// The first line is the header. An error names the line. At most 5,000,000 rows.
Result<CsvTable> parse_csv(std::string_view text);

// "12.5", "-0.000000001": exact, without needless zeros.
std::string decimal_usd(NanoUsd amount);
// The other way, as billing files write it: "1.2E-7" and more than nine decimals (rounded half away
// from zero) included.
Result<NanoUsd> parse_decimal_usd(std::string_view text);

}  // namespace billow::ledger
