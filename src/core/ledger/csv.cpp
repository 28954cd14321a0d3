#include "core/ledger/csv.h"

#include <fmt/format.h>

#include <algorithm>

namespace billow::ledger {

void append_csv_row(std::string& out, const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0)
      out += ',';
    const std::string& cell = cells[i];
    if (cell.find_first_of(",\"\r\n") == std::string::npos) {
      out += cell;
      continue;
    }
    out += '"';
    for (const char c : cell) {
      if (c == '"')
        out += '"';
      out += c;
    }
    out += '"';
  }
  out += '\n';
}

std::size_t CsvTable::column(std::string_view name) const {
  const auto found = std::find(header.begin(), header.end(), name);
  return found == header.end() ? std::string::npos
                               : static_cast<std::size_t>(found - header.begin());
}

namespace {

class CsvReader {
 public:
  explicit CsvReader(CsvRows rows) : rows_(rows) {}

  Result<CsvTable> read(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\n')
        ++line_;
      if (!quoted_) {
        BILLOW_TRY_VOID(plain(c));
      } else if (c != '"') {
        cell_ += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        cell_ += '"';
        ++i;
      } else {
        quoted_ = false;
      }
    }
    if (quoted_)
      return fail(Code::invalid, fmt::format("line {}: a quote is not closed", row_line_));
    if (!cell_.empty() || !row_.empty())
      BILLOW_TRY_VOID(end_row());
    if (table_.header.empty())
      return fail(Code::invalid, "the file is empty");
    return std::move(table_);
  }

 private:
  static constexpr std::size_t rows_max = 5'000'000;

  // A character outside of quotes.
  Status plain(char c) {
    if (c == '"') {
      if (!cell_.empty() || was_quoted_)
        return fail(Code::invalid, fmt::format("line {}: a quote inside a field", line_));
      quoted_ = true;
      was_quoted_ = true;
    } else if (c == ',') {
      end_cell();
    } else if (c == '\n') {
      return end_row();
    } else if (c != '\r') {
      cell_ += c;
    }
    return {};
  }

  void end_cell() {
    row_.push_back(std::exchange(cell_, {}));
    was_quoted_ = false;
  }

  Status end_row() {
    end_cell();
    std::vector<std::string> row = std::exchange(row_, {});
    const std::size_t first_line = std::exchange(row_line_, line_);
    if (row.size() == 1 && row[0].empty())
      return {};
    if (table_.header.empty()) {
      table_.header = std::move(row);
      return {};
    }
    const std::size_t width = table_.header.size();
    if (rows_ == CsvRows::may_be_short && row.size() < width)
      row.resize(width);
    if (row.size() != width)
      return fail(Code::invalid, fmt::format("line {} has {} fields, but the header has {}",
                                             first_line, row.size(), width));
    if (table_.rows.size() == rows_max)
      return fail(Code::too_large, fmt::format("the file has more than {} rows", rows_max),
                  "split it");
    table_.rows.push_back(std::move(row));
    return {};
  }

  CsvRows rows_;
  CsvTable table_;
  std::vector<std::string> row_;
  std::string cell_;
  std::size_t line_ = 1;
  std::size_t row_line_ = 1;
  bool quoted_ = false;
  bool was_quoted_ = false;
};

}  // namespace

Result<CsvTable> parse_csv(std::string_view text, CsvRows rows) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark))
    text.remove_prefix(byte_order_mark.size());
  return CsvReader(rows).read(text);
}

std::string decimal_usd(NanoUsd amount) {
  const std::uint64_t v = amount.value < 0 ? 0 - static_cast<std::uint64_t>(amount.value)
                                           : static_cast<std::uint64_t>(amount.value);
  std::string out =
      fmt::format("{}{}.{:09}", amount.value < 0 ? "-" : "", v / 1'000'000'000, v % 1'000'000'000);
  while (out.back() == '0')
    out.pop_back();
  if (out.back() == '.')
    out.pop_back();
  return out;
}

Result<NanoUsd> parse_decimal_usd(std::string_view text) {
  const std::string shown(text);
  const auto bad = [&] {
    return fail(Code::invalid, "not an amount: \"" + shown + "\"");
  };
  bool negative = false;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    negative = text.front() == '-';
    text.remove_prefix(1);
  }
  int exponent = 0;
  if (const auto e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    bool below = false;
    if (!digits.empty() && (digits.front() == '-' || digits.front() == '+')) {
      below = digits.front() == '-';
      digits.remove_prefix(1);
    }
    if (digits.empty() || digits.size() > 2)
      return bad();
    for (const char c : digits) {
      if (c < '0' || c > '9')
        return bad();
      exponent = exponent * 10 + (c - '0');
    }
    if (below)
      exponent = -exponent;
    text = text.substr(0, e);
  }
  __int128 value = 0;
  int decimals = -1, digits = 0;
  for (const char c : text) {
    if (c == '.' && decimals < 0) {
      decimals = 0;
      continue;
    }
    if (c < '0' || c > '9')
      return bad();
    ++digits;
    // Far beyond any amount: further decimals do not matter, further digits do.
    if (value > static_cast<__int128>(1) << 100) {
      if (decimals < 0)
        return bad();
      continue;
    }
    value = value * 10 + (c - '0');
    if (decimals >= 0)
      ++decimals;
  }
  if (digits == 0)
    return bad();
  int shift = 9 + exponent - std::max(decimals, 0);  // value × 10^shift nano-dollars
  for (; shift > 0 && value != 0; --shift) {
    if (value > INT64_MAX)
      return bad();
    value *= 10;
  }
  for (; shift < -1 && value != 0; ++shift)
    value /= 10;
  if (shift == -1)
    value = (value + 5) / 10;
  if (value > INT64_MAX)
    return bad();
  return NanoUsd{static_cast<std::int64_t>(negative ? -value : value)};
}

}  // namespace billow::ledger
