#include "client/frame/table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <optional>

#include "base/money.h"
#include "base/text.h"

namespace billow::client {
namespace {

const char* escape_of(Colour colour) {
  switch (colour) {
    case Colour::none:
      return "";
    case Colour::dim:
      return "\x1b[2m";
    case Colour::bold:
      return "\x1b[1m";
    case Colour::red:
      return "\x1b[31m";
    case Colour::green:
      return "\x1b[32m";
    case Colour::yellow:
      return "\x1b[33m";
    case Colour::blue:
      return "\x1b[34m";
    case Colour::cyan:
      return "\x1b[36m";
  }
  return "";
}

struct CodePoint {
  std::uint32_t value;
  std::size_t bytes;
};
// Of text that is known to be UTF-8; a stray byte counts as itself.
CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto b = [&](std::size_t i) {
    return static_cast<unsigned char>(text[at + i]);
  };
  const std::size_t left = text.size() - at;
  if (b(0) >= 0xF0 && left >= 4)
    return {static_cast<std::uint32_t>((b(0) & 7) << 18 | (b(1) & 63) << 12 | (b(2) & 63) << 6 |
                                       (b(3) & 63)),
            4};
  if (b(0) >= 0xE0 && left >= 3)
    return {static_cast<std::uint32_t>((b(0) & 15) << 12 | (b(1) & 63) << 6 | (b(2) & 63)), 3};
  if (b(0) >= 0xC0 && left >= 2)
    return {static_cast<std::uint32_t>((b(0) & 31) << 6 | (b(1) & 63)), 2};
  return {b(0), 1};
}

// The common cases without a Unicode table: combining marks and joiners take no column, East Asian
// characters and emoji two.
std::size_t columns_of(std::uint32_t c) {
  if ((c >= 0x300 && c <= 0x36F) || c == 0x200B || c == 0x200D || (c >= 0xFE00 && c <= 0xFE0F))
    return 0;
  if ((c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
      (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
      (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
      (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) ||
      (c >= 0x20000 && c <= 0x3FFFD))
    return 2;
  return 1;
}

}  // namespace

Look look_at(int fd) {
  Look look;
  look.terminal = ::isatty(fd) == 1;
  if (!look.terminal)
    return look;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  look.colours = !(no_color && *no_color) && !(term && std::string_view(term) == "dumb");
  if (const char* columns = std::getenv("COLUMNS")) {
    if (const auto n = parse_int(columns, 20, 1000))
      look.columns = static_cast<std::size_t>(*n);
  }
  winsize size{};
  if (look.columns == 0 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
    look.columns = size.ws_col;
  if (look.columns == 0)
    look.columns = 80;
  return look;
}

std::string painted(std::string_view text, Colour colour, const Look& look) {
  if (!look.colours || colour == Colour::none)
    return std::string(text);
  return std::string(escape_of(colour)) + std::string(text) + "\x1b[0m";
}

Colour colour_of_state(std::string_view state) {
  if (state == "running" || state == "ready" || state == "ok")
    return Colour::green;
  if (state == "failed" || state == "lost" || state == "unreachable")
    return Colour::red;
  if (state == "queued" || state == "suspended" || state == "drained")
    return Colour::yellow;
  if (state == "succeeded" || state == "stopped" || state == "held")
    return Colour::dim;
  return Colour::none;
}

std::string printable(std::string_view text) {
  std::string out;
  if (!valid_utf8(text)) {
    for (const char c : text)
      out += c >= 32 && c < 127 ? c : '?';
    return out;
  }
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    const bool control = point.value < 32 || (point.value >= 127 && point.value < 160) ||
                         (point.value >= 0x202A && point.value <= 0x202E);
    if (control)
      out += point.value == '\n' || point.value == '\t' ? ' ' : '?';
    else
      out += text.substr(i, point.bytes);
    i += point.bytes;
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    width += columns_of(point.value);
    i += point.bytes;
  }
  return width;
}

std::string clipped(std::string_view raw, std::size_t columns) {
  const std::string text = printable(raw);
  if (columns == 0)
    return {};
  if (display_width(text) <= columns)
    return text;
  std::string out;
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    const std::size_t w = columns_of(point.value);
    if (width + w > columns - 1)
      break;
    out += std::string_view(text).substr(i, point.bytes);
    width += w;
    i += point.bytes;
  }
  return out + "…";
}

std::vector<std::size_t> Table::widths(const Look& look) const {
  std::vector<std::size_t> width(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    width[c] = display_width(columns_[c].title);
    for (const auto& row : rows_)
      if (c < row.size())
        width[c] = std::max(width[c], display_width(printable(row[c].text)));
  }
  std::size_t total = 2 * (columns_.size() - 1);
  for (const std::size_t w : width)
    total += w;
  // Excess width is taken from the widest column that allows it, one character at a time.
  while (look.columns > 0 && total > look.columns) {
    std::size_t widest = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (columns_[c].shrinks_to > 0 && width[c] > columns_[c].shrinks_to &&
          (widest == columns_.size() || width[c] > width[widest]))
        widest = c;
    if (widest == columns_.size())
      break;
    --width[widest];
    --total;
  }
  return width;
}

bool Table::fits(const Look& look, const std::vector<std::size_t>& width) const {
  return look.columns == 0 ||
         std::accumulate(width.begin(), width.end(), 2 * (columns_.size() - 1)) <= look.columns;
}

Table Table::without(std::size_t column) const {
  Table out = *this;
  out.columns_.erase(out.columns_.begin() + static_cast<std::ptrdiff_t>(column));
  for (auto& row : out.rows_)
    if (column < row.size())
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  return out;
}

namespace {

// "$1.23" as nano-dollars; nothing for other text.
std::optional<std::int64_t> amount_in(const std::string& cell) {
  if (!cell.starts_with("$") && !cell.starts_with("-$"))
    return std::nullopt;
  const auto parsed = parse_usd(cell);
  return parsed ? std::optional(parsed->value) : std::nullopt;
}

// Amounts from a cent up are rounded to cents already.
int decimals_for(std::uint64_t largest_nano) {
  if (largest_nano >= 10'000'000)
    return 2;
  int decimals = 4;
  for (std::uint64_t unit = 1'000'000; decimals < 9 && largest_nano < unit; unit /= 10)
    ++decimals;
  return decimals;
}

std::string usd_with(std::int64_t nano, int decimals) {
  const char* sign = nano < 0 ? "-" : "";
  const std::uint64_t v =
      nano < 0 ? 0 - static_cast<std::uint64_t>(nano) : static_cast<std::uint64_t>(nano);
  std::uint64_t unit = 1;
  for (int i = decimals; i < 9; ++i)
    unit *= 10;
  const std::uint64_t scaled = (v + unit / 2) / unit, whole = 1'000'000'000 / unit;
  if (v > 0 && scaled == 0)
    return fmt::format("{}<$0.{:0{}}", sign, 1, decimals);
  return fmt::format("{}${}.{:0{}}", sign, scaled / whole, scaled % whole, decimals);
}

}  // namespace

std::vector<std::string> aligned_usd(std::vector<std::string> cells) {
  std::uint64_t largest = 0;
  for (const std::string& cell : cells) {
    const auto amount = amount_in(cell);
    if (!amount && !cell.empty() && cell != "-")
      return cells;
    const std::int64_t v = amount.value_or(0);
    largest = std::max(largest,
                       v < 0 ? 0 - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v));
  }
  if (largest == 0)
    return cells;
  const int decimals = decimals_for(largest);
  for (std::string& cell : cells)
    if (const auto amount = amount_in(cell))
      cell = usd_with(*amount, decimals);
  return cells;
}

void Table::align_dollars() {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].align != Align::right)
      continue;
    std::vector<std::string> cells;
    for (const auto& row : rows_)
      cells.push_back(c < row.size() ? row[c].text : "");
    cells = aligned_usd(std::move(cells));
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (c < rows_[r].size())
        rows_[r][c].text = cells[r];
  }
}

std::string Table::text(const Look& look) const {
  Table aligned = *this;
  aligned.align_dollars();
  return aligned.laid_out(look);
}

std::string Table::laid_out(const Look& look) const {
  const auto width = widths(look);
  if (!fits(look, width)) {
    std::size_t first = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (columns_[c].goes > 0 &&
          (first == columns_.size() || columns_[c].goes < columns_[first].goes))
        first = c;
    if (first < columns_.size())
      return without(first).laid_out(look);
  }
  std::string out;
  const auto line = [&](const std::vector<Cell>& cells) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const Cell cell = c < cells.size() ? cells[c] : Cell("");
      const std::string shown = clipped(cell.text, width[c]);
      const std::string pad(width[c] - display_width(shown), ' ');
      if (c > 0)
        text += "  ";
      if (columns_[c].align == Align::right)
        text += pad + painted(shown, cell.colour, look);
      else
        text += painted(shown, cell.colour, look) + (c + 1 < columns_.size() ? pad : "");
    }
    while (!text.empty() && text.back() == ' ')
      text.pop_back();
    out += text + "\n";
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_)
    titles.emplace_back(column.title, Colour::dim);
  line(titles);
  for (const auto& row : rows_)
    line(row);
  return out;
}

WallTime parse_utc(std::string_view text) {
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' ||
      (text[10] != 'T' && text[10] != ' ') || text[13] != ':' || text[16] != ':')
    return {};
  const auto number = [&](std::size_t at, std::size_t digits) {
    const auto n = parse_int(text.substr(at, digits), 0, 9999);
    return n ? static_cast<int>(*n) : -1;
  };
  std::tm tm{};
  tm.tm_year = number(0, 4) - 1900;
  tm.tm_mon = number(5, 2) - 1;
  tm.tm_mday = number(8, 2);
  tm.tm_hour = number(11, 2);
  tm.tm_min = number(14, 2);
  tm.tm_sec = number(17, 2);
  if (tm.tm_mon < 0 || tm.tm_mday < 1 || tm.tm_hour < 0 || tm.tm_min < 0 || tm.tm_sec < 0)
    return {};
  return WallTime{} + seconds(::timegm(&tm));
}

std::string age(const Json& since, WallTime now) {
  return span_between(since, Json(), now);
}

std::string span_between(const Json& from, const Json& to, WallTime now) {
  const WallTime begin = parse_utc(from.str_or(""));
  if (!begin)
    return "-";
  const WallTime end = to.is_string() ? parse_utc(to.as_string()) : now;
  // Documents have whole seconds; a clock that is a little behind must not show a negative age.
  const std::int64_t whole_s = std::max<std::int64_t>(0, (end.ns - begin.ns) / 1'000'000'000);
  return whole_s < 60 ? fmt::format("{}s", whole_s) : format_duration(seconds(whole_s));
}

std::string usd_text(const Json& nano) {
  return format_usd({nano.int_or(0)});
}

std::string mebibytes(std::int64_t mib) {
  return mib <= 0 ? "-" : format_bytes(static_cast<std::uint64_t>(mib) << 20);
}

std::string gpus_of_job(const Json& job) {
  const std::int64_t gpus = job["gpus"].int_or(0);
  if (gpus == 0)
    return "-";
  if (job["roles"].is_array())
    return fmt::format("{:g}", static_cast<double>(job["gpu_milli"].int_or(0)) / 1000);
  // The document's gpu_milli is of all GPUs of a node together; 0: compute in proportion to the
  // memory asked for.
  std::int64_t milli = job["gpu_milli"].int_or(1000);
  // A slice with much memory is allocated, and charged, more than the share that was asked for.
  for (const Json& task : job["tasks"].items())
    if (milli > 0 && milli < 1000)
      milli = std::max(milli, task["gpu_milli"].int_or(0));
  std::string types;
  for (const Json& type : job["gpu_types"].items())
    types += (types.empty() ? "" : "|") + std::string(type.str_or("?"));
  std::string count = milli > 0 && milli < 1000
                          ? fmt::format("{:g}", static_cast<double>(milli) / 1000)
                          : fmt::format("{}", gpus);
  if (milli == 0)
    count = mebibytes(job["gpu_mem_mib"].int_or(0));
  if (const auto profile = job["mig_profile"].str_or(""); !profile.empty())
    count = gpus > 1 ? fmt::format("{}×{}", gpus, profile) : std::string(profile);
  if (job["nodes"].int_or(1) > 1)
    count = fmt::format("{}×{}", job["nodes"].int_or(1), count);
  return types.empty() ? count : count + " " + types;
}

}  // namespace billow::client
