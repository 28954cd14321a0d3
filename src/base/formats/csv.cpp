#include "base/formats/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace billow {
namespace {

constexpr std::size_t rows_max = 5'000'000;
constexpr std::size_t columns_max = 1024;
constexpr std::size_t row_bytes_max = 1 << 20;

}  // namespace

CsvReader::CsvReader(std::string_view text, CsvFormat format) : text_(text), format_(format) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text_.starts_with(byte_order_mark))
    text_.remove_prefix(byte_order_mark.size());
}

Result<bool> CsvReader::next(std::vector<std::string>& row) {
  while (at_ < text_.size()) {
    line_ = next_line_;
    row_begin_ = at_;
    quoted_ = false;
    row.clear();
    if (format_.trimmed)
      skip_spaces();
    if (format_.comments && at_ < text_.size() && text_[at_] == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
      ++next_line_;
      continue;
    }
    BILLOW_TRY_VOID(read_row(row));
    if (row.size() > 1 || quoted_ || !row[0].empty())
      return true;
  }
  row.clear();
  return false;
}

Status CsvReader::read_row(std::vector<std::string>& row) {
  for (;;) {
    if (row.size() == columns_max)
      return fail(Code::too_large,
                  fmt::format("line {} has more than {} fields", line_, columns_max));
    row.push_back(BILLOW_TRY(read_field()));
    if (at_ == text_.size())
      return {};
    if (text_[at_++] == '\n') {
      ++next_line_;
      return {};
    }
  }
}

// Reads up to the comma or the line break behind the field.
Result<std::string> CsvReader::read_field() {
  const std::size_t begin = at_;
  if (format_.trimmed)
    skip_spaces();
  if (at_ < text_.size() && text_[at_] == '"')
    return read_quoted();
  const std::size_t end = std::min(text_.find_first_of(",\n\"", begin), text_.size());
  BILLOW_TRY_VOID(check_length(end));
  if (end < text_.size() && text_[end] == '"')
    return fail(Code::invalid, fmt::format("line {}: a quote inside a field", next_line_),
                "put the whole field in quotes, and double each quote in it");
  std::string_view field = text_.substr(begin, end - begin);
  if (!field.empty() && at_line_end(end - 1))
    field.remove_suffix(1);
  at_ = end;
  return std::string(format_.trimmed ? trim(field) : field);
}

Result<std::string> CsvReader::read_quoted() {
  quoted_ = true;
  std::string field;
  for (++at_;; ++at_) {
    const std::size_t quote = text_.find('"', at_);
    BILLOW_TRY_VOID(check_length(std::min(quote, text_.size())));
    if (quote == std::string_view::npos)
      return fail(Code::invalid, fmt::format("line {}: a quote is not closed", line_));
    const std::string_view piece = text_.substr(at_, quote - at_);
    next_line_ += static_cast<std::size_t>(std::count(piece.begin(), piece.end(), '\n'));
    field += piece;
    at_ = quote + 1;
    if (at_ == text_.size() || text_[at_] != '"')
      break;
    field += '"';
  }
  if (format_.trimmed)
    skip_spaces();
  if (at_line_end(at_))
    ++at_;
  if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n')
    return fail(Code::invalid, fmt::format("line {}: text after a closing quote", next_line_),
                "double each quote inside a quoted field");
  return format_.trimmed ? std::string(trim(field)) : field;
}

Status CsvReader::check_length(std::size_t end) const {
  if (end - row_begin_ <= row_bytes_max)
    return {};
  return fail(Code::too_large,
              fmt::format("line {} is longer than {}", line_, format_bytes(row_bytes_max)),
              "is a quote not closed?");
}

void CsvReader::skip_spaces() {
  at_ = std::min(text_.find_first_not_of(" \t", at_), text_.size());
}

// Whether the CR at this place belongs to the end of the line.
bool CsvReader::at_line_end(std::size_t at) const {
  return at < text_.size() && text_[at] == '\r' &&
         (at + 1 == text_.size() || text_[at + 1] == '\n');
}

std::size_t CsvTable::column(std::string_view name) const {
  const auto found = std::find(header.begin(), header.end(), name);
  return found == header.end() ? std::string::npos
                               : static_cast<std::size_t>(found - header.begin());
}

std::map<std::string, std::string> CsvTable::by_name(std::size_t row) const {
  std::map<std::string, std::string> out;
  for (std::size_t i = 0; i < header.size(); ++i)
    out[header[i]] = rows[row][i];
  return out;
}

Result<CsvTable> parse_csv(std::string_view text, CsvFormat format) {
  CsvReader reader(text, format);
  CsvTable table;
  if (!BILLOW_TRY(reader.next(table.header)))
    return fail(Code::invalid, "the file is empty", "its first line must name the columns");
  std::set<std::string_view> names;
  for (const std::string& name : table.header)
    if (!name.empty() && !names.insert(name).second)
      return fail(Code::invalid, fmt::format("the header names column \"{}\" twice", name));
  const std::size_t width = table.header.size();
  std::vector<std::string> row;
  while (BILLOW_TRY(reader.next(row))) {
    if (row.size() > width || (row.size() < width && !format.short_rows))
      return fail(Code::invalid, fmt::format("line {} has {} fields, but the header has {}",
                                             reader.line(), row.size(), width));
    if (table.rows.size() == rows_max)
      return fail(Code::too_large, fmt::format("the file has more than {} rows", rows_max),
                  "split it");
    row.resize(width);
    table.rows.push_back(std::move(row));
    table.lines.push_back(reader.line());
  }
  return table;
}

namespace {

// At the beginning of a row also what a reader would take for something else: a comment, the mark
// that a file may begin with, or an empty line.
bool needs_quotes(const std::vector<std::string>& fields, std::size_t at) {
  const std::string& field = fields[at];
  if (field.find_first_of(",\"\r\n") != field.npos)
    return true;
  return at == 0 && (trim(field).starts_with('#') || field.starts_with("\xef\xbb\xbf") ||
                     (field.empty() && fields.size() == 1));
}

}  // namespace

void append_csv_row(std::string& out, const std::vector<std::string>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0)
      out += ',';
    const std::string& field = fields[i];
    if (!needs_quotes(fields, i)) {
      out += field;
      continue;
    }
    out += '"';
    for (const char c : field) {
      if (c == '"')
        out += '"';
      out += c;
    }
    out += '"';
  }
  out += '\n';
}

}  // namespace billow
